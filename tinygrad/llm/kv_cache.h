/// \file KeyValueCache: keys and values of one layer for several sequences, at positions that kernels are told.
#pragma once
#include <cstdint>

#include "tinygrad/tensor/tensor.h"
#include "tinygrad/tensor/variable.h"

namespace tg::llm {

/// How many adjacent positions a block holds: what is attended to is filled up to a multiple of this.
inline constexpr int64_t kCacheBlock = 32;

/// Which rows a step computes, `time` tokens for each of `batch` sequences, and what they read of the cache.
struct StepRows {
  Tensor
      positions;  ///< int32 (batch, time): of the token in its sequence; `capacity` or more: no token, nothing is kept
  Tensor sequences;  ///< int32 (batch): slots of the cache; undefined: the rows see each other, and nothing is kept
  Tensor first;      ///< int32 (batch): the first block that is read; undefined: 0
  SInt blocks;       ///< how many blocks are read of each sequence, those with this step's tokens included

  /// Int32 (batch or 1, blocks): the numbers of the blocks that are read.
  Tensor block_numbers() const;
};

/// Zeroed memory that takes room when it is touched (CPU), or at once (other devices).
Tensor zeroed(const Shape& shape, DType dtype, const std::string& device);

/// Storage (sequences, heads, blocks, ...), blocks of kCacheBlock positions: keys (..., head_dim, kCacheBlock), so that
/// scores of adjacent positions are computed side by side, values (..., kCacheBlock, value_dim).
class KeyValueCache {
 public:
  struct Sizes {
    int64_t sequences = 1;                                       ///< 0: nothing is kept
    int64_t heads = 1, blocks = 1, head_dim = 1, value_dim = 1;  ///< value_dim 0: keys only
  };
  KeyValueCache(const Sizes& sizes, DType dtype, const std::string& device);
  /// Returns the bytes of a cache before it is made.
  static int64_t bytes_of(const Sizes& sizes, DType dtype);

  /// The blocks that are read of the step's sequences.
  struct Filled {
    Tensor keys;    ///< (batch, heads, blocks, head_dim, kCacheBlock)
    Tensor values;  ///< (batch, heads, blocks, kCacheBlock, value_dim); undefined without values
  };
  /// Writes keys (batch, time, heads, head_dim) and values (batch, time, heads, value_dim) at their positions, as part
  /// of the step that is being built, and returns what its queries can see. What is returned must be used: the writes
  /// belong to it. A cache of no sequences returns the rows themselves, which can be differentiated.
  [[nodiscard]] Filled write(const StepRows& rows, const Tensor& keys, const Tensor& values) const;

  const Sizes& sizes() const { return sizes_; }
  int64_t bytes() const { return bytes_of(sizes_, dtype_); }
  /// Copies the blocks that hold the first `tokens` positions of a sequence to another one, at once.
  void copy(int64_t from, int64_t to, int64_t tokens);

 private:
  Sizes sizes_;
  DType dtype_;
  Tensor keys_, values_;
};

}  // namespace tg::llm
