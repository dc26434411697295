/// \file create_schedule: one table of stages, one loop that runs, times, prints and verifies them; the cache.
#include "tinygrad/schedule/schedule.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <list>
#include <map>
#include <mutex>
#include <numeric>
#include <sstream>

#include "tinygrad/base/cancellation.h"
#include "tinygrad/base/env.h"
#include "tinygrad/base/output.h"
#include "tinygrad/base/profile.h"
#include "tinygrad/base/recording.h"
#include "tinygrad/schedule/early.h"
#include "tinygrad/schedule/elide_copies.h"
#include "tinygrad/schedule/fuse_attention.h"
#include "tinygrad/schedule/fuse_rows.h"
#include "tinygrad/schedule/in_place.h"
#include "tinygrad/schedule/literals.h"
#include "tinygrad/schedule/long_sums.h"
#include "tinygrad/schedule/lower.h"
#include "tinygrad/schedule/memory.h"
#include "tinygrad/schedule/normalize.h"
#include "tinygrad/schedule/one_hot_sums.h"
#include "tinygrad/schedule/order.h"
#include "tinygrad/schedule/partial_max_sum.h"
#include "tinygrad/schedule/rangeify.h"
#include "tinygrad/uop/record_graph.h"
#include "tinygrad/uop/spec.h"

namespace tg {
namespace {
constexpr size_t kCacheSize = 1024;

/// Schedules by key, least recently used dropped.
struct Cache {
  struct Entry {
    Hash128 key;
    std::shared_ptr<const Schedule> schedule;
  };
  std::mutex mutex;
  std::list<Entry> entries;
  std::map<Hash128, std::list<Entry>::iterator> by_key;

  std::shared_ptr<const Schedule> find(const Hash128& key) {
    std::lock_guard lock(mutex);
    auto it = by_key.find(key);
    if (it == by_key.end()) return nullptr;
    entries.splice(entries.begin(), entries, it->second);
    return it->second->schedule;
  }
  void add(const Hash128& key, std::shared_ptr<const Schedule> s) {
    std::lock_guard lock(mutex);
    if (by_key.count(key)) return;
    entries.push_front({key, std::move(s)});
    by_key[key] = entries.begin();
    if (entries.size() > kCacheSize) {
      by_key.erase(entries.back().key);
      entries.pop_back();
    }
  }
  void clear() {
    std::lock_guard lock(mutex);
    entries.clear();
    by_key.clear();
  }
};
Cache& cache() {
  static auto* c = new Cache;
  return *c;
}

/// What the stages hand on.
struct SchedulePlan {
  const NormalGraph& normal;
  const ScheduleOptions& options;
  std::vector<ScheduleBuffer> buffers{};
  UOp sink{};
  Ranged ranged{};
  StepGraph graph{};
  std::vector<ScheduleItem> items{};
  std::vector<StepId> order{};
  std::shared_ptr<Schedule> schedule = std::make_shared<Schedule>();
};

/// Returns the number of the buffer that holds a root; -1: it needs no kernel.
int32_t result_of(const NormalGraph& g, const RootPlan& p) {
  if (p.kind != RootPlan::kStorage) return static_cast<int32_t>(g.inputs.size()) + p.output;
  if (g.nodes[p.node] == p.storage) return -1;
  const auto it = std::find(g.inputs.begin(), g.inputs.end(), base_of(p.storage));
  return it == g.inputs.end() ? -1 : static_cast<int32_t>(it - g.inputs.begin());
}
/// A kernel that read another device's memory would compute with what is at the same place of its own.
void check_devices(const Schedule& s) {
  for (const ScheduleCall& c : s.calls) {
    if (c.kind != ScheduleCall::kKernel) continue;
    const std::string& device = at(s.buffers, c.buffers[0]).device;
    for (int32_t b : c.buffers)
      TG_ASSERT(at(s.buffers, b).device == device, "a kernel on ", device, " uses a buffer on ",
                at(s.buffers, b).device);
  }
}

/// Lists buffers and calls as the caller sees them; internal buffers nobody uses are dropped.
void assemble(SchedulePlan& plan) {
  const NormalGraph& g = plan.normal;
  Schedule& s = *plan.schedule;
  const std::vector<ScheduleBuffer>& buffers = plan.graph.buffers();
  const size_t kept = g.inputs.size() + static_cast<size_t>(g.outputs);
  s.buffers.assign(buffers.begin(), buffers.begin() + static_cast<std::ptrdiff_t>(kept));
  std::vector<int32_t> number(buffers.size(), -1);
  std::iota(number.begin(), number.begin() + static_cast<std::ptrdiff_t>(kept), 0);
  for (StepId i : plan.order) {
    ScheduleCall& call = at(plan.items, i).call;
    if (call.kind == ScheduleCall::kKernel && !call.kernel) continue;
    for (int32_t& b : call.buffers) {
      int32_t& n = at(number, b);
      if (n < 0) {
        n = static_cast<int32_t>(s.buffers.size());
        s.buffers.push_back(at(buffers, b));
      }
      b = n;
    }
    s.calls.push_back(std::move(call));
  }
  check_devices(s);
  s.nodes = static_cast<int64_t>(g.nodes.size());
  for (const RootPlan& p : g.roots) s.results.push_back(result_of(g, p));
}

void lower_reads(SchedulePlan& p) { p.graph = lower(p.ranged, std::move(p.buffers), p.options, p.normal.kernels); }
void check_graph(const SchedulePlan& p, const char* stage) { verify(p.sink, spec_tensor(), stage); }
void check_steps(const SchedulePlan& p, const char* stage) { verify_steps(p.graph, stage); }
void show_reads(std::ostream& os, const SchedulePlan& p) { print_ranged(os, p.ranged); }
void show_steps(std::ostream& os, const SchedulePlan& p) { print_steps(os, p.graph); }

/// A stage, what SPEC checks after it, what DEBUG=5 shows of its result, and the option that turns it on.
struct ScheduleStage {
  const char* name;
  void (*run)(SchedulePlan& p);
  void (*check)(const SchedulePlan& p, const char* stage) = nullptr;
  void (*show)(std::ostream& os, const SchedulePlan& p) = nullptr;
  bool ScheduleOptions::* when = nullptr;
};
using Plan = SchedulePlan;
using Options = ScheduleOptions;
// clang-format off
constexpr ScheduleStage kStages[] = {
    {"import",         [](Plan& p) { p.sink = import_normal(p.normal, p.buffers); }, check_graph},
    {"early rewrites", [](Plan& p) { p.sink = early_rewrites(p.sink, p.options); }, check_graph},
    {"rangeify",       [](Plan& p) { p.ranged = rangeify(p.sink, p.buffers); }, nullptr, show_reads},
    {"lower",          lower_reads, check_steps, show_steps},
    {"one-hot sums",   [](Plan& p) { scatter_one_hot_sums(p.graph); }, check_steps, show_steps},
    {"attention",      [](Plan& p) { fuse_attention(p.graph, p.options); }, check_steps, show_steps},
    {"partial maxima", [](Plan& p) { fuse_partial_max_sum(p.graph, p.options); }, check_steps, show_steps},
    {"rows",           [](Plan& p) { fuse_rows(p.graph, p.options); }, check_steps, show_steps},
    {"long sums",      [](Plan& p) { store_long_sums(p.graph, p.options); }, check_steps, show_steps},
    {"copies",         [](Plan& p) { elide_copies(p.graph); }, check_steps, show_steps, &Options::plan_memory},
    {"in place",       [](Plan& p) { update_in_place(p.graph); }, check_steps, show_steps, &Options::plan_memory},
    {"kernelize",      [](Plan& p) { p.items = kernelize(p.graph); }, check_steps},
    {"order",          [](Plan& p) { p.order = order_steps(p.graph, p.items); }, check_steps},
    {"assemble",       assemble},
    {"memory plan",    [](Plan& p) { plan_memory(*p.schedule); }, nullptr, nullptr, &Options::plan_memory},
};
// clang-format on

/// Records what a stage has left: a graph as long as there is one, then what is shown of it.
void record_stage(const recording::Span& span, const ScheduleStage& stage, const SchedulePlan& plan) {
  if (stage.check == check_graph) record_graph("after", plan.sink);
  if (!stage.show) return;
  std::ostringstream text;
  stage.show(text, plan);
  span.text("result", "schedule", text.str());
}

/// Records the buffers and calls of a schedule, and of each call the kernel and the methods it was made for.
void record_schedule(const recording::Span& span, const Schedule& s) {
  std::ostringstream text;
  print_schedule(text, s);
  span.text("calls", "schedule", text.str());
  for (const ScheduleCall& c : s.calls)
    span.value(c.kernel ? str("kernel ", c.kernel->key.to_hex()) : "copy", c.metadata);
}

std::shared_ptr<const Schedule> make_schedule(const NormalGraph& g, const ScheduleOptions& options) {
  using Clock = std::chrono::steady_clock;
  Arena arena;
  ArenaScope scope(arena);
  const bool spec = env::SPEC.get() != 0;
  const int64_t debug = env::DEBUG.get();
  SchedulePlan plan{g, options};
  std::string shown;
  for (const ScheduleStage& stage : kStages) {
    if (stage.when && !(options.*stage.when)) continue;
    Cancellation::check("schedule");
    const recording::Span span("pass", stage.name);
    const auto start = Clock::now();
    stage.run(plan);
    if (span.recording()) record_stage(span, stage, plan);
    if (spec && stage.check) stage.check(plan, stage.name);
    if (debug < 5) continue;
    const std::chrono::duration<double, std::milli> took = Clock::now() - start;
    std::ostringstream text;
    if (stage.show) stage.show(text, plan);
    const bool changed = text.str() != shown;
    note_lines(str("-- schedule, ", stage.name, ": ", took.count(), " ms\n", changed ? text.str() : ""));
    if (stage.show) shown = text.str();
  }
  if (debug >= 3) {
    std::ostringstream text;
    print_schedule(text, *plan.schedule);
    note_lines(text.str());
  }
  return plan.schedule;
}

/// Finds the graph's schedule in the cache, if only with literals as inputs; null where it is not there.
std::shared_ptr<const Schedule> find_cached(NormalGraph& g, const ScheduleOptions& options) {
  const auto find = [&] {
    g.key.add(options.hash());
    return cache().find(g.key);
  };
  std::shared_ptr<const Schedule> found = find();
  return found || !literals_to_inputs(g) ? found : find();
}
/// Fills in what is particular to this call: new buffers for the results, the caller's for the rest.
void bind(BoundSchedule& out, NormalGraph& g) {
  UOps made(static_cast<size_t>(g.outputs));
  for (RootPlan& p : g.roots) {
    if (p.kind != RootPlan::kStorage) {
      UOp& b = at(made, p.output);
      const ScheduleBuffer& info = out.schedule->buffers[g.inputs.size() + static_cast<size_t>(p.output)];
      if (!b) {
        UOp value = g.nodes[p.node];
        b = new_buffer(shape_of(value), info.dtype, info.device);
        if (p.share && info.dtype == value.dtype()) out.stored.emplace_back(value, b);
      }
      const Shape& shape = shape_of(p.root);
      p.storage = shape_of(b) == shape ? b : UOp::make(Ops::RESHAPE, b.dtype(), {b, shape.stack()});
    }
    out.results.push_back(p.storage);
    out.origins.push_back(p.kind == RootPlan::kStorage ? nullptr : Graph::global().origin(g.nodes[p.node]));
  }
  out.stored.insert(out.stored.end(), g.stores.begin(), g.stores.end());
  out.inputs = std::move(g.inputs);
  out.vars = std::move(g.vars);
}
}  // namespace

ScheduleOptions ScheduleOptions::from_env() {
  ScheduleOptions o;
  if (int64_t n = env::MAX_KERNEL_BUFFERS.get(); n > 0) o.max_buffers = n;
  o.split_reduces = env::SPLIT_REDUCEOP.get() != 0;
  o.split_threshold = env::REDUCEOP_SPLIT_THRESHOLD.get();
  o.split_size = env::REDUCEOP_SPLIT_SIZE.get();
  o.plan_memory = env::NO_MEMORY_PLANNER.get() == 0;
  o.round_products = env::ROUND_PRODUCTS.get() != 0;
  o.allow_tf32 = env::ALLOW_TF32.get() != 0;
  return o;
}
Hash128 ScheduleOptions::hash() const {
  static_assert(sizeof(ScheduleOptions) == 56, "a new option belongs into the hash, too: it is part of the cache key");
  Hash128 h;
  for (int64_t v : {max_buffers, max_alu, int64_t{split_reduces}, split_threshold, split_size, int64_t{plan_memory},
                    int64_t{round_products}, int64_t{allow_tf32}, l2_bytes})
    h.add(static_cast<uint64_t>(v));
  return h;
}

UOp new_buffer(const Shape& shape, DType dtype, const std::string& device) {
  static std::atomic<int64_t> next{0};
  return UOp::make(Ops::BUFFER, dtype, {shape.stack()}, ParamArg{next++, AddrSpace::kGlobal, device, "", 0, 0});
}

BoundSchedule create_schedule(std::span<const UOp> roots) {
  GraphScope scope;
  const Origin none(nullptr);
  profile::Span span(profile::kHost, "schedule");
  const recording::Span recorded("schedule", "");
  NormalGraph g = normalize(roots);
  const ScheduleOptions options = ScheduleOptions::from_env();
  BoundSchedule out;
  const bool cached = env::SCACHE.get() != 0;
  if (cached) out.schedule = find_cached(g, options);
  out.cache_hit = bool(out.schedule);
  if (span.recording()) span.details(str(g.nodes.size(), " nodes, ", out.cache_hit ? "known" : "new"));
  recorded.value("nodes", str(g.nodes.size()));
  recorded.value("cache", out.cache_hit ? "hit" : "miss");
  if (!out.schedule) {
    out.schedule = make_schedule(g, options);
    if (cached) cache().add(g.key, out.schedule);
  }
  if (recorded.recording()) record_schedule(recorded, *out.schedule);
  bind(out, g);
  return out;
}

MemoryNeeds Schedule::memory(std::string_view device) const {
  MemoryNeeds m;
  for (const ScheduleBuffer& b : buffers) {
    if (b.kind == ScheduleBuffer::kInput || b.offset >= 0 || (!device.empty() && b.device != device)) continue;
    (b.kind == ScheduleBuffer::kOutput ? m.results : m.intermediates) += b.size * b.dtype.itemsize();
  }
  for (const auto& [where, bytes] : arenas)
    if (device.empty() || where == device) m.intermediates += bytes;
  return m;
}

void clear_schedule_cache() { cache().clear(); }

}  // namespace tg
