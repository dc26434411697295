/// \file Which accesses are adjacent along a range.
#include "tinygrad/codegen/plan/grid_accesses.h"

#include <algorithm>
#include <cstdlib>

#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"

namespace tg {
namespace {
bool is_adjacent(const AffineIndex& index, UOp range) { return std::abs(index.coefficient(range)) == 1; }
/// Returns how many elements an access reaches.
double elements_of(UOp index) {
  double n = 1;
  for (UOp r : ranges_of(index.src(1))) n *= static_cast<double>(vmax(r)) + 1;
  return n;
}
}  // namespace

GridAccesses::GridAccesses(const KernelAxes& kernel) : run_bytes_(kernel.renderer().run_bytes()) {
  for (UOp u : kernel.sink().toposort())
    if (u.is(Ops::INDEX)) accesses_.push_back({AffineIndex(u.src(1)), u.dtype().itemsize(), elements_of(u)});
}

double GridAccesses::adjacent(UOp range) const {
  double elements = 0;
  for (const Access& x : accesses_)
    if (is_adjacent(x.index, range)) elements += x.elements;
  return elements;
}

double GridAccesses::bytes_each() const {
  double bytes = 0;
  for (const Access& x : accesses_) bytes += x.itemsize;
  return bytes;
}

int64_t GridAccesses::run_of(UOp range) const {
  int widest = 0;
  size_t most = 0;
  for (const Access& x : accesses_)
    if (is_adjacent(x.index, range)) most = std::max(most, x.index.terms.size());
  for (const Access& x : accesses_)
    if (is_adjacent(x.index, range) && x.index.terms.size() == most) widest = std::max(widest, x.itemsize);
  return widest ? std::max<int64_t>(run_bytes_ / widest, 1) : 1;
}

}  // namespace tg
