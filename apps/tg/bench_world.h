/// \file Rows of several processes: as many as the row has threads, each with one, under mpirun. Rank 0 of them takes a
/// sample for each line that it gets.
#pragma once
#include <functional>

#include "apps/tg/bench.h"

namespace tg::bench {

/// Serves the samples of a child row, as often as rank 0 is asked for one: each is the mean seconds of `repeats` runs
/// of `body` in all processes.
double serve_world(int repeats, const std::function<void()>& body);
/// Takes the samples of a row from processes that serve the child row of that name.
Samples ask_world(Context& c, const char* child, const Work& work);

}  // namespace tg::bench
