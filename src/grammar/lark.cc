#include <algorithm>
#include <unordered_map>

#include "core/utf8.h"
#include "grammar/gbnf.h"
#include "grammar/regex.h"

namespace millrace::grammar {
namespace {

// The terminals of Lark's library that grammars import, as regular expressions. A string ends at the first
// quote that is not escaped, a comment at its first end.
#define INT "[0-9]+"
#define FLOAT "([0-9]+[eE][-+]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][-+]?[0-9]+)?)"
constexpr std::pair<std::string_view, std::string_view> kCommon[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", INT},
    {"SIGNED_INT", "[-+]?" INT},
    {"DECIMAL", "([0-9]+\\.[0-9]*|\\.[0-9]+)"},
    {"FLOAT", FLOAT},
    {"SIGNED_FLOAT", "[-+]?" FLOAT},
    {"NUMBER", "(" FLOAT "|" INT ")"},
    {"SIGNED_NUMBER", "[-+]?(" FLOAT "|" INT ")"},
    {"ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[a-zA-Z]"},
    {"WORD", "[a-zA-Z]+"},
    {"CNAME", "[_a-zA-Z][_a-zA-Z0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
    {"C_COMMENT", "/\\*([^*]|\\*+[^*/])*\\*+/"},
    {"SQL_COMMENT", "--[^\\n]*"}};
#undef INT
#undef FLOAT

class LarkParser {
 public:
  LarkParser(std::string_view source, Budget& budget) : text_(source), budget_(budget) {}

  Grammar run() {
    skip_blank();
    while (more()) statement();
    for (const auto& [name, id] : ids_)
      require(defined_[id], ErrorCode::kInvalidArgument, "the grammar uses '{}' but does not define it",
              name);
    const auto start = ids_.find("start");
    require(start != ids_.end(), ErrorCode::kInvalidArgument, "the grammar defines no rule named 'start'");
    g_.root = start->second;
    if (!ignored_.empty()) insert_ignored();
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
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool take(std::string_view s) {
    if (text_.substr(at_, s.size()) != s) return false;
    at_ += s.size();
    return true;
  }
  void skip_comment() {
    while (more() && peek() != '\n') ++at_;
  }
  bool at_comment() const { return peek() == '#' || (peek() == '/' && peek(1) == '/'); }
  void skip_line() {
    for (;;) {
      if (peek() == ' ' || peek() == '\t' || peek() == '\r') {
        ++at_;
      } else if (at_comment()) {
        skip_comment();
      } else {
        return;
      }
    }
  }
  void skip_blank() {
    do {
      skip_line();
    } while (take("\n"));
  }
  static bool name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
  std::string name() {
    const size_t start = at_;
    if (!name_start(peek())) bad("a name was expected");
    while (name_start(peek()) || (peek() >= '0' && peek() <= '9')) ++at_;
    return std::string(text_.substr(start, at_ - start));
  }
  static bool is_terminal(const std::string& n) {
    for (char c : n)
      if (c >= 'a' && c <= 'z') return false;
    return true;
  }
  RuleId id_of(const std::string& n) {
    const auto [it, fresh] = ids_.try_emplace(n, 0);
    if (fresh) {
      it->second = g_.add_rule(n, 0);
      defined_.resize(g_.rules.size(), false);
      require(g_.rules.size() <= budget_.limits().rules, ErrorCode::kLimitExceeded,
              "the grammar has more than {} rules (limit on rules)", budget_.limits().rules);
    }
    return it->second;
  }

  void statement() {
    if (take("%ignore")) {
      skip_line();
      in_terminal_ = true;
      ignored_.push_back(alternatives(0));
      end_of_line();
      return;
    }
    if (take("%import")) return import();
    if (peek() == '%') {
      fail(ErrorCode::kUnsupported, "the grammar uses a directive other than %ignore and %import ('{}')",
           text_.substr(at_, std::min<size_t>(text_.size() - at_, 12)));
    }
    if (peek() == '?' || peek() == '!') ++at_;  // how trees are shaped does not matter here
    const std::string n = name();
    skip_line();
    if (peek() == '.') {  // priorities choose among parses of one text: no text more or less
      ++at_;
      while ((peek() >= '0' && peek() <= '9') || peek() == '-') ++at_;
      skip_line();
    }
    require(peek() != '{', ErrorCode::kUnsupported,
            "the grammar uses a template ('{}'), which is not supported", n);
    if (!take(":")) bad("':' was expected");
    const RuleId id = id_of(n);
    if (defined_[id]) bad(fmt::format("'{}' is defined twice", n));
    in_terminal_ = is_terminal(n);
    const ExprId e = alternatives(0);
    g_.rules[id].expr = e;
    defined_[id] = true;
    end_of_line();
  }

  // %import common.NAME, %import common.NAME -> OTHER, %import common (NAME, OTHER)
  void import() {
    skip_line();
    const std::string library = name();
    require(library == "common", ErrorCode::kUnsupported,
            "the grammar imports from '{}'; only 'common' is there", library);
    if (take(".")) {
      const std::string what = name();
      skip_line();
      std::string as = what;
      if (take("->")) {
        skip_line();
        as = name();
      }
      define_common(what, as);
    } else {
      skip_line();
      if (!take("(")) bad("'.' or '(' was expected");
      do {
        skip_blank();
        const std::string what = name();
        define_common(what, what);
        skip_blank();
      } while (take(","));
      if (!take(")")) bad("')' was expected");
    }
    end_of_line();
  }

  void define_common(const std::string& what, const std::string& as) {
    const auto it =
        std::find_if(std::begin(kCommon), std::end(kCommon), [&](const auto& c) { return c.first == what; });
    require(it != std::end(kCommon), ErrorCode::kUnsupported, "'common' has no '{}'", what);
    const RuleId id = id_of(as);
    if (defined_[id]) bad(fmt::format("'{}' is defined twice", as));
    g_.rules[id].expr = parse_regex(g_, it->second, RegexDialect::kText, budget_).expr;
    defined_[id] = true;
  }

  void end_of_line() {
    skip_line();
    if (more() && peek() != '\n') bad("the end of the rule was expected");
    skip_blank();
  }

  ExprId alternatives(size_t depth) {
    budget_.check_depth(depth);
    std::vector<ExprId> list{sequence(depth)};
    for (;;) {
      const size_t here = at_;
      skip_blank();
      if (!take("|")) {
        if (depth == 0) at_ = here;
        break;
      }
      skip_line();
      list.push_back(sequence(depth));
    }
    return g_.choice(std::move(list));
  }

  ExprId sequence(size_t depth) {
    std::vector<ExprId> list;
    for (;;) {
      depth > 0 ? skip_blank() : skip_line();
      budget_.tick();
      const char c = peek();
      if (c == '(' || c == '[') {
        ++at_;
        const ExprId e = alternatives(depth + 1);
        skip_blank();
        if (!take(c == '(' ? ")" : "]")) bad(c == '(' ? "')' was expected" : "']' was expected");
        list.push_back(quantified(c == '[' ? g_.repeat(e, 0, 1) : e));
      } else if (c == '"') {
        list.push_back(quantified(string_or_range()));
      } else if (c == '/' && peek(1) != '/') {
        list.push_back(quantified(separate(regex())));
      } else if (name_start(c)) {
        const std::string n = name();
        const RuleId id = id_of(n);
        const ExprId ref = g_.rule_ref(id);
        list.push_back(quantified(is_terminal(n) ? separate(ref) : ref));
      } else if (take("->")) {  // an alias of the alternative
        skip_line();
        name();
      } else {
        break;
      }
    }
    return g_.sequence(std::move(list));
  }

  // Where a terminal ends inside a rule, ignored text may follow; the node is patched once %ignore is known.
  ExprId separate(ExprId e) {
    if (in_terminal_) return e;
    const ExprId gap = g_.empty();
    gaps_.push_back(gap);
    return g_.sequence({e, gap});
  }

  void insert_ignored() {
    const ExprId any = g_.repeat(g_.choice(ignored_), 0, kUnlimited);
    const RuleId rule = g_.add_rule("(ignored)", any);
    for (ExprId gap : gaps_) {
      g_.exprs[gap].kind = ExprKind::kRule;
      g_.exprs[gap].index = rule;
    }
    const RuleId root = g_.add_rule("(start)", g_.sequence({g_.rule_ref(rule), g_.rule_ref(g_.root)}));
    g_.root = root;
  }

  ExprId quantified(ExprId e) {
    for (;;) {
      if (take("*")) {
        e = g_.repeat(e, 0, kUnlimited);
      } else if (take("+")) {
        e = g_.repeat(e, 1, kUnlimited);
      } else if (take("?")) {
        e = g_.repeat(e, 0, 1);
      } else if (take("~")) {
        skip_line();
        const uint32_t min = number();
        uint32_t max = min;
        if (take("..")) max = number();
        if (max < min) bad("a repetition's minimum is above its maximum");
        e = g_.repeat(e, min, max);
      } else {
        return e;
      }
    }
  }

  uint32_t number() {
    uint64_t v = 0;
    const size_t start = at_;
    while (peek() >= '0' && peek() <= '9') {
      v = v * 10 + static_cast<uint64_t>(peek() - '0');
      ++at_;
      require(v < 0x7fffffff, ErrorCode::kLimitExceeded,
              "the grammar repeats more than 2147483646 times (limit on size)");
    }
    if (at_ == start) bad("a number was expected");
    return static_cast<uint32_t>(v);
  }

  std::u32string quoted() {
    ++at_;
    std::u32string out;
    while (peek() != '"') {
      if (!more() || peek() == '\n') bad("a string without a closing quote");
      if (peek() != '\\') {
        const uint32_t c = utf8::next(text_, at_);
        if (c == utf8::kInvalid) bad("ill-formed UTF-8");
        out.push_back(c);
        continue;
      }
      ++at_;
      const char c = peek();
      ++at_;
      switch (c) {
        case 'n':
          out.push_back('\n');
          break;
        case 't':
          out.push_back('\t');
          break;
        case 'r':
          out.push_back('\r');
          break;
        case 'f':
          out.push_back('\f');
          break;
        case '"':
        case '\\':
        case '/':
        case '\'':
          out.push_back(static_cast<char32_t>(c));
          break;
        case 'x':
          out.push_back(hex(2));
          break;
        case 'u':
          out.push_back(hex(4));
          break;
        default:
          bad("an escape that is not defined");
      }
    }
    ++at_;
    return out;
  }

  uint32_t hex(int n) {
    uint32_t v = 0;
    for (int i = 0; i < n; ++i, ++at_) {
      const char h = peek();
      const int d = h >= '0' && h <= '9'   ? h - '0'
                    : h >= 'a' && h <= 'f' ? h - 'a' + 10
                    : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                           : -1;
      if (d < 0) bad("a hexadecimal digit was expected");
      v = v * 16 + static_cast<uint32_t>(d);
    }
    if (v >= 0xd800 && v <= 0xdfff) bad("this is no Unicode character");
    return v;
  }

  ExprId string_or_range() {
    const std::u32string first = quoted();
    if (peek() == '.' && peek(1) == '.') {
      at_ += 2;
      skip_line();
      if (peek() != '"') bad("the end of a range was expected");
      const std::u32string last = quoted();
      if (first.size() != 1 || last.size() != 1 || last[0] < first[0])
        bad("a range goes from one character to a later one");
      return separate(g_.char_class(CodepointSet(first[0], last[0])));
    }
    if (peek() == 'i' && !name_start(peek(1))) {
      ++at_;
      std::vector<ExprId> letters;
      for (char32_t c : first) {
        CodepointSet s(c, c);
        if (c < 128 && std::isalpha(static_cast<int>(c))) s.add(c ^ 32, c ^ 32);
        letters.push_back(g_.char_class(s));
      }
      return separate(g_.sequence(std::move(letters)));
    }
    return separate(g_.literal(encode_utf8(first)));
  }

  ExprId regex() {
    ++at_;
    std::string pattern;
    while (peek() != '/') {
      if (!more() || peek() == '\n') bad("a regular expression without a closing '/'");
      if (peek() == '\\' && peek(1) == '/') {
        pattern += '/';
        at_ += 2;
        continue;
      }
      if (peek() == '\\') pattern += text_[at_++];
      pattern += text_[at_++];
    }
    ++at_;
    while (peek() == 'i' || peek() == 's' || peek() == 'm' || peek() == 'u' || peek() == 'x' ||
           peek() == 'l') {
      if (peek() == 'i') {
        pattern.insert(0, "(?i)");
      } else if (peek() != 'u') {
        fail(ErrorCode::kUnsupported,
             "the grammar uses the regular expression flag '{}', which is not supported", peek());
      }
      ++at_;
    }
    const ParsedRegex r = parse_regex(g_, pattern, RegexDialect::kText, budget_);
    require(r.lookaheads.empty(), ErrorCode::kUnsupported,
            "the grammar uses a look-ahead in a terminal, which cannot be enforced");
    return r.expr;
  }

  std::string_view text_;
  size_t at_ = 0;
  Budget& budget_;
  Grammar g_;
  std::unordered_map<std::string, RuleId> ids_;
  std::vector<bool> defined_;
  std::vector<ExprId> ignored_, gaps_;
  bool in_terminal_ = false;
};

}  // namespace

Grammar lark_grammar(std::string_view source, Budget& budget) {
  Budget::check_source(source.size(), budget.limits().expression_bytes);
  return LarkParser(source, budget).run();
}

}  // namespace millrace::grammar
