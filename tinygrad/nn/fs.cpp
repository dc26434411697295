/// \file Copies the bytes of tensors to a store and back.
#include "tinygrad/nn/fs.h"

#include <cstring>

#include "tinygrad/io/tinyfs.h"

namespace tg::nn {

Tensor fs_store(const Tensor& t) {
  const bool disk = t.device().starts_with("DISK");
  const Tensor host = (disk ? t.to("CPU") : t).contiguous().realize();
  const std::span<const std::byte> data = host.bytes();
  auto store = io::open_store();
  const auto* p = reinterpret_cast<const uint8_t*>(data.data());
  const io::ChunkHash address = io::store_bytes(*store, {p, p + data.size()});
  return Tensor::from_bytes(std::as_bytes(std::span(address)), dtypes::uint8, {int64_t{16}},
                            {.device = disk ? "CPU" : t.device()});
}

Tensor fs_load(const Tensor& address, int64_t size) {
  TG_CHECK(DTypeError, address.dtype() == dtypes::uint8, "[fs_load] got an address of ", address.dtype(),
           ", expected uint8 as fs_store gives");
  TG_CHECK(ShapeError, address.numel() == 16, "[fs_load] got an address of shape ", address.shape(),
           ", expected 16 bytes");
  TG_CHECK(ValueError, size > 0 && size < int64_t{1} << 46, "[fs_load] got size ", size,
           ", expected a positive number");
  const Tensor host = address.contiguous().realize();
  io::ChunkHash hash;
  std::memcpy(hash.data(), host.bytes().data(), hash.size());
  auto store = io::open_store();
  const std::vector<uint8_t> bytes = io::load_bytes(*store, hash, static_cast<size_t>(size));
  return Tensor::from_bytes(std::as_bytes(std::span(bytes)), dtypes::uint8, {size}, {.device = address.device()});
}

}  // namespace tg::nn
