/// \file JSON of recordings.
#include "tinygrad/viz/recording_json.h"

#include <nlohmann/json.hpp>

#include "tinygrad/base/text.h"
#include "tinygrad/viz/queries.h"
#include "tinygrad/viz/rewritten_graph.h"

namespace tg::viz {
namespace {
using Json = nlohmann::ordered_json;

/// Texts of a program may hold any bytes: what is no UTF-8 is replaced.
std::string dump(const Json& j) { return j.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json values_of(const Recording& r, const Span& s) {
  Json out = Json::array();
  for (const auto& [key, text] : s.values) out.push_back({r.name(key), text});
  return out;
}

Json head_of(const Recording& r, const Span& s) {
  return {{"id", s.number},   {"parent", s.parent}, {"kind", r.name(s.kind)}, {"name", title_of(r, s)},
          {"begin", s.begin}, {"end", s.end},       {"thread", s.thread},     {"key", r.name(s.name)}};
}

Json launches_of(const Recording& r) {
  Json out = Json::array();
  for (const LaunchSum& s : launch_sums(r))
    out.push_back({{"device", r.name(s.track)},
                   {"name", r.name(s.name)},
                   {"launches", s.launches},
                   {"nanoseconds", s.nanoseconds}});
  return out;
}

Json lines_of(const Recording& r) {
  Json out = Json::array();
  for (const LineSum& l : line_sums(r))
    out.push_back({{"place", l.place},
                   {"methods", l.methods},
                   {"kernels", l.kernels},
                   {"launches", l.launches},
                   {"nanoseconds", l.nanoseconds}});
  return out;
}

Json rules_of(const Recording& r) {
  Json out = Json::array();
  for (const RuleTotal& t : r.rules)
    out.push_back({{"rule", r.name(t.rule)}, {"tries", t.tries}, {"hits", t.hits}, {"nanoseconds", t.nanoseconds}});
  return out;
}

Json memory_of(const Recording& r) {
  Json out = Json::array();
  for (const MemoryCurve& c : memory_curves(r)) {
    Json owners = Json::array();
    for (const auto& [span, bytes] : c.at_peak) owners.push_back({span, bytes});
    Json points = Json::array();
    for (const auto& [time, bytes] : c.points) points.push_back({time, bytes});
    out.push_back({{"device", r.name(c.device)},
                   {"peak", c.peak},
                   {"peak_time", c.peak_time},
                   {"owners", std::move(owners)},
                   {"points", std::move(points)}});
  }
  return out;
}
}  // namespace

std::string json_overview(const Recording& r) {
  const Counts c = counts_of(r);
  Json spans = Json::array();
  for (const Span& s : r.spans) {
    if (r.name(s.kind) == "rewrite") continue;
    Json j = head_of(r, s);
    j["rewrites"] = s.all_rewrites;
    j["values"] = values_of(r, s);
    spans.push_back(std::move(j));
  }
  return dump({{"file", r.file},
               {"nanoseconds", r.length},
               {"broken", r.broken},
               {"schedules", c.schedules},
               {"kernels", c.kernels},
               {"rewrites", c.rewrites},
               {"launches", c.launches},
               {"spans", std::move(spans)},
               {"kernel_times", launches_of(r)},
               {"lines", lines_of(r)},
               {"rules", rules_of(r)},
               {"memory", memory_of(r)}});
}

std::string json_span(const Recording& r, const Span& s) {
  Json j = head_of(r, s);
  j["values"] = values_of(r, s);
  j["texts"] = Json::array();
  for (const Text& t : s.texts)
    j["texts"].push_back({{"title", r.name(t.title)}, {"language", r.name(t.language)}, {"text", t.text}});
  j["graphs"] = Json::array();
  for (const Snapshot& g : s.graphs)
    j["graphs"].push_back({{"title", r.name(g.title)}, {"roots", g.roots.size()}, {"nodes", nodes_of(r, g).size()}});
  j["rewrites"] = Json::array();
  for (const Rewrite& w : s.rewrites)
    j["rewrites"].push_back({{"rule", r.name(w.rule)},
                             {"before", expression(r, w.graph, w.before)},
                             {"after", expression(r, w.graph, w.after)},
                             {"nanoseconds", w.nanoseconds}});
  j["parts"] = Json::array();
  for (uint32_t i : s.children) {
    Json part = head_of(r, r.spans[i]);
    part["rewrites"] = r.spans[i].all_rewrites;
    part["graphs"] = r.spans[i].graphs.size();
    j["parts"].push_back(std::move(part));
  }
  return dump(j);
}

std::string json_graph(const Recording& r, const Span& s, size_t snapshot, size_t rewrites) {
  Json nodes = Json::array();
  SteppedGraph g;
  if (snapshot < s.graphs.size()) g = step_graph(r, s.graphs[snapshot], s.rewrites, rewrites);
  const NodeTable* t = snapshot < s.graphs.size() ? r.graph(s.graphs[snapshot].graph) : nullptr;
  for (const SteppedNode& n : g.nodes) {
    Json j{{"id", n.number}, {"op", r.name(n.node->op)}, {"type", r.name(n.node->type)}, {"src", n.sources}};
    if (n.node->argument_size) j["arg"] = t->argument(*n.node);
    if (n.node->origin) j["origin"] = r.name(n.node->origin);
    if (n.node->tag) j["tag"] = n.node->tag;
    nodes.push_back(std::move(j));
  }
  return dump({{"nodes", std::move(nodes)},
               {"roots", g.roots},
               {"changed", g.changed == UINT32_MAX ? Json() : Json(g.changed)}});
}

std::string json_timeline(const Recording& r, int64_t begin, int64_t end, int64_t shortest) {
  Json events = Json::array();
  int64_t hidden = 0;
  for (const Event& e : r.events) {
    if (e.end < begin || e.begin > end) continue;
    if (e.end - e.begin < shortest) {
      hidden++;
      continue;
    }
    events.push_back({r.name(e.track), e.lane, r.name(e.name), e.begin, e.end, e.span, e.details});
  }
  return dump({{"events", std::move(events)}, {"hidden", hidden}});
}

std::string trace_events(const Recording& r) {
  Json events = Json::array();
  std::map<uint32_t, int> tracks;
  for (const Event& e : r.events) {
    const int pid = tracks.try_emplace(e.track, static_cast<int>(tracks.size()) + 1).first->second;
    Json j{{"ph", "X"},
           {"pid", pid},
           {"tid", e.lane},
           {"ts", static_cast<double>(e.begin) * 1e-3},
           {"dur", static_cast<double>(e.end - e.begin) * 1e-3},
           {"name", r.name(e.name)}};
    if (!e.details.empty()) j["args"]["details"] = e.details;
    events.push_back(std::move(j));
  }
  for (const auto& [track, pid] : tracks)
    events.push_back({{"ph", "M"}, {"name", "process_name"}, {"pid", pid}, {"args", {{"name", r.name(track)}}}});
  return dump({{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}});
}

}  // namespace tg::viz
