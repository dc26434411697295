/// \file Reads of a step's result in terms of the loops that stored it.
#pragma once
#include <optional>
#include <utility>
#include <vector>

#include "tinygrad/schedule/step_graph.h"

namespace tg {

/// Returns what each loop of `from` is called where `load` reads its result, so that substituting in from.value gives
/// what is read; nullopt where the access pattern differs from the stored layout.
std::optional<std::vector<std::pair<UOp, UOp>>> match_loops(UOp load, const KernelStep& from);

/// Splits an index that is a sum of multiples of ranges into those; nullopt for any other.
std::optional<std::vector<std::pair<UOp, int64_t>>> range_terms(UOp index);

}  // namespace tg
