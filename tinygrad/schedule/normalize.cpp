/// \file From the global graph to an arena: buffers and variables numbered, so that graphs of one structure have one
/// key.
#include <algorithm>
#include <unordered_map>

#include "tinygrad/schedule/indexing.h"
#include "tinygrad/schedule/passes.h"

namespace tg {
namespace {
constexpr size_t kFewNodes = 256;  // of a graph in which integers that index storage vary
constexpr size_t kFewIntegers = 8;

/// What stands for a node: the storage of a computed one, the source of DETACH and of a COPY to where it is.
UOp resolve(UOp u) {
  Graph& g = Graph::global();
  while (true) {
    if (UOp f = g.forwarded(u)) u = f;
    else if (u.in(Ops::DETACH | Ops::CONTIGUOUS_BACKWARD) ||
             (u.is(Ops::COPY) && device_of(u.src(0)) == u.arg<std::string>()))
      u = u.src(0);
    else return u;
  }
}
bool is_variable(UOp u) { return u.is(Ops::PARAM) && u.arg<ParamArg>().addrspace == AddrSpace::kAlu; }
bool is_bound(UOp u) { return u.is(Ops::AFTER) && is_variable(u.src(0)); }

/// The view over the BUFFER without effects: what a view's storage is once they have happened. Empty when `u` is no
/// view of a buffer.
UOp storage_of(UOp u) {
  UOps chain;
  u = resolve(u);
  while (u.in(groups::kMovement | Ops::AFTER) && !is_bound(u)) {
    if (!u.is(Ops::AFTER)) chain.push_back(u);
    u = resolve(u.src(0));
  }
  if (!u.is(Ops::BUFFER)) return UOp();
  const UOp base = u;
  for (size_t i = chain.size(); i-- > 0;) {
    UOps src(chain[i].srcs().begin(), chain[i].srcs().end());
    src[0] = u;
    u = chain[i].with_srcs(src);
  }
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

/// Integers that index storage, `x[3]`: what differs between the rounds of a loop. In small graphs they are variables,
/// so that all rounds have one schedule and its kernels.
struct Integers {
  bool vary = false;
  size_t found = 0;
  std::unordered_map<UOp, UOp> offsets;  // by SHRINK: what stands for its offsets

  /// The offsets of a SHRINK, those that pick one of several elements of an axis as bound variables.
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
  bool few(size_t nodes) const { return found && found <= kFewIntegers && nodes <= kFewNodes; }

 private:
  static bool shows_storage(UOp u) {
    for (u = resolve(u); u.in(groups::kMovement | Ops::AFTER) && !is_bound(u);) u = resolve(u.src(0));
    return u.is(Ops::BUFFER);
  }
};

KernelRef import_call(UOp sink) {
  auto kernel = std::make_shared<Kernel>();
  kernel->arena = std::make_shared<Arena>();
  ArenaScope scope(*kernel->arena);
  kernel->sink = import_graph(Graph::global(), sink);
  kernel->key = kernel->sink.key();
  return kernel;
}

void visit(UOp root, NormalGraph& g, Positions& at, UOps& stack, Integers& integers) {
  auto source = [&](UOp u, uint32_t i) {
    return i == 1 && u.is(Ops::SHRINK) ? integers.offsets_of(u) : resolve(u.src(i));
  };
  stack.push_back(root);
  while (!stack.empty()) {
    UOp u = stack.back();
    if (at.has(u)) {
      stack.pop_back();
      continue;
    }
    uint32_t n = is_bound(u) ? 0 : u.nsrc(),
             first = u.is(Ops::CALL) ? 1 : 0;  // a CALL's kernel is no part of the graph
    size_t before = stack.size();
    for (uint32_t i = n; i-- > first;)
      if (UOp s = source(u, i); !at.has(s)) stack.push_back(s);
    if (stack.size() != before) continue;
    stack.pop_back();
    at.set(u, g.nodes.size());
    for (uint32_t i = first; i < n; i++) g.src.push_back(at.get(source(u, i)));
    int32_t number = -1;
    if (u.is(Ops::BUFFER)) {
      number = static_cast<int32_t>(g.inputs.size());
      g.inputs.push_back(u);
    } else if (is_bound(u)) {
      TG_CHECK(ValueError, u.nsrc() == 2 && u.src(1).is(Ops::STORE) && u.src(1).src(1).is_const(),
               "[schedule] variable ", u.src(0).arg<ParamArg>().name, " is not bound to a number");
      number = static_cast<int32_t>(g.vars.size());
      g.vars.emplace_back(u.src(0).arg<ParamArg>().name, static_cast<int64_t>(u.src(1).src(1).const_int()));
    }
    if (u.is(Ops::CALL)) {
      number = static_cast<int32_t>(g.kernels.size());
      g.kernels.push_back(import_call(u.src(0)));
    }
    TG_CHECK(DeviceError, !u.is(Ops::CUSTOM_FUNCTION), "[schedule] got ", u.arg<std::string>(), " on ",
             device_of(u.src(0)), ", which has no ",
             u.arg<std::string>() == "encdec" ? "video decoder (hardware of NV devices)" : "function of this name");
    TG_CHECK(ValueError, !is_variable(u), "[schedule] variable ", u.arg<ParamArg>().name,
             " is unbound: give it a value with .bind(value)");
    if (u.is(Ops::AFTER) && number < 0) g.stores.emplace_back(u, UOp());
    g.nodes.push_back(u);
    g.number.push_back(number);
    g.src_begin.push_back(static_cast<uint32_t>(g.src.size()));
  }
}

/// How a root gets its storage; see RootPlan.
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

NormalGraph walk(std::span<const UOp> roots, Integers& integers) {
  static thread_local Positions at;
  NormalGraph g;
  UOps stack;
  g.src_begin.push_back(0);
  for (UOp r : roots) g.roots.push_back(plan_root(r));
  at.begin(Graph::global().id_limit());
  std::vector<int32_t> output_of;  // by position
  for (RootPlan& p : g.roots) {
    UOp value = p.kind == RootPlan::kNew ? p.storage : p.root;
    visit(value, g, at, stack, integers);
    p.node = at.get(value);
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

/// What the arena's SINK would hash to, without building it.
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
  NormalGraph g = walk(roots, integers);
  if (integers.few(g.nodes.size())) {
    integers = {.vary = true, .found = 0, .offsets = {}};
    g = walk(roots, integers);
  }
  g.key = key_of(g, {});
  return g;
}

UOp import_normal(const NormalGraph& g, std::vector<ScheduleBuffer>& buffers) {
  UOps made(g.nodes.size()), src, effects;
  buffers.resize(g.inputs.size() + static_cast<size_t>(g.outputs));
  std::vector<const RootPlan*> target(g.nodes.size());
  for (const RootPlan& p : g.roots)
    if (p.kind == RootPlan::kNew) target[p.node] = &p;
  const Origin origin(nullptr);
  for (size_t i = 0; i < g.nodes.size(); i++) {
    UOp u = g.nodes[i];
    origin.set(Graph::global().origin(u));
    src.clear();
    for (uint32_t s = g.src_begin[i]; s < g.src_begin[i + 1]; s++) src.push_back(made[g.src[s]]);
    if (u.is(Ops::BUFFER)) {
      const std::string& device = u.arg<ParamArg>().device;
      made[i] = UOp::make(Ops::PARAM, u.dtype(), src, ParamArg{g.number[i], AddrSpace::kGlobal, device, "", 0, 0});
      int64_t size = 1;
      for (const SInt& s : dims_of(made[i].src(0))) size *= s.max();
      nth(buffers, g.number[i]) = {ScheduleBuffer::kInput, u.dtype(), size, device, -1};
    } else if (u.is(Ops::CONST) && g.number[i] >= 0) {
      made[i] = UOp::make(Ops::PARAM, u.dtype(), {Shape().stack()},
                          ParamArg{g.number[i], AddrSpace::kGlobal, g.literal_device, "", 0, 0});
      nth(buffers, g.number[i]) = {ScheduleBuffer::kInput, u.dtype(), 1, g.literal_device, -1};
    } else if (u.is(Ops::CALL)) {
      made[i] = UOp::make(Ops::CALL, dtypes::void_, src, Arg(g.number[i]));
    } else if (g.number[i] >= 0) {
      const ParamArg& a = u.src(0).arg<ParamArg>();
      made[i] = UOp::make(Ops::PARAM, u.dtype(), {},
                          ParamArg{-1, AddrSpace::kAlu, "", variable_name(g.number[i]), a.vmin, a.vmax});
    } else {
      made[i] = UOp::make(u.op(), u.dtype(), src, u.arg());
    }
    if (const RootPlan* p = target[i]) {
      UOp value = made[i];
      DType dtype = strong_dtype(value.dtype());
      Shape shape = shape_of(value);
      const std::string& device = device_of(value);
      auto slot = static_cast<int64_t>(g.inputs.size()) + p->output;
      UOp out = UOp::make(Ops::PARAM, dtype, {shape.stack()}, ParamArg{slot, AddrSpace::kGlobal, device, "", 0, 0});
      int64_t size = 1;
      for (const SInt& s : shape) size *= s.max();
      nth(buffers, slot) = {ScheduleBuffer::kOutput, dtype, size, device, -1};
      UOp after = out.after({out.store(value.cast(dtype))});
      effects.push_back(after);
      if (p->share && dtype == value.dtype()) made[i] = after;
    }
  }
  for (const RootPlan& p : g.roots) {
    if (p.kind != RootPlan::kStorage) continue;
    UOp u = made[p.node];
    while (u.in(groups::kMovement)) u = u.src(0);
    if (u.is(Ops::AFTER)) effects.push_back(u);
  }
  return UOp::sink(effects);
}

}  // namespace tg
