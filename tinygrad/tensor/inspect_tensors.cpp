/// \file Inspection of tensors: their expression, then their schedule.
#include "tinygrad/tensor/inspect_tensors.h"

#include <unordered_map>

#include "tinygrad/base/text.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/print.h"

namespace tg {
namespace {
constexpr size_t kMostLines = 100;  // of a graph that people read

/// Numbers the nodes of a tensor expression and writes each as a line: `t3 = ADD(t1, t2)  float32 (4, 4)  softmax`.
class GraphListing {
 public:
  std::string list(UOp root) {
    for (UOp u : root.toposort())
      if (!is_detail(u)) add(u);
    if (lines_.size() > kMostLines) {
      const size_t left_out = lines_.size() - kMostLines;
      lines_.erase(lines_.begin() + kMostLines / 2,
                   lines_.begin() + static_cast<std::ptrdiff_t>(kMostLines / 2 + left_out));
      lines_.insert(lines_.begin() + kMostLines / 2, str("... ", left_out, " more\n"));
    }
    std::string text;
    for (const std::string& line : lines_) text += line;
    return text;
  }

 private:
  /// Literals are written where they are used; shapes and bounds of movement ops follow from the shapes of results.
  static bool is_detail(UOp u) { return u.is_const() || u.dtype() == dtypes::weakint; }

  void add(UOp u) {
    std::string sources;
    for (UOp s : u.srcs())
      if (!is_detail(s) || u.in(groups::kElementwise)) sources += (sources.empty() ? "" : ", ") + spelled(s);
    std::string argument;
    if (u.is(Ops::BUFFER)) argument = " " + device_of(u);
    else if (u.arg_kind() != ArgKind::kNone) argument = str(" ", u.arg());
    const char* made_by = Graph::global().origin(u);
    number_.emplace(u, number_.size());
    lines_.push_back(str(spelled(u), " = ", u.op(), argument, sources.empty() ? "" : "(" + sources + ")", "  ",
                         u.dtype(), ' ', shape_of(u), made_by ? str("  # ", made_by) : "", '\n'));
  }
  std::string spelled(UOp u) const {
    const auto it = number_.find(u);
    return it == number_.end() ? render_expr(u) : str('t', it->second);
  }

  std::unordered_map<UOp, size_t> number_;
  std::vector<std::string> lines_;
};
}  // namespace

Inspection inspect(const Tensors& tensors, const InspectOptions& options) {
  std::string graph;
  for (const Tensor& t : tensors) {
    GraphScope scope;
    graph += GraphListing().list(t.uop());
  }
  Inspection out = inspect(*schedule(tensors).schedule, options);
  out.graph = std::move(graph);
  return out;
}

std::string Tensor::explain(bool source) const {
  return tg::explain(inspect({*this}, {.measure = true, .assembly = source}), {}, source);
}

}  // namespace tg
