/// \file The order of execution: reads after writes, writes after reads and writes after writes of buffers.
#include <algorithm>
#include <functional>
#include <queue>

#include "tinygrad/schedule/indexing.h"
#include "tinygrad/schedule/passes.h"

namespace tg {
namespace {
struct Edge {
  int32_t before, after;
  int32_t slot;  ///< of `before`, when the edge says that it reads what `after` overwrites; else -1
};

std::vector<Edge> edges_of(const Lowered& l) {
  std::vector<Edge> edges;
  std::vector<std::vector<std::pair<int32_t, int32_t>>> readers(l.states.size());  // step, slot
  std::vector<std::vector<int32_t>> children(l.states.size());
  for (size_t s = 0; s < l.states.size(); s++)
    if (l.states[s].parent >= 0) nth(children, l.states[s].parent).push_back(static_cast<int32_t>(s));
  for (size_t i = 0; i < l.steps.size(); i++) {
    const Step& s = l.steps[i];
    for (size_t k = 0; k < s.reads.size(); k++) {
      if (s.reads[k] < 0) continue;
      auto state = static_cast<size_t>(s.reads[k]);
      readers[state].emplace_back(static_cast<int32_t>(i), static_cast<int32_t>(k));
      for (int32_t w : l.states[state].writers)
        if (w != static_cast<int32_t>(i)) edges.push_back({w, static_cast<int32_t>(i), -1});
    }
  }
  for (size_t s = 0; s < l.states.size(); s++) {
    const BufferState& from = l.states[s];
    std::vector<int32_t> seen;                      // writers of earlier children
    std::vector<std::pair<int32_t, int32_t>> late;  // readers of earlier children
    for (int32_t c : children[s]) {
      const BufferState& to = nth(l.states, c);
      for (int32_t w : to.writers) {
        for (int32_t p : from.writers)
          if (p != w) edges.push_back({p, w, -1});
        for (auto [r, slot] : readers[s])
          if (r != w) edges.push_back({r, w, slot});
        // Two writes that start from the same contents: the first in the graph comes first.
        if (std::find(seen.begin(), seen.end(), w) != seen.end()) continue;
        for (int32_t p : seen) edges.push_back({p, w, -1});
        for (auto [r, slot] : late)
          if (r != w) edges.push_back({r, w, slot});
      }
      for (int32_t w : to.writers)
        if (std::find(seen.begin(), seen.end(), w) == seen.end()) seen.push_back(w);
      if (children[s].size() > 1) late.insert(late.end(), nth(readers, c).begin(), nth(readers, c).end());
    }
  }
  return edges;
}

/// Kahn's algorithm, the lowest number first. Steps of a cycle are missing from the result.
std::vector<int32_t> sort_steps(size_t n, const std::vector<Edge>& edges) {
  std::vector<int32_t> missing(n, 0), begin(n + 1, 0), next(edges.size()), order;
  for (const Edge& e : edges) {
    begin[static_cast<size_t>(e.before) + 1]++;
    nth(missing, e.after)++;
  }
  for (size_t i = 0; i < n; i++) begin[i + 1] += begin[i];
  std::vector<int32_t> fill(begin.begin(), begin.end() - 1);
  for (const Edge& e : edges) nth(next, nth(fill, e.before)++) = e.after;
  std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> ready;
  for (size_t i = 0; i < n; i++)
    if (!missing[i]) ready.push(static_cast<int32_t>(i));
  while (!ready.empty()) {
    auto i = static_cast<size_t>(ready.top());
    ready.pop();
    order.push_back(static_cast<int32_t>(i));
    for (int32_t k = begin[i]; k < begin[i + 1]; k++)
      if (--nth(missing, nth(next, k)) == 0) ready.push(nth(next, k));
  }
  return order;
}

/// An edge of a cycle that a copy of the old contents removes; null when there is none.
const Edge* breakable(size_t n, const std::vector<Edge>& edges, const std::vector<int32_t>& order) {
  std::vector<bool> done(n, false);
  for (int32_t i : order) nth(done, i) = true;
  std::vector<const Edge*> into(n, nullptr);  // some edge from a step that is not done
  for (const Edge& e : edges) {
    if (nth(done, e.before) || nth(done, e.after)) continue;
    const Edge*& best = nth(into, e.after);
    if (!best || e.before < best->before) best = &e;
  }
  size_t at = 0;
  while (done[at]) at++;
  std::vector<bool> met(n, false);
  while (!met[at]) {
    met[at] = true;
    at = static_cast<size_t>(into[at]->before);
  }
  size_t start = at;
  do {
    if (into[at]->slot >= 0) return into[at];
    at = static_cast<size_t>(into[at]->before);
  } while (at != start);
  return nullptr;
}
}  // namespace

std::vector<int32_t> order_steps(Lowered& l, std::vector<ScheduleBuffer>& buffers) {
  while (true) {
    std::vector<Edge> edges = edges_of(l);
    std::vector<int32_t> order = sort_steps(l.steps.size(), edges);
    if (order.size() == l.steps.size()) return order;
    const Edge* e = breakable(l.steps.size(), edges, order);
    TG_CHECK(Error, e, "[schedule] assignments depend on each other in a circle: realize one of them first");
    // The reader gets a copy of what the buffer held before the write.
    auto step = static_cast<size_t>(e->before), slot = static_cast<size_t>(e->slot);
    int32_t old = l.steps[step].reads[slot], buffer = nth(l.states, old).buffer;
    const ScheduleBuffer b = nth(buffers, buffer);
    UOp range = UOp::range(b.size, 0, AxisType::kLoop);
    int32_t state = add_internal(l, buffers, b.dtype, b.size, b.device);
    Step& copy = l.steps.back();
    UOp p = buffer_param(b, buffer, old);
    copy.index = range;
    copy.value = UOp::make(Ops::INDEX, b.dtype, {p, range}).load();
    copy.ranges = {range};
    kernelize_step(l, buffers, l.steps.size() - 1);
    l.steps[step].reads[slot] = state;
    l.steps[step].buffers[slot] = nth(l.states, state).buffer;
  }
}

}  // namespace tg
