/// \file The profiles of all processes of a world as one trace: their clocks compared, their events gathered.
#pragma once
#include <span>

#include "tinygrad/base/profile.h"

namespace tg::distributed {

/// One question for the time: when it was sent and answered by our clock, and the other clock's time in the answer.
struct ClockSample {
  int64_t sent, theirs, answered;
};
/// Returns what samples say of the other clock. The shortest round trip tells most: the answer was given at some moment
/// of it, so half of it is the error (F. Cristian, Probabilistic clock synchronization, 1989).
profile::ClockMatch match_of(std::span<const ClockSample> samples);

/// Compares the clock of every process with rank 0's. All processes call it. PeerError.
profile::ClockMatch match_clocks();
/// Writes the events of all processes to the file of rank 0, and forgets them. All processes call it, with what
/// match_clocks() returned when the world formed. PeerError, before which nothing is forgotten; FileError in rank 0.
void write_world_trace(const profile::ClockMatch& first);

}  // namespace tg::distributed
