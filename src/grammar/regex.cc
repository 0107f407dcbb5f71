#include "grammar/regex.h"

#include "core/utf8.h"
#include "grammar/nfa.h"
#include "grammar/unicode_properties.h"

namespace millrace::grammar {
namespace {

CodepointSet digits() { return CodepointSet('0', '9'); }

CodepointSet word_characters() {
  CodepointSet s('0', '9');
  s.add('A', 'Z');
  s.add('a', 'z');
  s.add('_', '_');
  return s;
}

// A whole text is matched with shorthand classes of ASCII, complements and all, as re.ASCII does.
CodepointSet ascii_space() {
  CodepointSet s(9, 13);
  s.add(' ', ' ');
  return s;
}

// For patterns of schemas: white space by every definition in use, and by any.
CodepointSet white_space(bool by_any) {
  CodepointSet s(9, 13);
  s.add(' ', ' ');
  s.add(0xa0, 0xa0);
  s.add(0x1680, 0x1680);
  s.add(0x2000, 0x200a);
  s.add(0x2028, 0x2029);
  s.add(0x202f, 0x202f);
  s.add(0x205f, 0x205f);
  s.add(0x3000, 0x3000);
  if (by_any) {
    s.add(0x1c, 0x1f);
    s.add(0x85, 0x85);
    s.add(0xfeff, 0xfeff);
  }
  return s;
}

class RegexParser {
 public:
  RegexParser(Grammar& g, std::string_view source, RegexDialect dialect, Budget& budget)
      : g_(g), text_(source), dialect_(dialect), budget_(budget) {}

  ParsedRegex run() {
    if (text_.substr(0, 4) == "(?i)") {
      fold_ = true;
      at_ = 4;
    }
    ParsedRegex out;
    parse_lookaheads(out);
    const ExprId body = alternatives(0);
    if (at_ < text_.size()) bad("an unmatched ')'");
    out.expr = lead_ == kNone ? body : g_.sequence({lead_, body});
    if (!out.lookaheads.empty() && top_alternatives_ > 1) refuse("a look-ahead beside alternatives");
    return out;
  }

 private:
  [[noreturn]] void bad(std::string_view what) const {
    fail(ErrorCode::kInvalidArgument, "the regular expression is malformed at offset {}: {}", at_, what);
  }
  [[noreturn]] void refuse(std::string_view what) const {
    fail(ErrorCode::kUnsupported, "the regular expression uses {} at offset {}, which cannot be enforced",
         what, at_);
  }
  bool more() const { return at_ < text_.size(); }
  char peek() const { return text_[at_]; }
  bool take(std::string_view s) {
    if (text_.substr(at_, s.size()) != s) return false;
    at_ += s.size();
    return true;
  }

  // ^(?=a)(?!b)... at the start of the text is an intersection, which automata can do.
  void parse_lookaheads(ParsedRegex& out) {
    const size_t start = at_;
    const bool anchored = take("^");
    if (!anchored && dialect_ != RegexDialect::kText) return;
    bool any = false;
    while (text_.substr(at_, 3) == "(?=" || text_.substr(at_, 3) == "(?!") {
      const bool negative = text_[at_ + 2] == '!';
      at_ += 3;
      const size_t before = top_alternatives_;
      const ExprId e = alternatives(1);
      top_alternatives_ = before;
      if (!take(")")) bad("a look-ahead without ')'");
      out.lookaheads.push_back({e, negative});
      any = true;
    }
    if (!any) {
      at_ = start;
    } else if (anchored) {
      lead_ = g_.add({ExprKind::kBegin, 0, 0, 0, {}});
    }
  }

  ExprId alternatives(size_t depth) {
    budget_.check_depth(depth);
    std::vector<ExprId> list{sequence(depth)};
    while (take("|")) list.push_back(sequence(depth));
    if (depth == 0) top_alternatives_ = list.size();
    return g_.choice(std::move(list));
  }

  ExprId sequence(size_t depth) {
    std::vector<ExprId> list;
    while (more() && peek() != '|' && peek() != ')') {
      budget_.tick();
      const size_t anchors = anchors_;
      ExprId e = atom(depth);
      e = quantified(e, anchors_ != anchors);
      list.push_back(e);
    }
    return g_.sequence(std::move(list));
  }

  ExprId quantified(ExprId e, bool has_anchor) {
    bool first = true;
    while (more()) {
      uint32_t min = 0, max = kUnlimited;
      if (take("*")) {
      } else if (take("+")) {
        min = 1;
      } else if (take("?")) {
        max = 1;
      } else if (peek() == '{' && bounds(min, max)) {
      } else {
        break;
      }
      if (!first) bad("a quantifier after a quantifier");
      first = false;
      if (has_anchor && (max > 1)) refuse("an anchor within a repetition");
      if (more() && peek() == '+') refuse("a possessive quantifier");
      if (take("?")) {  // lazy: the same texts match
      }
      e = g_.repeat(e, min, max);
    }
    return e;
  }

  // {m}, {m,}, {m,n}, {,n}; anything else is a literal brace.
  bool bounds(uint32_t& min, uint32_t& max) {
    size_t i = at_ + 1;
    const auto number = [&](uint32_t& out) {
      const size_t start = i;
      uint64_t v = 0;
      while (i < text_.size() && text_[i] >= '0' && text_[i] <= '9') {
        v = v * 10 + static_cast<uint64_t>(text_[i++] - '0');
        require(v < 0x7fffffff, ErrorCode::kLimitExceeded,
                "the regular expression repeats more than 2147483646 times at offset {} (limit on size)",
                at_);
      }
      out = static_cast<uint32_t>(v);
      return i > start;
    };
    uint32_t lo = 0, hi = 0;
    const bool has_lo = number(lo);
    if (i < text_.size() && text_[i] == '}' && has_lo) {
      min = max = lo;
      at_ = i + 1;
      return true;
    }
    if (i >= text_.size() || text_[i] != ',') return false;
    ++i;
    const bool has_hi = number(hi);
    if (i >= text_.size() || text_[i] != '}' || (!has_lo && !has_hi)) return false;
    min = has_lo ? lo : 0;
    max = has_hi ? hi : kUnlimited;
    if (min > max) bad("a repetition whose minimum is above its maximum");
    at_ = i + 1;
    return true;
  }

  ExprId anchor(ExprKind kind) {
    ++anchors_;
    return g_.add({kind, 0, 0, 0, {}});
  }

  ExprId atom(size_t depth) {
    const char c = peek();
    switch (c) {
      case '(':
        return group(depth);
      case '[':
        return g_.char_class(bracket());
      case '.': {
        ++at_;
        CodepointSet s('\n', '\n');
        if (dialect_ == RegexDialect::kSure) {
          s.add('\r', '\r');
          s.add(0x2028, 0x2029);
        }
        return g_.char_class(s.complement());
      }
      case '^':
        ++at_;
        return anchor(ExprKind::kBegin);
      case '$':
        ++at_;
        if (dialect_ == RegexDialect::kMaybe)  // some engines let a line feed follow
          return g_.sequence({g_.repeat(g_.literal("\n"), 0, 1), anchor(ExprKind::kEnd)});
        return anchor(ExprKind::kEnd);
      case '\\': {
        if (at_ + 1 >= text_.size()) bad("a backslash at the end");
        const char n = text_[at_ + 1];
        if (n == 'b' || n == 'B') {
          at_ += 2;
          return anchor(n == 'b' ? ExprKind::kBoundary : ExprKind::kNotBoundary);
        }
        if (n == 'A') return at_ += 2, anchor(ExprKind::kBegin);
        if (n == 'z' || n == 'Z') return at_ += 2, anchor(ExprKind::kEnd);
        if (n >= '1' && n <= '9') refuse("a back reference");
        if (n == 'k') refuse("a named back reference");
        CodepointSet s;
        const uint32_t single = escape(s, false, dialect_);
        if (single != kNone) return character(single);
        return g_.char_class(std::move(s));
      }
      case '*':
      case '+':
      case '?':
        bad("a quantifier with nothing before it");
      case '{': {
        uint32_t min, max;
        const size_t start = at_;
        if (bounds(min, max)) {
          at_ = start;
          bad("a quantifier with nothing before it");
        }
        ++at_;
        return character('{');
      }
      default:
        return character(next_codepoint());
    }
  }

  uint32_t next_codepoint() {
    const uint32_t c = utf8::next(text_, at_);
    if (c == utf8::kInvalid) bad("ill-formed UTF-8");
    return c;
  }

  CodepointSet folded(CodepointSet s) const {
    if (!fold_) return s;
    CodepointSet out = s;
    for (const auto& [lo, hi] : s.ranges())
      for (uint32_t c = lo; c <= hi && c < 128; ++c) {
        if (c >= 'a' && c <= 'z') out.add(c - 32, c - 32);
        if (c >= 'A' && c <= 'Z') out.add(c + 32, c + 32);
      }
    return out;
  }

  ExprId character(uint32_t c) {
    if (c >= 0xd800 && c <= 0xdfff) refuse("half of a surrogate pair");
    return g_.char_class(folded(CodepointSet(c, c)));
  }

  ExprId group(size_t depth) {
    ++at_;
    if (take("?")) {
      if (take(":")) {
      } else if (take("P<") || (text_.substr(at_, 1) == "<" && text_.substr(at_, 2) != "<=" &&
                                text_.substr(at_, 2) != "<!" && take("<"))) {
        const size_t end = text_.find('>', at_);
        if (end == std::string_view::npos) bad("a group's name without '>'");
        at_ = end + 1;
      } else if (more() && (peek() == '=' || peek() == '!')) {
        refuse("a look-ahead that is not at the start");
      } else if (more() && peek() == '<') {
        refuse("a look-behind");
      } else if (more() && peek() == '>') {
        refuse("an atomic group");
      } else {
        refuse("a group option");
      }
    }
    const ExprId e = alternatives(depth + 1);
    if (!take(")")) bad("a group without ')'");
    return e;
  }

  int hex_digits(size_t n) {
    if (at_ + n > text_.size()) return -1;
    int v = 0;
    for (size_t i = 0; i < n; ++i) {
      const char c = text_[at_ + i];
      const int d = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
      if (d < 0) return -1;
      v = v * 16 + d;
    }
    at_ += n;
    return v;
  }

  // After \p or \P.
  CodepointSet unicode_set(bool outside) {
    std::string_view name = text_.substr(at_, 1);
    if (name == "{") {
      const size_t end = text_.find('}', at_);
      if (end == std::string_view::npos) bad("\\p{ without '}'");
      name = text_.substr(at_ + 1, end - at_ - 1);
      if (name.substr(0, 1) == "^") refuse("a Unicode property with '^'");
      const std::optional<CodepointSet> set = unicode_property(name);
      if (!set) refuse("a Unicode property that is not known");
      at_ = end + 1;
      return outside ? set->complement() : *set;
    }
    const std::optional<CodepointSet> set = unicode_property(name);
    if (!set) refuse("a Unicode property that is not known");
    ++at_;
    return outside ? set->complement() : *set;
  }

  // After peek() == '\\': a single character (returned), or a set (kNone returned).
  uint32_t escape(CodepointSet& set, bool in_class, RegexDialect dialect) {
    ++at_;
    if (!more()) bad("a backslash at the end");
    const uint32_t c = next_codepoint();
    const bool schema = dialect != RegexDialect::kText, sure = dialect == RegexDialect::kSure;
    const bool maybe = dialect == RegexDialect::kMaybe;
    switch (c) {
      case 'd':
      case 'w':
        set = c == 'd' ? digits() : word_characters();
        if (maybe) set.add(0x80, kMaxCodepoint);
        return kNone;
      case 'D':
      case 'W':
        set = (c == 'D' ? digits() : word_characters()).complement();
        if (sure) drop_letters(set);
        return kNone;
      case 's':
        set = schema ? white_space(!sure) : ascii_space();
        return kNone;
      case 'S':
        set = (schema ? white_space(!maybe) : ascii_space()).complement();
        return kNone;
      case 't':
        return '\t';
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case 'a':
        if (!schema) return 7;
        return 'a';
      case 'e':
        if (!schema) return 27;
        return 'e';
      case '0':
        return 0;
      case 'b':
        if (in_class) return 8;
        break;
      case 'c': {
        if (!more()) bad("\\c without a letter");
        const uint32_t l = next_codepoint();
        if ((l | 32) < 'a' || (l | 32) > 'z') bad("\\c without a letter");
        return l & 31;
      }
      case 'x': {
        const int v = hex_digits(2);
        if (v < 0) bad("\\x without two hexadecimal digits");
        return static_cast<uint32_t>(v);
      }
      case 'u': {
        if (take("{")) {
          uint32_t v = 0;
          size_t n = 0;
          while (more() && peek() != '}') {
            const int d = hex_digits(1);
            if (d < 0 || ++n > 6) bad("\\u{...} with something else than up to six hexadecimal digits");
            v = v * 16 + static_cast<uint32_t>(d);
          }
          if (!take("}") || n == 0 || v > kMaxCodepoint) bad("\\u{...} outside Unicode");
          return v;
        }
        const int v = hex_digits(4);
        if (v < 0) bad("\\u without four hexadecimal digits");
        if (v >= 0xd800 && v <= 0xdbff && text_.substr(at_, 2) == "\\u") {
          const size_t here = at_;
          at_ += 2;
          const int low = hex_digits(4);
          if (low >= 0xdc00 && low <= 0xdfff)
            return 0x10000u + ((static_cast<uint32_t>(v) - 0xd800u) << 10) +
                   (static_cast<uint32_t>(low) - 0xdc00u);
          at_ = here;
        }
        return static_cast<uint32_t>(v);
      }
      case 'p':
      case 'P':
        set = unicode_set(c == 'P');
        return kNone;
      default:
        break;
    }
    if (c < 128 && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')))
      refuse("an escape that it does not define");
    return c;
  }

  // Whether a character beyond ASCII is a letter or digit differs between engines: a negated class keeps only
  // the punctuation and spaces that are neither by any of them.
  static void drop_letters(CodepointSet& set) {
    CodepointSet sure(0, 0x7f);
    sure.add(0xa0, 0xa9);
    sure.add(0xab, 0xb1);
    sure.add(0xb4, 0xb4);
    sure.add(0xb6, 0xb8);
    sure.add(0xbb, 0xbb);
    sure.add(0xbf, 0xbf);
    sure.add(0xd7, 0xd7);
    sure.add(0xf7, 0xf7);
    sure.add(0x2000, 0x2053);
    sure.add(0x2190, 0x23ff);
    sure.add(0x2500, 0x2775);
    sure.add(0x3000, 0x3004);
    sure.add(0x1f300, 0x1f5ff);
    sure.add(0x1f600, 0x1f64f);
    set = set.intersect(sure);
  }

  CodepointSet bracket() {
    ++at_;
    const bool negated = take("^");
    RegexDialect dialect = dialect_;
    if (negated && dialect == RegexDialect::kSure) {
      dialect = RegexDialect::kMaybe;
    } else if (negated && dialect == RegexDialect::kMaybe) {
      dialect = RegexDialect::kSure;
    }
    CodepointSet set;
    bool first = true;
    for (;;) {
      if (!more()) bad("a character class without ']'");
      if (peek() == ']' && !(first && dialect_ == RegexDialect::kText)) break;
      if (peek() == ']' && first && negated == false && dialect_ == RegexDialect::kText &&
          text_.find(']', at_ + 1) == std::string_view::npos)
        break;
      first = false;
      if (text_.substr(at_, 2) == "[:") refuse("a POSIX character class");
      CodepointSet part;
      uint32_t lo = peek() == '\\' ? escape(part, true, dialect) : next_codepoint();
      if (lo == kNone) {
        set.add(part);
        continue;
      }
      uint32_t hi = lo;
      if (more() && peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        CodepointSet other;
        hi = peek() == '\\' ? escape(other, true, dialect) : next_codepoint();
        if (hi == kNone) {  // "[a-\d]": the dash is itself
          set.add(lo, lo);
          set.add('-', '-');
          set.add(other);
          continue;
        }
        if (hi < lo) bad("a range whose end is before its start");
      }
      set.add(lo, hi);
      budget_.tick();
    }
    ++at_;
    set = folded(std::move(set));
    return negated ? set.complement() : set;
  }

  Grammar& g_;
  std::string_view text_;
  size_t at_ = 0;
  RegexDialect dialect_;
  Budget& budget_;
  bool fold_ = false;
  size_t anchors_ = 0;
  size_t top_alternatives_ = 1;
  ExprId lead_ = kNone;
};

}  // namespace

ParsedRegex parse_regex(Grammar& grammar, std::string_view source, RegexDialect dialect, Budget& budget) {
  Budget::check_source(source.size(), budget.limits().expression_bytes);
  return RegexParser(grammar, source, dialect, budget).run();
}

bool dialects_differ(std::string_view pattern) {
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '.' || pattern[i] == '$') return true;
    if (pattern[i] != '\\' || ++i == pattern.size()) continue;
    if (std::string_view("dDwWsS").find(pattern[i]) != std::string_view::npos) return true;
  }
  return false;
}

Dfa whole_text(std::string_view regex, Budget& budget) {
  Grammar g;
  const ParsedRegex r = parse_regex(g, regex, RegexDialect::kText, budget);
  return expr_to_dfa(g, r.expr, false, budget);
}

Dfa schema_pattern(std::string_view pattern, RegexDialect dialect, Budget& budget) {
  Grammar g;
  const ParsedRegex r = parse_regex(g, pattern, dialect, budget);
  Dfa d = expr_to_dfa(g, r.expr, true, budget);
  for (const RegexLookahead& l : r.lookaheads) {
    const ExprId anchored = g.sequence({g.add({ExprKind::kBegin, 0, 0, 0, {}}), l.expr});
    d = combine(d, expr_to_dfa(g, anchored, true, budget),
                l.negative ? SetOperation::kMinus : SetOperation::kAnd, budget);
  }
  return d;
}

Grammar regex_grammar(std::string_view source, Budget& budget) {
  Grammar g;
  const ParsedRegex r = parse_regex(g, source, RegexDialect::kText, budget);
  if (r.lookaheads.empty()) {
    g.root = g.add_rule("root", r.expr);
    return g;
  }
  // With look-aheads the whole becomes one automaton over code points.
  Dfa d = expr_to_dfa(g, r.expr, false, budget);
  for (const RegexLookahead& l : r.lookaheads) {
    const ExprId prefix = g.sequence({l.expr, g.repeat(g.char_class(CodepointSet::all()), 0, kUnlimited)});
    d = combine(d, expr_to_dfa(g, prefix, false, budget),
                l.negative ? SetOperation::kMinus : SetOperation::kAnd, budget);
  }
  return dfa_grammar(d, budget);
}

Grammar dfa_grammar(const Dfa& dfa, Budget& budget) {
  // One rule a state would defeat masks; Kleene's construction would blow up. A right-linear grammar it is:
  // rule s is "class rule t" for each edge, and lowering keeps its stack flat.
  Grammar g;
  require(!dfa.never(), ErrorCode::kInvalidArgument, "the grammar matches no text at all");
  for (uint32_t s = 0; s < dfa.size(); ++s) g.add_rule("state", 0);
  for (uint32_t s = 0; s < dfa.size(); ++s) {
    std::vector<ExprId> list;
    for (const auto& e : dfa.out(s)) {
      CodepointSet set(e.lo, e.hi);
      if (!set.empty()) list.push_back(g.sequence({g.char_class(set), g.rule_ref(e.target)}));
    }
    if (dfa.accept[s]) list.push_back(g.empty());
    g.rules[s].expr = g.choice(std::move(list));
    budget.tick();
  }
  g.root = 0;
  return g;
}

}  // namespace millrace::grammar
