/// \file Views of storage that cannot compute (files): moved to another device without reading more than needed.
#pragma once
#include <string>

#include "tinygrad/uop/facts.h"

namespace tg::tensor_detail {

/// True for a value on a device without kernels, such as DISK.
bool on_storage_device(UOp u);
/// COPY of `u`, a view of such storage, to `device`: a range of elements that lie in one piece is copied alone; other
/// views are taken after the whole storage has been copied. Under a GraphScope.
UOp copy_from_storage(UOp u, const std::string& device);

/// The same bytes as elements of another type, as a BUFFER over them; empty unless `u` is a view of realized storage
/// that lies in one piece.
UOp storage_as(UOp u, DType d, const Shape& shape);

}  // namespace tg::tensor_detail
