/// \file What the cost model reads from a kernel: arithmetic, accesses, reduces and operands, in terms of axes.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "tinygrad/codegen/cost/cost_model.h"
#include "tinygrad/codegen/scratch/stage.h"
#include "tinygrad/codegen/scratch/window.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/op_cost.h"

namespace tg {
namespace {
using enum Ops;
constexpr double kByLiteral = 4;           // division by a literal
constexpr double kFreeUnit = 0.25;         // masks, flipped sign bits: units of their own, four in a cycle
constexpr double kScalarDot = 12;          // a dot product instruction without lanes: it is made of vectors only
constexpr int64_t kSignBits = 0x80808080;  // of four bytes in a word, as with_tensor_core flips them
}  // namespace

double CostModel::cost_of(UOp u) {
  if (u.dtype().is_bool() && u.in(AND | OR)) return kFreeUnit;
  // The load chooses, or the multiply-add that the product becomes.
  if (u.is(WHERE) && u.src(2).is_const() &&
      (u.src(1).is(MUL) || (u.src(1).is(LOAD) && u.src(1).src(0).src(1).is(WHERE))))
    return 0;
  if (u.in(CDIV | CMOD | FLOORDIV | FLOORMOD) && u.src(1).is_const()) return kByLiteral;
  if (u.is(CAST) && (u.dtype().is_weak() || u.src(0).dtype().is_weak())) return 0.5;
  const OpCost* costs = costs_of(u.op());
  return costs ? costs->instructions : 1;
}

namespace {
using Mask = CostModel::Mask;

/// Reads a kernel into a model: what every node depends on and which loops are around it.
class KernelReader {
 public:
  KernelReader(CostModel& model, const KernelAxes& kernel, UOp sink);
  void read();

 private:
  using PartOf = std::unordered_map<UOp, int>;
  Mask mask_of(UOp u) const;
  Mask own_axes(UOp u) const;
  Mask scope_of(Mask m) const;
  Mask reduced_only(Mask m) const { return m & ~m_.reduce_axes ? 0 : m; }
  void find_scopes();
  void find_operands();
  void find_parts(UOp value, UOp masked, UOp whole, int operand, PartOf& parts) const;
  static int part(const PartOf& parts, UOp u) {
    auto it = parts.find(u);
    return it == parts.end() ? -1 : it->second;
  }
  void read_node(UOp u);
  void read_dependence(UOp u);
  void read_arithmetic(UOp u);
  void read_predicate(UOp u);
  void read_reduce(UOp u);
  void read_access(UOp u);
  void read_operand(size_t k);
  void order_axes();
  int64_t farthest(size_t axis) const;
  size_t domain_of(Mask mask, Mask scope);
  void number_domains();

  CostModel& m_;
  const KernelAxes& kernel_;
  const UOp sink_;
  const UOps order_, values_;  // all nodes; the stageable operands
  std::unordered_map<UOp, int> axis_;
  std::vector<Mask> around_;  // loops around each reduce axis
  Mask output_ = 0;
  std::vector<WindowOperand> windows_;
  PartOf part_of_, part_of_window_;
};

KernelReader::KernelReader(CostModel& model, const KernelAxes& kernel, UOp sink)
    : m_(model), kernel_(kernel), sink_(sink), order_(sink.toposort()), values_(stageable(sink)) {
  for (size_t i = 0; i < kernel.axes().size(); i++) {
    axis_[kernel.range(static_cast<int>(i))] = static_cast<int>(i);
    m_.size.push_back(kernel.axes()[i].size);
    m_.is_reduce.push_back(kernel.axes()[i].reduce);
    if (kernel.axes()[i].reduce) m_.reduce_axes |= Mask{1} << i;
    m_.natural.push_back(i);
  }
}

Mask KernelReader::mask_of(UOp u) const {
  Mask m = 0;
  for (UOp x : ranges_of(u))
    if (auto it = axis_.find(x); it != axis_.end()) m |= Mask{1} << it->second;
  return m;
}

/// Returns the axes that an END or a REDUCE closes.
Mask KernelReader::own_axes(UOp u) const {
  Mask m = 0;
  for (uint32_t i = 1; i < u.nsrc(); i++)
    if (auto it = axis_.find(u.src(i)); it != axis_.end()) m |= Mask{1} << it->second;
  return m;
}

/// Returns the loops around what depends on `m`.
Mask KernelReader::scope_of(Mask m) const {
  Mask s = m & m_.reduce_axes ? m : m | output_;
  for (size_t i = 0; i < m_.size.size(); i++)
    if (m >> i & 1) s |= around_[i];
  return s;
}

void KernelReader::find_scopes() {
  around_.assign(m_.size.size(), 0);
  for (UOp u : order_) {
    if (u.is(Ops::END)) output_ |= own_axes(u);
    if (!u.is(Ops::REDUCE)) continue;
    const Mask own = own_axes(u);
    for (size_t i = 0; i < m_.size.size(); i++)
      if (own >> i & 1) around_[i] |= own | mask_of(u);
  }
}

/// Finds what belongs to one operand alone, as a panel and as a window, which takes the mask of its product along.
void KernelReader::find_operands() {
  for (size_t k = 0; k < values_.size() && k < CostModel::kMaxOperands; k++) {
    windows_.push_back(window_operand(sink_, values_[k]));
    const UOp masked = windows_[k].masked;
    find_parts(values_[k], {}, values_[k], static_cast<int>(k), part_of_);
    find_parts(values_[k], masked, masked ? masked : values_[k], static_cast<int>(k), part_of_window_);
  }
}

/// Adds the nodes of `whole` that are not reached from the sink around `value`; the first source of `masked` does not
/// count.
void KernelReader::find_parts(UOp value, UOp masked, UOp whole, int operand, PartOf& parts) const {
  std::unordered_set<UOp> elsewhere;
  UOps stack{sink_};
  while (!stack.empty()) {
    UOp u = stack.back();
    stack.pop_back();
    for (uint32_t i = u == masked ? 1 : 0; i < u.nsrc(); i++)
      if (u.src(i) != value && elsewhere.insert(u.src(i)).second) stack.push_back(u.src(i));
  }
  for (UOp u : whole.toposort())
    if (!elsewhere.count(u)) parts.emplace(u, operand);
}

/// Keeps the maximal sets of axes that some value depends on.
void KernelReader::read_dependence(UOp u) {
  const Mask m = mask_of(u);
  if (m && std::none_of(m_.exclusive.begin(), m_.exclusive.end(), [&](Mask e) { return (m & ~e) == 0; }))
    m_.exclusive.push_back(m);
}

void KernelReader::read_arithmetic(UOp u) {
  int bytes = std::max(u.dtype().itemsize(), u.src(0).dtype().itemsize());
  if (u.in(groups::kComparison) || u.is(Ops::WHERE)) {
    const DType last = u.src(u.nsrc() - 1).dtype();
    bytes = last.is_weak() ? 4 : last.itemsize();
  }
  m_.item = std::max(m_.item, bytes);
  const Mask m = mask_of(u);
  CostModel::Alu a{m, scope_of(m), CostModel::cost_of(u), bytes, part(part_of_, u), part(part_of_window_, u)};
  if (u.is(Ops::WMMA)) a.scalar_penalty = kScalarDot;
  // Sign bits of packed words are flipped by units that have nothing else to do.
  if (u.is(Ops::XOR) && u.dtype() == dtypes::uint32 && u.src(1).is_const_int(kSignBits)) a.cost = kFreeUnit;
  if (u.is(Ops::WHERE) && u.src(0).is(Ops::CMPLT) && u.src(0).src(0).dtype().is_weak())
    a.predicate_axes = reduced_only(mask_of(u.src(0)));
  m_.alu.push_back(a);
}

/// Reads a comparison of indices, or the conversion of one: a mask is made once for several uses.
void KernelReader::read_predicate(UOp u) {
  const bool compares = u.is(Ops::CMPLT);
  const Mask m = mask_of(u);
  CostModel::Alu a{m, scope_of(m), compares ? m_.rates.masked_load : 1, 4, part(part_of_, u), part(part_of_window_, u)};
  if (compares) a.predicate_axes = reduced_only(m);
  m_.alu.push_back(a);
}

void KernelReader::read_reduce(UOp u) {
  Mask own = 0;
  for (uint32_t i = 1; i < u.nsrc(); i++) own |= Mask{1} << axis_.at(u.src(i));
  const UOp v = u.src(0);
  const Mask value = mask_of(v);
  const bool dot = v.is(Ops::WMMA);
  const bool product = v.is(Ops::MUL) || (v.is(Ops::WHERE) && v.src(1).is(Ops::MUL));
  const bool mul = dot || (product && u.dtype().is_float() && u.arg<ReduceArg>().op == Ops::ADD);
  m_.item = std::max(m_.item, u.dtype().itemsize());
  m_.reduces.push_back({value, own, scope_of(value | own), u.dtype().itemsize(), mul, dot});
}

void KernelReader::read_access(UOp u) {
  CostModel::Access a;
  const UOp index = u.src(0).src(1);
  a.store = u.is(Ops::STORE);
  a.itemsize = u.src(0).dtype().itemsize();
  m_.item = std::max(m_.item, a.itemsize);
  a.mask = mask_of(index);
  a.gated = index.is(Ops::WHERE);
  a.gate = a.gated && index.src(2).is_invalid() ? mask_of(index.src(0)) : 0;
  const AffineIndex f(index);
  a.offset = f.offset;
  for (UOp x : f.rest) {
    a.nonlinear |= mask_of(x);
    if (!a.store && x.is(Ops::FLOORDIV) && x.src(0).is(Ops::RANGE) && x.src(1).is_const())
      a.shared_lane_axes |= mask_of(x);
  }
  for (size_t i = 0; i < m_.size.size(); i++) a.stride.push_back(f.coefficient(kernel_.range(static_cast<int>(i))));
  a.sort_strides();
  if (a.store) a.mask |= mask_of(u.src(1));
  a.scope = scope_of(a.mask);
  a.operand = part(part_of_, u);
  a.base = u.src(0).src(0);
  a.spilled = bool(reused_memory(u.src(0)));
  m_.accesses.push_back(std::move(a));
}

void KernelReader::read_node(UOp u) {
  if (u.in(groups::kAlu | Ops::CAST | Ops::WMMA) || u.is(Ops::LOAD)) read_dependence(u);
  if (u.in(groups::kElementwise | Ops::WMMA) && !u.dtype().is_weak() && !u.src(0).dtype().is_weak()) read_arithmetic(u);
  else if (u.is(Ops::CMPLT) || u.is(Ops::CAST)) read_predicate(u);
  if (u.is(Ops::REDUCE)) read_reduce(u);
  if (u.in(Ops::LOAD | Ops::STORE) && u.src(0).is(Ops::INDEX)) read_access(u);
}

void KernelReader::read_operand(size_t k) {
  const Mask m = mask_of(values_[k]);
  bool known = kernel_.scratch_bytes(values_[k], -1) > 0;
  for (size_t i = 0; i < m_.size.size(); i++) known &= !(m >> i & 1) || m_.size[i] > 0;
  m_.operands.push_back({m, scope_of(m), values_[k].dtype().itemsize(), known});
  if (!known) return;
  CostModel::Operand& operand = m_.operands.back();
  bool slide = false;
  for (const Slide& sum : slides(windows_[k].value)) {
    CostModel::AxisSum& axes = operand.sums.emplace_back();
    for (const auto& [r, c] : sum)
      if (auto it = axis_.find(r); it != axis_.end()) axes.emplace_back(static_cast<size_t>(it->second), std::abs(c));
    slide |= sum.size() > 1;
  }
  if (!slide) operand.sums.clear();
}

/// Returns the longest step in memory along an axis. Rows one after the other (flatten_output_rows) do not count: only
/// a window reads them, along the rows.
int64_t KernelReader::farthest(size_t i) const {
  int64_t k = 0;
  for (const CostModel::Access& a : m_.accesses)
    if (a.mask >> i & 1 &&
        !(a.nonlinear >> i & 1 && a.operand >= 0 && !m_.operands[static_cast<size_t>(a.operand)].sums.empty()))
      k = std::max(k, a.step(i));
  return k;
}

void KernelReader::order_axes() {
  m_.by_stride = m_.natural;
  std::stable_sort(m_.by_stride.begin(), m_.by_stride.end(), [&](size_t x, size_t y) {
    return m_.is_reduce[x] != m_.is_reduce[y] ? m_.is_reduce[y] : m_.is_reduce[x] && farthest(x) > farthest(y);
  });
}

size_t KernelReader::domain_of(Mask mask, Mask scope) {
  for (size_t i = 0; i < m_.domains.size(); i++)
    if (m_.domains[i].mask == mask && m_.domains[i].scope == scope) return i;
  m_.domains.push_back({mask, scope});
  return m_.domains.size() - 1;
}

void KernelReader::number_domains() {
  for (CostModel::Alu& a : m_.alu) a.domain = domain_of(a.mask, a.scope);
  for (CostModel::Access& a : m_.accesses) a.domain = domain_of(a.mask, a.scope);
  for (CostModel::Reduce& r : m_.reduces) r.domain = domain_of(r.value | r.reduced, r.scope);
  for (CostModel::Operand& o : m_.operands) o.domain = domain_of(o.mask, o.scope);
}

void KernelReader::read() {
  find_scopes();
  find_operands();
  for (UOp u : order_) read_node(u);
  for (size_t k = 0; k < windows_.size(); k++) read_operand(k);
  order_axes();
  number_domains();
  for (const CostModel::Alu& a : m_.alu) m_.unrolled_ops += std::max(1.0, a.cost);
  m_.unrolled_ops += static_cast<double>(m_.accesses.size() + m_.reduces.size());
}
}  // namespace

CostModel::CostModel(const KernelAxes& kernel, UOp sink, const Renderer& renderer)
    : rates(machine_rates(renderer.target())),
      blocks(kernel.can_accumulate()),
      l1(static_cast<double>(renderer.target().l1_bytes)),
      l2(static_cast<double>(renderer.target().l2_bytes)),
      registers(renderer.target().vector_registers),
      vector_bytes(renderer.target().vector_bytes),
      gather(renderer.has_gather()) {
  KernelReader(*this, kernel, sink).read();
  most_lanes = lanes_of_items(renderer, item);
}

}  // namespace tg
