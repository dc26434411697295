/// \file Views of storage on devices that cannot compute (files): copied to others without reading more than needed.
#pragma once
#include <string>

#include "tinygrad/uop/facts.h"

namespace tg::tensor_detail {

/// Whether a value is on a device without kernels, such as DISK.
bool on_storage_device(UOp u);
/// Copies `u`, a view of such storage, to `device`: a contiguous range of elements is copied alone; other views are
/// taken after the whole storage has been copied. Under a GraphScope.
UOp copy_from_storage(UOp u, const std::string& device);

/// Returns a BUFFER over the same bytes, as elements of another type; empty unless `u` is a contiguous view of realized
/// storage.
UOp storage_as(UOp u, DType d, const Shape& shape);

}  // namespace tg::tensor_detail
