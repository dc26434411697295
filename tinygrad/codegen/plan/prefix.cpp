/// \file Recognition of scans within a chunk, and their OptOps.
#include "tinygrad/codegen/plan/prefix.h"

#include <algorithm>
#include <cmath>

#include "tinygrad/target/machine_rates.h"
#include "tinygrad/uop/affine.h"

namespace tg {
namespace {
constexpr int64_t kLongest = 24;     // of a chunk: its elements are in registers, and its square is unrolled
constexpr double kWholeLanes = 0.9;  // of the lanes are used, or others are looked for

int lanes_of(const KernelAxes& kernel, const Renderer& renderer) {
  int item = 1;
  for (UOp u : kernel.sink().toposort())
    if (u.is(Ops::REDUCE)) item = std::max(item, u.dtype().itemsize());
  return lanes_of_items(renderer, item);
}
/// Returns the part of the lanes in use when `lanes` of them walk an axis of n.
double used(int64_t n, int lanes) {
  return static_cast<double>(n) / static_cast<double>((n + lanes - 1) / lanes * lanes);
}

/// Returns true when `u` compares a sum or a difference of a and b with a constant.
bool compares(UOp u, UOp a, UOp b) {
  if (!u.is(Ops::CMPLT) || !u.src(0).dtype().is_int()) return false;
  int64_t of_a = 0, of_b = 0;
  for (int side = 0; side < 2; side++) {
    const AffineIndex f(u.src(static_cast<size_t>(side)));
    if (!f.rest.empty()) return false;
    for (const auto& [r, c] : f.terms) {
      if (r != a && r != b) return false;
      (r == a ? of_a : of_b) += side ? -c : c;
    }
  }
  return std::abs(of_a) == 1 && std::abs(of_b) == 1;
}
/// Returns the only node of an op in a kernel; empty: there is none, or several.
UOp only(const UOps& nodes, Ops op) {
  UOp found;
  for (UOp u : nodes) {
    if (!u.is(op)) continue;
    if (found) return {};
    found = u;
  }
  return found;
}
/// Returns true when every load moves equally far along both axes.
bool loads_slide(const UOps& nodes, UOp place, UOp tap) {
  return std::all_of(nodes.begin(), nodes.end(), [&](UOp u) {
    if (!u.is(Ops::LOAD)) return true;
    const AffineIndex f(u.src(0).src(1));
    return f.rest.empty() && f.coefficient(tap) != 0 && std::abs(f.coefficient(tap)) == std::abs(f.coefficient(place));
  });
}
/// Returns the innermost axis that is stored contiguously, or as blocks of rows where the chunks themselves are, and
/// fills the lanes; else the one that fills them best. -1: there is none.
int axis_for_lanes(const KernelAxes& kernel, int place, const AffineIndex& stored, int lanes) {
  const bool along_memory = stored.coefficient(kernel.range(place)) == 1;
  int best = -1;
  double most = 0;
  for (int a = static_cast<int>(kernel.axes().size()); a-- > 0;) {
    const KernelAxes::Axis& x = kernel.axes()[static_cast<size_t>(a)];
    if (x.reduce || a == place || x.size < lanes || x.type != AxisType::kLoop || x.ordered) continue;
    const int64_t step = stored.coefficient(kernel.range(a));
    if (along_memory ? step == 0 : step != 1) continue;
    const double part = used(x.size, lanes);
    if (best >= 0 && (most >= kWholeLanes || part <= most)) continue;
    best = a;
    most = part;
  }
  return best;
}
}  // namespace

std::optional<PrefixAxes> prefix_axes(const KernelAxes& kernel, const Renderer& renderer) {
  const auto& axes = kernel.axes();
  const int n = static_cast<int>(axes.size());
  const UOps nodes = kernel.sink().toposort();
  const UOp reduce = only(nodes, Ops::REDUCE), store = only(nodes, Ops::STORE);
  if (!reduce || !store || n < 3 || reduce.nsrc() != 2) return {};
  PrefixAxes p;
  for (int a = 0; a < n; a++)
    if (axes[static_cast<size_t>(a)].reduce) p.tap = a;
  if (p.tap < 0) return {};
  const int64_t length = axes[static_cast<size_t>(p.tap)].size;
  if (length < 2 || length > kLongest) return {};
  const UOp tap = kernel.range(p.tap);
  const UOps inside = reduce.src(0).toposort();
  for (int a = 0; a < n && p.place < 0; a++)
    if (!axes[static_cast<size_t>(a)].reduce && axes[static_cast<size_t>(a)].size == length &&
        std::any_of(inside.begin(), inside.end(), [&](UOp u) { return compares(u, kernel.range(a), tap); }))
      p.place = a;
  if (p.place < 0 || !loads_slide(inside, kernel.range(p.place), tap)) return {};
  const AffineIndex stored(store.src(0).src(1));
  // Without blocks, lanes that stride are taken one by one.
  if (stored.coefficient(kernel.range(p.place)) == 1 && !renderer.has_blocks()) return {};
  p.lanes_axis = axis_for_lanes(kernel, p.place, stored, lanes_of(kernel, renderer));
  if (p.lanes_axis < 0) return {};
  return p;
}

void apply_prefix(KernelAxes& kernel, const PrefixAxes& p, const Renderer& renderer) {
  const int64_t lanes = lanes_of(kernel, renderer);
  double points = 1;
  for (const KernelAxes::Axis& a : kernel.axes())
    points *= a.reduce ? 1 : static_cast<double>(std::max<int64_t>(a.size, 1));
  auto axis = [&](int a) { return kernel.axes()[static_cast<size_t>(a)]; };
  if (lanes > 1) {
    if (axis(p.lanes_axis).size % lanes) kernel.apply({OptOp::kPadTo, p.lanes_axis, lanes});
    kernel.apply({OptOp::kVector, p.lanes_axis, lanes});
  }
  kernel.apply({OptOp::kUpcast, p.place, 0});
  kernel.apply({OptOp::kUnroll, p.tap, 0});
  if (!renderer.has_threads() || points < machine_rates(renderer.target()).thread_points()) return;
  const int64_t enough = 4 * std::max(1, renderer.target().cores);
  int shared = -1;  // the outermost loop that feeds every core several times, else the longest
  for (int a = 0; a < static_cast<int>(kernel.axes().size()); a++) {
    if (axis(a).reduce || axis(a).type != AxisType::kLoop || axis(a).size < 2) continue;
    if (shared < 0 || (axis(shared).size < enough && axis(a).size > axis(shared).size)) shared = a;
  }
  if (shared >= 0) kernel.apply({OptOp::kThread, shared, 0});
}

}  // namespace tg
