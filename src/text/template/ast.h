// The parsed template: statements and expressions, with the line of each for messages.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/template/value.h"

namespace millrace::text::jinja {

class Runtime;
struct Arguments;

using FilterFunction = Value (*)(Runtime&, const Value&, Arguments&);
using TestFunction = bool (*)(Runtime&, const Value&, Arguments&);

enum class ExprKind : uint8_t {
  kConstant,     ///< constant
  kName,         ///< name
  kList,         ///< children
  kTuple,        ///< children
  kDict,         ///< children: key, value, key, value, ...
  kAttribute,    ///< children[0] . name
  kSubscript,    ///< children[0] [ children[1] ]
  kSlice,        ///< start, stop, step; null where left out
  kCall,         ///< children[0] ( call )
  kFilter,       ///< children[0] (null inside a filter block) | name ( call )
  kTest,         ///< children[0] is name ( call )
  kNot,          ///< children[0]
  kNegate,       ///< children[0]
  kPlus,         ///< children[0]
  kAnd,          ///< two children
  kOr,           ///< two children
  kBinary,       ///< op, two children
  kConcat,       ///< children, joined by ~
  kCompare,      ///< children[0], then one child for each of `operators`
  kConditional,  ///< condition, value, otherwise (may be null)
  kNamespaceRef  ///< as a target: name . attribute
};

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keyword;
  ExprPtr star;         ///< *args
  ExprPtr double_star;  ///< **kwargs
};

struct Expr {
  ExprKind kind = ExprKind::kConstant;
  Operator op = Operator::kAdd;
  int line = 1;
  std::string name;
  std::string attribute;  ///< of kNamespaceRef
  Value constant;
  std::vector<ExprPtr> children;
  std::vector<Operator> operators;
  CallArguments call;
  FilterFunction filter = nullptr;  ///< null: unknown, an error when reached
  TestFunction test = nullptr;
};

enum class StmtKind : uint8_t {
  kText,        ///< text
  kOutput,      ///< exprs
  kSet,         ///< target = exprs[0]
  kSetBlock,    ///< target, filter (exprs[0] or none), body
  kIf,          ///< exprs[i] -> branches[i]; `otherwise`
  kFor,         ///< target in exprs[0], condition exprs[1] (may be null), body, otherwise
  kMacro,       ///< name, parameters, body
  kCall,        ///< exprs[0] is the call; parameters, body are the caller's
  kFilter,      ///< exprs[0] is the chain, body
  kWith,        ///< targets[i] = exprs[i], body
  kBlock,       ///< name, body
  kGeneration,  ///< body
  kScope,       ///< body in a scope of its own (autoescape)
  kBreak,
  kContinue,
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

struct Parameters {
  std::vector<std::string> names;
  std::vector<ExprPtr> defaults;  ///< of the last names
  bool uses_caller = false;       ///< the body reads these special names
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  int line = 1;
  std::string text;
  std::string name;
  ExprPtr target;
  std::vector<ExprPtr> targets;
  std::vector<ExprPtr> exprs;
  Body body;
  std::vector<Body> branches;
  Body otherwise;
  Parameters parameters;
  bool recursive = false;
  bool scoped = false;  ///< a block that sees the scope around it
};

struct Template {
  Body body;
};

}  // namespace millrace::text::jinja
