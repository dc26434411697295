/// \file A program that runs under VIZ=1, and its recording.
#pragma once
#include <functional>

#include "tinygrad/base/context.h"
#include "tinygrad/base/process.h"
#include "tinygrad/base/recording.h"
#include "tinygrad/engine/compile.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/viz/queries.h"
#include "tinygrad/viz/recording_data.h"

namespace tg {

/// Records what `program` does, with nothing known from before.
inline void recorded_to(const std::string& file, const std::function<void()>& program) {
  recording::finish();
  clear_schedule_cache();
  clear_kernel_cache();
  const Context viz{{"VIZ", 1}, {"PROFILE", 1}, {"VIZ_FILE", file}};
  program();
  recording::finish();
}

/// Returns the recording of what `program` does.
inline viz::Recording recorded(const std::function<void()>& program) {
  const TempDir folder("tinygrad-test");
  const std::string file = (folder.path() / "test.viz").string();
  recorded_to(file, program);
  return viz::read_recording(file);
}

/// Returns the spans of a kind.
inline std::vector<const viz::Span*> spans_of(const viz::Recording& r, std::string_view kind) {
  std::vector<const viz::Span*> out;
  for (const viz::Span& s : r.spans)
    if (r.name(s.kind) == kind) out.push_back(&s);
  return out;
}

}  // namespace tg
