/// \file Decides which values get storage and at which indices every value is read: one walk from the users to the
/// sources.
#include "tinygrad/schedule/rangeify.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <ostream>
#include <tuple>

#include "tinygrad/schedule/early.h"
#include "tinygrad/schedule/indexing.h"
#include "tinygrad/schedule/step_graph.h"
#include "tinygrad/uop/op_cost.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
constexpr int kMaxReads = 16;       // access patterns of one value beyond which it is stored
constexpr int kCostLimit = 64;      // where counting stops
constexpr double kReuse = 1.5;      // evaluations per element from which a reduction counts as recomputed
constexpr double kMany = 8;         // evaluations per element from which the strict rules below hold
constexpr double kFewTimes = 16;    // evaluations of values that are unpacked again rather than stored,
constexpr double kUnpacking = 160;  // and operations of all of them
constexpr double kRow = 64;  // elements at one index from which a gather is a view at an offset that is loaded once
constexpr size_t kLongIndex = 160;  // nodes of an index that further views should not have to simplify
// Factors of a loop's index that are a multiple of this become loops of their own (simplify_ranges).
constexpr int64_t kFactorLanes = 16;
// As kReuse for a sum inside a sum: masks of padding cost less than storing the terms (im2col).
constexpr double kMerge = 2.25;

// What may be recomputed (costs as in op_cost).
constexpr int kCheapInReduce = 1;   // an operand of a reduction that reads it many times
constexpr int kCheapNarrow = 4;     // the same when it reads fewer bytes than it makes: dequantization
constexpr int kCheapBroadcast = 8;  // a value broadcast along outer loops
constexpr int kCheapTwice = 20;     // a value that several kernels read once each: one transcendental costs less than
                                    // memory

constexpr OpSet kLeaf = Ops::PARAM | Ops::AFTER | Ops::CONST | Ops::ARANGE;

int op_cost(UOp u) {
  if (u.is(Ops::STACK)) return static_cast<int>(u.nsrc());
  const OpCost* costs = costs_of(u.op());
  return costs ? costs->recompute : 0;
}

/// Cost of computing a value in place, together with the values computed in place for it.
struct Cost {
  int ops = 0;
  int dearest = 0;   // of these, one
  int buffers = 0;   // of the value's size
  double bytes = 0;  // read per element, by type
};

class Rangeifier {
 public:
  /// `first`: a first walk, whose decisions the second knows.
  Rangeifier(UOp sink, std::vector<ScheduleBuffer>& buffers, Rangeifier* first) : buffers_(buffers) {
    r_.nodes = sink.toposort();
    size_t n = r_.nodes.size();
    r_.position.assign(Graph::current().id_limit(), 0);
    for (size_t i = 0; i < n; i++) r_.position[r_.nodes[i].id()] = static_cast<uint32_t>(i);
    r_.first_read.assign(n, -1);
    r_.region.assign(n, -1);
    last_.assign(n, -1);
    count_.assign(n, 0);
    uses_.assign(n, 0);
    needed_.assign(n, false);
    mark_.assign(n, 0);
    evaluations_.assign(n, {});
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
      reduces[i] = contains_reduce(i, reduces, true);
      if (r_.region[i] < 0 || is_forced(static_cast<uint32_t>(i))) continue;
      stored_[i] = reduces[i] || costs_too_much(r_.nodes[i], evaluations_[i], inline_cost(static_cast<uint32_t>(i)));
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

  /// Returns true where computing this value in place means a reduction there, by what holds of its sources; `known`:
  /// stored ones do not count.
  bool contains_reduce(size_t i, const std::vector<bool>& reduces, bool known) const {
    UOp u = r_.nodes[i];
    if (u.is(Ops::REDUCE)) return true;
    auto of = [&](UOp s) { return reduces[pos(s)] && !(known && r_.region[pos(s)] >= 0); };
    if (u.in(groups::kMovement) && !u.is(Ops::EXPAND)) return of(u.src(0));
    // A value that is broadcast here is stored first, since it would be recomputed for every element.
    if (u.in(groups::kElementwise | Ops::STACK | Ops::EXPAND | Ops::INDEX))
      for (UOp s : u.srcs())
        if (of(s) && (u.is(Ops::STACK) || volume_[pos(s)] >= volume_[i])) return true;
    return false;
  }
  /// Finds the facts of nodes, sources first.
  void prepare() {
    size_t n = r_.nodes.size();
    volume_.assign(n, 1);
    reduces_.assign(n, false);
    stored_.assign(n, false);
    for (size_t i = 0; i < n; i++) {
      UOp u = r_.nodes[i];
      for (UOp s : u.srcs()) uses_[pos(s)]++;
      for (const SInt& s : shape_of(u)) volume_[i] *= static_cast<double>(s.max());
      reduces_[i] = contains_reduce(i, reduces_, false);
    }
  }

  // ---- building ----
  UOp fresh(const SInt& size, AxisType type) {
    if (size == 1) return UOp::constant(int64_t{0});
    return UOp::range(size.symbolic() ? simplify(size.uop()) : size.uop(), RangeArg{{r_.next_range++}, type});
  }
  int32_t add_read(uint32_t node, UOp idx, UOp valid, int32_t scope, Ops under) {
    Read in;
    in.node = node;
    in.idx = idx;
    in.valid = valid;
    in.scope = scope;
    in.outer_reduce = under;
    r_.reads.push_back(in);
    return static_cast<int32_t>(r_.reads.size()) - 1;
  }
  /// Returns the read of `u` there, shared with equal ones of the same device. A value with very many is stored, and
  /// then each read is its own load; one that cannot be stored (weak types) is looked up.
  int32_t request_read(UOp u, UOp idx, UOp valid, int32_t scope, Ops under = Ops::NOOP) {
    uint32_t n = pos(u);
    if (count_[n] <= kMaxReads)
      for (int32_t i = r_.first_read[n]; i >= 0; i = at(r_.reads, i).next) {
        Read& in = at(r_.reads, i);
        if (in.idx != idx || in.valid != valid || device_of_scope(in.scope) != device_of_scope(scope)) continue;
        if (in.outer_reduce != under) in.outer_reduce = Ops::NOOP;
        return i;
      }
    if (u.dtype().is_weak() && u.nsrc()) {
      auto [it, fresh] =
          weak_.try_emplace({n, idx.id(), valid ? valid.id() + 1 : 0}, static_cast<int32_t>(r_.reads.size()));
      if (!fresh) return it->second;
    }
    int32_t i = add_read(n, idx, valid, scope, under);
    if (last_[n] < 0) r_.first_read[n] = i;
    else at(r_.reads, last_[n]).next = i;
    last_[n] = i;
    count_[n]++;
    return i;
  }
  const std::string& device_of_scope(int32_t scope) const { return at(r_.regions, at(r_.scopes, scope).kernel).device; }
  int32_t new_scope(const Scope& s) {
    r_.scopes.push_back(s);
    return static_cast<int32_t>(r_.scopes.size()) - 1;
  }

  /// Makes loops over a shape; returns the indices and the scope of a new kernel.
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
    buffers_.push_back({.kind = ScheduleBuffer::kInternal,
                        .dtype = strong_dtype(u.dtype()),
                        .size = static_cast<int64_t>(volume_[pos(u)]),
                        .device = device});
    return static_cast<int32_t>(buffers_.size()) - 1;
  }

  // ---- the walk ----
  void process(uint32_t i) {
    UOp u = r_.nodes[i];
    if (u.is(Ops::STORE)) return process_store(i);
    if (u.is(Ops::CALL)) return process_call(i);
    if (u.in(kLeaf | Ops::SINK)) return;
    if (r_.first_read[i] < 0 && !needed_[i]) return;
    if (u.in(Ops::COPY | Ops::COLLECTIVE)) return process_copy(i);
    if (const Storing why = store_value(i); why != Storing::kNo) {
      Region region;
      region.why = why;
      region.instead = evaluations_[i];
      region.device =
          device_of(u).empty() && r_.first_read[i] >= 0 ? reader_device(at(r_.reads, r_.first_read[i])) : device_of(u);
      region.node = i;
      region.buffer = new_buffer_for(u, region.device);
      buffers_.back().why = reason_of(why);
      buffers_.back().instead = region.instead.times;
      auto [idx, scope] = open_kernel(shape_of(u), region);
      r_.region[i] = static_cast<int32_t>(r_.regions.size());
      region.body = add_read(i, idx, UOp(), scope, Ops::NOOP);
      int32_t body = region.body;
      add_region(std::move(region));
      if (volume_[i] > 0) index_sources(body);
      return;
    }
    for (int32_t k = r_.first_read[i]; k >= 0; k = at(r_.reads, k).next) index_sources(k);
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
    if (v.in(Ops::COPY | Ops::COLLECTIVE) && uses_[pos(v)] == 1 && is_whole_buffer(dest)) {
      region.kind = Region::kCopy;
      region.node = pos(v);
      region.store = static_cast<int32_t>(i);
      need(v.src(0));
      add_region(std::move(region));
      return;
    }
    if (value.is(Ops::CONTIGUOUS) && uses_[pos(value)] == 1) value = value.src(0);
    auto [idx, scope] = open_kernel(shape_of(dest), region);
    add_region(std::move(region));
    const int32_t body = request_read(value, through_broadcast(idx, shape_of(dest), shape_of(value)), UOp(), scope);
    r_.regions.back().body = body;
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
  /// Asks for the source of a copy, or an argument of a CALL, in contiguous storage.
  void need(UOp u) {
    while (u.is(Ops::RESHAPE)) u = u.src(0);
    needed_[pos(u)] = true;
  }

  const std::string& reader_device(const Read& in) const { return device_of_scope(in.scope); }

  // ---- decisions ----
  /// Returns the number of iterations that read the same element where codegen splits a loop for it: r / 32 is one
  /// position in 32 (the scale of a block).
  static double block_of(UOp idx) {
    std::map<uint32_t, int64_t> block;
    for (UOp u : idx.toposort())
      for (UOp s : u.srcs()) {
        if (!s.is(Ops::RANGE)) continue;
        const bool divides = u.is(Ops::FLOORDIV) && u.src(1).is_const();
        int64_t& b = block[s.id()];
        b = std::gcd(b, divides ? static_cast<int64_t>(u.src(1).const_int()) : 1);
      }
    double times = 1;
    for (const auto& [range, b] : block)
      if (b > 1 && b % kFactorLanes == 0) times *= static_cast<double>(b);
    return times;
  }
  template <class F> void for_each_read(uint32_t i, F&& f) const {
    for (int32_t k = r_.first_read[i]; k >= 0; k = at(r_.reads, k).next) f(at(r_.reads, k));
  }
  bool is_read_on_several_devices(uint32_t i) const {
    bool several = false;
    for_each_read(
        i, [&](const Read& in) { several |= reader_device(in) != reader_device(at(r_.reads, r_.first_read[i])); });
    return several;
  }
  Storing store_value(uint32_t i) {
    UOp u = r_.nodes[i];
    // Pure arithmetic that several devices read is computed on each.
    if (!needed_[i] && device_of(u).empty() && is_read_on_several_devices(i)) return Storing::kNo;
    if (is_forced(i)) return Storing::kAsked;
    if (has_long_index(i)) return Storing::kLongIndex;
    UOp computed = value_of_view(u);
    if (!computed || u.dtype().is_weak() || can_merge_reduce(i, computed) || is_one_hot_compare(u)) return Storing::kNo;
    if (count_[i] > kMaxReads) return Storing::kManyReads;
    evaluations_[i] = evaluate(i);
    const Recomputation& e = evaluations_[i];
    if (reduces_[i]) {
      if (count_[i] > 1 || e.reuse || e.in_reduce || e.masked)
        return is_widening_cast(u) ? Storing::kNo : Storing::kReduceReread;
      const bool apart =
          u.is(Ops::REDUCE) && ((multiplies_unpacked_values(u) && has_dear_users(i)) || !claim_reduction(i));
      return apart ? Storing::kReduceApart : Storing::kNo;
    }
    if ((e.times <= kReuse && !e.reuse) || is_widening_cast(u)) return Storing::kNo;
    if (e.times <= kMany && selects_rows(u)) return Storing::kNo;
    return costs_too_much(u, e, inline_cost(i)) ? Storing::kCostly : Storing::kNo;
  }
  /// Returns true for a gather of long rows of storage, masked or not where an index is out of bounds: once the indices
  /// are loaded, which no inner loop repeats, it is a view.
  bool selects_rows(UOp u) {
    const auto by_row = [&](UOp v) {
      while (v.in(Ops::EXPAND | Ops::RESHAPE)) v = v.src(0);
      return volume_[pos(v)] * kRow <= volume_[pos(u)];
    };
    UOp gather = u;
    if (u.is(Ops::WHERE) && by_row(u.src(0)) && by_row(u.src(2))) gather = u.src(1);
    if (!gather.is(Ops::INDEX) || !std::all_of(gather.srcs().begin() + 1, gather.srcs().end(), by_row)) return false;
    const Cost rows = inline_cost(pos(gather.src(0)));
    return rows.ops == 0 && rows.buffers <= 1;
  }
  /// Returns what is computed where storing a view stores that: values are stored in the order they are read in, after
  /// the permutation that is their only use. Empty for views that are never stored.
  UOp value_of_view(UOp u) const {
    if (!u.in(groups::kMovement)) return u;
    if (!u.in(Ops::PERMUTE | Ops::FLIP)) return {};
    while (u.in(Ops::PERMUTE | Ops::FLIP | Ops::RESHAPE))
      if (u = u.src(0); uses_[pos(u)] != 1) return {};
    return u.in(groups::kElementwise | Ops::REDUCE | Ops::INDEX | Ops::STACK) ? u : UOp();
  }
  Recomputation evaluate(uint32_t i) const {
    Recomputation e;
    for_each_read(i, [&](const Read& in) {
      const Scope& s = at(r_.scopes, in.scope);
      const double times = s.volume / std::max(volume_[i], 1.0) / block_of(in.idx);
      const UOps& used = ranges_of(in.idx);
      const bool reread = static_cast<int>(used.size()) < s.ranges || times > (reduces_[i] ? kReuse : kMany);
      // Loops that reduce around a value that uses none of them cost nothing: it is computed before them.
      const bool inside = s.reduces > 0 && !used.empty() && used.back().arg<RangeArg>().type == AxisType::kReduce;
      // What a mask of a sum leaves out, columns that go back to an image, reads no memory.
      e.times += in.valid && s.reduces > 0 && times <= kMerge ? 1 : std::max(times, 1.0);
      e.reuse |= reread;
      e.in_reduce |= reduces_[i] ? s.reduces > 0 : inside && reread;
      e.masked |= bool(in.valid);
    });
    return e;
  }
  /// Makes a reduction that of the kernel which reads it; false where that has one: a kernel gains nothing from two.
  bool claim_reduction(uint32_t i) {
    const auto kernel = static_cast<size_t>(at(r_.scopes, at(r_.reads, r_.first_read[i]).scope).kernel);
    if (reduced_[kernel]) return false;
    reduced_[kernel] = true;
    return true;
  }
  /// Returns true for sums of products with values that are unpacked again for each of a few results: lanes are terms
  /// of a sum there, and what is done to the sum is done to one at a time.
  bool multiplies_unpacked_values(UOp reduce) {
    if (!reduce.src(0).is(Ops::MUL)) return false;
    for (UOp v : reduce.src(0).srcs()) {
      while (v.in(Ops::EXPAND | Ops::RESHAPE | Ops::PERMUTE)) v = v.src(0);
      const double times = volume_[pos(reduce.src(0))] / std::max(volume_[pos(v)], 1.0);
      if (times > 1 && !v.in(kLeaf | Ops::CONTIGUOUS) && unpacks(v, inline_cost(pos(v)), times)) return true;
    }
    return false;
  }
  /// Returns true where the kernel that a reduction would become part of computes transcendentals for each result.
  bool has_dear_users(uint32_t i) {
    const auto kernel = static_cast<size_t>(at(r_.scopes, at(r_.reads, r_.first_read[i]).scope).kernel);
    const UOp stored = r_.nodes[at(r_.reads, r_.regions[kernel].body).node];
    UOps stack{stored.is(Ops::CONTIGUOUS) ? stored.src(0) : stored};
    epoch_++;
    while (!stack.empty()) {
      const UOp u = stack.back();
      stack.pop_back();
      const uint32_t n = pos(u);
      const bool other = r_.region[n] >= 0 && r_.region[n] != static_cast<int32_t>(kernel);
      if (mark_[n] == epoch_ || other || !u.in(groups::kElementwise | groups::kMovement)) continue;
      mark_[n] = epoch_;
      if (u.in(groups::kElementwise) && op_cost(u) > kCheapBroadcast) return true;
      stack.insert(stack.end(), u.srcs().begin(), u.srcs().end());
    }
    return false;
  }
  /// Returns true where a value is read through so many views that do not merge that their index arithmetic, which
  /// every further view simplifies again, costs more than memory. Looks at views of the value's size alone: others may
  /// be larger than what they show.
  bool has_long_index(uint32_t i) {
    const UOp u = r_.nodes[i];
    if (u.dtype().is_weak() || !u.in(groups::kElementwise | Ops::RESHAPE | Ops::PERMUTE | Ops::FLIP)) return false;
    for (int32_t k = r_.first_read[i]; k >= 0; k = at(r_.reads, k).next)
      if (const UOp idx = at(r_.reads, k).idx; terms(idx) > kLongIndex && idx.toposort().size() > kLongIndex)
        return true;
    return false;
  }
  /// Counts the nodes of an index, each as often as it occurs; where there are many, a lower bound.
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
  /// Returns true for index == arange: recomputed wherever it is read, since sums over such a mask become a scatter
  /// (one_hot_sums.cpp).
  static bool is_one_hot_compare(UOp u) {
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
  /// Returns true for what the user or a copy wants stored.
  bool is_forced(uint32_t i) const {
    return needed_[i] || r_.nodes[i].in(Ops::CONTIGUOUS | Ops::COPY | Ops::COLLECTIVE);
  }
  /// Returns true for values that simple operations make of fewer bytes than they take, so few times that storing them
  /// costs more.
  static bool unpacks(UOp u, const Cost& c, double times) {
    return c.bytes < u.dtype().itemsize() && c.dearest <= kCheapInReduce && c.buffers <= 4 && times <= kFewTimes &&
           c.ops * times <= kUnpacking;
  }
  static bool costs_too_much(UOp u, const Recomputation& r, const Cost& c) {
    if (r.reuse && r.in_reduce) {
      const bool narrow = c.bytes < u.dtype().itemsize() && c.ops <= kCheapNarrow && c.buffers <= 3;
      if (unpacks(u, c, r.times)) return false;
      return !narrow && (c.ops > kCheapInReduce || c.buffers > 1);
    }
    if (r.reuse) return c.ops > kCheapBroadcast || c.buffers > 3;
    return c.ops * (r.times - 1) > kCheapTwice || c.buffers * (r.times - 1) > r.times + 1;
  }
  /// Returns true for a reduction that an equal one reads, each element once or nearly: they become one.
  bool can_merge_reduce(uint32_t i, UOp computed) const {
    if (!computed.is(Ops::REDUCE) || count_[i] != 1 || r_.first_read[i] < 0) return false;
    const Read& in = at(r_.reads, r_.first_read[i]);
    const Scope& s = at(r_.scopes, in.scope);
    if (in.outer_reduce != computed.arg<ReduceArg>().op || static_cast<int>(ranges_of(in.idx).size()) != s.ranges ||
        s.volume > kMerge * volume_[i])
      return false;
    // Strided windows: every polyphase component has taps of its own, which no product could keep in registers.
    const UOps parts = in.idx.toposort();
    return std::none_of(parts.begin(), parts.end(), [](UOp u) { return u.is(Ops::FLOORMOD); });
  }
  /// Returns true for a cast to a wider type, which is better repeated than stored.
  bool is_widening_cast(UOp u) const {
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
      if (u.in(Ops::PARAM | Ops::AFTER | Ops::CONTIGUOUS | Ops::COPY | Ops::COLLECTIVE) ||
          (small && u.is(Ops::REDUCE)) || (stored_[i] && i != root)) {
        if (!small) c.buffers++;
        if (!u.dtype().is_weak() && !small) c.bytes += u.dtype().itemsize();
        continue;
      }
      c.ops += op_cost(u);
      if (u.in(groups::kElementwise)) c.dearest = std::max(c.dearest, op_cost(u));
      size_t values = u.in(groups::kMovement) ? 1 : u.nsrc();
      for (size_t k = 0; k < values; k++) {
        uint32_t s = pos(u.src(k));
        stack.emplace_back(s, small || (!u.in(Ops::REDUCE | Ops::SHRINK) && volume_[s] < volume_[i]));
      }
    }
    return c;
  }

  // ---- indices of the sources ----
  void index_sources(int32_t id) {
    const Read in = at(r_.reads, id);
    UOp u = r_.nodes[in.node];
    std::vector<int32_t> src;
    switch (u.op()) {
      case Ops::RESHAPE:
      case Ops::EXPAND:
      case Ops::PERMUTE:
      case Ops::PAD:
      case Ops::SHRINK:
      case Ops::FLIP: index_view(u, in, src); break;
      case Ops::CONTIGUOUS: src.push_back(request_read(u.src(0), in.idx, in.valid, in.scope)); break;
      case Ops::REDUCE: index_reduce(u, in, src); break;
      case Ops::STACK: {
        UOp which = in.idx.src(0), rest = UOp::stack(in.idx.srcs().subspan(1));
        for (uint32_t k = 0; k < u.nsrc(); k++)
          src.push_back(which.is_const() && !which.is_const_int(k) ? -1
                                                                   : request_read(u.src(k), rest, in.valid, in.scope));
        break;
      }
      case Ops::INDEX: index_gather(u, in, src); break;
      default: {
        TG_ASSERT(u.in(groups::kElementwise), "no rule to schedule ", u);
        const Shape& shape = shape_of(u);
        for (UOp s : u.srcs())
          src.push_back(request_read(s, through_broadcast(in.idx, shape, shape_of(s)), in.valid, in.scope));
      }
    }
    Read& out = at(r_.reads, id);
    out.src_begin = static_cast<uint32_t>(r_.sources.size());
    r_.sources.insert(r_.sources.end(), src.begin(), src.end());
    out.src_end = static_cast<uint32_t>(r_.sources.size());
  }
  void index_view(UOp u, const Read& in, std::vector<int32_t>& src) {
    const IndexedRead a = through_movement(u, {in.idx, in.valid});
    const bool never = a.valid && bounds_of(a.valid).hi == 0;  // nothing but padding is read
    // Zeros matter to all reductions but sums.
    const Ops outer = u.is(Ops::PAD) && in.outer_reduce != Ops::ADD ? Ops::NOOP : in.outer_reduce;
    src.push_back(never ? -1 : request_read(u.src(0), a.idx, a.valid, in.scope, outer));
  }
  void index_reduce(UOp u, const Read& in, std::vector<int32_t>& src) {
    const ReduceArg& arg = u.arg<ReduceArg>();
    const Shape& shape = shape_of(u.src(0));
    UOps idx(in.idx.srcs().begin(), in.idx.srcs().end());
    Scope s = at(r_.scopes, in.scope);
    if (in.outer_reduce == arg.op) s.volume = volume_[in.node];  // they merge: the cost has been weighed
    for (int32_t a : arg.axes) {
      auto k = static_cast<size_t>(a);
      idx[k] = fresh(shape[k], AxisType::kReduce);
      if (!idx[k].is(Ops::RANGE)) continue;
      s.ranges++;
      s.reduces++;
      s.volume *= static_cast<double>(shape[k].max());
    }
    src.push_back(request_read(u.src(0), UOp::stack(idx), in.valid, new_scope(s), arg.op));
  }
  /// INDEX(x, i0, ...) reads x at the values of the index tensors. Those are not known here: a placeholder stands for
  /// each, with the right bounds and ranges.
  void index_gather(UOp u, const Read& in, std::vector<int32_t>& src) {
    size_t n = u.nsrc() - 1;
    UOp x = u.src(0);
    std::vector<const Shape*> shapes;
    for (size_t k = 0; k < n; k++) shapes.push_back(&shape_of(u.src(k + 1)));
    const Shape common = broadcast_shapes(shapes, "index");
    UOp head = UOp::stack(in.idx.srcs().subspan(0, common.size()));
    UOps idx;
    src.push_back(-1);
    for (size_t k = 0; k < n; k++) {
      int32_t i = request_read(u.src(k + 1), through_broadcast(head, common, *shapes[k]), in.valid, in.scope);
      src.push_back(i);
      idx.push_back(gather_placeholder(static_cast<int32_t>(r_.gathers.size()), shape_of(x)[k].uop(),
                                       ranges_of(at(r_.reads, i).idx)));
      r_.gathers.push_back(i);
    }
    for (size_t k = common.size(); k < in.idx.nsrc(); k++) idx.push_back(in.idx.src(k));
    src[0] = request_read(x, UOp::stack(idx), in.valid, in.scope);
  }

  Ranged r_;
  std::vector<ScheduleBuffer>& buffers_;
  std::vector<int32_t> last_, count_, uses_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, int32_t> weak_;  // node, idx, valid -> instance
  std::vector<bool> needed_, reduces_;
  std::vector<bool> stored_;  // by the first walk, and rightly so
  std::vector<Recomputation> evaluations_;
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

const char* reason_of(Storing why) {
  static constexpr const char* kReasons[] = {
      "computed in place",
      "asked for",
      "its views have long indices",
      "read in more ways than a kernel should have",
      "a reduction that would be done again",
      "a reduction, as its reader has another",
      "computing it again costs more than memory",
  };
  return kReasons[static_cast<size_t>(why)];
}

namespace {
/// Prints the rule that stores a value, and what the rule weighed.
void print_reason(std::ostream& os, const Region& region) {
  if (region.kind != Region::kValue) return;
  os << ", stored: " << reason_of(region.why);
  if (region.instead.times > 0) os << " (in place " << region.instead.times << " times per element)";
}
}  // namespace

void print_ranged(std::ostream& os, const Ranged& r) {
  for (size_t i = 0; i < r.nodes.size(); i++) {
    if (r.first_read[i] < 0 && r.region[i] < 0) continue;
    os << (r.region[i] >= 0 ? "* " : "  ") << i << ' ' << r.nodes[i].op() << ' ' << r.nodes[i].dtype() << ' '
       << shape_of(r.nodes[i]);
    int n = 0;
    for (int32_t k = r.first_read[i]; k >= 0; k = at(r.reads, k).next) n++;
    os << " read in " << n << " ways";
    if (r.region[i] >= 0) print_reason(os, at(r.regions, r.region[i]));
    os << '\n';
  }
}

}  // namespace tg
