/// \file Printing of graphs; no recursion, and the text depends on structure alone.
#include "tinygrad/uop/print.h"

#include <charconv>
#include <cmath>
#include <sstream>
#include <unordered_map>

#include "tinygrad/uop/owner.h"
#include "tinygrad/uop/walk.h"

namespace tg {
namespace {
/// Returns the name of a grid index; the scheduler's placeholders of index values have a number.
std::string special_name(UOp u) {
  return u.arg_kind() == ArgKind::kString ? u.arg<std::string>() : str("gather", u.node()->arg_bits);
}
constexpr size_t kLongest = 4096;

/// Text and how tightly its outermost operator binds (higher: tighter).
struct Spelled {
  std::string text;
  int level;
};
constexpr int kAtom = 100, kUnary = 90;

std::string literal(UOp u) {
  if (u.is_invalid()) return "Invalid";
  if (u.dtype().is_bool()) return u.const_int() ? "true" : "false";
  std::ostringstream s;
  if (u.dtype().is_float()) {
    double v = u.const_float();
    s.precision(u.dtype() == dtypes::float64 || u.dtype().is_weak() ? 17 : 9);
    s << v;
    if (std::isfinite(v) && s.str().find_first_of(".e") == std::string::npos) s << ".0";
  } else Arg::print(s, u.arg_kind(), u.arg().bits());
  return s.str();
}
std::string range_name(UOp u) {
  std::string s = "r";
  const RangeArg& a = u.arg<RangeArg>();
  for (size_t i = 0; i < a.id.size(); i++) s += (i ? "_" : "") + std::to_string(a.id[i]);
  return s;
}
struct Infix {
  const char* sign;
  int level;
};
Infix infix_of(Ops op) {
  switch (op) {
    case Ops::MUL: return {"*", 70};
    case Ops::FLOORDIV: return {"//", 70};
    case Ops::FLOORMOD: return {"%", 70};
    case Ops::FDIV: return {"/", 70};
    case Ops::ADD: return {"+", 60};
    case Ops::SUB: return {"-", 60};
    case Ops::SHL: return {"<<", 50};
    case Ops::SHR: return {">>", 50};
    case Ops::AND: return {"&", 40};
    case Ops::XOR: return {"^", 35};
    case Ops::OR: return {"|", 30};
    case Ops::CMPLT: return {"<", 20};
    case Ops::CMPNE: return {"!=", 20};
    case Ops::CMPEQ: return {"==", 20};
    default: return {nullptr, 0};
  }
}
std::string lower(std::string s) {
  for (char& c : s) c = static_cast<char>(std::tolower(c));
  return s;
}

Spelled spell(UOp u, const auto& of) {
  auto at = [&](uint32_t i, int level) {
    const Spelled& s = of(u.src(i));
    return s.level >= level ? s.text : "(" + s.text + ")";
  };
  auto call = [&](std::string name, uint32_t from = 0) {
    name += "(";
    for (uint32_t i = from; i < u.nsrc(); i++) name += (i > from ? ", " : "") + of(u.src(i)).text;
    return Spelled{name + ")", kAtom};
  };
  switch (u.op()) {
    case Ops::CONST: {
      std::string s = literal(u);
      return {s, s[0] == '-' ? kUnary : kAtom};
    }
    case Ops::RANGE: return {range_name(u), kAtom};
    case Ops::SPECIAL: return {special_name(u), kAtom};
    case Ops::PARAM:
    case Ops::BUFFER: {
      const ParamArg& a = u.arg<ParamArg>();
      return {a.name.empty() ? (u.is(Ops::PARAM) ? "p" : "b") + std::to_string(a.slot) : a.name, kAtom};
    }
    case Ops::INDEX: {
      std::string s = at(0, kAtom) + "[";
      for (uint32_t i = 1; i < u.nsrc(); i++) s += (i > 1 ? ", " : "") + of(u.src(i)).text;
      return {s + "]", kAtom};
    }
    case Ops::LOAD: return u.nsrc() == 1 ? of(u.src(0)) : call("load");
    case Ops::AFTER: return of(u.src(0));
    case Ops::STORE:
      return {of(u.src(0)).text + " = " + of(u.src(1)).text + (u.nsrc() > 2 ? " if " + of(u.src(2)).text : ""), 0};
    case Ops::WHERE: return {at(0, 11) + " ? " + at(1, 11) + " : " + at(2, 10), 10};
    case Ops::MAX: return call("max");
    case Ops::CAST: return call(std::string(u.dtype().name()));
    case Ops::BITCAST: return call("bitcast_" + std::string(u.dtype().name()));
    case Ops::REDUCE:
      if (u.arg_kind() == ArgKind::kReduce) return call("reduce_" + lower(name_of(u.arg<ReduceArg>().op)));
      break;
    case Ops::CMPNE:
      if (u.src(1).is_const_int(1) && u.src(1).dtype().is_bool()) return {"!" + at(0, kUnary), kUnary};
      break;
    default: break;
  }
  if (Infix f = infix_of(u.op()); f.sign && u.nsrc() == 2) {
    // Comparisons do not chain; the right operand of the others binds tighter.
    int left = groups::kComparison.has(u.op()) ? f.level + 1 : f.level;
    return {at(0, left) + " " + f.sign + " " + at(1, f.level + 1), f.level};
  }
  return call(lower(name_of(u.op())));
}

void print_arg(std::ostream& os, UOp u) {
  if (u.arg_kind() == ArgKind::kNone) return;
  os << ' ';
  if (u.is_const()) os << literal(u);
  else Arg::print(os, u.arg_kind(), u.arg().bits());
}
}  // namespace

std::string render_expr(UOp root) {
  if (!root) return "UOp()";
  std::unordered_map<UOp, Spelled> done;
  // Without a memo table: errors print outside of any graph's scope.
  walk(
      root, [&](UOp u) { return done.contains(u); },
      [&](UOp u) {
        Spelled s = spell(u, [&](UOp k) -> const Spelled& { return done.at(k); });
        if (s.text.size() > kLongest && u != root) s = {"%" + std::to_string(u.id()), kAtom};
        done.emplace(u, std::move(s));
      });
  return done.at(root).text;
}

namespace {
std::string python_float(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char digits[64];
  const double a = std::abs(v);
  const auto format = a != 0 && (a < 1e-4 || a >= 1e16) ? std::chars_format::scientific : std::chars_format::fixed;
  std::string s(digits, std::to_chars(digits, digits + sizeof digits, v, format).ptr);
  if (format == std::chars_format::fixed && s.find('.') == std::string::npos) s += ".0";
  return s;
}

std::string without_parens(const std::string& s) {
  if (s.size() < 2 || s.front() != '(' || s.back() != ')') return s;
  int depth = 0;
  for (size_t i = 0; i + 1 < s.size(); i++) {
    depth += (s[i] == '(') - (s[i] == ')');
    if (depth == 0) return s;
  }
  return s.substr(1, s.size() - 2);
}

std::string python(UOp u, const auto& of) {
  const auto call = [&](std::string text) {
    text += "(";
    for (uint32_t i = 0; i < u.nsrc(); i++) text += (i ? ", " : "") + of(u.src(i));
    return text + ")";
  };
  switch (u.op()) {
    case Ops::CONST:
      if (u.is_invalid()) return "Invalid";
      if (u.dtype().is_bool()) return u.const_int() ? "True" : "False";
      return u.dtype().is_float() ? python_float(u.const_float()) : literal(u);
    case Ops::RANGE: return range_name(u);
    case Ops::SPECIAL: return special_name(u);
    case Ops::PARAM:
    case Ops::BUFFER: {
      const ParamArg& a = u.arg<ParamArg>();
      return a.name.empty() ? (u.is(Ops::PARAM) ? "p" : "b") + std::to_string(a.slot) : a.name;
    }
    case Ops::AFTER: return of(u.src(0));
    case Ops::CAST: return str("(", u.dtype().name(), ")(", of(u.src(0)), ")");
    case Ops::NEG: return "(-" + of(u.src(0)) + ")";
    case Ops::RECIPROCAL: return "(1/" + of(u.src(0)) + ")";
    case Ops::MULACC: return "(" + of(u.src(0)) + "*" + of(u.src(1)) + "+" + of(u.src(2)) + ")";
    case Ops::WHERE: return "(" + of(u.src(1)) + " if " + of(u.src(0)) + " else " + of(u.src(2)) + ")";
    case Ops::INDEX: {
      std::string s = of(u.src(0));
      for (uint32_t i = 1; i < u.nsrc(); i++) s += "[" + without_parens(of(u.src(i))) + "]";
      return s;
    }
    case Ops::STACK: {
      std::string s = "{";
      for (uint32_t i = 0; i < u.nsrc(); i++) s += (i ? "," : "") + of(u.src(i));
      return s + "}";
    }
    default: break;
  }
  if (const Infix f = infix_of(u.op()); f.sign && u.nsrc() == 2) {
    // Python chains comparisons: their operands keep their parentheses.
    const bool chains = groups::kComparison.has(u.op());
    const auto operand = [&](UOp s, int least) {
      const Infix i = infix_of(s.op());
      return !chains && i.sign && !groups::kComparison.has(s.op()) && i.level >= least ? without_parens(of(s)) : of(s);
    };
    return "(" + operand(u.src(0), f.level) + f.sign + operand(u.src(1), f.level + 1) + ")";
  }
  return call(lower(name_of(u.op())));
}
}  // namespace

std::string render_python(UOp root) {
  std::unordered_map<UOp, std::string> done;
  for (UOp u : root.toposort()) {
    std::string s = python(u, [&](UOp k) -> const std::string& { return done.at(k); });
    if (s.size() > kLongest && u != root) s = "v" + std::to_string(u.id());
    done.emplace(u, std::move(s));
  }
  return done.at(root);
}

std::string print_tree(UOp root) {
  std::unordered_map<UOp, int> users, number;
  for (UOp u : root.toposort())
    for (UOp s : u.srcs()) users[s]++;
  std::ostringstream os;
  std::vector<std::pair<UOp, int>> stack{{root, 0}};
  while (!stack.empty()) {
    auto [u, depth] = stack.back();
    stack.pop_back();
    os << std::string(static_cast<size_t>(std::min(depth, 60)) * 2, ' ');
    bool shared = users[u] > 1 && u.nsrc() > 0;
    if (shared) {
      auto [it, first] = number.try_emplace(u, static_cast<int>(number.size()));
      os << '%' << it->second;
      if (!first) {
        os << '\n';
        continue;
      }
      os << " = ";
    }
    os << u.op() << ' ' << u.dtype();
    print_arg(os, u);
    if (mark_of(u)) os << " tag=" << mark_of(u);
    os << '\n';
    for (uint32_t i = u.nsrc(); i-- > 0;) stack.push_back({u.src(i), depth + 1});
  }
  return os.str();
}

std::string print_linear(std::span<const UOp> program) {
  std::unordered_map<UOp, size_t> number;
  std::ostringstream os;
  size_t depth = 0;
  for (UOp u : program) {
    size_t n = number.size();
    number.emplace(u, n);
    if (u.in(Ops::END | Ops::ENDIF) && depth) depth--;
    os << '%' << n
       << (n < 10    ? "  "
           : n < 100 ? " "
                     : "")
       << std::string(depth * 2 + 1, ' ') << "= " << u.op() << ' ' << u.dtype();
    print_arg(os, u);
    if (u.nsrc()) {
      os << " (";
      for (uint32_t i = 0; i < u.nsrc(); i++) {
        os << (i ? ", " : "");
        auto it = number.find(u.src(i));
        if (u.src(i).is_const()) os << literal(u.src(i));
        else if (it == number.end()) os << "?" << u.src(i).op();
        else os << '%' << it->second;
      }
      os << ')';
    }
    os << '\n';
    if (u.in(Ops::RANGE | Ops::IF)) depth++;
  }
  return os.str();
}

std::string to_dot(UOp root) {
  std::unordered_map<UOp, size_t> number;
  std::ostringstream os;
  os << "digraph uops {\n  node [shape=box, fontname=monospace];\n";
  for (UOp u : root.toposort()) {
    size_t n = number.size();
    number.emplace(u, n);
    std::ostringstream label;
    label << u.op() << "\\n" << u.dtype();
    print_arg(label, u);
    std::string text = label.str(), escaped;
    for (char c : text) {
      if (c == '"') escaped += '\\';
      escaped += c;
    }
    os << "  n" << n << " [label=\"" << escaped << "\"];\n";
    for (uint32_t i = 0; i < u.nsrc(); i++)
      os << "  n" << number.at(u.src(i)) << " -> n" << n << (u.nsrc() > 1 ? str(" [label=", i, "]") : "") << ";\n";
  }
  os << "}\n";
  return os.str();
}

}  // namespace tg
