/// \file A parsed template: statements and expressions. Operators of one level and postfix operations stand in lists,
/// so
/// that long chains do not nest; true nesting is bounded by TemplateLimits::nesting.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tinygrad/llm/chat_template.h"

namespace tg::llm::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

/// Operators between operands.
enum class Operator : uint8_t { add, sub, mul, div, floor_div, mod, pow, eq, ne, lt, le, gt, ge, in, not_in };

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr spread, spread_named;  ///< *list, **dictionary
};

/// What follows an operand: .name, [item], (arguments), |filter, is test.
struct Postfix {
  enum class Type : uint8_t { attribute, item, slice, call, filter, test };
  Type type;
  int line;
  std::string name;          ///< of attribute, filter, test
  ExprPtr item, stop, step;  ///< `item` is the start of a slice
  CallArguments arguments;
  bool negated = false;  ///< of a test
};

struct Expr {
  enum class Type : uint8_t {
    constant,
    name,
    list,
    tuple,
    dict,
    negate,  ///< signs: text holds '-' and '+', the outermost first
    logical_not,
    chain,  ///< operands joined by arithmetic, from the left
    compare,
    concat,
    logical_and,
    logical_or,
    choose,  ///< operands: value, condition, value, condition, ..., last value
    postfix
  };
  Type type;
  int line;
  Value value;   ///< of a constant
  int name = 0;  ///< number of a name
  std::string text;
  std::vector<ExprPtr> operands;  ///< items; keys and values by turns
  std::vector<Operator> operators;
  std::vector<Postfix> postfix;
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

/// A name, names in a tuple, or an attribute of a namespace.
struct Target {
  int name = 0;
  std::string attribute;  ///< of a namespace
  std::vector<Target> parts;
  bool is_tuple = false;
};

struct Stmt {
  enum class Type : uint8_t {
    data,
    output,
    loop,
    branch,
    set,
    set_block,
    macro,
    call,
    filter,
    with,
    generation,
    stop,
    next
  };
  Type type;
  int line;
  Value data;                  ///< of data
  std::vector<ExprPtr> exprs;  ///< of output; conditions; what is looped over and its filter; values of with; defaults
  std::vector<Target> targets;
  std::vector<Body> bodies;     ///< of branches, the last one may have no condition; of a loop and its else
  std::vector<int> parameters;  ///< of macros and call blocks
  std::string name;             ///< of a macro
  int name_id = 0;
  std::vector<Postfix> filters;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
  bool recursive = false;  ///< of a loop: its body may call `loop`
};

struct Program {
  std::string name;
  Body body;
  std::vector<std::string> names;
  std::unordered_map<std::string, int> name_ids;
  int loop_id = 0, caller_id = 0, varargs_id = 0, kwargs_id = 0;
};

/// Parses a template; TemplateError of Reason::syntax or limit.
std::shared_ptr<const Program> parse_program(std::string_view source, const std::string& name,
                                             const TemplateLimits& limits);

}  // namespace tg::llm::jinja
