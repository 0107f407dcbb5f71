// Runs a parsed template on a context.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/template/ast.h"
#include "text/template/runtime.h"

namespace millrace::text::jinja {

/// Names assigned in one lexical scope. Inner scopes see outer ones; assignments stay in their own.
struct Scope : std::enable_shared_from_this<Scope> {
  explicit Scope(std::shared_ptr<Scope> outer) : parent(std::move(outer)) {}
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> variables;
  bool kept = false;  ///< a macro was defined in it: lives until the end of the rendering

  const Value* find(const std::string& name) const;
  void set(const std::string& name, Value value);
};

struct InterpreterSettings {
  size_t max_output_bytes = 0;
  std::function<std::tm()> now;
};

class Interpreter : public Runtime {
 public:
  Interpreter(Budget& budget, InterpreterSettings settings);
  ~Interpreter() override;

  /// Renders with the entries of `context` (a dict) as variables. RunError when the template refuses; line()
  /// tells where.
  std::string render(const Template& parsed, const Value& context);
  int line() const { return line_; }
  /// Byte ranges of the output inside {% generation %} blocks.
  const std::vector<std::pair<size_t, size_t>>& generated() const { return generated_; }

  Value call_macro(const Value& macro, Arguments& arguments) override;
  Value call_loop(const Value& loop, Arguments& arguments) override;
  Value loop_attribute(const Value& loop, const std::string& name) override;
  Value loop_method(const Value& loop, const std::string& name, Arguments& arguments) override;
  std::string macro_name(const Value& macro) override;
  Value make_namespace(Arguments& arguments) override;
  std::tm now() override { return settings_.now(); }

 private:
  enum class Flow { kNext, kBreak, kContinue };

  Flow run(const Body& body);
  Flow run(const Stmt& statement);
  Flow run_in_scope(const Body& body, std::shared_ptr<Scope> scope);
  Flow run_if(const Stmt& statement);
  Flow run_for(const Stmt& statement);
  Flow run_with(const Stmt& statement);
  void run_loop(const Stmt& statement, const Value& iterable, const std::shared_ptr<Scope>& outer,
                int64_t depth);
  void run_generation(const Stmt& statement, Flow& flow);
  void run_set(const Stmt& statement);
  Flow run_set_block(const Stmt& statement);
  void run_call(const Stmt& statement);
  Flow run_filter(const Stmt& statement);
  /// Output of `body` as a string, in a new scope; `flow` tells how it ended.
  std::string capture(const Body& body, std::shared_ptr<Scope> scope, Flow& flow);
  void write(std::string_view text);

  Value evaluate(const Expr& expr);
  Value evaluate_compound(const Expr& expr);
  Value evaluate_call(const Expr& expr);
  Value evaluate_filter(const Expr& expr, const Value* input);
  Value evaluate_compare(const Expr& expr);
  Value evaluate_dict(const Expr& expr);
  Value evaluate_subscript(const Expr& expr);
  Values evaluate_all(const std::vector<ExprPtr>& exprs);
  Arguments evaluate_arguments(const CallArguments& call);
  Value lookup(const std::string& name);
  void assign(const Expr& target, const Value& value);
  Value make_macro(const Stmt& statement, const std::string& name);
  void bind_macro(const Stmt& statement, const std::string& name, Arguments& arguments);
  void keep(const std::shared_ptr<Scope>& scope);

  InterpreterSettings settings_;
  std::shared_ptr<Scope> scope_;
  std::shared_ptr<Scope> root_;
  std::string output_;
  std::string* out_ = &output_;
  int line_ = 1;
  int depth_ = 0;
  std::vector<std::shared_ptr<Scope>> kept_;
  std::vector<std::shared_ptr<NamespaceObject>> namespaces_;
  std::vector<std::pair<size_t, size_t>> generated_;
};

}  // namespace millrace::text::jinja
