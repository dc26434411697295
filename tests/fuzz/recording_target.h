/// \file The fuzz target of recordings. Blocks have checksums and are compressed, so inputs are the records in one.
#pragma once
#include <cstdint>
#include <span>
#include <sstream>

#include "tinygrad/base/recording_format.h"
#include "tinygrad/viz/drawn_graph.h"
#include "tinygrad/viz/print_recording.h"
#include "tinygrad/viz/queries.h"
#include "tinygrad/viz/recording_json.h"

namespace tg::fuzz {

/// Reads the records, and looks at everything as the page does.
inline void recording_records(std::span<const uint8_t> in) {
  const std::string_view records(reinterpret_cast<const char*>(in.data()), in.size());
  const std::string file = std::string(recording::kMagic, sizeof recording::kMagic) + recording::make_block(0, records);
  const viz::Recording r = viz::parse_recording(file, "fuzz");
  std::ostringstream text;
  viz::print_summary(text, r);
  viz::print_launches(text, r);
  viz::print_rules(text, r);
  viz::print_memory(text, r);
  viz::trace_events(r);
  viz::json_overview(r);
  viz::json_timeline(r, 0, r.length, 1);
  for (const viz::Span& s : r.spans) {
    viz::print_span(text, r, s);
    viz::print_rewrites(text, r, s);
    viz::json_span(r, s);
    for (size_t i = 0; i < s.graphs.size(); i++) {
      viz::print_snapshot(text, r, s.graphs[i]);
      viz::json_graph(r, s, i, s.rewrites.size());
      viz::drawn_graph(r, s, {.snapshot = i, .rewrites = s.rewrites.size(), .since = 0});
    }
  }
}

}  // namespace tg::fuzz
