/// \file The order of execution: reads after writes, writes after reads and writes after writes of buffers.
#include "tinygrad/schedule/order.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>

#include "tinygrad/base/contains.h"

namespace tg {
namespace {
struct Edge {
  int32_t before, after;
  int32_t slot;  ///< of `before`, when the edge says that it reads what `after` overwrites; else -1
};

/// Collects what has to run before what: writers of a state before its readers, both before what overwrites it.
class Dependencies {
 public:
  Dependencies(const StepGraph& g, const std::vector<ScheduleItem>& items)
      : g_(g), readers_(static_cast<size_t>(g.states())), children_(static_cast<size_t>(g.states())) {
    for (StateId s = 0; s < g.states(); s++)
      if (g.state(s).parent >= 0) at(children_, g.state(s).parent).push_back(s);
    for (size_t i = 0; i < items.size(); i++) add_reads(static_cast<StepId>(i), items[i]);
    for (StateId s = 0; s < g.states(); s++) add_overwrites(s);
  }
  std::vector<Edge> take() { return std::move(edges_); }

 private:
  struct Reader {
    StepId step;
    int32_t slot;
  };
  void add(StepId before, StepId after, int32_t slot = -1) {
    if (before != after) edges_.push_back({before, after, slot});
  }
  void add_reads(StepId i, const ScheduleItem& item) {
    for (size_t slot = 0; slot < item.reads.size(); slot++) {
      const StateId state = item.reads[slot];
      if (state < 0) continue;
      at(readers_, state).push_back({i, static_cast<int32_t>(slot)});
      for (StepId w : g_.state(state).writers) add(w, i);
    }
  }
  void add_overwrites(StateId s) {
    const std::vector<StateId>& children = at(children_, s);
    std::vector<StepId> seen;  // writers of earlier children
    std::vector<Reader> late;  // readers of earlier children
    for (StateId c : children) {
      const std::vector<StepId>& writers = g_.state(c).writers;
      for (StepId w : writers) {
        for (StepId p : g_.state(s).writers) add(p, w);
        for (const Reader& r : at(readers_, s)) add(r.step, w, r.slot);
        // Two writes that start from the same contents: the first in the graph comes first.
        if (contains(seen, w)) continue;
        for (StepId p : seen) add(p, w);
        for (const Reader& r : late) add(r.step, w, r.slot);
      }
      for (StepId w : writers) add_once(seen, w);
      if (children.size() > 1) late.insert(late.end(), at(readers_, c).begin(), at(readers_, c).end());
    }
  }

  const StepGraph& g_;
  std::vector<std::vector<Reader>> readers_;    // by state
  std::vector<std::vector<StateId>> children_;  // by state
  std::vector<Edge> edges_;
};

/// Sorts steps by Kahn's algorithm: those behind fewer collectives first, so that these are under way while everything
/// else is computed; of them those that a collective waits for, as the gradient of a weight before that of its layer's
/// input; of them those that update what was given, so that an optimizer finds gradients in the cache; of them the
/// lowest number, so that all processes begin them in one order. Steps of a cycle are missing from the result.
std::vector<int32_t> sort_steps(const StepGraph& g, const std::vector<ScheduleItem>& items,
                                const std::vector<Edge>& edges) {
  const size_t n = items.size();
  std::vector<int32_t> behind(n, 0);  // collectives
  std::vector<bool> awaited(n, false);
  const auto is_collective = [&](int32_t i) { return at(items, i).call.kind == ScheduleCall::kCollective; };
  std::vector<int32_t> missing(n, 0), begin(n + 1, 0), next(edges.size()), order;
  for (const Edge& e : edges) {
    begin[static_cast<size_t>(e.before) + 1]++;
    at(missing, e.after)++;
    if (is_collective(e.after)) at(awaited, e.before) = true;
  }
  for (size_t i = 0; i < n; i++) begin[i + 1] += begin[i];
  std::vector<int32_t> fill(begin.begin(), begin.end() - 1);
  for (const Edge& e : edges) at(next, at(fill, e.before)++) = e.after;
  using Step = std::tuple<int32_t, bool, bool, int32_t>;
  std::priority_queue<Step, std::vector<Step>, std::greater<>> ready;
  const auto updates = [&](StepId i) {
    const StateId before = g.step(i).parent;
    return before >= 0 && g.buffer_of(before).kind == ScheduleBuffer::kInput;
  };
  const auto add = [&](int32_t i) {
    ready.emplace(at(behind, i), !is_collective(i) && !at(awaited, i), !updates(i), i);
  };
  for (size_t i = 0; i < n; i++)
    if (!missing[i]) add(static_cast<int32_t>(i));
  while (!ready.empty()) {
    auto i = static_cast<size_t>(std::get<3>(ready.top()));
    ready.pop();
    order.push_back(static_cast<int32_t>(i));
    const int32_t after = behind[i] + is_collective(static_cast<int32_t>(i));
    for (int32_t k = begin[i]; k < begin[i + 1]; k++) {
      const int32_t s = at(next, k);
      at(behind, s) = std::max(at(behind, s), after);
      if (--at(missing, s) == 0) add(s);
    }
  }
  return order;
}

/// Returns an edge of a cycle that a copy of the old contents removes; null where there is none.
const Edge* breakable(size_t n, const std::vector<Edge>& edges, const std::vector<int32_t>& order) {
  std::vector<bool> done(n, false);
  for (int32_t i : order) at(done, i) = true;
  std::vector<const Edge*> into(n, nullptr);  // some edge from a step that is not done
  for (const Edge& e : edges) {
    if (at(done, e.before) || at(done, e.after)) continue;
    const Edge*& best = at(into, e.after);
    if (!best || e.before < best->before) best = &e;
  }
  size_t step = 0;
  while (done[step]) step++;
  std::vector<bool> met(n, false);
  while (!met[step]) {
    met[step] = true;
    step = static_cast<size_t>(into[step]->before);
  }
  size_t start = step;
  do {
    if (into[step]->slot >= 0) return into[step];
    step = static_cast<size_t>(into[step]->before);
  } while (step != start);
  return nullptr;
}
}  // namespace

std::vector<StepId> order_steps(StepGraph& g, std::vector<ScheduleItem>& items) {
  while (true) {
    std::vector<Edge> edges = Dependencies(g, items).take();
    std::vector<StepId> order = sort_steps(g, items, edges);
    if (order.size() == items.size()) return order;
    const Edge* e = breakable(items.size(), edges, order);
    TG_CHECK(Error, e, "[schedule] assignments depend on each other cyclically: realize one of them first");
    // The reader gets a copy of what the buffer held before the write.
    ScheduleItem& reader = at(items, e->before);
    StateId& read = at(reader.reads, e->slot);
    const ScheduleBuffer b = g.buffer_of(read);
    UOp range = UOp::range(b.size, 0, AxisType::kLoop);
    read = state_of(
        g.materialize(g.read(read, range), {range}, b.device, "a copy: it is overwritten before all have read it"));
    at(reader.call.buffers, e->slot) = g.state(read).buffer;
    items.push_back(kernelize_step(g, g.steps() - 1));
  }
}

}  // namespace tg
