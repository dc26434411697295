/// \file Batches of samples: read ahead by worker threads, shuffled by a seed, turned into tensors and transformed on
/// the device.
///
///     nn::DataLoader batches(nn::SampleSource::of({images, labels}),
///                           {.batch_size = 64, .shuffle = true, .seed = 7, .workers = 2});
///     for (const Tensors& batch : batches) { const Tensor &x = batch[0], &y = batch[1]; ... }
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tinygrad/tensor/tensor.h"

namespace tg::nn {

/// One of the values of a sample.
struct Field {
  std::vector<int64_t> shape;
  DType dtype;
};

/// A numbered collection of samples with the same fields.
struct SampleSource {
  int64_t size = 0;
  std::vector<Field> fields;
  /// Writes the fields of sample `index` (row-major, of the fields' types) to the memory at `out`. Called by several
  /// threads at once.
  std::function<void(int64_t index, std::span<std::byte* const> out)> read;
  /// Uses the rows of tensors that agree in the size of their first axis. Throws ValueError for no tensors, ShapeError
  /// for others.
  static SampleSource of(const Tensors& tensors);
};

/// A transform of a batch's tensors, on the device: see nn/transforms.h.
using Transform = std::function<Tensors(const Tensors&)>;

struct DataLoaderOptions {
  int64_t batch_size = 1;  ///< of all parts together
  bool shuffle = false;
  uint64_t seed = 0;       ///< with the number of the epoch it determines the order, whatever the number of workers
  bool drop_last = false;  ///< leaves out a last batch that is smaller
  int workers = 0;         ///< threads that read; 0: batches are read when they are asked for
  int64_t prefetch = 2;    ///< batches that may be ready ahead
  std::string device = {};
  std::vector<Transform> transforms = {};
  std::string progress = {};  ///< label of a progress bar; empty: none
  /// Processes that share batches, and which of them this is: each reads its rows of every batch. The order of the
  /// samples does not depend on how many there are. For a mesh: its size and position along the axis of the batch.
  int64_t parts = 1, part = 0;
};

class DataLoader {
 public:
  /// Reads batches of `source`. Throws ValueError for a batch size below 1, for a part that there is not, and where a
  /// batch does not divide into equal parts, the last one included.
  DataLoader(SampleSource source, const DataLoaderOptions& o = {});

  class Epoch;  // data_loader.cpp
  /// Iterates an epoch once; copies share the position. An exception of `read` in a worker is rethrown where the batch
  /// is requested.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Tensors;
    using difference_type = std::ptrdiff_t;
    explicit Iterator(std::shared_ptr<Epoch> e);
    /// The batch: a tensor for each field, (batch size / parts, shape of the field), of its type.
    const Tensors& operator*() const { return batch_; }
    const Tensors* operator->() const { return &batch_; }
    Iterator& operator++();
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return epoch_ == nullptr; }

   private:
    std::shared_ptr<Epoch> epoch_;
    Tensors batch_;
  };

  /// Starts the next epoch: its order differs from the last one's.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }
  int64_t size() const;  ///< number of batches
  int64_t epoch() const { return epoch_; }
  /// The number of the epoch that begin() starts: an interrupted run continues there.
  void set_epoch(int64_t n) { epoch_ = n; }
  /// Returns the samples of an epoch in order.
  std::vector<int64_t> order(int64_t epoch) const;

 private:
  std::shared_ptr<const SampleSource> source_;
  DataLoaderOptions o_;
  int64_t epoch_ = 0;
};

}  // namespace tg::nn
