/// \file Recordings as JSON: what scripts read and the page asks for. docs/viz.md lists the fields.
#pragma once
#include <string>

#include "tinygrad/viz/recording_data.h"

namespace tg::viz {

/// Returns everything but the contents of spans: counts, spans that are no rewrites, sums of launches, rules, memory.
std::string json_overview(const Recording& r);
/// Returns one span with its texts, graphs and rewrites.
std::string json_span(const Recording& r, const Span& s);
/// Returns the graph that a span had after `rewrites` of its rewrites: of 0 the graph it began with. Nodes and sources
/// are indices into the list of nodes, sources first.
std::string json_graph(const Recording& r, const Span& s, size_t snapshot, size_t rewrites);
/// Returns the events between two times (nanoseconds); of those shorter than `shortest` only how many there are.
std::string json_timeline(const Recording& r, int64_t begin, int64_t end, int64_t shortest);
/// Returns the timeline in the trace event format, which Perfetto and Chrome read.
std::string trace_events(const Recording& r);

}  // namespace tg::viz
