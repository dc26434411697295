/// \file Writing and reading a cache of keys and values.
#include "tinygrad/llm/kv_cache.h"

#include <cstdlib>
#include <memory>

#include "tinygrad/base/error.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tensor/grad/function.h"

namespace tg::llm {
namespace {

constexpr size_t kAlignment = 64;

/// Returns the kernel that stores rows (batch, time, heads, dim) of `p[1]` at positions `p[2]` of sequences `p[3]` in
/// `p[0]`. Positions beyond the capacity store nothing.
UOp store_rows(const UOps& p, bool transposed) {
  const Shape rows = shape_of(p[1]);
  UOp b = UOp::range(rows[0].value(), 0), t = UOp::range(rows[1].value(), 1), h = UOp::range(rows[2].value(), 2),
      d = UOp::range(rows[3].value(), 3);
  UOp position = p[2].index({b, t}).load().cast(dtypes::weakint),
      sequence = p[3].index({b}).load().cast(dtypes::weakint);
  const UOp size = UOp::constant(kCacheBlock);
  const UOp capacity = UOp::constant(shape_of(p[0])[2].value() * kCacheBlock);
  position = position.valid(position.lt(capacity));
  UOp block = position / size, inside = position % size;
  UOp place = transposed ? p[0].index({sequence, h, block, d, inside}) : p[0].index({sequence, h, block, inside, d});
  UOp effects[] = {place.store(p[1].index({b, t, h, d}).load()).end(UOps{b, t, h, d})};
  return UOp::sink(effects, KernelInfo{.name = transposed ? "cache_keys" : "cache_values"});
}

/// Returns the storage with rows stored in it.
Tensor write_rows(const Tensor& storage, const Tensor& values, const StepRows& rows, bool transposed) {
  return custom_kernel({storage, values.cast(storage.dtype()).contiguous(), rows.positions, rows.sequences},
                       [transposed](const UOps& p) { return store_rows(p, transposed); })[0];
}

/// Returns the blocks that are read of the step's sequences.
Tensor read_blocks(const Tensor& storage, const StepRows& rows) {
  if (rows.first.defined())  // (batch, blocks, heads, ...) by sequence and number of the block
    return storage.permute(0, 2, 1, 3, 4)(rows.sequences.unsqueeze(1), rows.block_numbers()).permute(0, 2, 1, 3, 4);
  std::vector<std::pair<SInt, SInt>> ranges;
  for (size_t i = 0; i < storage.shape().size(); i++) ranges.emplace_back(0, i == 2 ? rows.blocks : storage.shape()[i]);
  const Tensor open = storage.shrink(ranges);
  return storage.shape(0) == 1 && rows.sequences.shape(0) == 1 ? open : open[rows.sequences];
}

/// Returns rows (batch, time, heads, dim) as they would lie in a storage of the first `blocks` blocks.
Tensor as_blocks(const Tensor& rows, int64_t blocks, bool transposed) {
  const int64_t time = rows.shape(1), heads = rows.shape(2), dim = rows.shape(3);
  const std::vector<std::pair<SInt, SInt>> missing{{0, 0}, {0, blocks * kCacheBlock - time}, {0, 0}, {0, 0}};
  const Tensor split = rows.pad(missing).reshape(Shape{rows.shape(0), blocks, kCacheBlock, heads, dim});
  return (transposed ? split.permute(0, 3, 1, 4, 2) : split.permute(0, 3, 1, 2, 4)).contiguous();
}

void copy_blocks(const Tensor& storage, int64_t from, int64_t to, int64_t blocks) {
  if (!storage.defined() || blocks == 0) return;
  storage.at(to, Slice(), Slice(0, blocks)) = Tensor(storage(from, Slice(), Slice(0, blocks)));
  storage.realize();
}

}  // namespace

Tensor StepRows::block_numbers() const {
  const Tensor numbers = Tensor::arange_symbolic(0, blocks, 1, {.dtype = dtypes::int32}).unsqueeze(0);
  return first.defined() ? first.unsqueeze(1) + numbers : numbers;
}

Tensor zeroed(const Shape& shape, DType dtype, const std::string& device) {
  if (!Device::get(device).host_visible())
    return Tensor::zeros(shape, {.dtype = dtype, .device = device}).contiguous().realize();
  const auto bytes = static_cast<size_t>(shape.numel() * dtype.itemsize());
  std::shared_ptr<void> owner(std::calloc(bytes + kAlignment, 1), std::free);
  TG_CHECK(OutOfMemoryError, owner, "[cache] cannot allocate ", bytes, " bytes");
  void* start = owner.get();
  size_t room = bytes + kAlignment;
  std::align(kAlignment, bytes, start, room);
  return Tensor::from_blob(start, shape, TensorOptions{.dtype = dtype, .device = device}, owner);
}

KeyValueCache::KeyValueCache(const Sizes& s, DType dtype, const std::string& device) : sizes_(s), dtype_(dtype) {
  if (s.sequences == 0) return;
  keys_ = zeroed({s.sequences, s.heads, s.blocks, s.head_dim, kCacheBlock}, dtype, device);
  if (s.value_dim != 0) values_ = zeroed({s.sequences, s.heads, s.blocks, kCacheBlock, s.value_dim}, dtype, device);
}

KeyValueCache::Filled KeyValueCache::write(const StepRows& rows, const Tensor& keys, const Tensor& values) const {
  Filled f;
  if (sizes_.sequences == 0) {
    f.keys = as_blocks(keys, rows.blocks.value(), true);
    if (sizes_.value_dim != 0) f.values = as_blocks(values, rows.blocks.value(), false);
    return f;
  }
  f.keys = read_blocks(write_rows(keys_, keys, rows, true), rows);
  if (values_.defined()) f.values = read_blocks(write_rows(values_, values, rows, false), rows);
  return f;
}

int64_t KeyValueCache::bytes_of(const Sizes& s, DType dtype) {
  return s.sequences * s.heads * s.blocks * kCacheBlock * (s.head_dim + s.value_dim) * dtype.itemsize();
}

void KeyValueCache::copy(int64_t from, int64_t to, int64_t tokens) {
  const int64_t blocks = (tokens + kCacheBlock - 1) / kCacheBlock;
  copy_blocks(keys_, from, to, blocks);
  copy_blocks(values_, from, to, blocks);
}

}  // namespace tg::llm
