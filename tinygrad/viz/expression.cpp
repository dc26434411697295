/// \file Values of recorded nodes as expressions.
#include "tinygrad/base/error.h"
#include "tinygrad/viz/recording_data.h"

namespace tg::viz {
namespace {
/// An operator between two values, and how tightly it binds (higher: tighter).
struct Operator {
  std::string_view op, sign;
  int level;
};
constexpr Operator kOperators[] = {
    {"MUL", " * ", 70}, {"FLOORDIV", " // ", 70}, {"FLOORMOD", " % ", 70}, {"FDIV", " / ", 70},   {"CDIV", " / ", 70},
    {"ADD", " + ", 60}, {"SUB", " - ", 60},       {"SHL", " << ", 50},     {"SHR", " >> ", 50},   {"AND", " & ", 40},
    {"XOR", " ^ ", 35}, {"OR", " | ", 30},        {"CMPLT", " < ", 20},    {"CMPNE", " != ", 20}, {"CMPEQ", " == ", 20},
};
constexpr int kAtom = 100;

const Operator* operator_of(std::string_view op) {
  for (const Operator& o : kOperators)
    if (o.op == op) return &o;
  return nullptr;
}

/// Spells a value from its outside, and stops where it has become long enough: shared values repeat.
class Speller {
 public:
  Speller(const Recording& r, const NodeTable& t, size_t longest) : r_(r), table_(t), longest_(longest) {}

  std::string take(uint64_t node) {
    // What is still to be written, the next one last: a node that binds at least so tightly, or a text.
    todo_.push_back({.node = node});
    while (!todo_.empty()) {
      const Part part = todo_.back();
      todo_.pop_back();
      if (out_.size() > longest_) return out_.substr(0, longest_) + "...";
      if (part.node) spell(part);
      else out_ += part.text;
    }
    return std::move(out_);
  }

 private:
  struct Part {
    uint64_t node = 0;
    int level = 0;
    std::string_view text = {};
  };

  void spell(const Part& part) {
    const Node* n = table_.find(part.node);
    if (!n) {
      out_ += '?';
      return;
    }
    const std::string_view op = r_.name(n->op), argument = table_.argument(*n);
    if (n->sources == 0) {
      out_ += op == "CONST" ? std::string(argument)
                            : str(op, argument.empty() ? "" : "(", argument, argument.empty() ? "" : ")");
      return;
    }
    const Operator* infix = n->sources == 2 ? operator_of(op) : nullptr;
    const int level = infix ? infix->level : kAtom;
    if (level < part.level) add(")");
    if (infix) {
      add(source(*n, 1), level + 1);
      add(infix->sign);
      add(source(*n, 0), level);
    } else {
      add(")");
      for (uint32_t i = n->sources; i-- > 0;) {
        add(source(*n, i), 0);
        if (i) add(", ");
      }
      out_ += str(op, argument.empty() ? "" : "[", argument, argument.empty() ? "" : "]", "(");
    }
    if (level < part.level) out_ += '(';
  }
  uint64_t source(const Node& n, uint32_t i) const { return table_.sources[n.source + i]; }
  void add(std::string_view text) { todo_.push_back({.text = text}); }
  void add(uint64_t node, int level) {
    if (node) todo_.push_back({.node = node, .level = level});
    else add("?");
  }

  const Recording& r_;
  const NodeTable& table_;
  const size_t longest_;
  std::vector<Part> todo_;
  std::string out_;
};
}  // namespace

std::string expression(const Recording& r, uint64_t graph, uint64_t node, size_t longest) {
  const NodeTable* t = r.graph(graph);
  return t && t->find(node) ? Speller(r, *t, longest).take(node) : "?";
}

}  // namespace tg::viz
