/// \file Decides which values get storage and at which indices every value is read: one walk from the users to the
/// sources.
#include <algorithm>
#include <map>
#include <numeric>
#include <ostream>
#include <tuple>

#include "tinygrad/schedule/indexing.h"
#include "tinygrad/schedule/passes.h"
#include "tinygrad/uop/op_cost.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
constexpr int kMaxInstances = 16;   // reads of one value in different places beyond which it is stored
constexpr int kCostLimit = 64;      // where counting stops
constexpr double kReuse = 1.5;      // evaluations per element from which a reduction counts as recomputed
constexpr double kMany = 8;         // evaluations per element that ask for the strict rules below
constexpr size_t kLongIndex = 160;  // nodes of an index that further views had better not work on
constexpr int64_t kDigitLanes =
    16;  // digits of a loop's index that are a multiple of this become loops (simplify_ranges)
constexpr double kMerge =
    2.25;  // the same for a sum inside a sum: masks of padding cost less than storing what is summed (im2col)

// What may be recomputed (costs as in op_cost).
constexpr int kCheapInReduce = 1;   // an operand of a reduction that reads it many times
constexpr int kCheapNarrow = 4;     // the same when it reads fewer bytes than it makes: dequantization
constexpr int kCheapBroadcast = 8;  // a value broadcast along outer loops
constexpr int kCheapTwice =
    24;  // a value that several kernels read once each: one transcendental is cheaper than memory

constexpr OpSet kLeaf = Ops::PARAM | Ops::AFTER | Ops::CONST | Ops::ARANGE;

int op_cost(UOp u) {
  if (u.is(Ops::STACK)) return static_cast<int>(u.nsrc());
  const OpCost* costs = costs_of(u.op());
  return costs ? costs->recompute : 0;
}

/// What computing a value in place takes, counted over the values it would take in too.
struct Cost {
  int ops = 0;
  int buffers = 0;   // of the value's size
  double bytes = 0;  // read per element, by type
};

/// How a value would be read if it were computed in place.
struct Reads {
  double evaluations = 0;  // per element, over all kernels
  bool reuse = false;      // many, or in loops that do not index it
  bool in_reduce = false;  // those loops reduce
};

class Rangeifier {
 public:
  /// `first`: a first walk, whose decisions the second knows.
  Rangeifier(UOp sink, std::vector<ScheduleBuffer>& buffers, Rangeifier* first) : buffers_(buffers) {
    r_.nodes = sink.toposort();
    size_t n = r_.nodes.size();
    r_.position.assign(Graph::current().id_limit(), 0);
    for (size_t i = 0; i < n; i++) r_.position[r_.nodes[i].id()] = static_cast<uint32_t>(i);
    r_.first.assign(n, -1);
    r_.region.assign(n, -1);
    last_.assign(n, -1);
    count_.assign(n, 0);
    uses_.assign(n, 0);
    needed_.assign(n, false);
    mark_.assign(n, 0);
    reads_.assign(n, {});
    prepare();
    if (first) {
      reduces_ = std::move(first->reduces_);
      stored_ = std::move(first->stored_);
    }
  }
  /// Users decide before their sources, so a value may have been stored for what is stored itself: a reduction in it,
  /// or its costly part. Decides again, from the sources up, with what is known now; true when that stores less.
  bool reconsider() {
    bool better = false;
    std::vector<bool> reduces(reduces_.size(), false);
    for (size_t i = 0; i < reduces.size(); i++) {
      reduces[i] = reduces_here(i, reduces, true);
      if (r_.region[i] < 0 || is_forced(static_cast<uint32_t>(i))) continue;
      stored_[i] = reduces[i] || costs_too_much(r_.nodes[i], reads_[i], inline_cost(static_cast<uint32_t>(i)));
      better |= !stored_[i];
    }
    reduces_ = std::move(reduces);
    return better;
  }
  Ranged take() { return std::move(r_); }
  void run() {
    for (size_t i = r_.nodes.size(); i-- > 0;) process(static_cast<uint32_t>(i));
  }

 private:
  uint32_t pos(UOp u) const { return r_.position[u.id()]; }

  /// Whether computing this value in place means a reduction there, by what holds of its sources; `known`: stored ones
  /// do not count.
  bool reduces_here(size_t i, const std::vector<bool>& reduces, bool known) const {
    UOp u = r_.nodes[i];
    if (u.is(Ops::REDUCE)) return true;
    auto of = [&](UOp s) { return reduces[pos(s)] && !(known && r_.region[pos(s)] >= 0); };
    if (u.in(groups::kMovement) && !u.is(Ops::EXPAND)) return of(u.src(0));
    // What is broadcast here is stored before, for it would be computed again and again.
    if (u.in(groups::kElementwise | Ops::STACK | Ops::EXPAND | Ops::INDEX))
      for (UOp s : u.srcs())
        if (of(s) && (u.is(Ops::STACK) || volume_[pos(s)] >= volume_[i])) return true;
    return false;
  }
  /// Facts of nodes, sources first.
  void prepare() {
    size_t n = r_.nodes.size();
    volume_.assign(n, 1);
    reduces_.assign(n, false);
    stored_.assign(n, false);
    for (size_t i = 0; i < n; i++) {
      UOp u = r_.nodes[i];
      for (UOp s : u.srcs()) uses_[pos(s)]++;
      for (const SInt& s : shape_of(u)) volume_[i] *= static_cast<double>(s.max());
      reduces_[i] = reduces_here(i, reduces_, false);
    }
  }

  // ---- building ----
  UOp fresh(const SInt& size, AxisType type) {
    if (size == 1) return UOp::constant(int64_t{0});
    return UOp::range(size.symbolic() ? simplify(size.uop()) : size.uop(), RangeArg{{r_.next_range++}, type});
  }
  int32_t add_instance(uint32_t node, UOp idx, UOp valid, int32_t scope, Ops under) {
    Instance in;
    in.node = node;
    in.idx = idx;
    in.valid = valid;
    in.scope = scope;
    in.under = under;
    r_.instances.push_back(in);
    return static_cast<int32_t>(r_.instances.size()) - 1;
  }
  /// The instance of `u` read there, shared with equal reads. A value with very many is stored, and then each read is
  /// its own load; one that cannot be stored (weak types) is looked up.
  int32_t demand(UOp u, UOp idx, UOp valid, int32_t scope, Ops under = Ops::NOOP) {
    uint32_t n = pos(u);
    if (count_[n] <= kMaxInstances)
      for (int32_t i = r_.first[n]; i >= 0; i = nth(r_.instances, i).next) {
        Instance& in = nth(r_.instances, i);
        if (in.idx != idx || in.valid != valid) continue;
        if (in.under != under) in.under = Ops::NOOP;
        return i;
      }
    if (u.dtype().is_weak() && u.nsrc()) {
      auto [it, fresh] =
          weak_.try_emplace({n, idx.id(), valid ? valid.id() + 1 : 0}, static_cast<int32_t>(r_.instances.size()));
      if (!fresh) return it->second;
    }
    int32_t i = add_instance(n, idx, valid, scope, under);
    if (last_[n] < 0) r_.first[n] = i;
    else nth(r_.instances, last_[n]).next = i;
    last_[n] = i;
    count_[n]++;
    return i;
  }
  int32_t new_scope(const Scope& s) {
    r_.scopes.push_back(s);
    return static_cast<int32_t>(r_.scopes.size()) - 1;
  }

  /// Fresh loops over a shape: the indices and the scope of a new kernel.
  std::pair<UOp, int32_t> open_kernel(const Shape& shape, Region& region) {
    UOps idx;
    Scope s;
    s.kernel = static_cast<int32_t>(r_.regions.size());
    for (const SInt& d : shape) {
      idx.push_back(fresh(d, AxisType::kLoop));
      if (idx.back().is(Ops::RANGE)) {
        region.ranges.push_back(idx.back());
        s.ranges++;
        s.volume *= static_cast<double>(d.max());
      }
    }
    return {UOp::stack(idx), new_scope(s)};
  }
  void add_region(Region region) {
    r_.regions.push_back(std::move(region));
    reduced_.push_back(false);
  }
  int32_t new_buffer_for(UOp u, const std::string& device) {
    buffers_.push_back(
        {ScheduleBuffer::kInternal, strong_dtype(u.dtype()), static_cast<int64_t>(volume_[pos(u)]), device, -1});
    return static_cast<int32_t>(buffers_.size()) - 1;
  }

  // ---- the walk ----
  void process(uint32_t i) {
    UOp u = r_.nodes[i];
    if (u.is(Ops::STORE)) return process_store(i);
    if (u.is(Ops::CALL)) return process_call(i);
    if (u.in(kLeaf | Ops::SINK)) return;
    if (r_.first[i] < 0 && !needed_[i]) return;
    if (u.is(Ops::COPY)) return process_copy(i);
    if (store_value(i)) {
      Region region;
      region.device =
          device_of(u).empty() && r_.first[i] >= 0 ? reader_device(nth(r_.instances, r_.first[i])) : device_of(u);
      region.node = i;
      region.buffer = new_buffer_for(u, region.device);
      auto [idx, scope] = open_kernel(shape_of(u), region);
      r_.region[i] = static_cast<int32_t>(r_.regions.size());
      region.body = add_instance(i, idx, UOp(), scope, Ops::NOOP);
      int32_t body = region.body;
      add_region(std::move(region));
      if (volume_[i] > 0) expand(body);
      return;
    }
    for (int32_t k = r_.first[i]; k >= 0; k = nth(r_.instances, k).next) expand(k);
  }

  void process_store(uint32_t i) {
    UOp dest = r_.nodes[i].src(0), value = r_.nodes[i].src(1);
    if (volume_[pos(dest)] == 0) return;
    // The result of a copy, or of CONTIGUOUS, that nobody else reads goes straight to the destination.
    UOp v = value;
    while (v.is(Ops::RESHAPE) && uses_[pos(v)] == 1) v = v.src(0);
    Region region;
    region.kind = Region::kStore;
    region.node = i;
    region.device = device_of(dest);
    TG_CHECK(DeviceError, device_of(value).empty() || device_of(value) == region.device, "[assign] got a value on ",
             device_of(value), ", expected one on ", region.device, ": move it with .to(device)");
    if (v.is(Ops::COPY) && uses_[pos(v)] == 1 && is_whole_buffer(dest)) {
      region.kind = Region::kCopy;
      region.node = pos(v);
      region.store = static_cast<int32_t>(i);
      need(v.src(0));
      add_region(std::move(region));
      return;
    }
    if (value.is(Ops::CONTIGUOUS) && uses_[pos(value)] == 1) value = value.src(0);
    auto [idx, scope] = open_kernel(shape_of(dest), region);
    region.body = demand(value, through_broadcast(idx, shape_of(dest), shape_of(value)), UOp(), scope);
    add_region(std::move(region));
  }
  void process_call(uint32_t i) {
    Region region;
    region.kind = Region::kCall;
    region.node = i;
    region.device = device_of(r_.nodes[i]);
    for (UOp s : r_.nodes[i].srcs()) need(s);
    add_region(std::move(region));
  }
  void process_copy(uint32_t i) {
    Region region;
    region.kind = Region::kCopy;
    region.node = i;
    region.device = device_of(r_.nodes[i]);
    region.buffer = new_buffer_for(r_.nodes[i], region.device);
    r_.region[i] = static_cast<int32_t>(r_.regions.size());
    need(r_.nodes[i].src(0));
    add_region(std::move(region));
  }
  /// The source of a copy: contiguous storage.
  void need(UOp u) {
    while (u.is(Ops::RESHAPE)) u = u.src(0);
    needed_[pos(u)] = true;
  }

  const std::string& reader_device(const Instance& in) const {
    return nth(r_.regions, nth(r_.scopes, in.scope).kernel).device;
  }

  // ---- decisions ----
  /// Iterations of a loop that read the same element, where codegen takes a loop apart for it: r / 32 is one place in
  /// 32 (the scale of a block).
  static double block_of(UOp idx) {
    std::map<uint32_t, int64_t> block;
    for (UOp u : idx.toposort())
      for (UOp s : u.srcs()) {
        if (!s.is(Ops::RANGE)) continue;
        const bool digit = u.is(Ops::FLOORDIV) && u.src(1).is_const();
        int64_t& b = block[s.id()];
        b = std::gcd(b, digit ? static_cast<int64_t>(u.src(1).const_int()) : 1);
      }
    double times = 1;
    for (const auto& [range, b] : block)
      if (b > 1 && b % kDigitLanes == 0) times *= static_cast<double>(b);
    return times;
  }
  bool store_value(uint32_t i) {
    UOp u = r_.nodes[i];
    // Pure arithmetic that several devices read is computed on each.
    if (!needed_[i] && device_of(u).empty())
      for (int32_t k = r_.first[i]; k >= 0; k = nth(r_.instances, k).next)
        if (reader_device(nth(r_.instances, k)) != reader_device(nth(r_.instances, r_.first[i]))) return false;
    if (is_forced(i)) return true;
    if (read_at_length(i)) return true;
    UOp computed = u;
    if (u.in(groups::kMovement)) {
      // Stored in the order it is read in: after a permutation that is the value's only use.
      if (!u.in(Ops::PERMUTE | Ops::FLIP)) return false;
      while (computed.in(Ops::PERMUTE | Ops::FLIP | Ops::RESHAPE))
        if (computed = computed.src(0); uses_[pos(computed)] != 1) return false;
      if (!computed.in(groups::kElementwise | Ops::REDUCE | Ops::INDEX | Ops::STACK)) return false;
    }
    if (u.dtype().is_weak() || merges(i, computed) || names_place(u)) return false;
    int n = count_[i];
    if (n > kMaxInstances) return true;
    Reads& reads = reads_[i];
    bool gated = false;
    for (int32_t k = r_.first[i]; k >= 0; k = nth(r_.instances, k).next) {
      const Instance& in = nth(r_.instances, k);
      const Scope& s = nth(r_.scopes, in.scope);
      double times = s.volume / std::max(volume_[i], 1.0) / block_of(in.idx);
      const UOps& used = ranges_of(in.idx);
      bool again = static_cast<int>(used.size()) < s.ranges || times > (reduces_[i] ? kReuse : kMany);
      // Loops that reduce around a value that uses none of them cost nothing: it is computed before them.
      bool inside = s.reduces > 0 && !used.empty() && used.back().arg<RangeArg>().type == AxisType::kReduce;
      // What a mask of a sum leaves out, columns that go back to an image, reads no memory.
      reads.evaluations += in.valid && s.reduces > 0 && times <= kMerge ? 1 : std::max(times, 1.0);
      reads.reuse |= again;
      reads.in_reduce |= reduces_[i] ? s.reduces > 0 : inside && again;
      gated |= bool(in.valid);
    }
    if (reduces_[i]) {
      if (n > 1 || reads.reuse || reads.in_reduce || gated) return !widens(u);
      if (!u.is(Ops::REDUCE)) return false;
      // One reduction a kernel: two have nothing in common that a kernel could gain from.
      auto done = reduced_.begin() + nth(r_.scopes, nth(r_.instances, r_.first[i]).scope).kernel;
      if (*done) return true;
      *done = true;
      return false;
    }
    if ((reads.evaluations <= kReuse && !reads.reuse) || widens(u)) return false;
    return costs_too_much(u, reads, inline_cost(i));
  }
  /// Whether a value is read through so many views that do not merge that their index arithmetic, which every further
  /// view simplifies again, costs more than memory. Views of the value's size alone: others may be larger than what
  /// they show.
  bool read_at_length(uint32_t i) {
    const UOp u = r_.nodes[i];
    if (u.dtype().is_weak() || !u.in(groups::kElementwise | Ops::RESHAPE | Ops::PERMUTE | Ops::FLIP)) return false;
    for (int32_t k = r_.first[i]; k >= 0; k = nth(r_.instances, k).next)
      if (const UOp idx = nth(r_.instances, k).idx; terms(idx) > kLongIndex && idx.toposort().size() > kLongIndex)
        return true;
    return false;
  }
  /// Nodes of an index, each as often as it occurs; where there are many, no less than that.
  size_t terms(UOp u) {
    if (u.id() >= terms_.size()) terms_.resize(u.id() + u.id() / 2 + 64, 0);
    if (terms_[u.id()]) return terms_[u.id()];
    size_t n = 1;
    UOps stack{u};
    while (!stack.empty()) {
      const UOp v = stack.back();
      size_t sum = 1;
      bool ready = true;
      for (UOp s : v.srcs()) {
        const size_t t = s.id() < terms_.size() ? terms_[s.id()] : 0;
        if (!t) {
          stack.push_back(s);
          ready = false;
        }
        sum += t;
      }
      if (!ready) continue;
      stack.pop_back();
      if (v.id() >= terms_.size()) terms_.resize(v.id() + v.id() / 2 + 64, 0);
      terms_[v.id()] = n = std::min(sum, 2 * kLongIndex);
    }
    return n;
  }
  /// index == number of the place: asked again wherever it is read, for what is summed so goes to its place instead
  /// (scatter_sums).
  static bool names_place(UOp u) {
    if (!u.dtype().is_bool()) return false;
    UOps stack{u};
    while (!stack.empty()) {
      UOp v = stack.back();
      stack.pop_back();
      if (v.in(groups::kMovement)) stack.push_back(v.src(0));
      else if (v.is(Ops::AND)) {
        stack.push_back(v.src(0));
        stack.push_back(v.src(1));
      } else if (v.in(Ops::CMPEQ | Ops::CMPNE))
        for (UOp s : v.srcs()) {
          if (s.dtype().is_bool()) stack.push_back(s);  // not (x != y)
          while (s.in(groups::kMovement | Ops::CAST)) s = s.src(0);
          if (s.is(Ops::ARANGE)) return true;
        }
    }
    return false;
  }
  /// What the user or a copy wants stored.
  bool is_forced(uint32_t i) const { return needed_[i] || r_.nodes[i].in(Ops::CONTIGUOUS | Ops::COPY); }
  static bool costs_too_much(UOp u, const Reads& r, const Cost& c) {
    if (r.reuse && r.in_reduce) {
      bool narrow = c.ops <= kCheapNarrow && c.buffers <= 3 && c.bytes < u.dtype().itemsize();
      return !narrow && (c.ops > kCheapInReduce || c.buffers > 1);
    }
    if (r.reuse) return c.ops > kCheapBroadcast || c.buffers > 3;
    return c.ops * (r.evaluations - 1) > kCheapTwice || c.buffers * (r.evaluations - 1) > r.evaluations + 1;
  }
  /// A reduction read by an equal one, each element once or nearly: they become one.
  bool merges(uint32_t i, UOp computed) const {
    if (!computed.is(Ops::REDUCE) || count_[i] != 1 || r_.first[i] < 0) return false;
    const Instance& in = nth(r_.instances, r_.first[i]);
    const Scope& s = nth(r_.scopes, in.scope);
    if (in.under != computed.arg<ReduceArg>().op || static_cast<int>(ranges_of(in.idx).size()) != s.ranges ||
        s.volume > kMerge * volume_[i])
      return false;
    // Windows in steps: every phase has taps of its own, which are no operand that a product could keep in registers.
    const UOps parts = in.idx.toposort();
    return std::none_of(parts.begin(), parts.end(), [](UOp u) { return u.is(Ops::FLOORMOD); });
  }
  /// A cast to a wider type is better repeated than stored.
  bool widens(UOp u) const {
    return u.is(Ops::CAST) && !u.src(0).dtype().is_weak() && u.src(0).dtype().itemsize() < u.dtype().itemsize() &&
           !u.src(0).in(kLeaf);
  }

  Cost inline_cost(uint32_t root) {
    Cost c;
    epoch_++;
    std::vector<std::pair<uint32_t, bool>> stack{{root, false}};  // with: read by broadcasting
    while (!stack.empty() && c.ops < kCostLimit) {
      auto [i, small] = stack.back();
      stack.pop_back();
      if (mark_[i] == epoch_) continue;
      mark_[i] = epoch_;
      UOp u = r_.nodes[i];
      if (u.is(Ops::CONST) || u.is(Ops::ARANGE)) continue;
      if (u.in(Ops::PARAM | Ops::AFTER | Ops::CONTIGUOUS | Ops::COPY) || (small && u.is(Ops::REDUCE)) ||
          (stored_[i] && i != root)) {
        if (!small) c.buffers++;
        if (!u.dtype().is_weak() && !small) c.bytes += u.dtype().itemsize();
        continue;
      }
      c.ops += op_cost(u);
      size_t values = u.in(groups::kMovement) ? 1 : u.nsrc();
      for (size_t k = 0; k < values; k++) {
        uint32_t s = pos(u.src(k));
        stack.emplace_back(s, small || (!u.in(Ops::REDUCE | Ops::SHRINK) && volume_[s] < volume_[i]));
      }
    }
    return c;
  }

  // ---- indices of the sources ----
  void expand(int32_t id) {
    Instance in = nth(r_.instances, id);
    UOp u = r_.nodes[in.node];
    std::vector<int32_t> src;
    switch (u.op()) {
      case Ops::RESHAPE:
      case Ops::EXPAND:
      case Ops::PERMUTE:
      case Ops::PAD:
      case Ops::SHRINK:
      case Ops::FLIP: {
        Access a = through_movement(u, {in.idx, in.valid});
        bool never = a.valid && bounds_of(a.valid).hi == 0;                         // nothing but padding is read
        Ops under = u.is(Ops::PAD) && in.under != Ops::ADD ? Ops::NOOP : in.under;  // zeros matter to all but sums
        src.push_back(never ? -1 : demand(u.src(0), a.idx, a.valid, in.scope, under));
        break;
      }
      case Ops::CONTIGUOUS: src.push_back(demand(u.src(0), in.idx, in.valid, in.scope)); break;
      case Ops::REDUCE: {
        const Shape& shape = shape_of(u.src(0));
        UOps idx(in.idx.srcs().begin(), in.idx.srcs().end());
        Scope s = nth(r_.scopes, in.scope);
        if (in.under == u.arg<ReduceArg>().op) s.volume = volume_[in.node];  // merges: what it costs has been weighed
        for (int32_t a : u.arg<ReduceArg>().axes) {
          auto k = static_cast<size_t>(a);
          idx[k] = fresh(shape[k], AxisType::kReduce);
          if (idx[k].is(Ops::RANGE)) {
            s.ranges++;
            s.reduces++;
            s.volume *= static_cast<double>(shape[k].max());
          }
        }
        src.push_back(demand(u.src(0), UOp::stack(idx), in.valid, new_scope(s), u.arg<ReduceArg>().op));
        break;
      }
      case Ops::STACK: {
        UOp at = in.idx.src(0), rest = UOp::stack(in.idx.srcs().subspan(1));
        for (uint32_t k = 0; k < u.nsrc(); k++)
          src.push_back(at.is_const() && !at.is_const_int(k) ? -1 : demand(u.src(k), rest, in.valid, in.scope));
        break;
      }
      case Ops::INDEX: expand_gather(u, in, src); break;
      default: {
        TG_ASSERT(u.in(groups::kElementwise), "no rule to schedule ", u);
        const Shape& shape = shape_of(u);
        for (UOp s : u.srcs())
          src.push_back(demand(s, through_broadcast(in.idx, shape, shape_of(s)), in.valid, in.scope));
      }
    }
    Instance& out = nth(r_.instances, id);
    out.src_begin = static_cast<uint32_t>(r_.sources.size());
    r_.sources.insert(r_.sources.end(), src.begin(), src.end());
    out.src_end = static_cast<uint32_t>(r_.sources.size());
  }

  /// INDEX(x, i0, ...): x is read at the values of the index tensors. Those are not known here: SPECIAL(size,
  /// ranges...) named by a number stands for one, with the right bounds and ranges.
  void expand_gather(UOp u, const Instance& in, std::vector<int32_t>& src) {
    size_t n = u.nsrc() - 1;
    UOp x = u.src(0);
    std::vector<const Shape*> shapes;
    for (size_t k = 0; k < n; k++) shapes.push_back(&shape_of(u.src(k + 1)));
    Shape at = broadcast_shapes(shapes, "index");
    UOp head = UOp::stack(in.idx.srcs().subspan(0, at.size()));
    UOps idx;
    src.push_back(-1);
    for (size_t k = 0; k < n; k++) {
      int32_t i = demand(u.src(k + 1), through_broadcast(head, at, *shapes[k]), in.valid, in.scope);
      src.push_back(i);
      UOps placeholder{shape_of(x)[k].uop()};
      for (UOp range : ranges_of(nth(r_.instances, i).idx)) placeholder.push_back(range);
      idx.push_back(UOp::make(Ops::SPECIAL, dtypes::weakint, placeholder, Arg(str("gather", r_.gathers.size()))));
      r_.gathers.push_back(i);
    }
    for (size_t k = at.size(); k < in.idx.nsrc(); k++) idx.push_back(in.idx.src(k));
    src[0] = demand(x, UOp::stack(idx), in.valid, in.scope);
  }

  Ranged r_;
  std::vector<ScheduleBuffer>& buffers_;
  std::vector<int32_t> last_, count_, uses_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, int32_t> weak_;  // node, idx, valid -> instance
  std::vector<bool> needed_, reduces_;
  std::vector<bool> stored_;  // by the first walk, and rightly so
  std::vector<Reads> reads_;
  std::vector<bool> reduced_;  // by kernel: has a reduction
  std::vector<double> volume_;
  std::vector<size_t> terms_;  // by index expression
  std::vector<uint32_t> mark_;
  uint32_t epoch_ = 0;
};
}  // namespace

Ranged rangeify(UOp sink, std::vector<ScheduleBuffer>& buffers) {
  size_t given = buffers.size();
  Rangeifier walk(sink, buffers, nullptr);
  walk.run();
  if (!walk.reconsider()) return walk.take();
  buffers.resize(given);
  Rangeifier again(sink, buffers, &walk);
  again.run();
  return again.take();
}

void print_ranged(std::ostream& os, const Ranged& r) {
  for (size_t i = 0; i < r.nodes.size(); i++) {
    if (r.first[i] < 0 && r.region[i] < 0) continue;
    os << (r.region[i] >= 0 ? "* " : "  ") << i << ' ' << r.nodes[i].op() << ' ' << r.nodes[i].dtype() << ' '
       << shape_of(r.nodes[i]);
    int n = 0;
    for (int32_t k = r.first[i]; k >= 0; k = nth(r.instances, k).next) n++;
    os << " read in " << n << " ways\n";
  }
}

}  // namespace tg
