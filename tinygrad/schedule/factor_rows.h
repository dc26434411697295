/// \file Laying out factors of large products in rows along the sum.
#pragma once
#include "tinygrad/schedule/schedule_options.h"
#include "tinygrad/uop/uop.h"

namespace tg {

/// Stores factors of a large product, a sum over MUL, in rows along the sum where memory has them across it and
/// instructions of their device read such rows only. Returns none where nothing is stored.
UOp store_factor_rows(UOp sum, const ScheduleOptions& options);

}  // namespace tg
