/// \file Realizing tensors, and reading their values.
#include "tinygrad/engine/realize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tinygrad/base/env.h"
#include "tinygrad/base/text.h"
#include "tinygrad/runtime/buffer.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tensor/effects.h"
#include "tinygrad/tensor/flight.h"
#include "tinygrad/tensor/function.h"
#include "tinygrad/tensor/history.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/jit.h"
#include "tinygrad/tensor/lower_multi.h"
#include "tinygrad/tensor/ops.h"
#include "tinygrad/tensor/stored_view.h"
#include "tinygrad/tensor/variable.h"
#include "tinygrad/uop/buffer_flags.h"
#include "tinygrad/uop/eval.h"

namespace tg {
using namespace tensor_detail;

namespace {
/// The value needs no kernel: storage, a view of storage, or repeated literals.
bool has_value(UOp u) {
  UOp b = u;
  bool spread = false;  // on several devices: storage elsewhere does not count
  while (b.in(kViewOps) || (b.is(Ops::COPY) && is_multi(b))) {
    if (UOp f = current(b); f != b) b = f;
    else if (b.in(Ops::PAD)) return false;
    else {
      spread |= b.is(Ops::COPY);
      b = b.src(0);
    }
  }
  b = current(b);
  if (b.is(Ops::MSTACK))
    return !spread && std::all_of(b.srcs().begin(), b.srcs().end(), has_value);  // shards have one device each
  return (!spread && b.is(Ops::BUFFER)) || b.is_const();
}

/// What is to be computed, and for whom.
struct Plan {
  UOps roots;                ///< each once
  std::vector<UOp> sources;  ///< per root: the node it stands for (another one where a constant needs storage)
  std::vector<UOpRef> held;
  Writes writes;
  /// A value of several devices: its shards are roots, or storage that is there.
  struct Joined {
    UOpRef value;
    std::vector<UOpRef> parts;
    int axis;
  };
  std::vector<Joined> joined;
};

bool is_empty(const Shape& s) {
  return std::any_of(s.begin(), s.end(), [](const SInt& n) { return n == 0; });
}

void push_root(Plan& p, UOp root, UOp source) {
  p.roots.push_back(root);
  p.sources.push_back(source);
  p.held.push_back(source);
  p.held.push_back(root);
}

/// The roots of a value of several devices, or of one that is made of such.
void add_multi(Plan& p, UOp u) {
  for (const Plan::Joined& j : p.joined)
    if (j.value.get() == u) return;
  const Shards s = lower_multi(u);
  const std::vector<std::string> devices = split_devices(device_or_default(u));
  Plan::Joined joined{u, {}, s.axis};
  // What is copied shares no storage with what it was copied from.
  const bool apart = u.is(Ops::COPY) || (u.is(Ops::CONTIGUOUS) && u.arg_kind() == ArgKind::kInt);
  for (size_t i = 0; i < s.parts.size(); i++) {
    UOp part = current_view(s.parts[i]);
    for (; apart && part.is(Ops::CONTIGUOUS) && has_value(part.src(0));) part = current_view(part.src(0));
    UOp root = part;
    const bool twice = std::find(s.parts.begin(), s.parts.begin() + static_cast<long>(i), s.parts[i]) !=
                       s.parts.begin() + static_cast<long>(i);
    const auto known = std::find(p.sources.begin(), p.sources.end(), part);
    if (device_of(part).empty() || shape_of(part).symbolic() || part.is(Ops::DETACH) || twice ||
        (apart && has_value(part))) {
      root = materialize(part, devices[i]);
      push_root(p, root, root);
    } else if (known != p.sources.end()) {
      root = p.roots[static_cast<size_t>(known - p.sources.begin())];
    } else if (!has_value(part)) {
      push_root(p, part, part);
    }
    joined.parts.push_back(root);
  }
  p.joined.push_back(std::move(joined));
}

void add_root(Plan& p, UOp u) {
  u = current_view(u);
  while (u.is(Ops::RESHAPE)) u = current_view(u.src(0));                      // the same storage
  while (on_storage_device(u) && u.in(kViewOps)) u = current_view(u.src(0));  // a part of a file that is copied first
  if (u.dtype().is_weak() || has_value(u) || is_empty(shape_of(u)) ||
      std::find(p.sources.begin(), p.sources.end(), u) != p.sources.end())
    return;
  if (has_multi(u)) return add_multi(p, u);
  UOp root = inline_functions(u);
  if (has_multi(root)) return add_multi(p, u);
  if (root != u && has_value(root))
    return Graph::global().forward(u, current_view(root));  // a function that returns an argument
  if (device_of(u).empty() || shape_of(u).symbolic()) root = materialize(root, device_or_default(u));
  // In the storage of its source it would be its source, and gradients would flow into that.
  else if (root.is(Ops::DETACH)) root = materialize(root, device_of(root));
  push_root(p, root, u);
}

/// Values that live tensors hold and that are stored on the way: they are kept, instead of computed again when those
/// are realized.
void add_held(Plan& p) {
  MemoScope inside;
  UOps stack = p.roots;
  auto& g = Graph::global();
  while (!stack.empty()) {
    UOp u = stack.back();
    stack.pop_back();
    if (inside.has(u)) continue;
    inside.mark(u);
    if (g.forwarded(u)) continue;
    for (size_t i = u.nsrc(); i-- > (u.is(Ops::CALL) ? 1 : 0);) stack.push_back(u.src(i));
  }
  UOps held;
  each_live([&](Tensor::Impl& i) {
    UOp u = i.uop;
    while (u.in(kViewOps)) u = u.src(0);
    if (!u.is(Ops::CONTIGUOUS) || shape_of(u).symbolic()) return;
    if (inside.has(has_multi(u) ? lower_multi(u).parts[0] : u)) held.push_back(u);
  });
  for (UOp u : held) add_root(p, u);
}

/// The tensors' nodes, and every pending expression that reads what the schedule overwrites.
Plan plan(const Tensors& tensors) {
  Plan p;
  for (const Tensor& t : tensors) add_root(p, uop_of(t, "realize"));
  if (p.roots.empty()) return p;
  for (size_t n = 0; n != p.roots.size();) {  // readers may be writes themselves
    const bool first = n == 0;
    n = p.roots.size();
    p.writes = writes_of(p.roots);
    if (first && p.writes.contiguous) add_held(p);
    if (p.writes.buffers.empty()) break;
    for (UOp reader : readers_of(p.writes)) add_root(p, reader);
  }
  return p;
}

/// A node with its own history, not just marked by the user: gradients still need it after it has been computed.
bool has_history(UOp u) {
  if (!(u.node()->flags & Node::kNeedsGrad)) return false;
  for (UOp s : u.srcs())
    if (s.node()->flags & Node::kNeedsGrad) return true;
  return false;
}

/// A number made of many, as losses are: backward() after realize() is what training loops do.
bool is_loss(UOp u) {
  const auto is_number = [](UOp v) { return !shape_of(v).symbolic() && shape_of(v).numel() == 1; };
  if (!u.dtype().is_float() || !is_number(u)) return false;
  while (u.in(kViewOps | groups::kElementwise) && u.nsrc() > 0 && is_number(u)) u = u.src(0);
  return u.is(Ops::REDUCE);
}

/// Whether what was written to storage keeps its history: it consists of values, not of something assigned.
bool writes_values(UOp u) {
  bool all = true;
  each_base(u, [&](UOp e) { all &= is_value_write(e) && !is_leaf_write(e); });
  return all;
}

/// Whether realize() leaves a tensor its expression.
bool keeps_history(UOp u) {
  if (env::EAGER) return !u.is(Ops::BUFFER);
  if (is_effect_target(u)) return keeps_call(u) || (writes_values(u) && has_history(u));
  return has_history(u) || is_loss(u);
}

/// Whether an expression is large, holds on to much memory, or goes on behind values that were computed: the rest is
/// kept without a look at all live tensors.
bool holds_much(UOp root) {
  constexpr size_t kManyNodes = 256;
  constexpr int64_t kMuchMemory = 64 << 10;
  MemoScope seen;
  UOps stack(root.srcs().begin(), root.srcs().end());
  int64_t bytes = 0;
  for (size_t n = 0; !stack.empty(); n++) {
    UOp u = stack.back();
    stack.pop_back();
    if (seen.has(u)) continue;
    seen.mark(u);
    if (u.is(Ops::BUFFER) && !shape_of(u).symbolic()) bytes += shape_of(u).numel() * u.dtype().itemsize();
    if (n > kManyNodes || bytes > kMuchMemory || u.node()->flags & Node::kForwarded) return true;
    for (UOp s : u.srcs()) stack.push_back(s);
  }
  return false;
}

/// Whether reading a value leaves a tensor its expression: where a gradient may be asked for.
bool keeps_history_when_read(UOp u, std::optional<std::unordered_set<const Node*>>& shown) {
  if (keeps_history(u)) return true;
  if (!u.dtype().is_float()) return false;
  if (!holds_much(u)) return true;
  if (!shown) shown = shown_nodes();
  return history_need(u, *shown) != HistoryNeed::kNone;
}
}  // namespace

namespace {
constexpr size_t kListed = 5;

/// A line for each of the largest live tensors' storage.
std::string largest_tensors() {
  GraphScope g;
  struct Line {
    Buffer* memory;
    std::string text;
  };
  std::vector<Line> all;
  size_t tensors = 0;
  each_live([&](Tensor::Impl& i) {
    UOp u = current_view(i.uop), b = u;
    tensors++;
    while (b.in(kViewOps)) b = b.src(0);
    if (!b.is(Ops::BUFFER)) return;
    BufferRef m = buffer_table::get(static_cast<uint64_t>(b.arg<ParamArg>().slot));
    if (!m || !m->is_allocated()) return;
    Buffer* memory = &m->base();
    for (const Line& l : all)
      if (l.memory == memory) return;
    all.push_back({memory, str(shape_of(u), " ", u.dtype(), " on ", m->device_name(),
                               m->made_by() ? str(", made by ", m->made_by()) : "")});
    for (size_t k = all.size() - 1; k > 0 && all[k].memory->nbytes() > all[k - 1].memory->nbytes(); k--)
      std::swap(all[k], all[k - 1]);
    if (all.size() > kListed) all.pop_back();
  });
  if (all.empty()) return str("; none of the ", tensors, " live tensors has storage");
  std::string out = str("; the largest of ", tensors, " live tensors:");
  for (const Line& l : all)
    out +=
        str("\n  ", human_bytes(static_cast<double>(l.memory->nbytes())), " (", l.memory->nbytes(), " bytes) ", l.text);
  return out;
}
}  // namespace

void tensor_detail::with_oom_report(const std::function<void()>& f) {
  std::string what;
  try {
    return f();
  } catch (const OutOfMemoryError& e) { what = e.what(); }
  if (what.find(" live tensors") == std::string::npos) what += largest_tensors();
  throw OutOfMemoryError(what);
}

static void realize_all(const Tensors& tensors, bool keep) {
  Plan p;
  std::optional<ScheduleRun> run;
  BoundSchedule bound;
  std::vector<UOpRef> results;
  std::vector<std::pair<UOpRef, UOpRef>> shared;
  Flight flight;
  const auto prepare = [&] {
    GraphScope g;
    p = plan(tensors);
    if (p.roots.empty()) return true;
    bound = create_schedule(p.roots);
    if (!flight.start(bound, p.writes)) {
      p = {};
      bound = {};
      return false;
    }
    run.emplace(bound);
    for (UOp r : bound.results) results.push_back(r);
    for (auto& [from, to] : bound.stored) shared.emplace_back(from, to);
    return true;
  };
  while (!prepare()) flight.wait();
  if (run) {  // without the graph's lock; a failure leaves every tensor as it was
    with_oom_report([&] {
      try {
        run->run();
      } catch (const OutOfMemoryError& e) {
        const MemoryNeeds m = bound.schedule->memory();
        run.reset();
        results.clear();
        shared.clear();            // what was allocated for it
        if (m.peak() == 0) throw;  // what there is no room for is no result of this schedule: the message has its size
        throw OutOfMemoryError(str(e.what(), "; results of ", human_bytes(static_cast<double>(m.results)),
                                   " and intermediates of ", human_bytes(static_cast<double>(m.intermediates)),
                                   " were to be computed"));
      }
    });
  }
  GraphScope g;
  if (run) {
    for (size_t i = 0; i < p.roots.size(); i++) {
      if (is_effect_target(p.roots[i])) continue;
      Graph::global().forward(p.sources[i], results[i]);
    }
    finish_effects(p.writes, keep);
    for (auto& [from, to] : shared) Graph::global().forward(from, to);  // writes are forwarded already
    for (size_t i = 0; i < p.roots.size(); i++)
      if (p.sources[i] != p.roots[i]) Graph::global().forward(p.sources[i], current_view(p.roots[i]));
  }
  for (const Plan::Joined& j : p.joined) {
    UOps parts;
    for (UOp r : j.parts) parts.push_back(current_view(r));
    Graph::global().forward(j.value, parts.size() == 1 ? parts[0] : join_shards(parts, j.axis));
  }
  forget_lowered();
  std::optional<std::unordered_set<const Node*>> shown;
  for (const Tensor& t : tensors) {
    UOp u = t.impl()->uop, to = current_view(u);
    if (to == u || (keep ? keeps_history_when_read(u, shown) : keeps_history(u))) continue;
    if (t.impl()->requires_grad.value_or(false)) to.node()->flags |= Node::kNeedsGrad;
    set_uop(*t.impl(), to);
  }
}

/// A write that there is no memory to compute would keep its storage unreadable for ever: each pending one is tried by
/// itself, and taken back when that fails as well.
static void roll_back_failed_writes() {
  if (JitCore::capturing()) return;
  for (const Tensor& t : writes_with_earlier_state())
    for (bool again = true; again;) {
      again = false;
      try {
        realize_all({t}, false);
      } catch (const OutOfMemoryError&) {
        again = roll_back_write(t);
      } catch (const Error&) {  // left to whoever reads it
      }
    }
}

/// Computes tensors; whether their handles keep the expressions.
static void realize_or_restore(const Tensors& tensors, bool keep) {
  try {
    realize_all(tensors, keep);
  } catch (const OutOfMemoryError&) {
    roll_back_failed_writes();
    throw;
  }
}
void realize(const Tensors& tensors) { realize_or_restore(tensors, false); }
void tensor_detail::realize_pending(const Tensors& tensors, bool keep) { realize_or_restore(tensors, keep); }

Tensor Tensor::realize() const {
  tg::realize(Tensors{*this});
  return *this;
}

bool Tensor::is_realized() const {
  GraphScope g;
  return has_value(current(uop_of(*this, "is_realized")));
}

BoundSchedule schedule(const Tensors& tensors) {
  GraphScope g;
  Plan p = plan(tensors);
  if (p.roots.empty()) {
    BoundSchedule none;
    none.schedule = std::make_shared<const Schedule>();
    return none;
  }
  return create_schedule(p.roots);
}
BoundSchedule Tensor::schedule() const { return tg::schedule(Tensors{*this}); }

// ---- values ----

namespace {
/// The tensor's whole storage: row-major, nothing else in it. Empty for tensors without elements.
BufferRef storage(const Tensor& t) {
  GraphScope g;
  Tensor x = t;
  UOp u = current_view(x.uop());
  while (u.in(Ops::RESHAPE | Ops::DETACH | Ops::BITCAST)) u = current_view(u.src(0));
  if (!u.is(Ops::BUFFER)) {  // a view: gather it
    UOp v = current_view(x.uop());
    v = ops::strong(v);
    x = Tensor::from_uop(materialize(v, device_or_default(v))).realize();
    u = current_view(x.uop());
  }
  BufferRef b = buffer_table::get(static_cast<uint64_t>(u.arg<ParamArg>().slot));
  TG_ASSERT(b, "no memory behind ", u);
  b->ensure_allocated();  // made by empty() and never written: undefined contents
  return b;
}

/// Repeated literals and empty tensors, without a kernel.
bool literal_bytes(const Tensor& t, std::vector<std::byte>& out) {
  GraphScope g;
  UOp u = current_view(t.uop()), c = ops::literal_of(u);
  int64_t n = shape_of(u).numel();
  if (!c && n != 0) return false;
  DType d = ops::strong_type(u);
  size_t size = static_cast<size_t>(d.itemsize());
  out.resize(static_cast<size_t>(n) * size);
  if (n == 0) return true;
  store_const(out.data(), UOp::constant(c.const_value(), d).const_value(), d);
  for (size_t i = size; i < out.size(); i++) out[i] = out[i - size];
  return true;
}

/// What materialize gives a symbolic tensor: the first elements of each axis of storage that has room for the greatest
/// sizes. Else nothing.
UOp backing_buffer(UOp v) {
  if (!v.is(Ops::SHRINK) || shape_of(v.src(0)) != ops::greatest(shape_of(v))) return {};
  for (UOp offset : v.src(1).srcs())
    if (!offset.is_const() || offset.const_int() != 0) return {};
  UOp b = current_view(v.src(0));
  return b.is(Ops::BUFFER) ? b : UOp();
}

/// Elements of a tensor with symbolic sizes, row-major. Gathered on the host: a kernel would be another one for every
/// value.
std::vector<std::byte> bytes_with_values(const Tensor& t) {
  realize_pending({t}, true);
  Tensor x, room;
  Shape now;
  {
    GraphScope g;
    UOp v = current_view(t.uop());
    if (!backing_buffer(v)) x = Tensor::from_uop(materialize(v, device_or_default(v)));
  }
  if (x.defined()) x.realize();
  {
    GraphScope g;
    room = Tensor::from_uop(backing_buffer(current_view((x.defined() ? x : t).uop())));
    now = with_values(t).shape();
  }
  std::span<const std::byte> all = room.bytes();
  const Shape most = room.shape();
  std::vector<int64_t> stride(most.size() + 1, room.element_size()), at(now.size(), 0);
  for (size_t a = most.size(); a-- > 0;) stride[a] = stride[a + 1] * most[a].value();
  const size_t row = static_cast<size_t>(now.back().value() * stride[now.size()]);
  std::vector<std::byte> out(static_cast<size_t>(now.numel() * room.element_size()));
  for (size_t done = 0; done < out.size(); done += row) {
    int64_t from = 0;
    for (size_t a = 0; a + 1 < at.size(); a++) from += at[a] * stride[a + 1];
    std::memcpy(out.data() + done, all.data() + from, row);
    for (size_t a = at.size() - 1; a-- > 0 && ++at[a] == now[a].value();) at[a] = 0;
  }
  return out;
}
}  // namespace

/// A view of storage that cannot gather its elements.
static bool needs_another_device(const Tensor& t) {
  GraphScope g;
  UOp u = current_view(t.uop());
  if (!on_storage_device(u)) return false;
  while (u.in(Ops::RESHAPE | Ops::DETACH | Ops::BITCAST)) u = current_view(u.src(0));
  return !u.in(Ops::BUFFER | Ops::COPY) && !is_effect_target(u);
}

std::span<const std::byte> Tensor::bytes() const {
  uop_of(*this, "data");
  JitCore::check_not_capturing("data");
  Impl& i = *impl_;
  if (devices().size() > 1) {
    realize_pending({*this}, true);
    Tensor one;
    {
      GraphScope g;
      one = from_uop(gathered(uop()));
    }
    std::span<const std::byte> there = one.bytes();
    i.keep = {};
    i.host.assign(there.begin(), there.end());
    return i.host;
  }
  if (shape().symbolic()) {
    std::vector<std::byte> host = bytes_with_values(*this);
    i.keep = {};
    i.host = std::move(host);
    return i.host;
  }
  if (needs_another_device(*this)) {
    std::span<const std::byte> there = to(Device::default_name()).bytes();
    i.host.assign(there.begin(), there.end());
    return i.host;
  }
  realize_pending({*this}, true);
  if (i.keep) {
    Buffer* b = static_cast<Buffer*>(i.keep.get());
    return {static_cast<const std::byte*>(b->data()), static_cast<size_t>(b->nbytes())};
  }
  if (!i.host.empty()) return i.host;
  std::vector<std::byte> host;
  if (literal_bytes(*this, host)) {
    i.host = std::move(host);
    return i.host;
  }
  BufferRef b = storage(*this);
  Device::synchronize(b->device_name());
  if (const void* p = b->data()) {
    i.keep = b;
    return {static_cast<const std::byte*>(p), static_cast<size_t>(b->nbytes())};
  }
  i.host.resize(static_cast<size_t>(b->nbytes()));
  b->copy_out(i.host);
  return i.host;
}

std::span<const std::byte> Tensor::data_bytes(size_t size, bool is_bool, bool is_float, bool is_signed) const {
  DType d = stored_dtype();
  bool stored_as_bits = d == dtypes::float16 || d == dtypes::bfloat16 || d.is_fp8();
  bool fits = static_cast<size_t>(d.itemsize()) == size && is_bool == d.is_bool();
  if (d.is_float() && !stored_as_bits) fits &= is_float;
  else if (!d.is_bool()) fits &= !is_float && is_signed == !(d.is_unsigned() || stored_as_bits);
  TG_CHECK(DTypeError, fits, "[data] got a tensor of ", d, ", expected the C++ type of its elements (",
           stored_as_bits              ? "their bits, as uint8_t or uint16_t"
           : d.is_float() && !is_float ? "or to_vector<float>(), or a cast to integers first"
                                       : "or to_vector, which converts",
           ")");
  return bytes();
}

ConstValue Tensor::item_value(bool integer) const {
  TG_CHECK(ShapeError, numel() == 1, "[item] got shape ", shape(), ", expected one element: use to_vector or data");
  DType d = stored_dtype();
  TG_CHECK(DTypeError, !integer || !d.is_float(), "[item] got a tensor of ", d,
           " read as an integer, expected item<float>() or a cast");
  return load_const(bytes().data(), d);
}

std::vector<double> Tensor::to_doubles() const {
  DType d = stored_dtype();
  std::span<const std::byte> b = bytes();
  size_t size = static_cast<size_t>(d.itemsize());
  std::vector<double> out(b.size() / size);
  for (size_t i = 0; i < out.size(); i++) out[i] = load_const(&b[i * size], d).as_double();
  return out;
}
std::vector<int128> Tensor::to_ints() const {
  DType d = stored_dtype();
  TG_CHECK(DTypeError, !d.is_float(), "[to_vector] got a tensor of ", d,
           " read as integers, expected a float type or a cast");
  std::span<const std::byte> b = bytes();
  size_t size = static_cast<size_t>(d.itemsize());
  std::vector<int128> out(b.size() / size);
  for (size_t i = 0; i < out.size(); i++) out[i] = load_const(&b[i * size], d).i;
  return out;
}
void Tensor::check_fits(int128 v, int128 lo, int128 hi) {
  TG_CHECK(ValueError, v >= lo && v <= hi, "[item] got ", static_cast<double>(v), ", expected a value between ",
           static_cast<double>(lo), " and ", static_cast<double>(hi));
}

}  // namespace tg
