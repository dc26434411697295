/// \file The stages between a tensor graph and a Schedule. Each is one function with a plain result; only schedule.cpp
/// sees them all.
///
///   normalize -> import_normal -> early_rewrites -> rangeify -> lower -> scatter_sums -> fuse_online -> fuse_rows
///   -> store_long_sums -> update_in_place -> kernelize -> order_steps -> plan_memory
#pragma once
#include <array>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tinygrad/schedule/schedule.h"
#include "tinygrad/uop/facts.h"

namespace tg {

/// v[i] for the signed numbers that stand for nodes, buffers, states and steps.
template <class V, class I> decltype(auto) nth(V& v, I i) { return v[static_cast<size_t>(i)]; }

/// The number of the state that a LOAD in a step reads.
inline int32_t state_of(UOp load) { return static_cast<int32_t>(load.src(0).src(0).tag()) - 1; }
/// Points of the loops over these ranges, of variable sizes the most.
inline double volume_of(std::span<const UOp> ranges) {
  double points = 1;
  for (UOp r : ranges) points *= static_cast<double>(vmax(r.src(0)));
  return points;
}

/// What decides how a graph is cut; part of the cache key.
struct ScheduleOptions {
  int64_t max_buffers = 32;  ///< buffers of one kernel, its output included
  int64_t max_alu = 1000;    ///< operations of one kernel, index arithmetic aside
  bool split_reduces = true;
  int64_t split_threshold = 32768;
  int64_t split_size = 22;  ///< log2 of the greatest intermediate of a split reduction
  bool plan_memory = true;
  bool round_products = false;  ///< of narrow floats before they are summed in a wider type
  static ScheduleOptions from_env();
  Hash128 hash() const;
};

// ---- 1. normalize: the graph with its buffers and variables numbered ----

/// What becomes of one root.
struct RootPlan {
  enum Kind : uint8_t {
    kStorage,  ///< a view of a buffer (which effects may write): no new storage
    kNew,      ///< computed into a new buffer
    kAlias,    ///< the same value as an earlier kNew root, perhaps in another shape
  } kind = kStorage;
  UOp root;             ///< as asked for, forwards and DETACH resolved
  UOp storage;          ///< kStorage: the view over the BUFFER
  uint32_t node = 0;    ///< position in NormalGraph::nodes: of the value that is stored (kNew), of the root (kStorage)
  int32_t output = -1;  ///< kNew, kAlias: number of the new buffer
  bool share = false;   ///< kNew: other users of the value read the new buffer
};

/// A walk over the global graph: nodes in order, sources before users, forwarded nodes replaced.
struct NormalGraph {
  UOps nodes;
  std::vector<uint32_t> src_begin, src;  ///< sources of nodes[i]: src[src_begin[i] .. src_begin[i + 1])
  std::vector<int32_t> number;           ///< of a BUFFER, a bound variable or a CALL: its number, else -1
  UOps inputs;                           ///< BUFFERs by number, and literals that are read from memory
  std::string literal_device{};          ///< where that memory is
  std::vector<std::pair<std::string, int64_t>> vars;
  std::vector<RootPlan> roots;
  std::vector<KernelRef> kernels;           ///< of CALLs, by number
  std::vector<std::pair<UOp, UOp>> stores;  ///< every AFTER on a buffer that the schedule executes, with its storage
  int outputs = 0;
  Hash128 key;
};
NormalGraph normalize(std::span<const UOp> roots);
/// The key of a graph; of literals that are `open` (by position; may be empty) the values are left out.
Hash128 key_of(const NormalGraph& g, const std::vector<bool>& open);
/// Makes inputs of the literals that changed between graphs which are otherwise the same, once several were seen; the
/// key then holds for all of them. False, and nothing has changed, where there is none. For graphs that are not in the
/// cache.
bool literals_to_inputs(NormalGraph& g);
/// The graph in the current arena: a SINK of AFTERs, PARAM{slot} for BUFFER number `slot` (new buffers follow the
/// inputs), PARAM{kAlu, v00} for variables, CALL(storage...) with a number for a user's kernel. `buffers` receives
/// inputs and outputs.
UOp import_normal(const NormalGraph& g, std::vector<ScheduleBuffer>& buffers);

// ---- 2. early rewrites ----
UOp early_rewrites(UOp sink, const ScheduleOptions& options);
/// True for contiguous storage of a whole buffer: PARAM or AFTER on one, under RESHAPE.
bool is_whole_buffer(UOp u);

// ---- 3. rangeify: which values get storage, and the indices every value is read at ----

/// One way a value is read: at these indices, where `valid`. Values computed in place have as many as there are
/// different reads.
struct Instance {
  uint32_t node = 0;  ///< position in Ranged::nodes
  int32_t next = -1;  ///< next instance of the same node
  int32_t scope = 0;
  Ops under = Ops::NOOP;                ///< the reduction that reads this through nothing but movement ops
  uint32_t src_begin = 0, src_end = 0;  ///< Ranged::sources: the instances of the node's sources
  UOp idx;                              ///< STACK of weakint expressions, one per axis
  UOp valid;                            ///< empty: always
  UOp value;                            ///< set by lower()
};
/// Loops around a value.
struct Scope {
  int32_t kernel = 0;
  int32_t ranges = 0, reduces = 0;
  double volume = 1;
};
/// A value or an effect that becomes a kernel (or a copy).
struct Region {
  enum Kind : uint8_t { kValue, kStore, kCopy, kCall } kind = kValue;
  uint32_t node = 0;    ///< the value, the STORE, the COPY or the CALL
  int32_t body = -1;    ///< instance that is stored
  UOps ranges;          ///< loops of the result
  int32_t buffer = -1;  ///< kValue and kCopy: index into buffers; -1: the destination of a STORE
  std::string device;   ///< where its kernel runs; "": anywhere
  int32_t store = -1;   ///< kCopy straight into the destination of this STORE (position), else -1
};
struct Ranged {
  UOps nodes;                      ///< of the arena, sources before users
  std::vector<uint32_t> position;  ///< by node id
  std::vector<int32_t> first;      ///< by position: first instance, -1: none
  std::vector<int32_t> region;     ///< by position: region that stores the value, -1: computed in place
  std::vector<Instance> instances;
  std::vector<int32_t> sources;  ///< -1: not needed
  std::vector<Scope> scopes;
  std::vector<Region> regions;   ///< users before their sources
  std::vector<int32_t> gathers;  ///< by number in SPECIAL's name: the instance whose value is the index
  int32_t next_range = 0;
};
Ranged rangeify(UOp sink, std::vector<ScheduleBuffer>& buffers);

// ---- 4. lower: value expressions over ranges ----

/// Contents of a buffer between two writes.
struct BufferState {
  int32_t buffer = 0;
  int32_t parent = -1;           ///< state the writers start from
  std::vector<int32_t> writers;  ///< steps
};
/// One kernel before it has an arena of its own, or a copy.
struct Step {
  bool copy = false;
  int32_t buffer = -1;  ///< written
  int32_t parent = -1;  ///< state of `buffer` that is overwritten
  UOp index, value;     ///< kernel
  UOps ranges;          ///< loops of the result, outermost first
  bool online = false;  ///< an OnlineForm: codegen knows its loops, there is nothing to optimise
  size_t in_order =
      0;            ///< so many of the loops go in order around all others: what one iteration stores a later one reads
  KernelRef given;  ///< the user's kernel: no index and value, `reads` and `buffers` are set by lower()
  std::vector<int32_t> reads;    ///< by PARAM slot: the state read, -1: written only
  KernelRef kernel;              ///< set by kernelize
  std::vector<int32_t> buffers;  ///< by PARAM slot
  std::vector<int32_t> vars;
  std::string metadata;
};
struct Lowered {
  std::vector<Step> steps;
  std::vector<BufferState> states;
  UOps gathers;  ///< by number: the index value
};
/// In LOAD(INDEX(PARAM, i)) of values, PARAM{slot = buffer, tag = state + 1}.
Lowered lower(Ranged& r, std::vector<ScheduleBuffer>& buffers, const ScheduleOptions& options,
              std::span<const KernelRef> kernels);
/// A PARAM as values of steps read it.
UOp buffer_param(const ScheduleBuffer& b, int32_t buffer, int32_t state);
/// A new internal buffer and its first written state.
int32_t add_internal(Lowered& l, std::vector<ScheduleBuffer>& buffers, DType d, int64_t size,
                     const std::string& device);

/// Moves the scores and the softmax of an attention with long keys into the kernel that multiplies with the values,
/// which then computes them in blocks (schedule/online.h).
void fuse_online(Lowered& l, const std::vector<ScheduleBuffer>& buffers);

/// Lets the kernel that finds the maxima of parts of long rows sum exponentials below them, too, so that the sum below
/// the maximum of a row does not read the row again.
void pair_maxima(Lowered& l, std::vector<ScheduleBuffer>& buffers);

/// How ranges of `from` are named in a LOAD of its result at points of other ranges; none: it is read in another way
/// than it is stored.
std::optional<std::vector<std::pair<UOp, UOp>>> renamed_at(UOp load, const Step& from);

/// What two things a comparison, x == y or not (x != y), says to be equal; empty: it says nothing like that.
std::array<UOp, 2> equal_sides(UOp u);
/// Sums in each place of what an index sends there (gradients of gathers, scatter_add) become a step that sends each
/// value to its place.
void scatter_sums(Lowered& l, std::vector<ScheduleBuffer>& buffers);

/// Moves a reduction over rows into the one kernel that reads its result and the same rows again; the steps it moves
/// keep no value.
void fuse_rows(Lowered& l, const std::vector<ScheduleBuffer>& buffers, const ScheduleOptions& options);

/// Stores long sums of products before something is made of them, so that codegen may add them up in memory.
void store_long_sums(Lowered& l, std::vector<ScheduleBuffer>& buffers);

/// Elementwise steps store into the memory of an input that dies there, when every element is read only where it is
/// stored.
void update_in_place(Lowered& l, std::vector<ScheduleBuffer>& buffers);

// ---- 5. kernelize: an AST in an arena of its own for every step; equal ones share it ----
void kernelize(Lowered& l, std::vector<ScheduleBuffer>& buffers);
void kernelize_step(Lowered& l, const std::vector<ScheduleBuffer>& buffers, size_t step);

// ---- 6. order ----
/// Step numbers in execution order. May add steps that copy what a cycle needs from before an overwrite.
std::vector<int32_t> order_steps(Lowered& l, std::vector<ScheduleBuffer>& buffers);

// ---- 7. memory ----
/// Gives internal buffers whose lives do not overlap places in one arena per device. `kept_to`, where given: by call,
/// the call up to which what dies there keeps its place.
void plan_memory(Schedule& s, std::span<const int32_t> kept_to = {});

/// Lists the values that are read, `*` those that are stored.
void print_ranged(std::ostream& os, const Ranged& r);

}  // namespace tg
