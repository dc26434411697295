/// \file create_schedule: the stages in order, and the cache.
#include "tinygrad/schedule/schedule.h"

#include <atomic>
#include <iostream>
#include <list>
#include <map>
#include <mutex>

#include "tinygrad/base/env.h"
#include "tinygrad/base/profile.h"
#include "tinygrad/base/stop.h"
#include "tinygrad/schedule/passes.h"
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

/// Steps and buffers as the caller sees them; internal buffers nobody uses are dropped.
std::shared_ptr<Schedule> assemble(Lowered& l, const std::vector<int32_t>& order,
                                   const std::vector<ScheduleBuffer>& buffers, const NormalGraph& g) {
  auto s = std::make_shared<Schedule>();
  size_t kept = g.inputs.size() + static_cast<size_t>(g.outputs);
  std::vector<int32_t> number(buffers.size(), -1);
  for (size_t b = 0; b < kept; b++) {
    number[b] = static_cast<int32_t>(b);
    s->buffers.push_back(buffers[b]);
  }
  for (int32_t i : order) {
    Step& step = nth(l.steps, i);
    if (!step.copy && !step.kernel) continue;
    ScheduleCall call;
    call.kind = step.copy ? ScheduleCall::kCopy : ScheduleCall::kKernel;
    call.kernel = step.kernel;
    call.vars = step.vars;
    call.metadata = step.metadata;
    for (int32_t b : step.buffers) {
      int32_t& n = nth(number, b);
      if (n < 0) {
        n = static_cast<int32_t>(s->buffers.size());
        s->buffers.push_back(nth(buffers, b));
      }
      call.buffers.push_back(n);
    }
    s->calls.push_back(std::move(call));
  }
  s->nodes = static_cast<int64_t>(g.nodes.size());
  return s;
}

std::shared_ptr<const Schedule> make_schedule(const NormalGraph& g, const ScheduleOptions& options) {
  Arena arena;
  ArenaScope scope(arena);
  std::vector<ScheduleBuffer> buffers;
  const bool spec = env::SPEC.get() != 0;
  UOp sink = import_normal(g, buffers);
  if (spec) verify(sink, spec_tensor(), "import");
  Stop::check("schedule");
  sink = early_rewrites(sink, options);
  if (spec) verify(sink, spec_tensor(), "early rewrites");
  Stop::check("schedule");
  Ranged ranged = rangeify(sink, buffers);
  if (env::DEBUG.get() >= 5) print_ranged(std::cerr, ranged);
  Stop::check("schedule");
  Lowered lowered = lower(ranged, buffers, options, g.kernels);
  Stop::check("schedule");
  scatter_sums(lowered, buffers);
  fuse_online(lowered, buffers);
  pair_maxima(lowered, buffers);
  fuse_rows(lowered, buffers, options);
  store_long_sums(lowered, buffers);
  if (options.plan_memory) update_in_place(lowered, buffers);
  kernelize(lowered, buffers);
  std::vector<int32_t> order = order_steps(lowered, buffers);
  std::shared_ptr<Schedule> s = assemble(lowered, order, buffers, g);
  for (const RootPlan& p : g.roots) {
    int32_t result = -1;
    if (p.kind != RootPlan::kStorage) result = static_cast<int32_t>(g.inputs.size()) + p.output;
    else if (g.nodes[p.node] != p.storage) {
      UOp base = base_of(p.storage);
      for (size_t i = 0; i < g.inputs.size(); i++)
        if (g.inputs[i] == base) result = static_cast<int32_t>(i);
    }
    s->results.push_back(result);
  }
  if (options.plan_memory) plan_memory(*s);
  if (env::DEBUG.get() >= 3) print_schedule(std::cerr, *s);
  return s;
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
  return o;
}
Hash128 ScheduleOptions::hash() const {
  Hash128 h;
  for (int64_t v : {max_buffers, max_alu, int64_t{split_reduces}, split_threshold, split_size, int64_t{plan_memory},
                    int64_t{round_products}})
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
  NormalGraph g = normalize(roots);
  ScheduleOptions options = ScheduleOptions::from_env();
  const auto find = [&] {
    g.key.add(options.hash());
    return cache().find(g.key);
  };
  BoundSchedule out;
  const bool cached = env::SCACHE.get() != 0;
  if (cached) out.schedule = find();
  if (cached && !out.schedule && literals_to_inputs(g)) out.schedule = find();
  out.cache_hit = bool(out.schedule);
  if (span.recording()) span.details(str(g.nodes.size(), " nodes, ", out.cache_hit ? "known" : "new"));
  if (!out.schedule) {
    out.schedule = make_schedule(g, options);
    if (cached) cache().add(g.key, out.schedule);
  }
  // What is particular to this call: new buffers for the results, the caller's for the rest.
  UOps made(static_cast<size_t>(g.outputs));
  for (RootPlan& p : g.roots) {
    if (p.kind != RootPlan::kStorage) {
      UOp& b = nth(made, p.output);
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
