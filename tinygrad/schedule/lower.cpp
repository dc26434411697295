/// \file Values as expressions over ranges: one walk from the sources to the users. Keeps every kernel within its
/// budget.
#include "tinygrad/schedule/lower.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "tinygrad/base/contains.h"
#include "tinygrad/schedule/custom.h"
#include "tinygrad/schedule/indexing.h"
#include "tinygrad/uop/op_cost.h"
#include "tinygrad/uop/rebuild.h"

namespace tg {
namespace {
/// Nodes that were there before the operation: storage, literals, views of them.
constexpr OpSet kShared = groups::kMovement | Ops::CONST | Ops::STACK | Ops::PARAM | Ops::AFTER;

struct StoredHash {
  size_t operator()(const std::pair<UOp, std::string>& k) const {
    return std::hash<UOp>()(k.first) ^ std::hash<std::string>()(k.second);
  }
};

class Lowerer {
 public:
  Lowerer(Ranged& r, std::vector<ScheduleBuffer> buffers, const ScheduleOptions& o, std::span<const KernelRef> kernels)
      : r_(r), o_(o), kernels_(kernels), g_(std::move(buffers)) {
    std::string_view last;  // buffers of one device mostly follow each other
    for (const ScheduleBuffer& b : g_.buffers()) {
      if (b.device == last) continue;
      last = b.device;
      max_buffers_ = std::min(max_buffers_, device_traits(last).kernel_buffers);
    }
    state_of_.assign(r_.nodes.size(), -1);
    store_step_.assign(r_.nodes.size(), -1);
  }
  StepGraph run() {
    add_steps();
    const Origin untraced(nullptr);
    for (uint32_t i = 0; i < r_.nodes.size(); i++) {
      UOp u = r_.nodes[i];
      if (u.is(Ops::AFTER)) enter_state(i);
      lower_reads(i);
      int32_t g = r_.region[i];
      if (g >= 0 && at(r_.regions, g).kind == Region::kValue) finish_value(at(r_.regions, g));
      if (u.is(Ops::STORE)) finish_store(i);
      if (u.is(Ops::CALL)) finish_call(i);
    }
    UOps gathers;
    for (int32_t i : r_.gathers) gathers.push_back(at(r_.reads, i).value.cast(dtypes::weakint));
    g_.set_gathers(std::move(gathers));
    for (size_t k = 0; k < r_.regions.size(); k++)
      if (const Region& g = r_.regions[k]; g.kind == Region::kCopy)
        g_.edit(region_step_[k]).what = copy_step(r_.nodes[g.node]);
    return std::move(g_);
  }

 private:
  uint32_t pos(UOp u) const { return r_.position[u.id()]; }

  CopyStep copy_step(UOp u) {
    CopyStep step{stored_state(u.src(0)), {}};
    if (u.is(Ops::COLLECTIVE)) step.collective = std::make_shared<const CollectiveArg>(u.arg<CollectiveArg>());
    return step;
  }

  /// Adds an operation to those that a step's kernel was made for, once.
  void note_origin(StepId step, const char* name) {
    std::vector<std::string_view>& names = origins_[step];
    if (contains(names, name)) return;
    names.push_back(name);
    std::string& text = g_.edit(step).metadata;
    text += (text.empty() ? "" : ", ") + std::string(name);
  }

  // ---- steps, in the order of the graph ----
  void add_steps() {
    written_.assign(g_.buffers().size(), -1);
    region_step_.resize(r_.regions.size(), -1);
    for (size_t k = r_.regions.size(); k-- > 0;) {
      const Region& g = r_.regions[k];
      const StepId id = g_.add_step({.what = {}, .buffer = g.buffer, .parent = g.buffer});
      region_step_[k] = id;
      if (g.kind == Region::kStore || g.kind == Region::kCall) store_step_[g.node] = id;
      if (g.store >= 0) at(store_step_, g.store) = id;
      if (g.buffer >= 0) at(written_, g.buffer) = g_.add_state(g.buffer, {id});
    }
  }
  /// Returns the state a read of this storage, PARAM or AFTER under views, sees.
  StateId state_of_storage(UOp u) const {
    while (u.in(groups::kMovement)) u = u.src(0);
    if (u.is(Ops::PARAM)) return static_cast<StateId>(u.arg<ParamArg>().slot);
    TG_ASSERT(u.is(Ops::AFTER), "no storage: ", u);
    return state_of_[pos(u)];
  }
  /// Returns the state that holds a value: of the buffer it was computed into, or of its storage.
  StateId stored_state(UOp u) const {
    while (u.is(Ops::RESHAPE)) u = u.src(0);
    const int32_t g = r_.region[pos(u)];
    return g >= 0 ? at(written_, at(r_.regions, g).buffer) : state_of_storage(u);
  }
  void enter_state(uint32_t i) {
    UOp u = r_.nodes[i];
    const StateId parent = state_of_storage(u.src(0));
    std::vector<StepId> writers;
    for (UOp effect : u.srcs().subspan(1)) {
      if (effect.in(Ops::STORE | Ops::CALL)) {
        if (StepId s = store_step_[pos(effect)]; s >= 0) writers.push_back(s);
      } else if (effect.is(Ops::AFTER)) {
        const std::vector<StepId>& w = g_.state(state_of_storage(effect)).writers;
        writers.insert(writers.end(), w.begin(), w.end());
      } else TG_ASSERT(effect.is(Ops::PARAM), "effect ", effect, " cannot be scheduled");
    }
    state_of_[i] = writers.empty() ? parent : written_state(parent, std::move(writers));
  }
  StateId written_state(StateId parent, std::vector<StepId> writers) {
    std::sort(writers.begin(), writers.end());
    auto [it, fresh] = known_.try_emplace({parent, writers}, g_.states());
    if (fresh) g_.add_state(parent, writers);
    return it->second;
  }

  // ---- reads ----
  void lower_reads(uint32_t i) {
    const char* name = Graph::current().origin(r_.nodes[i]);
    for (int32_t k = r_.first_read[i]; k >= 0; k = at(r_.reads, k).next) {
      Read& in = at(r_.reads, k);
      const int32_t kernel = at(r_.scopes, in.scope).kernel;
      device_ = &at(r_.regions, kernel).device;
      if (name && !r_.nodes[i].in(kShared)) note_origin(at(region_step_, kernel), name);
      in.value = r_.region[i] >= 0 ? load_region(i, in) : value_of(in);
    }
  }
  UOp load(StateId state, UOp flat, UOp valid, DType d) {
    UOp v = g_.read(state, valid ? flat.valid(valid) : flat);
    set_size(v, {1, 1});
    TG_ASSERT(v.dtype() == d, "a buffer of ", v.dtype(), " read as ", d);
    return v;
  }
  UOp load_region(size_t i, const Read& in) {
    const BufferId b = at(r_.regions, r_.region[i]).buffer;
    return load(at(written_, b), flat_index(in.idx, shape_of(r_.nodes[i])), in.valid, r_.nodes[i].dtype());
  }
  /// Returns a position in a view of a buffer as the flat index into the buffer.
  static IndexedRead into_buffer(UOp view, IndexedRead a) {
    while (!view.is(Ops::PARAM)) {
      if (!view.is(Ops::AFTER)) a = through_movement(view, a);
      view = view.src(0);
    }
    return {flat_index(a.idx, shape_of(view)), a.valid};
  }

  UOp source(const Read& in, size_t k) const { return at(r_.reads, r_.sources[in.src_begin + k]).value; }

  /// Returns the type a value has in a kernel: weakfloat is for literals only.
  static DType value_dtype(UOp u) { return u.dtype() == dtypes::weakfloat ? dtypes::default_float() : u.dtype(); }
  UOp value_of(const Read& in) {
    UOp u = r_.nodes[in.node];
    switch (u.op()) {
      case Ops::PARAM:
        if (u.arg<ParamArg>().addrspace == AddrSpace::kAlu) return u;
        return load(state_of_storage(u), flat_index(in.idx, shape_of(u)), in.valid, u.dtype());
      case Ops::AFTER: {
        IndexedRead a = into_buffer(u, {in.idx, in.valid});
        return load(state_of_storage(u), a.idx, a.valid, u.dtype());
      }
      case Ops::CONST: return u.dtype() == dtypes::weakfloat ? UOp::constant(u.const_value(), value_dtype(u)) : u;
      case Ops::ARANGE: return in.idx.src(0).cast(u.dtype());
      case Ops::RESHAPE:
      case Ops::EXPAND:
      case Ops::PERMUTE:
      case Ops::SHRINK:
      case Ops::FLIP:
      case Ops::CONTIGUOUS: return source(in, 0);
      case Ops::PAD: return padded(in, u);
      case Ops::REDUCE: return reduce(in, u);
      case Ops::STACK: return stacked(in, u);
      case Ops::INDEX: return source(in, 0);
      case Ops::CAST: {
        UOp v = source(in, 0);
        if (v.dtype() == u.dtype() || (v.is_const() && v.dtype().is_weak())) return v.cast(u.dtype());
        return combine(Ops::CAST, value_dtype(u), {v}, {});
      }
      default: {
        UOp src[3];
        for (uint32_t k = 0; k < u.nsrc(); k++) src[k] = source(in, k);
        return combine(u.op(), value_dtype(u), {src, u.nsrc()}, u.arg());
      }
    }
  }
  UOp padded(const Read& in, UOp u) {
    if (r_.sources[in.src_begin] < 0) return UOp::constant(0, value_dtype(u));
    // Valid here, not in what encloses it: that has its own WHERE.
    UOp here = through_movement(u, {in.idx, UOp()}).valid, v = source(in, 0);
    if (!here) return v;
    if (in.outer_reduce != Ops::ADD || !v.is(Ops::REDUCE))
      return combine(Ops::WHERE, v.dtype(), {here, v, UOp::constant(0, v.dtype())}, {});
    // A sum inside a sum: the mask moves to the terms.
    const Size s = size(v);
    v = with_first_src(v, UOp::alu(Ops::WHERE, {here, v.src(0), UOp::constant(0, v.dtype())}));
    set_size(v, {s.ops + 1, s.buffers});
    return v;
  }
  UOp stacked(const Read& in, UOp u) {
    UOp which = in.idx.src(0), v;
    for (uint32_t k = u.nsrc(); k-- > 0;) {
      if (r_.sources[in.src_begin + k] < 0) continue;
      UOp s = source(in, k);
      v = v ? combine(Ops::WHERE, s.dtype(), {which < UOp::constant(int64_t{k} + 1), s, v}, {}) : s;
    }
    return v;
  }
  UOp reduce(const Read& in, UOp u) {
    const ReduceArg& arg = u.arg<ReduceArg>();
    UOp v = source(in, 0);
    // Accumulators are stored, if only in registers: no weak types.
    if (u.dtype() == dtypes::weakint) v = v.cast(dtypes::int64);
    const UOps& open = ranges_of(v);
    bool scales = arg.op == Ops::MAX || (arg.op == Ops::ADD && (!v.dtype().is_float() || v.dtype().bitsize() >= 32));
    UOp idx = at(r_.reads, r_.sources[in.src_begin]).idx;
    UOps ranges;
    int128 times = 1;
    for (int32_t a : arg.axes) {
      UOp i = idx.src(static_cast<size_t>(a));
      if (!i.is(Ops::RANGE)) continue;
      if (contains(open, i) || !scales || !i.src(0).is_const()) ranges.push_back(i);
      else if (arg.op == Ops::ADD) times *= i.src(0).const_int();
    }
    Size s = size(v);
    if (v.is(Ops::REDUCE) && v.arg<ReduceArg>().op == arg.op) {
      ranges.insert(ranges.end(), v.srcs().begin() + 1, v.srcs().end());
      v = v.src(0);
    }
    if (!ranges.empty()) {
      v = v.reduce(arg.op, ranges);
      set_size(v, {s.ops + 1, s.buffers});
    }
    if (times != 1) v = combine(Ops::MUL, v.dtype(), {v, UOp::constant(ConstValue(times), v.dtype())}, {});
    return u.dtype() == dtypes::weakint ? v.cast(u.dtype()) : v;
  }

  // ---- the budget ----
  /// Upper bounds of the operations and buffers of a value; counted exactly when they pass the limit.
  struct Size {
    int32_t ops = 0, buffers = 0;
    int32_t weight() const { return ops + 32 * buffers; }
  };
  Size size(UOp v) const { return v.id() < sizes_.size() ? sizes_[v.id()] : Size(); }
  void set_size(UOp v, Size s) {
    if (v.id() >= sizes_.size()) sizes_.resize(v.id() + v.id() / 2 + 64);
    sizes_[v.id()] = s;
  }
  bool fits(Size s) const { return s.ops <= o_.max_alu && s.buffers < max_buffers_; }
  static int32_t weight_of(Ops op) {
    const OpCost* cost = costs_of(op);
    return cost ? cost->size : 1;
  }
  /// Counts operations and buffers of values, each once, without index arithmetic.
  Size count(std::span<const UOp> roots) {
    MemoScope seen;
    Size s;
    std::vector<BufferId> buffers;
    UOps stack(roots.begin(), roots.end());
    while (!stack.empty() && s.ops <= o_.max_alu * 2) {
      UOp v = stack.back();
      stack.pop_back();
      if (seen.has(v) || v.in(groups::kIrreducible)) continue;
      seen.mark(v);
      if (v.is(Ops::LOAD)) {
        buffers.push_back(g_.state(state_of(v)).buffer);
        s.ops++;
        continue;
      }
      s.ops += weight_of(v.op());
      stack.insert(stack.end(), v.srcs().begin(), v.is(Ops::REDUCE) ? v.srcs().begin() + 1 : v.srcs().end());
    }
    std::sort(buffers.begin(), buffers.end());
    s.buffers = static_cast<int32_t>(std::unique(buffers.begin(), buffers.end()) - buffers.begin());
    return s;
  }
  /// Makes an operation on values. Where that is more than a kernel may hold, the largest values are stored first.
  UOp combine(Ops op, DType dtype, std::span<const UOp> values, const Arg& arg) {
    std::array<UOp, 3> operands;
    const std::span<UOp> v(operands.begin(), std::copy(values.begin(), values.end(), operands.begin()));
    Size total{weight_of(op), 0};
    for (UOp x : v) total = {total.ops + size(x).ops, total.buffers + size(x).buffers};
    if (!fits(total)) total = store_largest(op, v);
    UOp out = UOp::make(op, dtype, v, arg);
    set_size(out, total);
    return out;
  }
  /// Stores the largest of the values until an operation on them fits; returns its size.
  Size store_largest(Ops op, std::span<UOp> v) {
    while (true) {
      Size total = count(v);
      total.ops += weight_of(op);
      if (fits(total)) return total;
      UOp worst;
      int32_t most = 0;
      for (UOp x : v) {
        const Size s = count({&x, 1});
        if (s.ops <= 1 || x.dtype().is_weak() || (worst && s.weight() <= most)) continue;
        worst = x;
        most = s.weight();
      }
      if (!worst) return total;
      std::replace(v.begin(), v.end(), worst, store(worst));
    }
  }
  UOp combine(Ops op, DType dtype, std::initializer_list<UOp> v, const Arg& arg) {
    return combine(op, dtype, std::span<const UOp>(v.begin(), v.size()), arg);
  }

  /// Stores a value over the ranges it depends on in a kernel of its own; returns the read of it there.
  UOp store(UOp v) {
    std::string device = value_device(v);
    if (device.empty()) device = *device_;
    auto [it, fresh] = stored_.try_emplace({v, device});
    if (!fresh) return it->second;
    UOp stored =
        g_.materialize(v, ranges_of(v), device, "the largest part of an expression that is too long for a kernel");
    set_size(stored, {1, 1});
    return it->second = stored;
  }
  /// Returns the device of the buffers a value reads.
  std::string value_device(UOp v) {
    MemoScope seen;
    UOps stack{v};
    while (!stack.empty()) {
      UOp u = stack.back();
      stack.pop_back();
      if (seen.has(u)) continue;
      seen.mark(u);
      if (u.is(Ops::PARAM) && u.arg<ParamArg>().addrspace == AddrSpace::kGlobal) {
        const std::string& d = g_.buffer_of(static_cast<StateId>(u.arg<ParamArg>().slot)).device;
        if (!d.empty()) return d;
      } else stack.insert(stack.end(), u.srcs().begin(), u.srcs().end());
    }
    return "";
  }

  // ---- results ----
  void finish_value(const Region& g) {
    const DType dtype = g_.buffer(g.buffer).dtype;
    if (g_.buffer(g.buffer).size == 0) return;
    Read& body = at(r_.reads, g.body);
    device_ = &g.device;
    body.value = value_of(body);
    UOp index = flat_index(body.idx, shape_of(r_.nodes[g.node]));
    g_.edit(at(region_step_, &g - r_.regions.data())).what = KernelStep{index, body.value.cast(dtype), g.ranges};
  }
  void finish_store(uint32_t i) {
    const StepId id = store_step_[i];
    if (id < 0) return;
    UOp dest = r_.nodes[i].src(0);
    Step& s = g_.edit(id);
    s.parent = state_of_storage(dest);
    s.buffer = g_.state(s.parent).buffer;
    const Region& g = r_.regions[r_.regions.size() - 1 - static_cast<size_t>(id)];
    if (g.kind == Region::kCopy) return;
    UOps idx;
    size_t n = 0;
    for (const SInt& d : shape_of(dest)) idx.push_back(d == 1 ? UOp::constant(int64_t{0}) : g.ranges[n++]);
    const IndexedRead a = into_buffer(dest, {UOp::stack(idx), UOp()});
    UOp value = at(r_.reads, g.body).value.cast(g_.buffer(s.buffer).dtype);
    s.what = KernelStep{a.valid ? a.idx.valid(a.valid) : a.idx, value, g.ranges};
  }
  void finish_call(uint32_t i) {
    UOp u = r_.nodes[i];
    const StepId id = store_step_[i];
    UserStep user{at(kernels_, u.int_arg()), {}};
    size_t slots = 0;
    for (UOp p : user.kernel->sink.toposort())
      if (p.is(Ops::PARAM) && p.arg<ParamArg>().addrspace == AddrSpace::kGlobal)
        slots = std::max(slots, static_cast<size_t>(p.arg<ParamArg>().slot) + 1);
    if (!slots) return;  // touches no memory: nothing to run
    if (const char* name = Graph::current().origin(u)) note_origin(id, name);
    for (size_t k = 0; k < slots; k++) user.arguments.push_back(stored_state(u.src(k)));
    Step& s = g_.edit(id);
    for (int32_t k : written_params(user.kernel->sink)) {
      const StateId before = at(user.arguments, k);
      if (s.buffer < 0) {
        s.buffer = g_.state(before).buffer;
        s.parent = before;
      }
      written_state(before, {id});
    }
    s.what = std::move(user);
  }

  Ranged& r_;
  const ScheduleOptions& o_;
  int64_t max_buffers_ = o_.max_buffers;  // of a kernel, on every device at hand
  std::span<const KernelRef> kernels_;
  StepGraph g_;
  std::vector<StateId> state_of_;  // by position
  std::vector<StepId> store_step_, region_step_;
  std::unordered_map<StepId, std::vector<std::string_view>> origins_;
  std::vector<StateId> written_;  // by buffer: state once its region's step has run
  std::map<std::pair<StateId, std::vector<StepId>>, StateId> known_;
  std::vector<Size> sizes_;
  std::unordered_map<std::pair<UOp, std::string>, UOp, StoredHash> stored_;  // by value and device: its read
  const std::string* device_ = nullptr;                                      // of the kernel that is lowered now
};
}  // namespace

StepGraph lower(Ranged& r, std::vector<ScheduleBuffer> buffers, const ScheduleOptions& options,
                std::span<const KernelRef> kernels) {
  return Lowerer(r, std::move(buffers), options, kernels).run();
}

}  // namespace tg
