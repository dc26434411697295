/// \file Values as expressions over ranges: one walk from the sources to the users. Keeps every kernel within its
/// budget.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "tinygrad/schedule/custom.h"
#include "tinygrad/schedule/indexing.h"
#include "tinygrad/schedule/passes.h"

namespace tg {
namespace {
/// The step that reads `u`'s storage: PARAM or AFTER under views.
UOp chain_base(UOp u) {
  while (u.in(groups::kMovement)) u = u.src(0);
  return u;
}

/// Nodes that were there before the operation: storage, literals, views of them.
constexpr OpSet kShared = groups::kMovement | Ops::CONST | Ops::STACK | Ops::PARAM | Ops::AFTER;

struct StoredHash {
  size_t operator()(const std::pair<UOp, std::string>& k) const {
    return std::hash<UOp>()(k.first) ^ std::hash<std::string>()(k.second);
  }
};

class Lowerer {
 public:
  Lowerer(Ranged& r, std::vector<ScheduleBuffer>& buffers, const ScheduleOptions& o, std::span<const KernelRef> kernels)
      : r_(r), buffers_(buffers), o_(o), kernels_(kernels) {
    state_of_.assign(r_.nodes.size(), -1);
    store_step_.assign(r_.nodes.size(), -1);
  }
  Lowered run() {
    for (size_t b = 0; b < buffers_.size(); b++)
      l_.states.push_back({static_cast<int32_t>(b), -1, {}});  // state b: buffer b as found
    make_steps();
    const Graph& graph = Graph::current();
    const Origin untraced(nullptr);
    for (size_t i = 0; i < r_.nodes.size(); i++) {
      UOp u = r_.nodes[i];
      if (u.is(Ops::AFTER)) enter_state(static_cast<uint32_t>(i));
      for (int32_t k = r_.first[i]; k >= 0; k = nth(r_.instances, k).next) {
        Instance& in = nth(r_.instances, k);
        device_ = &nth(r_.regions, nth(r_.scopes, in.scope).kernel).device;
        if (const char* name = graph.origin(u); name && !u.in(kShared))
          note_origin(nth(region_step_, nth(r_.scopes, in.scope).kernel), name);
        in.value = r_.region[i] >= 0 ? load_region(i, in) : value_of(in);
      }
      int32_t g = r_.region[i];
      if (g >= 0 && nth(r_.regions, g).kind == Region::kValue) finish_value(nth(r_.regions, g));
      if (u.is(Ops::STORE)) finish_store(static_cast<uint32_t>(i));
      if (u.is(Ops::CALL)) finish_call(static_cast<uint32_t>(i));
    }
    for (int32_t i : r_.gathers) l_.gathers.push_back(nth(r_.instances, i).value.cast(dtypes::weakint));
    for (size_t k = 0; k < r_.regions.size(); k++) {
      if (r_.regions[k].kind != Region::kCopy) continue;
      UOp source = r_.nodes[r_.regions[k].node].src(0);
      while (source.is(Ops::RESHAPE)) source = source.src(0);
      int32_t g = r_.region[pos(source)];
      nth(l_.steps, region_step_[k]).reads = {g >= 0 ? nth(written_, nth(r_.regions, g).buffer) : state_of(source)};
    }
    return std::move(l_);
  }

 private:
  uint32_t pos(UOp u) const { return r_.position[u.id()]; }

  /// A step tells the operations its kernel was made for, each once.
  void note_origin(int32_t step, const char* name) {
    std::vector<std::string_view>& names = origins_[step];
    if (std::find(names.begin(), names.end(), name) != names.end()) return;
    names.push_back(name);
    std::string& text = nth(l_.steps, step).metadata;
    text += (text.empty() ? "" : ", ") + std::string(name);
  }

  // ---- steps, in the order of the graph ----
  void make_steps() {
    written_.assign(buffers_.size(), -1);
    for (size_t k = r_.regions.size(); k-- > 0;) {
      Region& g = r_.regions[k];
      Step s;
      s.copy = g.kind == Region::kCopy;
      s.ranges = g.ranges;
      s.buffer = g.buffer;
      auto id = static_cast<int32_t>(l_.steps.size());
      if (g.kind == Region::kStore || g.kind == Region::kCall) store_step_[g.node] = id;
      if (g.store >= 0) nth(store_step_, g.store) = id;
      region_step_.resize(r_.regions.size(), -1);
      region_step_[k] = id;
      if (g.buffer >= 0) {
        s.parent = g.buffer;
        nth(written_, g.buffer) = static_cast<int32_t>(l_.states.size());
        l_.states.push_back({g.buffer, g.buffer, {id}});
      }
      l_.steps.push_back(std::move(s));
    }
  }
  /// The state a read of this storage sees.
  int32_t state_of(UOp u) const {
    u = chain_base(u);
    if (u.is(Ops::PARAM)) return static_cast<int32_t>(u.arg<ParamArg>().slot);
    TG_ASSERT(u.is(Ops::AFTER), "no storage: ", u);
    return state_of_[pos(u)];
  }
  void enter_state(uint32_t i) {
    UOp u = r_.nodes[i];
    int32_t parent = state_of(u.src(0));
    std::vector<int32_t> writers;
    for (size_t k = 1; k < u.nsrc(); k++) {
      if (u.src(k).in(Ops::STORE | Ops::CALL)) {
        if (int32_t s = store_step_[pos(u.src(k))]; s >= 0) writers.push_back(s);
      } else if (u.src(k).is(Ops::AFTER)) {
        for (int32_t s : nth(l_.states, state_of(u.src(k))).writers) writers.push_back(s);
      } else TG_ASSERT(u.src(k).is(Ops::PARAM), "effect ", u.src(k), " cannot be scheduled");
    }
    if (writers.empty()) {
      state_of_[i] = parent;
      return;
    }
    state_of_[i] = written_state(parent, std::move(writers));
  }
  int32_t written_state(int32_t parent, std::vector<int32_t> writers) {
    std::sort(writers.begin(), writers.end());
    auto [it, fresh] = known_.try_emplace({parent, writers}, static_cast<int32_t>(l_.states.size()));
    if (fresh) l_.states.push_back({nth(l_.states, parent).buffer, parent, writers});
    return it->second;
  }

  // ---- reads ----
  UOp load(int32_t state, UOp flat, UOp valid, DType d) {
    int32_t b = nth(l_.states, state).buffer;
    UOp p = buffer_param(nth(buffers_, b), b, state);
    UOp v = UOp::make(Ops::INDEX, p.dtype(), {p, valid ? flat.valid(valid) : flat}).load();
    set_size(v, {1, 1});
    TG_ASSERT(v.dtype() == d, "a buffer of ", v.dtype(), " read as ", d);
    return v;
  }
  UOp load_region(size_t i, const Instance& in) {
    int32_t b = nth(r_.regions, r_.region[i]).buffer;
    return load(nth(written_, b), flat_index(in.idx, shape_of(r_.nodes[i])), in.valid, r_.nodes[i].dtype());
  }
  /// A position in a view of a buffer: the flat index into the buffer.
  static Access into_buffer(UOp view, Access a) {
    while (!view.is(Ops::PARAM)) {
      if (!view.is(Ops::AFTER)) a = through_movement(view, a);
      view = view.src(0);
    }
    return {flat_index(a.idx, shape_of(view)), a.valid};
  }

  UOp source(const Instance& in, size_t k) const { return nth(r_.instances, r_.sources[in.src_begin + k]).value; }

  /// Type a value has in a kernel: weakfloat is for literals only.
  static DType value_dtype(UOp u) { return u.dtype() == dtypes::weakfloat ? dtypes::default_float() : u.dtype(); }
  UOp value_of(const Instance& in) {
    UOp u = r_.nodes[in.node];
    switch (u.op()) {
      case Ops::PARAM:
        if (u.arg<ParamArg>().addrspace == AddrSpace::kAlu) return u;
        return load(state_of(u), flat_index(in.idx, shape_of(u)), in.valid, u.dtype());
      case Ops::AFTER: {
        Access a = into_buffer(u, {in.idx, in.valid});
        return load(state_of(u), a.idx, a.valid, u.dtype());
      }
      case Ops::CONST: return u.dtype() == dtypes::weakfloat ? UOp::constant(u.const_value(), value_dtype(u)) : u;
      case Ops::ARANGE: return in.idx.src(0).cast(u.dtype());
      case Ops::RESHAPE:
      case Ops::EXPAND:
      case Ops::PERMUTE:
      case Ops::SHRINK:
      case Ops::FLIP:
      case Ops::CONTIGUOUS: return source(in, 0);
      case Ops::PAD: {
        if (r_.sources[in.src_begin] < 0) return UOp::constant(0, value_dtype(u));
        // Valid here, not in what encloses it: that has its own WHERE.
        UOp here = through_movement(u, {in.idx, UOp()}).valid, v = source(in, 0);
        if (here && in.under == Ops::ADD && v.is(Ops::REDUCE)) {
          // A sum inside a sum: the mask moves to the terms.
          UOps src(v.srcs().begin(), v.srcs().end());
          Size s = size(v);
          src[0] = UOp::alu(Ops::WHERE, {here, src[0], UOp::constant(0, v.dtype())});
          v = v.with_srcs(src);
          set_size(v, {s.ops + 1, s.buffers});
          return v;
        }
        return here ? combine(Ops::WHERE, v.dtype(), {here, v, UOp::constant(0, v.dtype())}, {}) : v;
      }
      case Ops::REDUCE: return reduce(in, u);
      case Ops::STACK: {
        UOp at = in.idx.src(0), v;
        for (uint32_t k = u.nsrc(); k-- > 0;) {
          if (r_.sources[in.src_begin + k] < 0) continue;
          UOp s = source(in, k);
          v = v ? combine(Ops::WHERE, s.dtype(), {at < UOp::constant(int64_t{k} + 1), s, v}, {}) : s;
        }
        return v;
      }
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
  UOp reduce(const Instance& in, UOp u) {
    const ReduceArg& arg = u.arg<ReduceArg>();
    UOp v = source(in, 0);
    // Accumulators are stored, if only in registers: no weak types.
    if (u.dtype() == dtypes::weakint) v = v.cast(dtypes::int64);
    const UOps& open = ranges_of(v);
    bool scales = arg.op == Ops::MAX || (arg.op == Ops::ADD && (!v.dtype().is_float() || v.dtype().bitsize() >= 32));
    UOp idx = nth(r_.instances, r_.sources[in.src_begin]).idx;
    UOps ranges;
    int128 times = 1;
    for (int32_t a : arg.axes) {
      UOp i = idx.src(static_cast<size_t>(a));
      if (!i.is(Ops::RANGE)) continue;
      if (std::find(open.begin(), open.end(), i) != open.end() || !scales || !i.src(0).is_const()) ranges.push_back(i);
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
  /// Upper bounds of what a value takes; counted exactly when they pass the limit.
  struct Size {
    int32_t ops = 0, buffers = 0;
    int32_t weight() const { return ops + 32 * buffers; }
  };
  Size size(UOp v) const { return v.id() < sizes_.size() ? sizes_[v.id()] : Size(); }
  void set_size(UOp v, Size s) {
    if (v.id() >= sizes_.size()) sizes_.resize(v.id() + v.id() / 2 + 64);
    sizes_[v.id()] = s;
  }
  bool fits(Size s) const { return s.ops <= o_.max_alu && s.buffers < o_.max_buffers; }
  static Size sum(Ops op, std::span<const Size> parts) {
    Size s{weight_of(op), 0};
    for (const Size& p : parts) {
      s.ops += p.ops;
      s.buffers += p.buffers;
    }
    return s;
  }
  /// What an operation counts as: functions become polynomials.
  static int32_t weight_of(Ops op) {
    switch (op) {
      case Ops::SIN: return 25;
      case Ops::EXP2:
      case Ops::LOG2: return 12;
      case Ops::POW: return 40;
      default: return 1;
    }
  }
  /// Operations and buffers of a value, each once. Index arithmetic is not counted.
  Size count(std::span<const UOp> roots) {
    MemoScope seen;
    Size s;
    std::vector<int64_t> slots;
    UOps stack(roots.begin(), roots.end());
    while (!stack.empty() && s.ops <= o_.max_alu * 2) {
      UOp v = stack.back();
      stack.pop_back();
      if (seen.has(v) || v.in(groups::kIrreducible)) continue;
      seen.mark(v);
      if (v.is(Ops::LOAD)) {
        slots.push_back(v.src(0).src(0).arg<ParamArg>().slot);
        s.ops++;
        continue;
      }
      s.ops += weight_of(v.op());
      stack.insert(stack.end(), v.srcs().begin(), v.is(Ops::REDUCE) ? v.srcs().begin() + 1 : v.srcs().end());
    }
    std::sort(slots.begin(), slots.end());
    s.buffers = static_cast<int32_t>(std::unique(slots.begin(), slots.end()) - slots.begin());
    return s;
  }
  /// An operation on values, stored in part first where the result would be more than a kernel may hold.
  UOp combine(Ops op, DType dtype, std::span<const UOp> values, const Arg& arg) {
    UOp v[3];
    Size part[3];
    size_t n = values.size();
    for (size_t k = 0; k < n; k++) {
      v[k] = values[k];
      part[k] = size(v[k]);
    }
    Size total = sum(op, {part, n});
    if (!fits(total)) {
      total = count({v, n});
      total.ops += weight_of(op);
      while (!fits(total)) {
        size_t worst = n;
        for (size_t k = 0; k < n; k++) {
          part[k] = count({v + k, 1});
          if (part[k].ops > 1 && !v[k].dtype().is_weak() && (worst == n || part[k].weight() > part[worst].weight()))
            worst = k;
        }
        if (worst == n) break;
        UOp stored = store(v[worst]);
        for (size_t k = 0; k < n; k++)
          if (k != worst && v[k] == v[worst]) v[k] = stored;
        v[worst] = stored;
        total = count({v, n});
        total.ops += weight_of(op);
      }
    }
    UOp out = UOp::make(op, dtype, std::span<const UOp>(v, n), arg);
    set_size(out, total);
    return out;
  }
  UOp combine(Ops op, DType dtype, std::initializer_list<UOp> v, const Arg& arg) {
    return combine(op, dtype, std::span<const UOp>(v.begin(), v.size()), arg);
  }

  /// Puts a value into a buffer over the ranges it depends on and reads it back there: a kernel of its own.
  UOp store(UOp v) {
    std::string device = value_device(v);
    if (device.empty()) device = *device_;
    auto [it, fresh] = stored_.try_emplace({v, device});
    if (!fresh) return it->second;
    UOps ranges = ranges_of(v);
    Shape shape;
    int64_t n = 1;
    for (UOp r : ranges) {
      shape.push_back(SInt(r.src(0)));
      n *= shape.back().max();
    }
    UOp flat = flat_index(UOp::stack(ranges), shape);
    int32_t state = add_internal(l_, buffers_, v.dtype(), n, device);
    Step& s = l_.steps.back();
    s.index = flat;
    s.value = v;
    s.ranges = ranges;
    return it->second = load(state, flat, UOp(), v.dtype());
  }
  /// Device of the buffers a value reads.
  std::string value_device(UOp v) {
    MemoScope seen;
    UOps stack{v};
    while (!stack.empty()) {
      UOp u = stack.back();
      stack.pop_back();
      if (seen.has(u)) continue;
      seen.mark(u);
      if (u.is(Ops::PARAM) && u.arg<ParamArg>().addrspace == AddrSpace::kGlobal) {
        const std::string& d = nth(buffers_, u.arg<ParamArg>().slot).device;
        if (!d.empty()) return d;
      } else {
        for (UOp s : u.srcs()) stack.push_back(s);
      }
    }
    return "";
  }

  // ---- results ----
  void finish_value(Region& g) {
    UOp u = r_.nodes[g.node];
    int32_t id = nth(region_step_, &g - r_.regions.data());
    if (nth(buffers_, g.buffer).size == 0) return;
    Instance& body = nth(r_.instances, g.body);
    device_ = &g.device;
    body.value = value_of(body);
    Step& step = nth(l_.steps, id);
    step.index = flat_index(body.idx, shape_of(u));
    step.value = body.value.cast(nth(buffers_, g.buffer).dtype);
  }
  void finish_store(uint32_t i) {
    int32_t id = store_step_[i];
    if (id < 0) return;
    UOp dest = r_.nodes[i].src(0);
    int32_t parent = state_of(dest), buffer = nth(l_.states, parent).buffer;
    Step& s = nth(l_.steps, id);
    s.buffer = buffer;
    s.parent = parent;
    if (s.copy) return;
    const Region& g = region_of_store(id);
    const Instance& body = nth(r_.instances, g.body);
    UOps idx;
    size_t n = 0;
    for (const SInt& d : shape_of(dest)) idx.push_back(d == 1 ? UOp::constant(int64_t{0}) : g.ranges[n++]);
    Access a = into_buffer(dest, {UOp::stack(idx), UOp()});
    Step& step = nth(l_.steps, id);
    step.index = a.valid ? a.idx.valid(a.valid) : a.idx;
    step.value = body.value.cast(nth(buffers_, buffer).dtype);
  }
  /// The storage an argument of a CALL is in.
  int32_t argument_state(UOp u) const {
    while (u.is(Ops::RESHAPE)) u = u.src(0);
    int32_t g = r_.region[pos(u)];
    return g >= 0 ? nth(written_, nth(r_.regions, g).buffer) : state_of(u);
  }
  void finish_call(uint32_t i) {
    UOp u = r_.nodes[i];
    int32_t id = store_step_[i];
    Step& s = nth(l_.steps, id);
    const KernelRef& kernel = nth(kernels_, u.int_arg());
    for (UOp p : kernel->sink.toposort()) {
      if (!p.is(Ops::PARAM) || p.arg<ParamArg>().addrspace != AddrSpace::kGlobal) continue;
      auto slot = static_cast<size_t>(p.arg<ParamArg>().slot);
      if (slot >= s.reads.size()) s.reads.resize(slot + 1, -1);
    }
    if (s.reads.empty()) return;  // touches no memory: nothing to run
    s.given = kernel;
    if (const char* name = Graph::current().origin(u)) note_origin(id, name);
    for (size_t k = 0; k < s.reads.size(); k++) {
      int32_t state = argument_state(u.src(k));
      s.buffers.push_back(nth(l_.states, state).buffer);
      s.reads[k] = state;
    }
    for (int32_t k : written_params(kernel->sink)) {
      if (s.buffer < 0) {
        s.buffer = nth(s.buffers, k);
        s.parent = nth(s.reads, k);
      }
      written_state(nth(s.reads, k), {id});
    }
  }
  const Region& region_of_store(int32_t step) const {
    return r_.regions[r_.regions.size() - 1 - static_cast<size_t>(step)];
  }

  Ranged& r_;
  std::vector<ScheduleBuffer>& buffers_;
  const ScheduleOptions& o_;
  std::span<const KernelRef> kernels_;
  Lowered l_;
  std::vector<int32_t> state_of_, store_step_, region_step_;
  std::unordered_map<int32_t, std::vector<std::string_view>> origins_;  // by step
  std::vector<int32_t> written_;  // by buffer: state once its region's step has run
  std::map<std::pair<int32_t, std::vector<int32_t>>, int32_t> known_;
  std::vector<Size> sizes_;
  std::unordered_map<std::pair<UOp, std::string>, UOp, StoredHash> stored_;  // by value and device: its read
  const std::string* device_ = nullptr;                                      // of the kernel that is lowered now
};
}  // namespace

UOp buffer_param(const ScheduleBuffer& b, int32_t buffer, int32_t state) {
  int64_t dims[1] = {b.size};
  ParamArg arg{buffer, AddrSpace::kGlobal, "", "", 0, 0};
  return UOp::make(Ops::PARAM, b.dtype, {UOp::shape_stack(dims)}, arg, static_cast<uint64_t>(state) + 1);
}

int32_t add_internal(Lowered& l, std::vector<ScheduleBuffer>& buffers, DType d, int64_t size,
                     const std::string& device) {
  auto b = static_cast<int32_t>(buffers.size());
  buffers.push_back({ScheduleBuffer::kInternal, d, size, device, -1});
  l.states.push_back({b, -1, {}});
  auto empty = static_cast<int32_t>(l.states.size()) - 1;
  l.states.push_back({b, empty, {static_cast<int32_t>(l.steps.size())}});
  Step s;
  s.buffer = b;
  s.parent = empty;
  l.steps.push_back(std::move(s));
  return static_cast<int32_t>(l.states.size()) - 1;
}

Lowered lower(Ranged& r, std::vector<ScheduleBuffer>& buffers, const ScheduleOptions& options,
              std::span<const KernelRef> kernels) {
  return Lowerer(r, buffers, options, kernels).run();
}

}  // namespace tg
