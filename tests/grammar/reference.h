// The slow, obvious matcher that the automaton is compared with: sets of end positions, by recursion over the
// grammar's expressions, with memo. Rules that call themselves at the same place are iterated to a fixed
// point.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/utf8.h"
#include "grammar/ir.h"

namespace millrace::grammar::reference {

class Reference {
 public:
  Reference(const Grammar& g, std::string_view text) : g_(g), text_(text) {
    // Grow all answers together until none changes: left recursion needs no special case.
    for (;;) {
      changed_ = false;
      done_.clear();
      rule(g_.root, 0);
      if (!changed_) break;
    }
  }
  bool matches() { return rule_ends_[{g_.root, 0}].count(text_.size()) > 0; }

 private:
  using Ends = std::set<size_t>;

  Ends rule(RuleId r, size_t at) {
    const auto key = std::make_pair(r, at);
    if (!done_.insert(key).second) return rule_ends_[key];
    const Ends now = expr(g_.rules[r].expr, at);
    Ends& known = rule_ends_[key];
    for (size_t e : now) changed_ |= known.insert(e).second;
    return known;
  }

  Ends expr(ExprId id, size_t at) {
    const Expr& e = g_.exprs[id];
    switch (e.kind) {
      case ExprKind::kEmpty:
        return {at};
      case ExprKind::kNever:
        return {};
      case ExprKind::kClass: {
        size_t next = at;
        if (at >= text_.size()) return {};
        const uint32_t c = utf8::next(text_, next);
        return c != utf8::kInvalid && g_.classes[e.index].contains(c) ? Ends{next} : Ends{};
      }
      case ExprKind::kByte: {
        if (at >= text_.size()) return {};
        const auto b = static_cast<uint8_t>(text_[at]);
        return b >= e.min && b <= e.max ? Ends{at + 1} : Ends{};
      }
      case ExprKind::kLiteral: {
        const std::string& s = g_.literals[e.index];
        return text_.substr(at, s.size()) == s ? Ends{at + s.size()} : Ends{};
      }
      case ExprKind::kSequence: {
        Ends now{at};
        for (ExprId c : e.children) {
          Ends next;
          for (size_t p : now) next.merge(expr(c, p));
          now = std::move(next);
        }
        return now;
      }
      case ExprKind::kChoice: {
        Ends all;
        for (ExprId c : e.children) all.merge(expr(c, at));
        return all;
      }
      case ExprKind::kRepeat: {
        Ends all, now{at};
        if (e.min == 0) all.insert(at);
        std::set<Ends> seen;
        for (uint32_t n = 1; n <= e.max && !now.empty(); ++n) {
          Ends next;
          for (size_t p : now) next.merge(expr(e.children[0], p));
          if (n >= e.min) all.insert(next.begin(), next.end());
          if (n > e.min && !seen.insert(next).second) break;  // nothing new can come
          if (n > e.min + text_.size() + 2) break;
          now = std::move(next);
        }
        return all;
      }
      case ExprKind::kRule:
        return rule(e.index, at);
      case ExprKind::kBegin:
        return at == 0 ? Ends{at} : Ends{};
      case ExprKind::kEnd:
        return at == text_.size() ? Ends{at} : Ends{};
      default: {
        const auto word = [&](size_t i) {
          const char c = i < text_.size() ? text_[i] : ' ';
          return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        };
        const bool boundary = (at > 0 && word(at - 1)) != word(at);
        return boundary == (e.kind == ExprKind::kBoundary) ? Ends{at} : Ends{};
      }
    }
  }

  const Grammar& g_;
  std::string_view text_;
  std::map<std::pair<RuleId, size_t>, Ends> rule_ends_;
  std::set<std::pair<RuleId, size_t>> done_;
  bool changed_ = false;
};

}  // namespace millrace::grammar::reference
