/// \file Rewrites of the tensor graph before ranges are assigned.
#pragma once
#include "tinygrad/schedule/schedule_options.h"
#include "tinygrad/uop/uop.h"

namespace tg {

UOp early_rewrites(UOp sink, const ScheduleOptions& options);
/// Returns true for contiguous storage of a whole buffer: PARAM or AFTER on one, under RESHAPE.
bool is_whole_buffer(UOp u);

}  // namespace tg
