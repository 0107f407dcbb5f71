#include "text/template/parser.h"

#include "text/template/expression_parser.h"

namespace millrace::text::jinja {

namespace {

constexpr size_t kMaxSource = 4u << 20;

class Parser : private ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Template parse() {
    Template result;
    result.body = statements({});
    if (current().type != TokenType::kEnd) unexpected(current());
    if (!unknown_.empty()) unsupported_error(unknown_[0].first, unknown_[0].second);
    return result;
  }

 private:
  // --- statements ---

  /// Statements up to a tag named in `ends` (whose name is then the current token), or to the end of the
  /// source.
  Body statements(const std::vector<std::string_view>& ends) {
    const Nest nest(*this);
    Body body;
    while (true) {
      const Token& token = current();
      links_ = 0;
      switch (token.type) {
        case TokenType::kEnd:
          if (!ends.empty()) missing_end(ends);
          return body;
        case TokenType::kData: {
          auto s = statement_node(StmtKind::kText, token.line);
          s->text = token.text;
          body.push_back(std::move(s));
          take();
          break;
        }
        case TokenType::kVariableBegin: {
          take();
          auto s = statement_node(StmtKind::kOutput, token.line);
          s->exprs.push_back(tuple_expression());
          if (current().type != TokenType::kVariableEnd)
            syntax_error(current().line, fmt::format("expected '}}}}', found {}", current().describe()));
          take();
          body.push_back(std::move(s));
          break;
        }
        case TokenType::kBlockBegin: {
          take();
          for (const std::string_view end : ends)
            if (is_name(end)) return body;
          if (auto s = statement(ends)) body.push_back(std::move(s));
          expect_block_end();
          break;
        }
        default:
          unexpected(token);
      }
    }
  }

  static std::unique_ptr<Stmt> statement_node(StmtKind kind, int line) {
    auto s = std::make_unique<Stmt>();
    s->kind = kind;
    s->line = line;
    return s;
  }

  [[noreturn]] void missing_end(const std::vector<std::string_view>& ends) {
    std::string wanted;
    for (const std::string_view end : ends)
      wanted += fmt::format("{}'{}'", wanted.empty() ? "" : " or ", end);
    syntax_error(current().line, fmt::format("the template ends where {} is still missing", wanted));
  }

  /// The body after a tag's head, up to one of `ends`.
  Body block_body(const std::vector<std::string_view>& ends) {
    skip_operator(":");
    expect_block_end();
    return statements(ends);
  }

  std::unique_ptr<Stmt> statement(const std::vector<std::string_view>& ends) {
    const Token& token = current();
    if (token.type != TokenType::kName)
      syntax_error(token.line, fmt::format("expected the name of a statement, found {}", token.describe()));
    const std::string& name = token.text;
    const int line = token.line;
    if (name == "set") return set_statement();
    if (name == "if") return if_statement();
    if (name == "for") return for_statement();
    if (name == "macro") return macro_statement();
    if (name == "call") return call_statement();
    if (name == "filter") return filter_statement();
    if (name == "with") return with_statement();
    if (name == "print") return print_statement();
    if (name == "block") return block_statement();
    if (name == "autoescape") return autoescape_statement();
    if (name == "generation") {
      take();
      auto s = statement_node(StmtKind::kGeneration, line);
      s->body = block_body({"endgeneration"});
      take();
      return s;
    }
    if (name == "break" || name == "continue") {
      take();
      if (loops_ == 0) syntax_error(line, fmt::format("'{}' outside of a loop", name));
      return statement_node(name == "break" ? StmtKind::kBreak : StmtKind::kContinue, line);
    }
    static constexpr std::string_view kRefused[] = {"include", "import", "from", "extends",
                                                    "do",      "trans",  "debug"};
    for (const std::string_view refused : kRefused)
      if (name == refused)
        unsupported_error(line, fmt::format("the statement '{}' cannot be run here", name));
    if (ends.empty()) syntax_error(line, fmt::format("unknown statement '{}'", name));
    std::string wanted;
    for (const std::string_view end : ends)
      wanted += fmt::format("{}'{}'", wanted.empty() ? "" : " or ", end);
    syntax_error(line, fmt::format("unknown statement '{}' where {} is still missing", name, wanted));
  }

  std::unique_ptr<Stmt> set_statement() {
    auto s = statement_node(StmtKind::kSet, take().line);
    s->target = assign_target(TargetRule::kNamespaces);
    if (skip_operator("=")) {
      s->exprs.push_back(tuple_expression());
      return s;
    }
    s->kind = StmtKind::kSetBlock;
    const Hard hard(*this);
    if (is_operator("|")) s->exprs.push_back(filter_chain(nullptr));
    s->body = block_body({"endset"});
    take();
    return s;
  }

  std::unique_ptr<Stmt> if_statement() {
    auto s = statement_node(StmtKind::kIf, current().line);
    ++soft_;
    do {
      take();
      s->exprs.push_back(tuple_expression(Conditionals::kForbidden));
      s->branches.push_back(block_body({"elif", "else", "endif"}));
    } while (is_name("elif"));
    if (take().text == "else") {
      s->otherwise = block_body({"endif"});
      take();
    }
    --soft_;
    return s;
  }

  std::unique_ptr<Stmt> for_statement() {
    auto s = statement_node(StmtKind::kFor, take().line);
    s->target = assign_target(TargetRule::kUntilIn);
    expect_name("in");
    s->exprs.push_back(tuple_expression(Conditionals::kForbidden, "recursive"));
    const Hard hard(*this);
    s->exprs.push_back(skip_name("if") ? expression() : nullptr);
    s->recursive = skip_name("recursive");
    ++loops_;
    s->body = block_body({"endfor", "else"});
    --loops_;
    if (take().text == "else") {
      s->otherwise = block_body({"endfor"});
      take();
    }
    return s;
  }

  void signature(Parameters& parameters) {
    expect_operator("(");
    while (!is_operator(")")) {
      if (!parameters.names.empty()) expect_operator(",");
      if (is_operator(")")) unexpected(current());
      const int line = current().line;
      parameters.names.push_back(target_name());
      if (skip_operator("=")) {
        parameters.defaults.push_back(expression());
      } else if (!parameters.defaults.empty()) {
        syntax_error(line, "a parameter without a default follows one with a default");
      }
    }
    expect_operator(")");
  }

  /// Body of a macro or call block: notes which of caller, varargs and kwargs it reads.
  Body macro_body(Parameters& parameters, std::string_view end) {
    const Hard hard(*this);
    const std::set<std::string> outer = std::move(names_read_);
    const int loops = loops_;
    names_read_.clear();
    loops_ = 0;
    Body body = block_body({end});
    take();
    loops_ = loops;
    parameters.uses_caller = names_read_.count("caller") > 0;
    parameters.uses_varargs = names_read_.count("varargs") > 0;
    parameters.uses_kwargs = names_read_.count("kwargs") > 0;
    names_read_.insert(outer.begin(), outer.end());
    return body;
  }

  std::unique_ptr<Stmt> macro_statement() {
    auto s = statement_node(StmtKind::kMacro, take().line);
    s->name = target_name();
    signature(s->parameters);
    s->body = macro_body(s->parameters, "endmacro");
    return s;
  }

  std::unique_ptr<Stmt> call_statement() {
    auto s = statement_node(StmtKind::kCall, take().line);
    if (is_operator("(")) signature(s->parameters);
    s->exprs.push_back(expression());
    if (s->exprs[0]->kind != ExprKind::kCall) syntax_error(s->line, "a call block needs a call");
    s->body = macro_body(s->parameters, "endcall");
    return s;
  }

  std::unique_ptr<Stmt> filter_statement() {
    const Hard hard(*this);
    auto s = statement_node(StmtKind::kFilter, take().line);
    ExprPtr chain = one_filter(nullptr);
    s->exprs.push_back(filter_chain(std::move(chain)));
    s->body = block_body({"endfilter"});
    take();
    return s;
  }

  std::unique_ptr<Stmt> with_statement() {
    const Hard hard(*this);
    auto s = statement_node(StmtKind::kWith, take().line);
    while (current().type != TokenType::kBlockEnd && !is_operator(":")) {
      if (!s->targets.empty()) expect_operator(",");
      s->targets.push_back(assign_target(TargetRule::kPlain));
      expect_operator("=");
      s->exprs.push_back(expression());
    }
    s->body = block_body({"endwith"});
    take();
    return s;
  }

  std::unique_ptr<Stmt> print_statement() {
    auto s = statement_node(StmtKind::kOutput, take().line);
    while (current().type != TokenType::kBlockEnd) {
      if (!s->exprs.empty()) expect_operator(",");
      s->exprs.push_back(expression());
    }
    return s;
  }

  std::unique_ptr<Stmt> block_statement() {
    const Hard hard(*this);
    auto s = statement_node(StmtKind::kBlock, take().line);
    s->name = identifier("a block's name");
    if (!blocks_.insert(s->name).second)
      syntax_error(s->line, fmt::format("block '{}' defined twice", s->name));
    s->scoped = skip_name("scoped");
    if (is_name("required"))
      unsupported_error(s->line, "required blocks need a template that extends this one");
    const int loops = loops_;
    loops_ = 0;
    s->body = block_body({"endblock"});
    loops_ = loops;
    take();
    skip_name(s->name);
    return s;
  }

  std::unique_ptr<Stmt> autoescape_statement() {
    auto s = statement_node(StmtKind::kScope, take().line);
    const ExprPtr value = expression();
    if (value->kind != ExprKind::kConstant || truth(value->constant))
      unsupported_error(s->line, "automatic escaping cannot be turned on here");
    s->body = block_body({"endautoescape"});
    take();
    return s;
  }

  // --- targets ---

  enum class TargetRule { kPlain, kUntilIn, kNamespaces };

  std::string target_name() {
    const int line = current().line;
    std::string name = identifier("a name");
    check_target_name(name, line);
    return name;
  }

  static void check_target_name(const std::string& name, int line) {
    static constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None"};
    for (const std::string_view reserved : kReserved)
      if (name == reserved) syntax_error(line, fmt::format("cannot assign to '{}'", name));
  }

  ExprPtr assign_target(TargetRule rule) {
    const Nest nest(*this);
    const int line = current().line;
    std::vector<ExprPtr> parts;
    bool tuple = false;
    while (true) {
      if (rule == TargetRule::kUntilIn && is_name("in")) break;
      if (current().type == TokenType::kBlockEnd || is_operator(")")) break;
      parts.push_back(target_part(rule));
      if (!skip_operator(",")) break;
      tuple = true;
    }
    if (parts.empty())
      syntax_error(line, fmt::format("expected a name to assign to, found {}", current().describe()));
    if (!tuple) return std::move(parts[0]);
    auto e = make(ExprKind::kTuple, line);
    e->children = std::move(parts);
    return e;
  }

  ExprPtr target_part(TargetRule rule) {
    const int line = current().line;
    if (skip_operator("(")) {
      ExprPtr inner = assign_target(rule == TargetRule::kNamespaces ? rule : TargetRule::kPlain);
      expect_operator(")");
      return inner;
    }
    if (current().type != TokenType::kName)
      syntax_error(line, fmt::format("cannot assign to {}", current().describe()));
    std::string name = take().text;
    check_target_name(name, line);
    if (rule == TargetRule::kNamespaces && skip_operator(".")) {
      auto e = make(ExprKind::kNamespaceRef, line);
      e->name = std::move(name);
      e->attribute = identifier("an attribute's name");
      return e;
    }
    auto e = make(ExprKind::kName, line);
    e->name = std::move(name);
    return e;
  }
};

}  // namespace

Template parse_template(std::string_view source) {
  require(source.size() <= kMaxSource, ErrorCode::kLimitExceeded,
          "the chat template has {} bytes, more than the {} that are read", source.size(), kMaxSource);
  return Parser(tokenize(source)).parse();
}

}  // namespace millrace::text::jinja
