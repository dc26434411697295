/// \file Tensors in content-addressed storage (io/tinyfs.h): a server or a folder, as TINYFS_ENDPOINT says.
#pragma once
#include "tinygrad/tensor/tensor.h"

namespace tg::nn {

/// Stores the bytes of a tensor and returns their address, uint8 of shape (16,), on its device (the CPU for a tensor on
/// DISK). FileError when the store cannot be reached.
Tensor fs_store(const Tensor& t);
/// Returns `size` bytes at an address that fs_store gave, uint8 of shape (size,) on the address's device. Every chunk
/// is verified: FormatError for one that does not match its address, FileError for a missing one. DTypeError and
/// ShapeError for what is no address, ValueError unless size is positive.
Tensor fs_load(const Tensor& address, int64_t size);

}  // namespace tg::nn
