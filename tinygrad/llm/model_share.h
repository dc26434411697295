/// \file ModelShare: which part of a decoder's layers this process computes, when several compute one model.
///
/// Heads, hidden units and rows of the output are divided; each layer adds up what the processes have behind its
/// attention and behind its feed-forward network (tensor parallelism: Megatron-LM, arXiv 1909.08053).
#pragma once
#include <cstdint>
#include <memory>

#include "tinygrad/tensor/tensor.h"

namespace tg::llm {

/// The positions begin <= i < end of an axis.
struct AxisRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  AxisRange scaled(int64_t by) const { return {begin * by, end * by}; }
  AxisRange moved(int64_t by) const { return {begin + by, end + by}; }
};

class ModelShare {
 public:
  ModelShare() = default;  ///< the whole model
  /// One part of as many as there are processes in the world.
  static ModelShare of_world();

  bool whole() const { return count_ == 1; }
  int64_t count() const { return count_; }
  /// Returns this process's part of `units`: consecutive ones, as many as others have, or one more. ValueError when
  /// there are fewer than processes; `what` names them.
  AxisRange of(int64_t units, const char* what) const;

  struct Heads {
    AxisRange queries, keys;
    int64_t sharers = 1;  ///< processes that have the same head of keys
  };
  /// Returns the heads of this process, of which those of keys go with those of queries. Several processes have the
  /// same head of keys where there are fewer of them than processes. ValueError for numbers that do not fit.
  Heads heads(int64_t queries, int64_t keys) const;

  /// Returns the sum of what the processes have.
  Tensor sum(const Tensor& part) const;
  /// Returns the rows that this process has of `rows`: each has as many, the last ones fewer. All of them, when that
  /// would leave a process without any.
  AxisRange padded_rows(int64_t rows) const;
  /// Returns the processes' parts along the last axis, which are divided as padded_rows(size) says, one behind another.
  Tensor join(const Tensor& part, int64_t size) const;

 private:
  int64_t padded_size(int64_t rows) const { return (rows + count_ - 1) / count_; }
  int64_t index_ = 0, count_ = 1;
  std::shared_ptr<const Mesh> mesh_;
};

}  // namespace tg::llm
