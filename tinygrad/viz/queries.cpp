/// \file Sums over a recording.
#include "tinygrad/viz/queries.h"

#include <algorithm>
#include <unordered_set>

#include "tinygrad/base/profile.h"

namespace tg::viz {
namespace {
/// Calls `visit` on a span and all its parts, in their order.
template <class F> void each_part(const Recording& r, const Span& s, F&& visit) {
  std::vector<const Span*> todo{&s};
  while (!todo.empty()) {
    const Span* part = todo.back();
    todo.pop_back();
    visit(*part);
    for (size_t i = part->children.size(); i-- > 0;) todo.push_back(&r.spans[part->children[i]]);
  }
}
}  // namespace

int64_t saturated_sum(int64_t a, int64_t b) {
  int64_t sum;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return b > 0 ? INT64_MAX : INT64_MIN;
}

std::string_view title_of(const Recording& r, const Span& s) {
  const std::string_view named = r.value(s, "name");
  return named.empty() ? std::string_view(r.name(s.name)) : named;
}

std::vector<const Rewrite*> rewrites_of(const Recording& r, const Span& s) {
  std::vector<const Rewrite*> out;
  each_part(r, s, [&](const Span& part) {
    for (const Rewrite& w : part.rewrites) out.push_back(&w);
  });
  return out;
}

std::vector<const Node*> nodes_of(const Recording& r, const Snapshot& g) {
  std::vector<const Node*> out;
  const NodeTable* t = r.graph(g.graph);
  if (!t) return out;
  std::unordered_set<uint64_t> seen;
  std::vector<uint64_t> todo;
  for (uint64_t root : g.roots) todo.push_back(root);
  while (!todo.empty()) {
    const uint64_t number = todo.back();
    todo.pop_back();
    const Node* n = seen.insert(number).second ? t->find(number) : nullptr;
    if (!n) continue;
    out.push_back(n);
    for (uint32_t i = 0; i < n->sources; i++) todo.push_back(t->sources[n->source + i]);
  }
  // Sources have smaller numbers than their users.
  std::sort(out.begin(), out.end(), [](const Node* a, const Node* b) { return a->number < b->number; });
  return out;
}

bool is_device(const Recording& r, uint32_t track) {
  return r.name(track) != profile::kHost && r.name(track) != profile::kCompile;
}

std::vector<LaunchSum> launch_sums(const Recording& r) {
  std::map<std::pair<uint32_t, uint32_t>, LaunchSum> sums;
  for (const Event& e : r.events) {
    if (!is_device(r, e.track)) continue;
    LaunchSum& s = sums[{e.track, e.name}];
    s.track = e.track;
    s.name = e.name;
    s.launches++;
    s.nanoseconds = saturated_sum(s.nanoseconds, e.end - e.begin);
  }
  std::vector<LaunchSum> out;
  for (const auto& [key, s] : sums) out.push_back(s);
  std::stable_sort(out.begin(), out.end(),
                   [](const LaunchSum& a, const LaunchSum& b) { return a.nanoseconds > b.nanoseconds; });
  return out;
}

std::vector<MemoryCurve> memory_curves(const Recording& r) {
  std::vector<const MemoryChange*> changes;
  for (const MemoryChange& m : r.memory) changes.push_back(&m);
  std::stable_sort(changes.begin(), changes.end(),
                   [](const MemoryChange* a, const MemoryChange* b) { return a->time < b->time; });
  struct Held {
    MemoryCurve curve;
    std::unordered_map<uint64_t, std::pair<uint64_t, int64_t>> blocks;  // by address: span and bytes
  };
  std::map<uint32_t, Held> devices;
  for (const MemoryChange* m : changes) {
    Held& d = devices[m->device];
    MemoryCurve& c = d.curve;
    c.device = m->device;
    // What was taken before the recording began is not known: giving it back changes nothing.
    if (m->bytes < 0 && d.blocks.erase(m->address) == 0) continue;
    if (m->bytes >= 0) d.blocks[m->address] = {m->span, m->bytes};
    c.last = std::max<int64_t>(saturated_sum(c.last, m->bytes), 0);
    c.points.emplace_back(m->time, c.last);
    if (c.last <= c.peak) continue;
    c.peak = c.last;
    c.peak_time = m->time;
  }
  // Who held the memory at the peak: the changes until then once more.
  std::vector<MemoryCurve> out;
  for (auto& [device, d] : devices) {
    d.blocks.clear();
    for (const MemoryChange* m : changes) {
      if (m->device != device || m->time > d.curve.peak_time) continue;
      if (m->bytes < 0) d.blocks.erase(m->address);
      else d.blocks[m->address] = {m->span, m->bytes};
    }
    std::map<uint64_t, int64_t> owners;
    for (const auto& [address, block] : d.blocks) {
      int64_t& held = owners[block.first];
      held = saturated_sum(held, block.second);
    }
    d.curve.at_peak.assign(owners.begin(), owners.end());
    std::stable_sort(d.curve.at_peak.begin(), d.curve.at_peak.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    out.push_back(std::move(d.curve));
  }
  return out;
}

std::vector<LineSum> line_sums(const Recording& r) {
  struct Made {
    std::string_view methods;  // "add at train.py:12, relu at train.py:13"
    uint64_t span = 0;
    int64_t launches = 0, nanoseconds = 0;
  };
  constexpr std::string_view kKernel = "kernel ", kAt = " at ";
  std::map<std::string_view, Made> kernels;  // by key
  for (const Span& s : r.spans) {
    if (r.name(s.kind) == "kernel") kernels[r.name(s.name)].span = s.number;
    if (r.name(s.kind) != "schedule") continue;
    for (const auto& [key, methods] : s.values)
      if (r.name(key).starts_with(kKernel))
        kernels[std::string_view(r.name(key)).substr(kKernel.size())].methods = methods;
  }
  for (const Event& e : r.events) {
    const size_t at = e.details.rfind(kKernel);
    if (at == std::string::npos) continue;
    const auto k = kernels.find(std::string_view(e.details).substr(at + kKernel.size()));
    if (k == kernels.end()) continue;
    k->second.launches++;
    k->second.nanoseconds = saturated_sum(k->second.nanoseconds, e.end - e.begin);
  }
  std::map<std::string, LineSum> lines;
  for (const auto& [key, made] : kernels)
    for (std::string_view rest = made.methods; !rest.empty();) {
      const size_t comma = std::min(rest.find(", "), rest.size());
      const std::string_view one = rest.substr(0, comma);
      rest.remove_prefix(std::min(comma + 2, rest.size()));
      const size_t at = one.rfind(kAt);
      const std::string method(one.substr(0, at)),
          place(at == std::string_view::npos ? one : one.substr(at + kAt.size()));
      LineSum& l = lines[place];
      l.place = place;
      if (std::find(l.methods.begin(), l.methods.end(), method) == l.methods.end()) l.methods.push_back(method);
      if (std::find(l.kernels.begin(), l.kernels.end(), made.span) != l.kernels.end()) continue;
      l.kernels.push_back(made.span);
      l.launches = saturated_sum(l.launches, made.launches);
      l.nanoseconds = saturated_sum(l.nanoseconds, made.nanoseconds);
    }
  std::vector<LineSum> out;
  for (auto& [place, l] : lines) {
    std::sort(l.methods.begin(), l.methods.end());
    out.push_back(std::move(l));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const LineSum& a, const LineSum& b) { return a.nanoseconds > b.nanoseconds; });
  return out;
}

Counts counts_of(const Recording& r) {
  Counts c;
  for (const Span& s : r.spans) {
    c.schedules += r.name(s.kind) == "schedule";
    c.kernels += r.name(s.kind) == "kernel";
    c.rewrites += static_cast<int64_t>(s.rewrites.size());
  }
  for (const Event& e : r.events) c.launches += is_device(r, e.track);
  return c;
}

}  // namespace tg::viz
