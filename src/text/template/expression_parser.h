// The expressions of templates: precedence, literals, calls, filters and tests. Statements are in parser.cc,
// the only file that includes this one.
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/ast.h"
#include "text/template/builtins.h"
#include "text/template/lexer.h"
#include "text/template/strings.h"

namespace millrace::text::jinja {

/// Deepest nesting of expressions and of statements that the parser takes; both it and the interpreter
/// recurse.
inline constexpr int kMaxNesting = 120;

struct OperatorName {
  std::string_view text;
  Operator op;
};
class ExpressionParser {
 protected:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // --- tokens ---

  const Token& current() const { return tokens_[pos_]; }
  const Token& look() const { return tokens_[std::min(pos_ + 1, tokens_.size() - 1)]; }
  const Token& take() {
    const Token& token = tokens_[pos_];
    if (pos_ + 1 < tokens_.size()) ++pos_;
    return token;
  }
  bool is_operator(std::string_view op) const {
    return current().type == TokenType::kOperator && current().text == op;
  }
  bool is_name(std::string_view name) const {
    return current().type == TokenType::kName && current().text == name;
  }
  static bool is_name(const Token& token, std::string_view name) {
    return token.type == TokenType::kName && token.text == name;
  }
  bool skip_operator(std::string_view op) {
    if (!is_operator(op)) return false;
    take();
    return true;
  }
  bool skip_name(std::string_view name) {
    if (!is_name(name)) return false;
    take();
    return true;
  }
  void expect_operator(std::string_view op) {
    if (!skip_operator(op))
      syntax_error(current().line, fmt::format("expected '{}', found {}", op, current().describe()));
  }
  void expect_name(std::string_view name) {
    if (!skip_name(name))
      syntax_error(current().line, fmt::format("expected '{}', found {}", name, current().describe()));
  }
  std::string identifier(const char* what) {
    if (current().type != TokenType::kName)
      syntax_error(current().line, fmt::format("expected {}, found {}", what, current().describe()));
    return take().text;
  }
  void expect_block_end() {
    if (current().type != TokenType::kBlockEnd)
      syntax_error(current().line,
                   fmt::format("expected the end of the statement, found {}", current().describe()));
    take();
  }
  [[noreturn]] void unexpected(const Token& token) {
    syntax_error(token.line, fmt::format("unexpected {}", token.describe()));
  }

  /// Counts nesting while it lives.
  class Nest {
   public:
    explicit Nest(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.nesting_ > kMaxNesting) {
        --parser_.nesting_;
        fail(ErrorCode::kLimitExceeded, "chat template, line {}: nested deeper than {} levels",
             parser_.current().line, kMaxNesting);
      }
    }
    ~Nest() { --parser_.nesting_; }

   private:
    ExpressionParser& parser_;
  };

  static ExprPtr make(ExprKind kind, int line) {
    auto e = std::make_unique<Expr>();
    e->kind = kind;
    e->line = line;
    return e;
  }
  template <typename... Children>
  static ExprPtr make(ExprKind kind, int line, Children... children) {
    auto e = make(kind, line);
    (e->children.push_back(std::move(children)), ...);
    return e;
  }

  // --- expressions ---

  enum class Conditionals { kAllowed, kForbidden };

  bool at_tuple_end(std::string_view extra) const {
    return current().type == TokenType::kVariableEnd || current().type == TokenType::kBlockEnd ||
           is_operator(")") || (!extra.empty() && is_name(extra));
  }

  /// Expressions with commas between them are a tuple, as in Python.
  ExprPtr tuple_expression(Conditionals conditionals = Conditionals::kAllowed,
                           std::string_view extra_end = "", bool parenthesised = false) {
    const int line = current().line;
    std::vector<ExprPtr> parts;
    bool tuple = false;
    while (!at_tuple_end(extra_end)) {
      parts.push_back(conditionals == Conditionals::kAllowed ? expression() : or_expression());
      if (!skip_operator(",")) break;
      tuple = true;
    }
    if (!tuple && !parts.empty()) return std::move(parts[0]);
    if (!tuple && !parenthesised)
      syntax_error(line, fmt::format("expected an expression, found {}", current().describe()));
    auto e = make(ExprKind::kTuple, line);
    e->children = std::move(parts);
    return e;
  }

  ExprPtr expression() {
    const Nest nest(*this);
    const size_t unknown = unknown_.size();
    ExprPtr value = or_expression();
    if (is_name("if")) ++soft_;
    const int soft = is_name("if") ? 1 : 0;
    while (is_name("if")) {
      const int line = take().line;
      ExprPtr condition = or_expression();
      ExprPtr otherwise;
      if (skip_name("else")) otherwise = expression();
      value =
          make(ExprKind::kConditional, line, std::move(condition), std::move(value), std::move(otherwise));
      unknown_.resize(unknown);
    }
    soft_ -= soft;
    return value;
  }

  ExprPtr or_expression() {
    ExprPtr left = and_expression();
    while (is_name("or")) {
      const int line = take().line;
      left = chain(make(ExprKind::kOr, line, std::move(left), and_expression()));
    }
    return left;
  }

  ExprPtr and_expression() {
    ExprPtr left = not_expression();
    while (is_name("and")) {
      const int line = take().line;
      left = chain(make(ExprKind::kAnd, line, std::move(left), not_expression()));
    }
    return left;
  }

  ExprPtr not_expression() {
    if (!is_name("not")) return compare_expression();
    const Nest nest(*this);
    const int line = take().line;
    return make(ExprKind::kNot, line, not_expression());
  }

  ExprPtr compare_expression() {
    static constexpr OperatorName kCompare[] = {{"==", Operator::kEqual},  {"!=", Operator::kNotEqual},
                                                {"<", Operator::kLess},    {"<=", Operator::kLessEqual},
                                                {">", Operator::kGreater}, {">=", Operator::kGreaterEqual}};
    ExprPtr first = sum_expression();
    ExprPtr compare;
    while (true) {
      Operator op = Operator::kIn;
      bool found = false;
      for (const OperatorName& o : kCompare)
        if (is_operator(o.text)) {
          op = o.op;
          found = true;
        }
      if (found) {
        take();
      } else if (skip_name("in")) {
        op = Operator::kIn;
      } else if (is_name("not") && is_name(look(), "in")) {
        take();
        take();
        op = Operator::kNotIn;
      } else {
        break;
      }
      if (!compare) compare = make(ExprKind::kCompare, current().line, std::move(first));
      compare->operators.push_back(op);
      compare->children.push_back(sum_expression());
    }
    return compare ? std::move(compare) : std::move(first);
  }

  template <size_t N, typename Operand>
  ExprPtr left_associative(const OperatorName (&names)[N], Operand operand) {
    ExprPtr left = operand();
    while (true) {
      const OperatorName* found = nullptr;
      for (const OperatorName& o : names)
        if (is_operator(o.text)) found = &o;
      if (found == nullptr) return left;
      const int line = take().line;
      ExprPtr e = make(ExprKind::kBinary, line, std::move(left), operand());
      e->op = found->op;
      left = chain(std::move(e));
    }
  }

  ExprPtr sum_expression() {
    static constexpr OperatorName kNames[] = {{"+", Operator::kAdd}, {"-", Operator::kSubtract}};
    return left_associative(kNames, [this] { return concat_expression(); });
  }

  ExprPtr concat_expression() {
    ExprPtr first = product_expression();
    if (!is_operator("~")) return first;
    ExprPtr e = make(ExprKind::kConcat, current().line, std::move(first));
    while (skip_operator("~")) e->children.push_back(product_expression());
    return e;
  }

  ExprPtr product_expression() {
    static constexpr OperatorName kNames[] = {{"*", Operator::kMultiply},
                                              {"/", Operator::kDivide},
                                              {"//", Operator::kFloorDivide},
                                              {"%", Operator::kModulo}};
    return left_associative(kNames, [this] { return power_expression(); });
  }

  ExprPtr power_expression() {
    static constexpr OperatorName kNames[] = {{"**", Operator::kPower}};
    return left_associative(kNames, [this] { return unary_expression(Filters::kAllowed); });
  }

  enum class Filters { kAllowed, kForbidden };

  ExprPtr unary_expression(Filters filters) {
    const Nest nest(*this);
    const int line = current().line;
    ExprPtr node;
    if (skip_operator("-")) {
      node = make(ExprKind::kNegate, line, unary_expression(Filters::kForbidden));
    } else if (skip_operator("+")) {
      node = make(ExprKind::kPlus, line, unary_expression(Filters::kForbidden));
    } else {
      node = primary();
    }
    node = postfix(std::move(node));
    return filters == Filters::kAllowed ? filter_expression(std::move(node)) : std::move(node);
  }

  static ExprPtr constant(int line, Value value) {
    auto e = make(ExprKind::kConstant, line);
    e->constant = std::move(value);
    return e;
  }

  ExprPtr primary() {
    const Token& token = current();
    const int line = token.line;
    switch (token.type) {
      case TokenType::kName: {
        const std::string name = take().text;
        if (name == "true" || name == "True") return constant(line, Value::boolean(true));
        if (name == "false" || name == "False") return constant(line, Value::boolean(false));
        if (name == "none" || name == "None") return constant(line, Value::none());
        names_read_.insert(name);
        if (name == "lipsum" && is_operator("("))
          unsupported_error(line, "lipsum() gives random text and cannot be run here");
        if (name == "self") unsupported_error(line, "'self', the template's own blocks, cannot be used here");
        auto e = make(ExprKind::kName, line);
        e->name = name;
        return e;
      }
      case TokenType::kString: {
        std::string text = take().text;
        while (current().type == TokenType::kString) text += take().text;
        return constant(line, constant_string(std::move(text)));
      }
      case TokenType::kInteger:
        return constant(line, Value::integer(take().integer));
      case TokenType::kFloat:
        return constant(line, Value::real(take().real));
      case TokenType::kOperator:
        if (token.text == "(") {
          take();
          ExprPtr e = tuple_expression(Conditionals::kAllowed, "", true);
          expect_operator(")");
          return e;
        }
        if (token.text == "[") return list_literal();
        if (token.text == "{") return dict_literal();
        break;
      default:
        break;
    }
    unexpected(token);
  }

  ExprPtr list_literal() {
    auto e = make(ExprKind::kList, take().line);
    while (!is_operator("]")) {
      if (!e->children.empty()) expect_operator(",");
      if (is_operator("]")) break;
      e->children.push_back(expression());
    }
    expect_operator("]");
    return e;
  }

  ExprPtr dict_literal() {
    auto e = make(ExprKind::kDict, take().line);
    while (!is_operator("}")) {
      if (!e->children.empty()) expect_operator(",");
      if (is_operator("}")) break;
      e->children.push_back(expression());
      expect_operator(":");
      e->children.push_back(expression());
    }
    expect_operator("}");
    return e;
  }

  /// Depth of the left spine that chains like a.b.c or x|f|g build: the interpreter recurses along it.
  ExprPtr chain(ExprPtr e) {
    if (++links_ > kMaxLinks) {
      const int line = e->line;
      fail(ErrorCode::kLimitExceeded, "chat template, line {}: an expression has more than {} links", line,
           kMaxLinks);
    }
    return e;
  }

  ExprPtr postfix(ExprPtr node) {
    while (true) {
      if (is_operator(".") || is_operator("[")) {
        node = chain(subscript(std::move(node)));
      } else if (is_operator("(")) {
        node = chain(call(std::move(node)));
      } else {
        break;
      }
    }
    return node;
  }

  ExprPtr filter_expression(ExprPtr node) {
    while (true) {
      if (is_operator("|")) {
        take();
        node = chain(one_filter(std::move(node)));
      } else if (is_name("is")) {
        node = chain(test(std::move(node)));
      } else if (is_operator("(")) {
        node = chain(call(std::move(node)));
      } else {
        return node;
      }
    }
  }

  ExprPtr subscript(ExprPtr node) {
    const int line = current().line;
    if (skip_operator(".")) {
      if (current().type == TokenType::kInteger)
        return make(ExprKind::kSubscript, line, std::move(node),
                    constant(line, Value::integer(take().integer)));
      auto e = make(ExprKind::kAttribute, line, std::move(node));
      e->name = identifier("a name or number after '.'");
      return e;
    }
    expect_operator("[");
    std::vector<ExprPtr> keys;
    while (!is_operator("]")) {
      if (!keys.empty()) expect_operator(",");
      keys.push_back(subscript_key());
    }
    expect_operator("]");
    ExprPtr key;
    if (keys.size() == 1) {
      key = std::move(keys[0]);
    } else {
      key = make(ExprKind::kTuple, line);
      key->children = std::move(keys);
    }
    return make(ExprKind::kSubscript, line, std::move(node), std::move(key));
  }

  ExprPtr subscript_key() {
    const int line = current().line;
    ExprPtr start, stop, step;
    if (!is_operator(":")) {
      start = expression();
      if (!is_operator(":")) return start;
    }
    take();
    const auto ends = [this] { return is_operator("]") || is_operator(",") || is_operator(":"); };
    if (!ends()) stop = expression();
    if (skip_operator(":") && !ends()) step = expression();
    return make(ExprKind::kSlice, line, std::move(start), std::move(stop), std::move(step));
  }

  void call_arguments(CallArguments& call) {
    const int line = current().line;
    const auto ensure = [&](bool fine) {
      if (!fine) syntax_error(line, "the arguments of a call are in the wrong order");
    };
    expect_operator("(");
    bool comma = false;
    while (!is_operator(")")) {
      if (comma) {
        expect_operator(",");
        if (is_operator(")")) break;
      }
      if (skip_operator("*")) {
        ensure(!call.star && !call.double_star);
        call.star = expression();
      } else if (skip_operator("**")) {
        ensure(!call.double_star);
        call.double_star = expression();
      } else if (current().type == TokenType::kName && look().type == TokenType::kOperator &&
                 look().text == "=") {
        ensure(!call.double_star);
        const std::string key = take().text;
        take();
        for (const auto& [other, value] : call.keyword)
          if (other == key) syntax_error(line, fmt::format("keyword argument '{}' given twice", key));
        call.keyword.emplace_back(key, expression());
      } else {
        ensure(!call.star && !call.double_star && call.keyword.empty());
        call.positional.push_back(expression());
      }
      comma = true;
    }
    expect_operator(")");
  }

  ExprPtr call(ExprPtr node) {
    const bool is_method = node->kind == ExprKind::kAttribute;
    for (const std::string_view refused : {"encode", "translate", "maketrans"})
      if (is_method && node->name == refused)
        unsupported_error(current().line, fmt::format("the method '{}' cannot be run here", refused));
    auto e = make(ExprKind::kCall, current().line, std::move(node));
    call_arguments(e->call);
    return e;
  }

  std::string dotted_name(const char* what) {
    std::string name = identifier(what);
    while (skip_operator(".")) name += "." + identifier(what);
    return name;
  }

  ExprPtr one_filter(ExprPtr node) {
    auto e = make(ExprKind::kFilter, current().line, std::move(node));
    e->name = dotted_name("a filter's name");
    if (is_operator("(")) call_arguments(e->call);
    // Jinja2 has these two, so it would get by where an unknown filter is let pass below.
    if (e->name == "random")
      unsupported_error(e->line, "the filter 'random' gives another text each time, so it is not run here");
    if (e->name == "urlize") unsupported_error(e->line, "the filter 'urlize' cannot be run here");
    e->filter = find_filter(e->name);
    if (e->filter == nullptr) note_unknown(e->line, fmt::format("unknown filter '{}'", e->name));
    return e;
  }

  ExprPtr filter_chain(ExprPtr node) {
    while (skip_operator("|")) node = chain(one_filter(std::move(node)));
    return node;
  }

  ExprPtr test(ExprPtr node) {
    const int line = take().line;
    const bool negated = skip_name("not");
    auto e = make(ExprKind::kTest, line, std::move(node));
    e->name = dotted_name("a test's name");
    if (is_operator("(")) {
      call_arguments(e->call);
    } else if (starts_test_argument()) {
      if (is_name("is")) syntax_error(current().line, "tests cannot be chained with 'is'");
      e->call.positional.push_back(postfix(primary()));
    }
    e->test = find_test(e->name);
    if (e->test == nullptr) note_unknown(line, fmt::format("unknown test '{}'", e->name));
    return negated ? make(ExprKind::kNot, line, std::move(e)) : std::move(e);
  }

  bool starts_test_argument() const {
    switch (current().type) {
      case TokenType::kName:
        return !is_name("else") && !is_name("or") && !is_name("and");
      case TokenType::kString:
      case TokenType::kInteger:
      case TokenType::kFloat:
        return true;
      case TokenType::kOperator:
        return is_operator("[") || is_operator("{");
      default:
        return false;
    }
  }

  /// As in Jinja2, an unknown filter or test directly inside an if or a conditional expression is an error
  /// only when it is reached; anywhere else the template is refused.
  void note_unknown(int line, std::string message) {
    if (soft_ == 0) unknown_.emplace_back(line, std::move(message));
  }

  /// Bodies with a scope of their own: unknown filters in them are refused again.
  class Hard {
   public:
    explicit Hard(ExpressionParser& parser) : parser_(parser), soft_(std::exchange(parser.soft_, 0)) {}
    ~Hard() { parser_.soft_ = soft_; }

   private:
    ExpressionParser& parser_;
    int soft_;
  };

  static constexpr int kMaxLinks = 500;

  std::vector<Token> tokens_;
  size_t pos_ = 0;
  int nesting_ = 0;
  int links_ = 0;
  int loops_ = 0;
  int soft_ = 0;  ///< depth of ifs and conditional expressions
  std::vector<std::pair<int, std::string>> unknown_;
  std::set<std::string> names_read_;
  std::set<std::string> blocks_;
};

}  // namespace millrace::text::jinja
