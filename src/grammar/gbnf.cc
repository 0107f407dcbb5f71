#include "grammar/gbnf.h"

#include <unordered_map>

#include "core/utf8.h"

namespace millrace::grammar {
namespace {

class GbnfParser {
 public:
  GbnfParser(std::string_view source, Budget& budget) : text_(source), budget_(budget) {}

  Grammar run() {
    skip(true);
    while (more()) rule();
    for (const auto& [name, id] : ids_)
      require(defined_[id], ErrorCode::kInvalidArgument, "the grammar uses rule '{}' but does not define it",
              name);
    const auto root = ids_.find("root");
    require(root != ids_.end(), ErrorCode::kInvalidArgument, "the grammar defines no rule named 'root'");
    g_.root = root->second;
    return std::move(g_);
  }

 private:
  [[noreturn]] void bad(std::string_view what) const {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at_ && i < text_.size(); ++i) (text_[i] == '\n') ? (++line, column = 1) : ++column;
    fail(ErrorCode::kInvalidArgument, "the grammar is malformed at line {}, column {}: {}", line, column,
         what);
  }
  bool more() const { return at_ < text_.size(); }
  char peek() const { return more() ? text_[at_] : '\0'; }
  bool take(std::string_view s) {
    if (text_.substr(at_, s.size()) != s) return false;
    at_ += s.size();
    return true;
  }
  void skip(bool newlines) {
    while (more()) {
      const char c = peek();
      if (c == '#') {
        while (more() && peek() != '\n') ++at_;
      } else if (c == ' ' || c == '\t' || (newlines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        break;
      }
    }
  }
  static bool name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  }
  std::string name() {
    const size_t start = at_;
    while (more() && name_char(peek())) ++at_;
    if (at_ == start) bad("a rule's name was expected");
    return std::string(text_.substr(start, at_ - start));
  }
  RuleId id_of(const std::string& name) {
    const auto [it, fresh] = ids_.try_emplace(name, 0);
    if (fresh) {
      it->second = g_.add_rule(name, 0);
      defined_.push_back(false);
      require(g_.rules.size() <= budget_.limits().rules, ErrorCode::kLimitExceeded,
              "the grammar has more than {} rules (limit on rules)", budget_.limits().rules);
    }
    return it->second;
  }

  void rule() {
    const std::string n = name();
    skip(false);
    if (!take("::=")) bad("'::=' was expected");
    skip(true);
    const RuleId id = id_of(n);
    if (defined_[id]) bad(fmt::format("rule '{}' is defined twice", n));
    g_.rules[id].expr = alternatives(0);
    defined_[id] = true;
    skip(false);
    if (more() && peek() != '\n' && peek() != '\r') bad("the end of the rule was expected");
    skip(true);
  }

  ExprId alternatives(size_t depth) {
    budget_.check_depth(depth);
    std::vector<ExprId> list{sequence(depth)};
    for (;;) {
      // A rule goes on in the next line only after '|', or inside a group.
      const size_t here = at_;
      skip(depth > 0);
      if (depth == 0) {
        const size_t line_end = at_;
        skip(true);
        if (peek() != '|') {
          at_ = line_end;
          break;
        }
      }
      if (!take("|")) {
        if (depth == 0) at_ = here;
        break;
      }
      skip(true);
      list.push_back(sequence(depth));
    }
    return g_.choice(std::move(list));
  }

  ExprId sequence(size_t depth) {
    std::vector<ExprId> list;
    for (;;) {
      skip(depth > 0);
      budget_.tick();
      const char c = peek();
      if (c == '"') {
        list.push_back(quantified(literal()));
      } else if (c == '[') {
        list.push_back(quantified(bracket()));
      } else if (c == '.') {
        ++at_;
        list.push_back(quantified(g_.char_class(CodepointSet::all())));
      } else if (c == '(') {
        ++at_;
        skip(true);
        const ExprId e = alternatives(depth + 1);
        skip(true);
        if (!take(")")) bad("')' was expected");
        list.push_back(quantified(e));
      } else if (name_char(c)) {
        const size_t here = at_;
        const std::string n = name();
        const size_t after = at_;
        skip(false);
        if (take("::=")) {  // the next rule begins here
          at_ = here;
          break;
        }
        at_ = after;
        list.push_back(quantified(g_.rule_ref(id_of(n))));
      } else {
        break;
      }
    }
    return g_.sequence(std::move(list));
  }

  ExprId quantified(ExprId e) {
    for (;;) {
      if (take("*")) {
        e = g_.repeat(e, 0, kUnlimited);
      } else if (take("+")) {
        e = g_.repeat(e, 1, kUnlimited);
      } else if (take("?")) {
        e = g_.repeat(e, 0, 1);
      } else if (peek() == '{') {
        ++at_;
        e = bounds(e);
      } else {
        return e;
      }
    }
  }

  ExprId bounds(ExprId e) {
    const auto number = [&](uint32_t& out) {
      skip(false);
      const size_t start = at_;
      uint64_t v = 0;
      while (more() && peek() >= '0' && peek() <= '9') {
        v = v * 10 + static_cast<uint64_t>(peek() - '0');
        ++at_;
        require(v < 0x7fffffff, ErrorCode::kLimitExceeded,
                "the grammar repeats more than 2147483646 times (limit on size)");
      }
      out = static_cast<uint32_t>(v);
      const bool any = at_ > start;
      skip(false);
      return any;
    };
    uint32_t min = 0, max = 0;
    const bool has_min = number(min);
    if (take("}")) {
      if (!has_min) bad("a number was expected");
      return g_.repeat(e, min, min);
    }
    if (!take(",")) bad("',' or '}' was expected");
    if (!number(max)) max = kUnlimited;
    if (!take("}")) bad("'}' was expected");
    if (min > max) bad("a repetition's minimum is above its maximum");
    return g_.repeat(e, min, max);
  }

  uint32_t character() {
    if (!more()) bad("the text ends inside a literal");
    if (peek() != '\\') {
      const uint32_t c = utf8::next(text_, at_);
      if (c == utf8::kInvalid) bad("ill-formed UTF-8");
      return c;
    }
    ++at_;
    const char c = peek();
    ++at_;
    const auto hex = [&](int n) {
      uint32_t v = 0;
      for (int i = 0; i < n; ++i) {
        const char h = peek();
        const int d = h >= '0' && h <= '9'   ? h - '0'
                      : h >= 'a' && h <= 'f' ? h - 'a' + 10
                      : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                             : -1;
        if (d < 0) bad("a hexadecimal digit was expected");
        v = v * 16 + static_cast<uint32_t>(d);
        ++at_;
      }
      if (v > kMaxCodepoint || (v >= 0xd800 && v <= 0xdfff)) bad("this is no Unicode character");
      return v;
    };
    switch (c) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'x':
        return hex(2);
      case 'u':
        return hex(4);
      case 'U':
        return hex(8);
      case '"':
      case '\\':
      case '[':
      case ']':
      case '-':
      case '/':
      case '\'':
      case '^':
      case '.':
        return static_cast<uint32_t>(c);
      default:
        --at_;
        bad("an escape that is not defined");
    }
  }

  ExprId literal() {
    ++at_;
    std::string bytes;
    while (peek() != '"') {
      if (!more() || peek() == '\n') bad("a literal without a closing quote");
      utf8::append(bytes, character());
    }
    ++at_;
    return g_.literal(bytes);
  }

  ExprId bracket() {
    ++at_;
    const bool negated = take("^");
    CodepointSet set;
    while (peek() != ']') {
      if (!more()) bad("a class without ']'");
      const uint32_t lo = character();
      uint32_t hi = lo;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        hi = character();
        if (hi < lo) bad("a range whose end is before its start");
      }
      set.add(lo, hi);
    }
    ++at_;
    return g_.char_class(negated ? set.complement() : set);
  }

  std::string_view text_;
  size_t at_ = 0;
  Budget& budget_;
  Grammar g_;
  std::unordered_map<std::string, RuleId> ids_;
  std::vector<bool> defined_;
};

}  // namespace

Grammar gbnf_grammar(std::string_view source, Budget& budget) {
  Budget::check_source(source.size(), budget.limits().expression_bytes);
  return GbnfParser(source, budget).run();
}

}  // namespace millrace::grammar
