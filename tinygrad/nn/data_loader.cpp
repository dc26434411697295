/// \file Batches of samples.
#include "tinygrad/nn/data_loader.h"

#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "tinygrad/base/error.h"
#include "tinygrad/base/progress.h"

namespace tg::nn {
namespace {

/// Splitmix64: the same values everywhere, unlike the distributions of <random>.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  /// Returns a value below n, without bias.
  uint64_t below(uint64_t n) {
    const uint64_t skip = -n % n;  // 2^64 mod n excess values
    uint64_t v = next();
    while (v < skip) v = next();
    return v % n;
  }

 private:
  uint64_t state_;
};

int64_t bytes_of(const Field& f) {
  return std::accumulate(f.shape.begin(), f.shape.end(), static_cast<int64_t>(f.dtype.itemsize()), std::multiplies<>());
}

/// The bytes of a batch, field by field.
struct Rows {
  int64_t count = 0;
  std::vector<std::vector<std::byte>> fields;
};

}  // namespace

SampleSource SampleSource::of(const Tensors& tensors) {
  TG_CHECK(ValueError, !tensors.empty(), "[SampleSource] got no tensors");
  SampleSource s;
  s.size = tensors[0].ndim() ? tensors[0].shape(0) : 0;
  Tensors kept;
  for (const Tensor& t : tensors) {
    const Shape shape = t.shape();
    TG_CHECK(ShapeError, !shape.empty() && shape[0].value() == s.size, "[SampleSource] got shapes ", tensors[0].shape(),
             " and ", shape, ", expected the same size of the first axis");
    Field f{{}, t.stored_dtype()};
    for (size_t i = 1; i < shape.size(); i++) f.shape.push_back(shape[i].value());
    s.fields.push_back(std::move(f));
    kept.push_back(t.cast(t.stored_dtype()).contiguous().to("CPU").realize());
  }
  std::vector<std::span<const std::byte>> rows;
  for (const Tensor& t : kept) rows.push_back(t.bytes());  // host memory that `kept` owns
  std::vector<size_t> sizes;
  for (const Field& f : s.fields) sizes.push_back(static_cast<size_t>(bytes_of(f)));
  s.read = [kept, rows, sizes](int64_t index, std::span<std::byte* const> out) {
    for (size_t i = 0; i < out.size(); i++)
      if (sizes[i]) std::memcpy(out[i], rows[i].data() + static_cast<size_t>(index) * sizes[i], sizes[i]);
  };
  return s;
}

/// One pass over the samples. Workers take the next unassigned batch, unless `prefetch` are ready; results are kept by
/// number.
class DataLoader::Epoch {
 public:
  Epoch(std::shared_ptr<const SampleSource> source, const DataLoaderOptions& o, std::vector<int64_t> order,
        int64_t batches)
      : source_(std::move(source)),
        o_(o),
        order_(std::move(order)),
        batches_(batches),
        progress_(batches, o.progress, !o.progress.empty()) {
    for (int i = 0; i < o_.workers && i < batches; i++) workers_.emplace_back([this] { work(); });
  }
  ~Epoch() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& t : workers_) t.join();
  }
  Epoch(const Epoch&) = delete;

  /// Returns the next batch; empty at the end.
  std::optional<Tensors> next() {
    if (used_ > 0) progress_.advance();
    if (used_ == batches_) return {};
    const Rows rows = workers_.empty() ? read(used_++) : take();
    Tensors batch;
    for (size_t i = 0; i < rows.fields.size(); i++) {
      const Field& f = source_->fields[i];
      Shape shape{rows.count};
      for (int64_t n : f.shape) shape.push_back(n);
      batch.push_back(Tensor::from_bytes(rows.fields[i], f.dtype, shape, {.device = o_.device}).requires_grad_(false));
    }
    for (const Transform& t : o_.transforms) batch = t(batch);
    return batch;
  }

 private:
  struct Result {
    Rows rows;
    std::exception_ptr error;
  };

  Rows read(int64_t batch) const {
    const int64_t begin = batch * o_.batch_size,
                  end = std::min(begin + o_.batch_size, static_cast<int64_t>(order_.size()));
    const int64_t rows = (end - begin) / o_.parts, first = begin + o_.part * rows;
    Rows r{rows, {}};
    std::vector<size_t> sizes;
    for (const Field& f : source_->fields) {
      sizes.push_back(static_cast<size_t>(bytes_of(f)));
      r.fields.emplace_back(sizes.back() * static_cast<size_t>(r.count));
    }
    std::vector<std::byte*> out(sizes.size());
    for (int64_t i = 0; i < r.count; i++) {
      for (size_t f = 0; f < out.size(); f++) out[f] = r.fields[f].data() + sizes[f] * static_cast<size_t>(i);
      source_->read(order_[static_cast<size_t>(first + i)], out);
    }
    return r;
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(
          lock, [&] { return stop_ || started_ == batches_ || started_ < used_ + std::max<int64_t>(o_.prefetch, 1); });
      if (stop_ || started_ == batches_) return;
      const int64_t batch = started_++;
      lock.unlock();
      Result r;
      try {
        r.rows = read(batch);
      } catch (...) { r.error = std::current_exception(); }
      lock.lock();
      ready_.emplace(batch, std::move(r));
      changed_.notify_all();
    }
  }

  Rows take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ready_.contains(used_); });
    Result r = std::move(ready_.extract(used_).mapped());
    used_++;
    changed_.notify_all();
    lock.unlock();
    if (r.error) std::rethrow_exception(r.error);
    return std::move(r.rows);
  }

  std::shared_ptr<const SampleSource> source_;
  DataLoaderOptions o_;
  std::vector<int64_t> order_;
  int64_t batches_;
  Progress progress_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t started_ = 0, used_ = 0;
  bool stop_ = false;
  std::map<int64_t, Result> ready_;
  std::vector<std::thread> workers_;
};

DataLoader::Iterator::Iterator(std::shared_ptr<Epoch> e) : epoch_(std::move(e)) { ++*this; }
DataLoader::Iterator& DataLoader::Iterator::operator++() {
  TG_CHECK(IndexError, epoch_, "[DataLoader] moved beyond the last batch");
  if (std::optional<Tensors> b = epoch_->next()) batch_ = std::move(*b);
  else {
    epoch_.reset();
    batch_.clear();
  }
  return *this;
}

DataLoader::DataLoader(SampleSource source, const DataLoaderOptions& o) : o_(o) {
  TG_CHECK(ValueError, o.batch_size > 0 && o.workers >= 0 && o.prefetch >= 0,
           "[DataLoader] got batch_size = ", o.batch_size, ", workers = ", o.workers, " and prefetch = ", o.prefetch,
           ", expected a positive size and no negative numbers");
  TG_CHECK(ValueError, source.read && source.size >= 0 && !source.fields.empty(),
           "[DataLoader] got a source without fields or without a function to read samples");
  TG_CHECK(ValueError, o.parts > 0 && o.part >= 0 && o.part < o.parts, "[DataLoader] got part = ", o.part,
           " and parts = ", o.parts, ", expected a number below that of the parts");
  const int64_t rest = o.drop_last ? 0 : source.size % o.batch_size;
  TG_CHECK(ValueError, o.batch_size % o.parts == 0 && rest % o.parts == 0, "[DataLoader] got a ",
           o.batch_size % o.parts ? "batch" : "last batch", " of ", o.batch_size % o.parts ? o.batch_size : rest,
           " samples for ", o.parts, " parts, expected a multiple: drop_last leaves out a last one that is smaller");
  source_ = std::make_shared<const SampleSource>(std::move(source));
}

int64_t DataLoader::size() const {
  return o_.drop_last ? source_->size / o_.batch_size : (source_->size + o_.batch_size - 1) / o_.batch_size;
}

std::vector<int64_t> DataLoader::order(int64_t epoch) const {
  std::vector<int64_t> v(static_cast<size_t>(source_->size));
  std::iota(v.begin(), v.end(), int64_t{0});
  if (!o_.shuffle) return v;
  Numbers numbers(Numbers(o_.seed).next() + static_cast<uint64_t>(epoch));
  for (size_t i = v.size(); i > 1; i--) std::swap(v[i - 1], v[numbers.below(i)]);
  return v;
}

DataLoader::Iterator DataLoader::begin() {
  const int64_t epoch = epoch_++;
  return Iterator(std::make_shared<Epoch>(source_, o_, order(epoch), size()));
}

}  // namespace tg::nn
