/// \file Tables and listings.
#include "tinygrad/viz/print_recording.h"

#include <algorithm>
#include <ostream>

#include "tinygrad/base/error.h"
#include "tinygrad/base/text.h"
#include "tinygrad/viz/queries.h"

namespace tg::viz {
namespace {
constexpr size_t kMostOwners = 12, kMostIndented = 20;

std::string time_text(int64_t nanoseconds) { return human_seconds(static_cast<double>(nanoseconds) * 1e-9); }
std::string bytes_text(int64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

/// Prints a row of a table: the number and the time of a span in front.
void print_row(std::ostream& os, const Recording& r, const Span& s, size_t depth) {
  os << pad_left(str('#', s.number), 8) << ' ' << pad_left(time_text(s.end - s.begin), 9) << ' '
     << std::string(2 * depth, ' ') << r.name(s.kind) << ' ' << title_of(r, s);
  if (s.all_rewrites) os << ", " << s.all_rewrites << " rewrites";
}

/// Returns whether a span is listed of its own; the others are part of what is.
bool is_step(const Recording& r, const Span& s) { return r.name(s.kind) != "rewrite" && r.name(s.kind) != "pass"; }

/// Prints spans and their parts, indented.
void print_steps(std::ostream& os, const Recording& r) {
  std::vector<std::pair<uint32_t, size_t>> todo;  // with the depth, the next one last
  const auto add = [&](const std::vector<uint32_t>& spans, size_t depth) {
    for (size_t i = spans.size(); i-- > 0;)
      if (is_step(r, r.spans[spans[i]])) todo.emplace_back(spans[i], depth);
  };
  add(r.roots, 0);
  while (!todo.empty()) {
    const auto [i, depth] = todo.back();
    todo.pop_back();
    const Span& s = r.spans[i];
    print_row(os, r, s, std::min(depth, kMostIndented));
    for (const auto& [key, text] : s.values)
      if (r.name(key) == "nodes" || r.name(key) == "cache") os << ", " << r.name(key) << ' ' << text;
    os << '\n';
    add(s.children, depth + 1);
  }
}

/// Prints how often each rule fired in a span, most first.
void print_rules_of(std::ostream& os, const Recording& r, const Span& s) {
  std::map<uint32_t, std::pair<int64_t, int64_t>> rules;
  for (const Rewrite* w : rewrites_of(r, s)) {
    rules[w->rule].first++;
    rules[w->rule].second = saturated_sum(rules[w->rule].second, w->nanoseconds);
  }
  std::vector<std::pair<uint32_t, std::pair<int64_t, int64_t>>> sorted(rules.begin(), rules.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.first > b.second.first; });
  if (!sorted.empty()) os << "\n    hits      time  rule\n";
  for (const auto& [rule, sum] : sorted)
    os << pad_left(str(sum.first), 8) << ' ' << pad_left(time_text(sum.second), 9) << "  " << r.name(rule) << '\n';
}
}  // namespace

void print_summary(std::ostream& os, const Recording& r) {
  const Counts c = counts_of(r);
  os << r.file << ": " << time_text(r.length) << ", " << c.schedules << " schedules, " << c.kernels << " kernels, "
     << c.rewrites << " rewrites, " << c.launches << " launches and copies";
  if (r.broken) os << "; the file ends early: its program was killed, or still writes";
  os << "\n\n    span      time\n";
  print_steps(os, r);
}

void print_span(std::ostream& os, const Recording& r, const Span& s) {
  print_row(os, r, s, 0);
  os << '\n';
  for (const auto& [key, text] : s.values) os << "  " << r.name(key) << ": " << text << '\n';
  for (const Snapshot& g : s.graphs) os << "  graph " << r.name(g.title) << ": " << nodes_of(r, g).size() << " nodes\n";
  if (!s.children.empty()) os << '\n';
  for (uint32_t i : s.children) {
    const Span& part = r.spans[i];
    print_row(os, r, part, 0);
    if (!part.graphs.empty()) os << ", " << nodes_of(r, part.graphs.back()).size() << " nodes";
    os << '\n';
  }
  print_rules_of(os, r, s);
  for (const Text& t : s.texts) os << "\n--- " << r.name(t.title) << '\n' << t.text << '\n';
}

void print_rewrites(std::ostream& os, const Recording& r, const Span& s) {
  for (const Rewrite* w : rewrites_of(r, s))
    os << r.name(w->rule) << "\n    " << expression(r, w->graph, w->before) << "\n -> "
       << expression(r, w->graph, w->after) << '\n';
}

void print_snapshot(std::ostream& os, const Recording& r, const Snapshot& g) {
  const NodeTable* t = r.graph(g.graph);
  // A program is its instructions in their order; a graph has one root.
  std::vector<const Node*> nodes;
  if (g.roots.size() == 1) nodes = nodes_of(r, g);
  else
    for (uint64_t number : g.roots)
      if (const Node* n = t ? t->find(number) : nullptr) nodes.push_back(n);
  for (const Node* n : nodes) {
    os << '%' << n->number << " = " << r.name(n->op) << ' ' << r.name(n->type);
    if (n->argument_size) os << ' ' << t->argument(*n);
    os << " (";
    for (uint32_t i = 0; i < n->sources; i++) os << (i ? " " : "") << '%' << t->sources[n->source + i];
    os << ')';
    if (n->origin) os << "  ; " << r.name(n->origin);
    os << '\n';
  }
}

void print_rules(std::ostream& os, const Recording& r) {
  std::vector<RuleTotal> rules = r.rules;
  std::stable_sort(rules.begin(), rules.end(),
                   [](const RuleTotal& a, const RuleTotal& b) { return a.nanoseconds > b.nanoseconds; });
  os << "     tries       hits       time  rule\n";
  for (const RuleTotal& t : rules)
    os << pad_left(str(t.tries), 10) << ' ' << pad_left(str(t.hits), 10) << ' '
       << pad_left(time_text(t.nanoseconds), 10) << "  " << r.name(t.rule) << '\n';
}

void print_launches(std::ostream& os, const Recording& r) {
  const std::vector<LaunchSum> sums = launch_sums(r);
  double all = 0;
  for (const LaunchSum& s : sums) all += static_cast<double>(s.nanoseconds);
  os << "      time  share  launches  device and kernel\n";
  for (const LaunchSum& s : sums) {
    const auto share = all > 0 ? static_cast<int>(100 * static_cast<double>(s.nanoseconds) / all) : 0;
    os << pad_left(time_text(s.nanoseconds), 10) << pad_left(str(share, '%'), 7) << pad_left(str(s.launches), 10)
       << "  " << r.name(s.track) << ' ' << r.name(s.name) << '\n';
  }
}

void print_lines(std::ostream& os, const Recording& r) {
  os << "      time  launches  line: methods -> kernels\n";
  for (const LineSum& l : line_sums(r)) {
    os << pad_left(time_text(l.nanoseconds), 10) << pad_left(str(l.launches), 10) << "  " << l.place << ':';
    for (const std::string& m : l.methods) os << ' ' << m;
    os << " ->";
    for (const uint64_t k : l.kernels)
      if (const Span* s = r.span(k)) os << ' ' << title_of(r, *s) << " (#" << k << ')';
    os << '\n';
  }
}

void print_memory(std::ostream& os, const Recording& r) {
  for (const MemoryCurve& c : memory_curves(r)) {
    os << r.name(c.device) << ": most " << bytes_text(c.peak) << " at " << time_text(c.peak_time) << ", "
       << bytes_text(c.last) << " at the end\n";
    for (size_t i = 0; i < std::min(c.at_peak.size(), kMostOwners); i++) {
      const Span* s = r.span(c.at_peak[i].first);
      os << pad_left(bytes_text(c.at_peak[i].second), 12) << "  "
         << (s ? str('#', s->number, ' ', r.name(s->kind), ' ', title_of(r, *s)) : "outside of all spans") << '\n';
    }
  }
}

}  // namespace tg::viz
