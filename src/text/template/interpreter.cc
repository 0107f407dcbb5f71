#include "text/template/interpreter.h"

#include <set>

#include "text/template/builtins.h"
#include "text/template/strings.h"

namespace millrace::text::jinja {

namespace {

/// Deepest recursion of statements and expressions together (macros that call themselves, recursive loops).
constexpr int kMaxDepth = 1200;

/// Counts recursion while it lives.
class Depth {
 public:
  explicit Depth(int& depth) : depth_(depth) {
    if (++depth_ > kMaxDepth) {
      --depth_;
      limit_error("the template recurses deeper than {} levels", kMaxDepth);
    }
  }
  ~Depth() { --depth_; }

 private:
  int& depth_;
};

struct MacroObject : Object {
  const Stmt* statement = nullptr;
  std::string name;
  Scope* scope = nullptr;  ///< kept by the interpreter
};

/// State of one running for statement, read through `loop`.
struct LoopObject : Object {
  LoopObject(Runtime& runtime, const Value& from) : iterable(from), iterator(runtime, from) {}

  const Stmt* statement = nullptr;
  std::shared_ptr<Scope> outer;
  Value iterable;
  Iterator iterator;
  std::function<bool(const Value&)> filter;
  Values buffer;  ///< read ahead, last first
  bool exhausted = false;
  int64_t index0 = -1;
  int64_t length = -1;
  int64_t depth0 = 0;
  Value before, current;
  bool has_changed_value = false;
  Values changed_value;

  bool pull(Value& out) {
    while (!exhausted) {
      if (!iterator.next(out)) {
        exhausted = true;
        break;
      }
      if (!filter || filter(out)) return true;
    }
    return false;
  }
  bool peek(Value& out) {
    if (buffer.empty()) {
      Value item;
      if (!pull(item)) return false;
      buffer.push_back(std::move(item));
    }
    out = buffer.back();
    return true;
  }
  bool advance() {
    Value item;
    if (!peek(item)) return false;
    buffer.pop_back();
    ++index0;
    before = std::move(current);
    current = std::move(item);
    return true;
  }
  int64_t count() {
    if (length >= 0) return length;
    const int64_t known = filter ? -1 : iterator.known_length();
    if (known >= 0) {
      length = known;
    } else {
      Values rest;
      for (Value item; pull(item);) rest.push_back(std::move(item));
      std::reverse(rest.begin(), rest.end());
      rest.insert(rest.end(), buffer.begin(), buffer.end());
      buffer = std::move(rest);
      length = static_cast<int64_t>(buffer.size()) + index0 + 1;
    }
    return length;
  }
};

}  // namespace

const Value* Scope::find(const std::string& name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get())
    for (const auto& [key, value] : scope->variables)
      if (key == name) return &value;
  return nullptr;
}

void Scope::set(const std::string& name, Value value) {
  for (auto& [key, old] : variables)
    if (key == name) {
      old = std::move(value);
      return;
    }
  variables.emplace_back(name, std::move(value));
}

Interpreter::Interpreter(Budget& budget, InterpreterSettings settings)
    : Runtime(budget), settings_(std::move(settings)) {}

Interpreter::~Interpreter() {
  // Namespaces may hold each other, and loops their scopes: cut the circles.
  for (const auto& space : namespaces_) space->attributes.clear();
  for (const auto& scope : kept_) scope->variables.clear();
  if (scope_) scope_->variables.clear();
  if (root_) root_->variables.clear();
}

std::string Interpreter::render(const Template& parsed, const Value& context) {
  auto outermost = std::make_shared<Scope>(nullptr);
  for (const auto& [key, value] : context.dict().entries)
    if (key.is_string()) outermost->variables.emplace_back(key.text(), value);
  root_ = std::make_shared<Scope>(outermost);
  scope_ = root_;
  run(parsed.body);
  return std::move(output_);
}

void Interpreter::write(std::string_view text) {
  reserve(*out_, text.size());
  if (out_ == &output_ && text.size() > settings_.max_output_bytes - output_.size())
    limit_error("the rendered text is longer than {} bytes", settings_.max_output_bytes);
  *out_ += text;
}

// --- statements ---

Interpreter::Flow Interpreter::run(const Body& body) {
  const Depth depth(depth_);
  for (const auto& statement : body) {
    const Flow flow = run(*statement);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_in_scope(const Body& body, std::shared_ptr<Scope> scope) {
  const std::shared_ptr<Scope> outer = std::exchange(scope_, std::move(scope));
  struct Restore {
    std::shared_ptr<Scope>& place;
    const std::shared_ptr<Scope>& value;
    ~Restore() { place = value; }
  } restore{scope_, outer};
  return run(body);
}

std::string Interpreter::capture(const Body& body, std::shared_ptr<Scope> scope, Flow& flow) {
  std::string text;
  struct Restore {
    std::string*& place;
    std::string* value;
    ~Restore() { place = value; }
  } restore{out_, std::exchange(out_, &text)};
  flow = run_in_scope(body, std::move(scope));
  return text;
}

Interpreter::Flow Interpreter::run(const Stmt& statement) {
  charge(1);
  line_ = statement.line;
  switch (statement.kind) {
    case StmtKind::kText:
      write(statement.text);
      return Flow::kNext;
    case StmtKind::kOutput:
      for (const ExprPtr& expr : statement.exprs) {
        const Value value = evaluate(*expr);
        if (value.is_string()) {
          write(value.text());
        } else {
          write(str(value));
        }
      }
      return Flow::kNext;
    case StmtKind::kSet:
      run_set(statement);
      return Flow::kNext;
    case StmtKind::kSetBlock:
      return run_set_block(statement);
    case StmtKind::kIf:
      return run_if(statement);
    case StmtKind::kFor:
      return run_for(statement);
    case StmtKind::kMacro:
      scope_->set(statement.name, make_macro(statement, statement.name));
      return Flow::kNext;
    case StmtKind::kCall:
      run_call(statement);
      return Flow::kNext;
    case StmtKind::kFilter:
      return run_filter(statement);
    case StmtKind::kWith:
      return run_with(statement);
    case StmtKind::kBlock:
      return run_in_scope(statement.body, std::make_shared<Scope>(statement.scoped ? scope_ : root_));
    case StmtKind::kGeneration: {
      Flow flow = Flow::kNext;
      run_generation(statement, flow);
      return flow;
    }
    case StmtKind::kScope:
      return run_in_scope(statement.body, std::make_shared<Scope>(scope_));
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

void Interpreter::run_generation(const Stmt& statement, Flow& flow) {
  const size_t start = output_.size();
  flow = run_in_scope(statement.body, std::make_shared<Scope>(scope_));
  if (out_ == &output_ && output_.size() > start) generated_.emplace_back(start, output_.size());
}

void Interpreter::run_set(const Stmt& statement) { assign(*statement.target, evaluate(*statement.exprs[0])); }

Interpreter::Flow Interpreter::run_set_block(const Stmt& statement) {
  Flow flow = Flow::kNext;
  Value value = string(capture(statement.body, std::make_shared<Scope>(scope_), flow));
  if (flow != Flow::kNext) return flow;
  if (!statement.exprs.empty()) value = evaluate_filter(*statement.exprs[0], &value);
  assign(*statement.target, value);
  return flow;
}

Interpreter::Flow Interpreter::run_if(const Stmt& statement) {
  for (size_t i = 0; i < statement.exprs.size(); ++i)
    if (truth(evaluate(*statement.exprs[i]))) return run(statement.branches[i]);
  return run(statement.otherwise);
}

Interpreter::Flow Interpreter::run_for(const Stmt& statement) {
  const Value iterable = evaluate(*statement.exprs[0]);
  line_ = statement.line;
  run_loop(statement, iterable, scope_, 0);
  return Flow::kNext;
}

void Interpreter::run_loop(const Stmt& statement, const Value& iterable, const std::shared_ptr<Scope>& outer,
                           int64_t depth) {
  const Depth guard(depth_);
  auto loop = std::make_shared<LoopObject>(*this, iterable);
  account(*loop, sizeof(LoopObject));
  loop->statement = &statement;
  loop->outer = outer;
  loop->depth0 = depth;
  loop->depth = 1;
  if (const Expr* condition = statement.exprs[1].get()) {
    loop->filter = [this, condition, &statement, outer](const Value& item) {
      const std::shared_ptr<Scope> before = std::exchange(scope_, std::make_shared<Scope>(outer));
      struct Restore {
        std::shared_ptr<Scope>& place;
        const std::shared_ptr<Scope>& value;
        ~Restore() { place = value; }
      } restore{scope_, before};
      assign(*statement.target, item);
      return truth(evaluate(*condition));
    };
  }
  const Value shared = Value::object(Kind::kLoop, loop);
  bool ended = false;  // an iteration reached its end: as in Jinja2, break and continue do not count
  while (loop->advance()) {
    charge(1);
    auto scope = std::make_shared<Scope>(outer);
    scope->variables.emplace_back("loop", shared);
    const std::shared_ptr<Scope> before = std::exchange(scope_, scope);
    Flow flow = Flow::kNext;
    struct Restore {
      std::shared_ptr<Scope>& place;
      const std::shared_ptr<Scope>& value;
      ~Restore() { place = value; }
    } restore{scope_, before};
    assign(*statement.target, loop->current);
    flow = run(statement.body);
    if (flow == Flow::kBreak) break;
    ended = ended || flow == Flow::kNext;
  }
  // Whatever still holds the loop (a namespace, a kept scope) must not hold scopes in a circle.
  loop->filter = nullptr;
  loop->exhausted = true;
  if (!ended && !statement.otherwise.empty())
    run_in_scope(statement.otherwise, std::make_shared<Scope>(outer));
}

Interpreter::Flow Interpreter::run_with(const Stmt& statement) {
  const Values values = evaluate_all(statement.exprs);
  auto scope = std::make_shared<Scope>(scope_);
  const std::shared_ptr<Scope> outer = std::exchange(scope_, scope);
  try {
    for (size_t i = 0; i < values.size(); ++i) assign(*statement.targets[i], values[i]);
  } catch (...) {
    scope_ = outer;
    throw;
  }
  scope_ = outer;
  return run_in_scope(statement.body, scope);
}

void Interpreter::run_call(const Stmt& statement) {
  const Expr& call_expr = *statement.exprs[0];
  const Value callable = evaluate(*call_expr.children[0]);
  Arguments arguments = evaluate_arguments(call_expr.call);
  arguments.keyword.emplace_back("caller", make_macro(statement, ""));
  line_ = statement.line;
  write(str(call(callable, arguments)));
}

Interpreter::Flow Interpreter::run_filter(const Stmt& statement) {
  Flow flow = Flow::kNext;
  const Value text = string(capture(statement.body, std::make_shared<Scope>(scope_), flow));
  if (flow == Flow::kNext) write(str(evaluate_filter(*statement.exprs[0], &text)));
  return flow;
}

void Interpreter::assign(const Expr& target, const Value& value) {
  switch (target.kind) {
    case ExprKind::kName:
      scope_->set(target.name, value);
      return;
    case ExprKind::kNamespaceRef: {
      const Value space = lookup(target.name);
      if (!space.is(Kind::kNamespace)) run_error("cannot assign attribute on non-namespace object");
      if (target.attribute[0] == '_')
        run_error("a namespace cannot have the attribute {}, which begins with an underscore",
                  python_quoted(target.attribute));
      auto& object = space.as<NamespaceObject>();
      if (Value* old = object.find(target.attribute)) {
        *old = value;
      } else {
        object.attributes.emplace_back(target.attribute, value);
      }
      return;
    }
    default:
      break;
  }
  const Values items = to_values(value);
  const size_t wanted = target.children.size();
  if (items.size() < wanted)
    run_error("not enough values to unpack (expected {}, got {})", wanted, items.size());
  if (items.size() > wanted) run_error("too many values to unpack (expected {})", wanted);
  for (size_t i = 0; i < items.size(); ++i) assign(*target.children[i], items[i]);
}

// --- macros and loops ---

void Interpreter::keep(const std::shared_ptr<Scope>& scope) {
  for (std::shared_ptr<Scope> s = scope; s && !s->kept; s = s->parent) {
    budget().allocate(256);
    s->kept = true;
    kept_.push_back(s);
  }
}

Value Interpreter::make_macro(const Stmt& statement, const std::string& name) {
  keep(scope_);
  auto macro = make<MacroObject>();
  macro->statement = &statement;
  macro->name = name;
  macro->scope = scope_.get();
  return Value::object(Kind::kMacro, std::move(macro));
}

std::string Interpreter::macro_name(const Value& macro) { return macro.as<MacroObject>().name; }

void Interpreter::bind_macro(const Stmt& statement, const std::string& name, Arguments& arguments) {
  const Parameters& parameters = statement.parameters;
  const size_t count = parameters.names.size();
  const size_t first_default = count - parameters.defaults.size();
  std::vector<bool> used(arguments.keyword.size(), false);
  const auto take = [&](const std::string& key) -> const Value* {
    for (size_t i = 0; i < arguments.keyword.size(); ++i)
      if (arguments.keyword[i].first == key && !used[i]) {
        used[i] = true;
        return &arguments.keyword[i].second;
      }
    return nullptr;
  };
  bool explicit_caller = false;
  for (size_t i = 0; i < count; ++i) {
    const std::string& parameter = parameters.names[i];
    explicit_caller = explicit_caller || parameter == "caller";
    if (i < arguments.positional.size()) {
      scope_->set(parameter, arguments.positional[i]);
    } else if (const Value* given = take(parameter)) {
      scope_->set(parameter, *given);
    } else if (i >= first_default) {
      scope_->set(parameter, evaluate(*parameters.defaults[i - first_default]));
    } else {
      scope_->set(parameter,
                  undefined(fmt::format("parameter {} was not provided", python_quoted(parameter))));
    }
  }
  if (parameters.uses_caller && !explicit_caller) {
    const Value* caller = take("caller");
    scope_->set("caller", caller != nullptr ? *caller : undefined("No caller defined"));
  }
  std::vector<std::pair<Value, Value>> rest;
  for (size_t i = 0; i < arguments.keyword.size(); ++i) {
    if (used[i]) continue;
    const auto& [key, value] = arguments.keyword[i];
    if (!parameters.uses_kwargs)
      run_error("macro {} takes no keyword argument {}", python_quoted(name), python_quoted(key));
    rest.emplace_back(string(key), value);
  }
  if (parameters.uses_kwargs) scope_->set("kwargs", dict(rest));
  Values varargs;
  if (arguments.positional.size() > count) {
    if (!parameters.uses_varargs)
      run_error("macro {} takes not more than {} argument(s)", python_quoted(name), count);
    varargs.assign(arguments.positional.begin() + static_cast<int64_t>(count), arguments.positional.end());
  }
  if (parameters.uses_varargs) scope_->set("varargs", tuple(std::move(varargs)));
}

Value Interpreter::call_macro(const Value& macro, Arguments& arguments) {
  const Depth depth(depth_);
  const auto& object = macro.as<MacroObject>();
  const Stmt& statement = *object.statement;
  auto scope = std::make_shared<Scope>(object.scope->shared_from_this());
  const std::shared_ptr<Scope> caller = std::exchange(scope_, scope);
  struct Restore {
    std::shared_ptr<Scope>& place;
    const std::shared_ptr<Scope>& value;
    ~Restore() { place = value; }
  } restore{scope_, caller};
  bind_macro(statement, object.name, arguments);
  Flow flow = Flow::kNext;
  return string(capture(statement.body, scope, flow));
}

Value Interpreter::call_loop(const Value& loop, Arguments& arguments) {
  const auto& object = loop.as<LoopObject>();
  Bound bound("loop", arguments, {"iterable"}, 1);
  if (!object.statement->recursive)
    run_error("The loop must have the 'recursive' marker to be called recursively.");
  std::string text;
  struct Restore {
    std::string*& place;
    std::string* value;
    ~Restore() { place = value; }
  } restore{out_, std::exchange(out_, &text)};
  run_loop(*object.statement, bound[0], object.outer, object.depth0 + 1);
  return string(std::move(text));
}

Value Interpreter::loop_attribute(const Value& value, const std::string& name) {
  auto& loop = value.as<LoopObject>();
  if (name == "index") return Value::integer(loop.index0 + 1);
  if (name == "index0") return Value::integer(loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  Value next;
  if (name == "last") return Value::boolean(!loop.peek(next));
  if (name == "length") return Value::integer(loop.count());
  if (name == "revindex") return Value::integer(loop.count() - loop.index0);
  if (name == "revindex0") return Value::integer(loop.count() - loop.index0 - 1);
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "depth0") return Value::integer(loop.depth0);
  if (name == "previtem") return loop.index0 == 0 ? undefined("there is no previous item") : loop.before;
  if (name == "nextitem") return loop.peek(next) ? next : undefined("there is no next item");
  return Value();
}

Value Interpreter::loop_method(const Value& value, const std::string& name, Arguments& arguments) {
  auto& loop = value.as<LoopObject>();
  if (name == "cycle") {
    if (arguments.positional.empty()) run_error("no items for cycling given");
    return arguments.positional[static_cast<size_t>(loop.index0) % arguments.positional.size()];
  }
  Values now = arguments.positional;
  bool same = loop.has_changed_value && now.size() == loop.changed_value.size();
  for (size_t i = 0; same && i < now.size(); ++i) same = equal(now[i], loop.changed_value[i]);
  // Loops are no containers: their depth is not counted, so what they keep must not hold loops.
  for (const Value& item : now)
    if (item.is(Kind::kLoop)) run_error("loop.changed() cannot compare loops");
  loop.has_changed_value = true;
  loop.changed_value = std::move(now);
  return Value::boolean(!same);
}

Value Interpreter::make_namespace(Arguments& arguments) {
  auto space = make<NamespaceObject>(64);
  const Value entries = [&] {
    Arguments copy = arguments;
    return call_global(*this, "dict", copy);
  }();
  for (const auto& [key, value] : entries.dict().entries) {
    if (!key.is_string()) run_error("a namespace's attributes must be named by strings");
    if (!key.text().empty() && key.text()[0] == '_')
      run_error("a namespace cannot have the attribute {}, which begins with an underscore",
                python_quoted(key.text()));
    space->attributes.emplace_back(key.text(), value);
  }
  namespaces_.push_back(space);
  return Value::object(Kind::kNamespace, std::move(space));
}

// --- expressions ---

Value Interpreter::lookup(const std::string& name) {
  if (const Value* found = scope_->find(name)) return *found;
  if (is_global_function(name)) {
    auto function = make<FunctionObject>();
    function->name = name;
    return Value::object(Kind::kFunction, std::move(function));
  }
  return undefined(fmt::format("{} is undefined", python_quoted(name)));
}

Values Interpreter::evaluate_all(const std::vector<ExprPtr>& exprs) {
  Values values;
  values.reserve(exprs.size());
  for (const ExprPtr& expr : exprs) values.push_back(evaluate(*expr));
  return values;
}

Arguments Interpreter::evaluate_arguments(const CallArguments& call) {
  Arguments arguments;
  arguments.positional = evaluate_all(call.positional);
  for (const auto& [key, expr] : call.keyword) arguments.keyword.emplace_back(key, evaluate(*expr));
  if (call.star) {
    const Values more = to_values(evaluate(*call.star));
    arguments.positional.insert(arguments.positional.end(), more.begin(), more.end());
  }
  if (call.double_star) {
    const Value more = evaluate(*call.double_star);
    if (!more.is(Kind::kDict)) run_error("argument after ** must be a mapping, not {}", type_name(more));
    for (const auto& [key, value] : more.dict().entries) {
      if (!key.is_string()) run_error("keywords must be strings");
      for (const auto& [other, ignored] : arguments.keyword)
        if (other == key.text())
          run_error("got multiple values for keyword argument {}", python_quoted(other));
      arguments.keyword.emplace_back(key.text(), value);
    }
  }
  return arguments;
}

Value Interpreter::evaluate_call(const Expr& expr) {
  const Value callable = evaluate(*expr.children[0]);
  Arguments arguments = evaluate_arguments(expr.call);
  line_ = expr.line;
  Value result = call(callable, arguments);
  line_ = expr.line;
  return result;
}

Value Interpreter::evaluate_filter(const Expr& expr, const Value* input) {
  const Depth depth(depth_);
  charge(1);
  Value value;
  if (!expr.children.empty() && expr.children[0]) {
    const Expr& from = *expr.children[0];
    value =
        input != nullptr && from.kind == ExprKind::kFilter ? evaluate_filter(from, input) : evaluate(from);
  } else if (input != nullptr) {
    value = *input;
  }
  Arguments arguments = evaluate_arguments(expr.call);
  line_ = expr.line;
  if (expr.filter == nullptr) run_error("no filter named {}", python_quoted(expr.name));
  return expr.filter(*this, value, arguments);
}

Value Interpreter::evaluate_compare(const Expr& expr) {
  Value left = evaluate(*expr.children[0]);
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    Value right = evaluate(*expr.children[i + 1]);
    line_ = expr.line;
    if (!compare(expr.operators[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_dict(const Expr& expr) {
  std::vector<std::pair<Value, Value>> entries;
  for (size_t i = 0; i + 1 < expr.children.size(); i += 2) {
    Value key = evaluate(*expr.children[i]);
    entries.emplace_back(std::move(key), evaluate(*expr.children[i + 1]));
  }
  return dict(entries);
}

Value Interpreter::evaluate_subscript(const Expr& expr) {
  const Value object = evaluate(*expr.children[0]);
  const Expr& key = *expr.children[1];
  if (key.kind != ExprKind::kSlice) {
    const Value index = evaluate(key);
    line_ = expr.line;
    return subscript(object, index);
  }
  Value bounds[3] = {Value::none(), Value::none(), Value::none()};
  for (size_t i = 0; i < 3; ++i)
    if (key.children[i]) bounds[i] = evaluate(*key.children[i]);
  line_ = expr.line;
  return slice(object, bounds[0], bounds[1], bounds[2]);
}

Value Interpreter::evaluate(const Expr& expr) {
  const Depth depth(depth_);
  charge(1);
  switch (expr.kind) {
    case ExprKind::kConstant:
      return expr.constant;
    case ExprKind::kName:
      return lookup(expr.name);
    case ExprKind::kAttribute: {
      const Value object = evaluate(*expr.children[0]);
      line_ = expr.line;
      return attribute(object, expr.name);
    }
    case ExprKind::kSubscript:
      return evaluate_subscript(expr);
    case ExprKind::kCall:
      return evaluate_call(expr);
    case ExprKind::kFilter:
      return evaluate_filter(expr, nullptr);
    case ExprKind::kAnd: {
      Value left = evaluate(*expr.children[0]);
      return truth(left) ? evaluate(*expr.children[1]) : left;
    }
    case ExprKind::kOr: {
      Value left = evaluate(*expr.children[0]);
      return truth(left) ? left : evaluate(*expr.children[1]);
    }
    case ExprKind::kNot:
      return Value::boolean(!truth(evaluate(*expr.children[0])));
    case ExprKind::kCompare:
      return evaluate_compare(expr);
    default:
      return evaluate_compound(expr);
  }
}

Value Interpreter::evaluate_compound(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kList:
      return list(evaluate_all(expr.children));
    case ExprKind::kTuple:
      return tuple(evaluate_all(expr.children));
    case ExprKind::kDict:
      return evaluate_dict(expr);
    case ExprKind::kConcat:
      return concat(evaluate_all(expr.children));
    case ExprKind::kNegate:
      return negate(evaluate(*expr.children[0]));
    case ExprKind::kPlus:
      return plus(evaluate(*expr.children[0]));
    case ExprKind::kBinary: {
      const Value left = evaluate(*expr.children[0]);
      const Value right = evaluate(*expr.children[1]);
      line_ = expr.line;
      return binary(expr.op, left, right);
    }
    case ExprKind::kConditional:
      if (truth(evaluate(*expr.children[0]))) return evaluate(*expr.children[1]);
      if (expr.children[2]) return evaluate(*expr.children[2]);
      return undefined("the inline if-expression evaluated to false and no else section was defined");
    case ExprKind::kTest: {
      const Value value = evaluate(*expr.children[0]);
      Arguments arguments = evaluate_arguments(expr.call);
      line_ = expr.line;
      if (expr.test == nullptr) run_error("no test named {}", python_quoted(expr.name));
      return Value::boolean(expr.test(*this, value, arguments));
    }
    default:
      run_error("a slice can only be used in a subscript");
  }
}

}  // namespace millrace::text::jinja
