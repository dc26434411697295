/// \file Tensors in content addressed storage (io/tinyfs.h): a server or a folder, as TINYFS_ENDPOINT says.
#pragma once
#include "tinygrad/tensor/tensor.h"

namespace tg::nn {

/// Stores the bytes of a tensor and returns their address, uint8 of shape (16,), on its device (the CPU for a tensor on
/// DISK). FileError when the store cannot be reached.
Tensor fs_store(const Tensor& t);
/// `size` bytes behind an address as fs_store gave it, uint8 of shape (size,) on the address's device. Every chunk is
/// checked: FormatError for one with other contents than its address says, FileError for one that is missing.
Tensor fs_load(const Tensor& address, int64_t size);

}  // namespace tg::nn
