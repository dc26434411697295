/// \file What the cost model reads from a kernel: arithmetic, accesses, reduces and operands, in terms of axes.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "tinygrad/codegen/access.h"
#include "tinygrad/codegen/cost_model.h"
#include "tinygrad/codegen/reuse_values.h"
#include "tinygrad/codegen/stage.h"
#include "tinygrad/codegen/window.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/op_cost.h"

namespace tg {
namespace {
using enum Ops;
constexpr OpCost<double> kCycles[] = {
    {ADD | SUB | MUL | MULACC | NEG | TRUNC | SHL | SHR | XOR | OR | AND | MAX | CMPLT | CMPNE | CMPEQ | WHERE | CAST |
         BITCAST,
     1},
    {SQRT | RECIPROCAL | FDIV, 6},
    {EXP2 | LOG2, 14},
    {CDIV | CMOD | FLOORDIV | FLOORMOD, 20},
    {SIN, 25},
    {POW, 40},
    {THREEFRY, 90},
};
static_assert(groups::kElementwise.subset_of(ops_of(kCycles)), "an op has no cost: give it a row");
constexpr double kByLiteral = 4;  // division by a literal
}  // namespace

double CostModel::cost_of(UOp u) {
  if (u.dtype().is_bool() && u.in(AND | OR)) return 0.25;  // masks have units of their own
  // The load chooses, or the multiply-add that the product becomes.
  if (u.is(WHERE) && u.src(2).is_const() &&
      (u.src(1).is(MUL) || (u.src(1).is(LOAD) && u.src(1).src(0).src(1).is(WHERE))))
    return 0;
  if (u.in(CDIV | CMOD | FLOORDIV | FLOORMOD) && u.src(1).is_const()) return kByLiteral;
  if (u.is(CAST) && (u.dtype().is_weak() || u.src(0).dtype().is_weak())) return 0.5;
  return cost_in(kCycles, u.op(), 1.0);
}

CostModel::CostModel(const KernelAxes& kernel, UOp sink, const Renderer& r) {
  const Target& t = r.target();
  vector_bytes = t.vector_bytes;
  registers = t.vector_registers;
  l1 = static_cast<double>(t.l1_bytes);
  l2 = static_cast<double>(t.l2_bytes);
  gather = r.has_gather();
  loads_early = t.arch != "x86_64";
  if (vector_bytes == 64 && t.arch == "x86_64") mask_cost = 0.25;  // masks have registers and units of their own
  blocks = kernel.can_accumulate();
  // Zen 1 to 4 run 512-bit operations in two halves.
  path_bytes = t.cpu.rfind("znver", 0) == 0 && t.cpu != "znver5" ? std::min(vector_bytes, 32) : vector_bytes;
  std::unordered_map<UOp, int> axis;
  for (size_t i = 0; i < kernel.axes().size(); i++) {
    axis[kernel.range(static_cast<int>(i))] = static_cast<int>(i);
    size.push_back(kernel.axes()[i].size);
    is_reduce.push_back(kernel.axes()[i].reduce);
  }
  auto mask_of = [&](UOp u) {
    Mask m = 0;
    for (UOp x : ranges_of(u))
      if (auto it = axis.find(x); it != axis.end()) m |= Mask{1} << it->second;
    return m;
  };
  Mask reduce_axes = 0;
  for (size_t i = 0; i < size.size(); i++)
    if (is_reduce[i]) reduce_axes |= Mask{1} << i;
  std::vector<Mask> around(size.size(), 0);  // loops around each reduce axis
  UOps order = sink.toposort();
  stored = ~Mask{0};
  Mask output = 0;
  for (UOp u : order) {
    if (!u.in(Ops::END | Ops::REDUCE)) continue;
    Mask own = 0;
    for (uint32_t i = 1; i < u.nsrc(); i++)
      if (auto it = axis.find(u.src(i)); it != axis.end()) own |= Mask{1} << it->second;
    if (u.is(Ops::END)) {
      stored &= own;
      output |= own;
      continue;
    }
    for (size_t i = 0; i < size.size(); i++)
      if (own >> i & 1) around[i] |= own | mask_of(u);
  }
  auto scope_of = [&](Mask m) {
    Mask s = m & reduce_axes ? m : m | output;
    for (size_t i = 0; i < size.size(); i++)
      if (m >> i & 1) s |= around[i];
    return s;
  };
  // What belongs to one operand alone: not reached from the sink around it.
  std::unordered_map<UOp, int> part_of, part_of_window;
  const UOps values = stageable(sink);
  std::vector<WindowOperand> windows;
  for (size_t k = 0; k < values.size() && k < 32; k++) {
    windows.push_back(window_operand(sink, values[k]));
    // What is left without the operand; a window takes the mask of its product along.
    auto leave = [&](UOp masked, UOp whole, std::unordered_map<UOp, int>& parts) {
      std::unordered_set<UOp> elsewhere;
      UOps stack{sink};
      while (!stack.empty()) {
        UOp u = stack.back();
        stack.pop_back();
        for (uint32_t i = u == masked ? 1 : 0; i < u.nsrc(); i++)
          if (u.src(i) != values[k] && elsewhere.insert(u.src(i)).second) stack.push_back(u.src(i));
      }
      for (UOp u : whole.toposort())
        if (!elsewhere.count(u)) parts.emplace(u, static_cast<int>(k));
    };
    leave({}, values[k], part_of);
    leave(windows[k].masked, windows[k].masked ? windows[k].masked : values[k], part_of_window);
  }
  auto window_of = [&](UOp u) {
    auto it = part_of_window.find(u);
    return it == part_of_window.end() ? -1 : it->second;
  };
  auto operand_of = [&](UOp u) {
    auto it = part_of.find(u);
    return it == part_of.end() ? -1 : it->second;
  };
  auto reduced_only = [&](Mask m) { return m & ~reduce_axes ? 0 : m; };
  for (UOp u : order) {
    if (u.in(groups::kAlu | Ops::CAST | Ops::WMMA) || u.is(Ops::LOAD)) {
      if (Mask m = mask_of(u);
          m && std::none_of(exclusive.begin(), exclusive.end(), [&](Mask e) { return (m & ~e) == 0; }))
        exclusive.push_back(m);
    }
    if (u.in(groups::kElementwise | Ops::WMMA) && !u.dtype().is_weak() && !u.src(0).dtype().is_weak()) {
      int bytes = std::max(u.dtype().itemsize(), u.src(0).dtype().itemsize());
      if (u.in(groups::kComparison) || u.is(Ops::WHERE))
        bytes = u.src(u.nsrc() - 1).dtype().is_weak() ? 4 : u.src(u.nsrc() - 1).dtype().itemsize();
      item = std::max(item, bytes);
      Mask m = mask_of(u);
      alu.push_back({m, scope_of(m), cost_of(u), bytes, operand_of(u), window_of(u)});
      if (u.is(Ops::WMMA)) alu.back().alone = 12;  // made of vectors only
      // Words turned on their way to the lanes: other units do it.
      if (u.is(Ops::XOR) && u.dtype() == dtypes::uint32 && u.src(1).is_const_int(0x80808080)) alu.back().cost = 0.25;
      if (u.is(Ops::WHERE) && u.src(0).is(Ops::CMPLT) && u.src(0).src(0).dtype().is_weak())
        alu.back().decides = reduced_only(mask_of(u.src(0)));
    } else if (u.is(Ops::CMPLT) || u.is(Ops::CAST)) {
      Mask m = mask_of(u);
      alu.push_back({m, scope_of(m), u.is(Ops::CMPLT) ? mask_cost : 1, 4, operand_of(u),
                     window_of(u)});  // a mask is made once for several uses
      if (u.is(Ops::CMPLT)) alu.back().decides = reduced_only(m);
    }
    if (u.is(Ops::REDUCE)) {
      Mask own = 0;
      for (uint32_t i = 1; i < u.nsrc(); i++) own |= Mask{1} << axis.at(u.src(i));
      Mask value = mask_of(u.src(0));
      const bool dot = u.src(0).is(Ops::WMMA);
      bool mul = dot || ((u.src(0).is(Ops::MUL) || (u.src(0).is(Ops::WHERE) && u.src(0).src(1).is(Ops::MUL))) &&
                         u.dtype().is_float() && u.arg<ReduceArg>().op == Ops::ADD);
      item = std::max(item, u.dtype().itemsize());
      reduces.push_back({value, own, scope_of(value | own), u.dtype().itemsize(), mul, dot});
    }
    if (u.in(Ops::LOAD | Ops::STORE) && u.src(0).is(Ops::INDEX)) {
      Access a;
      UOp index = u.src(0).src(1);
      a.store = u.is(Ops::STORE);
      a.itemsize = u.src(0).dtype().itemsize();
      item = std::max(item, a.itemsize);
      a.mask = mask_of(index);
      a.gate = 0;
      a.nonlinear = 0;
      a.near = 0;
      if (index.is(Ops::WHERE) && index.src(2).is_invalid()) a.gate = mask_of(index.src(0));
      a.gated = index.is(Ops::WHERE);
      LinearForm f = linear_form(index);
      a.offset = f.offset;
      for (UOp x : f.rest) {
        a.nonlinear |= mask_of(x);
        if (!a.store && x.is(Ops::FLOORDIV) && x.src(0).is(Ops::RANGE) && x.src(1).is_const()) a.near |= mask_of(x);
      }
      for (size_t i = 0; i < size.size(); i++) a.stride.push_back(f.coefficient(kernel.range(static_cast<int>(i))));
      a.sort_strides();
      if (a.store) a.mask |= mask_of(u.src(1));
      a.scope = scope_of(a.mask);
      a.operand = operand_of(u);
      a.base = u.src(0).src(0);
      a.kept = bool(reused_memory(u.src(0)));
      accesses.push_back(std::move(a));
    }
  }
  for (size_t i = 0; i < size.size(); i++) natural.push_back(i);
  if (!output) stored = 0;
  for (size_t k = 0; k < values.size() && k < 32; k++) {
    const Mask m = mask_of(values[k]);
    bool known = kernel.scratch_bytes(values[k], -1) > 0;
    for (size_t i = 0; i < size.size(); i++) known &= !(m >> i & 1) || size[i] > 0;
    operands.push_back({m, scope_of(m), values[k].dtype().itemsize(), known});
    if (!known) continue;
    bool slide = false;
    for (const Slide& sum : slides(windows[k].value)) {
      operands[k].sums.emplace_back();
      for (const auto& [r, c] : sum)
        if (auto it = axis.find(r); it != axis.end())
          operands[k].sums.back().emplace_back(static_cast<size_t>(it->second), std::abs(c));
      slide |= sum.size() > 1;
    }
    if (!slide) operands[k].sums.clear();
  }
  auto farthest = [&](size_t i) {
    int64_t k = 0;
    for (const Access& a : accesses)
      // Rows one after the other (merge_rows): only a window reads them, along the rows.
      if (a.mask >> i & 1 &&
          !(a.nonlinear >> i & 1 && a.operand >= 0 && !operands[static_cast<size_t>(a.operand)].sums.empty()))
        k = std::max(k, a.step(i));
    return k;
  };
  by_stride = natural;
  std::stable_sort(by_stride.begin(), by_stride.end(), [&](size_t x, size_t y) {
    return is_reduce[x] != is_reduce[y] ? is_reduce[y] : is_reduce[x] && farthest(x) > farthest(y);
  });
  auto place_of = [&](Mask mask, Mask scope) {
    for (size_t i = 0; i < places.size(); i++)
      if (places[i].mask == mask && places[i].scope == scope) return i;
    places.push_back({mask, scope});
    return places.size() - 1;
  };
  for (Alu& a : alu) a.place = place_of(a.mask, a.scope);
  for (Access& a : accesses) a.place = place_of(a.mask, a.scope);
  for (Reduce& r : reduces) r.place = place_of(r.value | r.reduced, r.scope);
  for (Operand& o : operands) o.place = place_of(o.mask, o.scope);
  for (const Alu& a : alu) untiled += std::max(1.0, a.cost);
  untiled += static_cast<double>(accesses.size() + reduces.size());
}

}  // namespace tg
