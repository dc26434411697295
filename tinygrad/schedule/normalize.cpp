/// \file From the global graph to an arena: buffers and variables numbered, so that graphs of one structure have one
/// key.
#include "tinygrad/schedule/normalize.h"

#include <algorithm>
#include <unordered_map>

#include "tinygrad/base/at.h"
#include "tinygrad/schedule/indexing.h"
#include "tinygrad/uop/owner.h"
#include "tinygrad/uop/rebuild.h"
#include "tinygrad/uop/variables.h"
#include "tinygrad/uop/walk.h"

namespace tg {
namespace {
// Of a graph in which integers that index storage vary, for each of its writes.
constexpr size_t kFewNodes = 256;
constexpr size_t kFewIntegers = 8;

/// Resolves a node to the storage of a computed one; what only gradients see, and a COPY to where a value is, to their
/// sources.
UOp resolve(UOp u) {
  Graph& g = Graph::global();
  while (true) {
    if (UOp f = g.forwarded(u)) u = f;
    else if (u.in(Ops::DETACH | Ops::CONTIGUOUS_BACKWARD | Ops::CUSTOM_GRADIENT) ||
             (u.is(Ops::COPY) && device_of(u.src(0)) == u.arg<std::string>()))
      u = u.src(0);
    else return u;
  }
}

/// Returns the view over the BUFFER without effects: the storage of a view once they have happened. Empty where `u` is
/// no view of a buffer.
UOp storage_of(UOp u) {
  UOps chain;
  u = resolve(u);
  while (u.in(groups::kMovement | Ops::AFTER) && !is_bound(u)) {
    if (!u.is(Ops::AFTER)) chain.push_back(u);
    u = resolve(u.src(0));
  }
  if (!u.is(Ops::BUFFER)) return UOp();
  const UOp base = u;
  u = over_base(chain, u);
  return shows_padding(u, base) ? UOp() : u;
}
bool is_reshaped_buffer(UOp u) {
  while (u.is(Ops::RESHAPE)) u = u.src(0);
  return u.is(Ops::BUFFER);
}

/// Positions by node id, cleared in O(1). One per thread: the walk holds the lock.
struct Positions {
  std::vector<uint64_t> slots;
  uint32_t epoch = 0;
  void begin(size_t n) {
    if (slots.size() < n) slots.resize(n + n / 2);
    if (++epoch == 0) {
      std::fill(slots.begin(), slots.end(), 0);
      epoch = 1;
    }
  }
  bool has(UOp u) const { return u.id() < slots.size() && slots[u.id()] >> 32 == epoch; }
  uint32_t get(UOp u) const { return static_cast<uint32_t>(slots[u.id()]); }
  void set(UOp u, size_t pos) {
    if (u.id() >= slots.size()) slots.resize(u.id() + u.id() / 2 + 64);
    slots[u.id()] = uint64_t{epoch} << 32 | pos;
  }
};

/// Integers that index storage, `x[3]`, which differ between the iterations of a loop. In small graphs they are
/// variables, so that all iterations have one schedule and its kernels; in a chain of small writes, so that all writes
/// have one kernel.
struct Integers {
  bool vary = false;
  size_t found = 0;
  std::unordered_map<UOp, UOp> offsets;  // by SHRINK: its offsets, with variables

  /// Returns the offsets of a SHRINK, those that pick one of several elements of an axis as bound variables.
  UOp offsets_of(UOp u) {
    auto [it, fresh] = offsets.try_emplace(u, u.src(1));
    if (!fresh || !u.src(1).is(Ops::STACK) || !shows_storage(u.src(0))) return it->second;
    const Shape &from = shape_of(u.src(0)), &to = shape_of(u);
    UOps at(u.src(1).srcs().begin(), u.src(1).srcs().end());
    for (size_t k = 0; k < at.size(); k++) {
      if (!at[k].is_const() || from[k].symbolic() || from[k] == 1 || !(to[k] == 1)) continue;
      if (vary) {
        const UOp v = UOp::variable(str(kIntegerVariable, found), 0, from[k].value() - 1);
        at[k] = v.after({v.store(at[k])});
      }
      found++;
    }
    if (vary) it->second = UOp::stack(at);
    return it->second;
  }
  bool few(size_t nodes, size_t writes) const {
    const size_t graphs = std::max<size_t>(writes, 1);
    return found && found <= graphs * kFewIntegers && nodes <= graphs * kFewNodes;
  }

 private:
  static bool shows_storage(UOp u) {
    for (u = resolve(u); u.in(groups::kMovement | Ops::AFTER) && !is_bound(u);) u = resolve(u.src(0));
    return u.is(Ops::BUFFER);
  }
};

KernelRef import_call(UOp sink) {
  auto kernel = std::make_shared<Kernel>();
  kernel->arena = std::make_shared<Arena>();
  const UOp expression = as_public(sink);  // before the arena is open: a walk tells nodes of one graph apart
  TG_ASSERT(Graph::global().owns(expression), "a kernel of another graph: ", expression);
  ArenaScope scope(*kernel->arena);
  kernel->sink = import_graph(Graph::global(), expression);
  kernel->key = kernel->sink.key();
  return kernel;
}

/// Numbers the nodes of a graph, sources before users.
class Numbering {
 public:
  Numbering(NormalGraph& g, Integers& integers) : g_(g), integers_(integers) {
    position_.begin(Graph::global().id_limit());
    g.src_begin.push_back(0);
  }
  /// Returns the position of a node, after what it depends on.
  uint32_t visit(UOp root) {
    walk(root, [&](UOp u) { return position_.has(u); }, [&](UOp u) { return sources(u); }, [&](UOp u) { add(u); });
    return position_.get(root);
  }

 private:
  /// Returns what a node depends on: a CALL's kernel and the value of a variable are no part of the graph.
  std::span<const UOp> sources(UOp u) {
    sources_.clear();
    if (is_bound(u)) return {};
    for (uint32_t i = u.is(Ops::CALL) ? 1 : 0; i < u.nsrc(); i++)
      sources_.push_back(i == 1 && u.is(Ops::SHRINK) ? integers_.offsets_of(u) : resolve(u.src(i)));
    return sources_;
  }
  void add(UOp u) {
    check(u);
    position_.set(u, g_.nodes.size());
    for (UOp s : sources(u)) g_.src.push_back(position_.get(s));
    const int32_t number = number_of(u);
    if (u.is(Ops::AFTER) && number < 0) g_.stores.emplace_back(u, UOp());
    g_.nodes.push_back(u);
    g_.number.push_back(number);
    g_.src_begin.push_back(static_cast<uint32_t>(g_.src.size()));
  }
  /// Gives a BUFFER, a bound variable or a CALL the next number; -1 for others.
  int32_t number_of(UOp u) {
    if (u.is(Ops::BUFFER)) {
      g_.inputs.push_back(u);
      return static_cast<int32_t>(g_.inputs.size()) - 1;
    }
    if (u.is(Ops::CALL)) {
      g_.kernels.push_back(import_call(u.src(0)));
      return static_cast<int32_t>(g_.kernels.size()) - 1;
    }
    if (!is_bound(u)) return -1;
    const std::string& name = u.src(0).arg<ParamArg>().name;
    g_.vars.emplace_back(name, static_cast<int64_t>(value_of_bound(u).const_int()));
    return static_cast<int32_t>(g_.vars.size()) - 1;
  }
  static void check(UOp u) {
    TG_CHECK(DeviceError, !u.is(Ops::CUSTOM_FUNCTION), "[schedule] got ", u.arg<std::string>(), " on ",
             device_of(u.src(0)), ", which has no ",
             u.arg<std::string>() == "encdec" ? "video decoder (hardware of NV devices)" : "function of this name");
    TG_CHECK(ValueError, !is_variable(u), "[schedule] variable ", u.arg<ParamArg>().name,
             " is unbound: give it a value with .bind(value)");
  }

  NormalGraph& g_;
  Integers& integers_;
  static thread_local Positions position_;
  UOps sources_;
};
thread_local Positions Numbering::position_;

/// Plans how a root gets its storage.
RootPlan plan_root(UOp root) {
  RootPlan p;
  p.root = resolve(root);
  if ((p.storage = storage_of(p.root))) return p;
  UOp u = p.root, contiguous;
  while (u.in(Ops::RESHAPE | Ops::CONTIGUOUS)) {
    if (u.is(Ops::CONTIGUOUS)) contiguous = u;
    u = resolve(u.src(0));
  }
  if (contiguous) {
    // CONTIGUOUS of storage that is contiguous already is that storage.
    UOp s = storage_of(u);
    if (s && is_reshaped_buffer(s)) {
      Shape shape = shape_of(p.root);
      p.storage = shape_of(s) == shape ? s : UOp::make(Ops::RESHAPE, s.dtype(), {s, shape.stack()});
      p.root = u;
      return p;
    }
  }
  p.kind = RootPlan::kNew;
  p.share = contiguous || !u.in(groups::kMovement);
  p.storage = !u.in(groups::kMovement) ? u : contiguous ? contiguous : p.root;  // for now: the value to compute
  return p;
}

std::string variable_name(int32_t n) { return str("v", n < 10 ? "0" : "", n); }

NormalGraph number_graph(std::span<const UOp> roots, Integers& integers) {
  NormalGraph g;
  for (UOp r : roots) g.roots.push_back(plan_root(r));
  Numbering numbering(g, integers);
  std::vector<int32_t> output_of;  // by position
  for (RootPlan& p : g.roots) {
    p.node = numbering.visit(p.kind == RootPlan::kNew ? p.storage : p.root);
    if (p.kind != RootPlan::kNew) continue;
    output_of.resize(g.nodes.size(), -1);
    if (int32_t& o = output_of[p.node]; o >= 0) {
      p.kind = RootPlan::kAlias;
      p.output = o;
    } else p.output = o = g.outputs++;
  }
  for (auto& [after, storage] : g.stores) storage = storage_of(after);
  return g;
}
}  // namespace

/// Hashes what the arena's SINK would be, without building it.
Hash128 key_of(const NormalGraph& g, const std::vector<bool>& open) {
  Hash128 key;
  uint64_t holes = 0;
  std::vector<Hash128> hash(g.nodes.size());
  for (size_t i = 0; i < g.nodes.size(); i++) {
    UOp u = g.nodes[i];
    Hash128& h = hash[i];
    uint64_t sources = g.src_begin[i + 1] - g.src_begin[i];
    h.add(static_cast<uint64_t>(u.op()) | static_cast<uint64_t>(u.dtype().id()) << 8 | sources << 16);
    if (u.is(Ops::CALL)) {
      h.add(u.src(0).key());
    } else if (!open.empty() && open[i]) {
      h.add(std::string_view("open"));
      h.add(holes++);  // which one: two literals that differ may be equal in another graph
    } else if (g.number[i] >= 0) {
      h.add(static_cast<uint64_t>(g.number[i]));
      const ParamArg& a = (u.is(Ops::BUFFER) ? u : u.src(0)).arg<ParamArg>();
      h.add(a.device);
      h.add(static_cast<uint64_t>(a.vmin));
      h.add(static_cast<uint64_t>(a.vmax));
    } else if (u.arg_kind() != ArgKind::kNone) h.add(Arg::hash(u.arg_kind(), u.node()->arg_bits));
    for (uint32_t s = g.src_begin[i]; s < g.src_begin[i + 1]; s++) h.add(hash[g.src[s]]);
  }
  for (const RootPlan& p : g.roots) {
    key.add(static_cast<uint64_t>(p.kind) | static_cast<uint64_t>(p.share) << 8 |
            static_cast<uint64_t>(p.output + 1) << 16);
    key.add(hash[p.node]);
    if (p.kind != RootPlan::kStorage)
      for (const SInt& s : shape_of(p.root))
        if (!s.symbolic()) key.add(static_cast<uint64_t>(s.value()));
  }
  return key;
}

NormalGraph normalize(std::span<const UOp> roots) {
  Integers integers;
  NormalGraph g = number_graph(roots, integers);
  if (integers.few(g.nodes.size(), g.stores.size())) {
    integers = {.vary = true, .found = 0, .offsets = {}};
    g = number_graph(roots, integers);
  }
  g.key = key_of(g, {});
  return g;
}

namespace {
/// Copies a NormalGraph into the current arena.
class ArenaImport {
 public:
  ArenaImport(const NormalGraph& g, std::vector<ScheduleBuffer>& buffers)
      : g_(g), buffers_(buffers), made_(g.nodes.size()), target_(g.nodes.size()) {
    buffers_.resize(g.inputs.size() + static_cast<size_t>(g.outputs));
    for (const RootPlan& p : g.roots)
      if (p.kind == RootPlan::kNew) target_[p.node] = &p;
  }
  UOp run() {
    const Origin origin(nullptr);
    for (size_t i = 0; i < g_.nodes.size(); i++) {
      origin.set(Graph::global().origin(g_.nodes[i]));
      made_[i] = imported(i);
      if (target_[i]) store(i, *target_[i]);
    }
    for (const RootPlan& p : g_.roots) {
      if (p.kind != RootPlan::kStorage) continue;
      UOp u = made_[p.node];
      while (u.in(groups::kMovement)) u = u.src(0);
      if (u.is(Ops::AFTER)) effects_.push_back(u);
    }
    return UOp::sink(effects_);
  }

 private:
  UOp imported(size_t i) {
    UOp u = g_.nodes[i];
    const int32_t number = g_.number[i];
    UOps src;
    for (uint32_t s = g_.src_begin[i]; s < g_.src_begin[i + 1]; s++) src.push_back(made_[g_.src[s]]);
    if (u.is(Ops::BUFFER)) {
      int64_t size = 1;
      for (const SInt& s : dims_of(src[0])) size *= s.max();
      return input(number, u.dtype(), src[0], size, u.arg<ParamArg>().device);
    }
    if (u.is(Ops::CONST) && number >= 0) return input(number, u.dtype(), Shape().stack(), 1, g_.literal_device);
    if (u.is(Ops::CALL)) return UOp::make(Ops::CALL, dtypes::void_, src, Arg(number));
    if (number < 0) return UOp::make(u.op(), u.dtype(), src, u.arg());
    const ParamArg& a = u.src(0).arg<ParamArg>();
    return UOp::make(Ops::PARAM, u.dtype(), {},
                     ParamArg{number, AddrSpace::kAlu, "", variable_name(number), a.vmin, a.vmax});
  }
  UOp input(int32_t number, DType d, UOp shape, int64_t size, const std::string& device) {
    at(buffers_, number) = {ScheduleBuffer::kInput, d, size, device, -1};
    return UOp::make(Ops::PARAM, d, {shape}, ParamArg{number, AddrSpace::kGlobal, device, "", 0, 0});
  }
  /// Stores a value into the new buffer of a root.
  void store(size_t i, const RootPlan& p) {
    UOp value = made_[i];
    const DType dtype = strong_dtype(value.dtype());
    const Shape shape = shape_of(value);
    const std::string& device = device_of(value);
    const int64_t slot = static_cast<int64_t>(g_.inputs.size()) + p.output;
    int64_t size = 1;
    for (const SInt& s : shape) size *= s.max();
    at(buffers_, slot) = {ScheduleBuffer::kOutput, dtype, size, device, -1};
    UOp out = UOp::make(Ops::PARAM, dtype, {shape.stack()}, ParamArg{slot, AddrSpace::kGlobal, device, "", 0, 0});
    UOp after = out.after({out.store(value.cast(dtype))});
    effects_.push_back(after);
    if (p.share && dtype == value.dtype()) made_[i] = after;
  }

  const NormalGraph& g_;
  std::vector<ScheduleBuffer>& buffers_;
  UOps made_, effects_;
  std::vector<const RootPlan*> target_;  // by position
};
}  // namespace

UOp import_normal(const NormalGraph& g, std::vector<ScheduleBuffer>& buffers) { return ArenaImport(g, buffers).run(); }

}  // namespace tg
