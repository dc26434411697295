/// \file Weights of a model by name, with the shapes its configuration asks for, and the small layers made of them.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "tinygrad/io/gguf.h"
#include "tinygrad/llm/low_rank_adapter.h"
#include "tinygrad/llm/model_config.h"
#include "tinygrad/llm/model_share.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::llm {

/// A matrix (rows, columns), or several, whose packed blocks stay packed: rows are selected before they are unpacked.
struct PackedMatrix {
  Tensor blocks;  ///< uint8 (..., blocks of a row, bytes of a block), or values of a native type
  io::GgmlType type = io::GgmlType::kF32;
  Shape shape;  ///< of the values

  bool defined() const { return blocks.defined(); }
  Tensor values() const;                     ///< all values, float32
  Tensor rows(const Tensor& indices) const;  ///< values of the entries of axis 0 that integers name, float32
  /// The given ranges of an axis, one behind another: a view of one range of rows, else memory of its own. Blocks stay
  /// packed unless a range ends within one.
  PackedMatrix part(int axis, std::span<const AxisRange> ranges) const;
};

/// x @ weight^T + bias, and what an adapter adds.
struct Projection {
  PackedMatrix weight;  ///< (out, in)
  Tensor bias = {};     ///< (out), or undefined
  std::shared_ptr<const LowRankAdapter> adapter = {};
  bool defined() const { return weight.defined(); }
  int64_t outputs() const { return weight.shape[0].value(); }
  /// The given ranges of the outputs, one behind another.
  Projection outputs_of(std::initializer_list<AxisRange> ranges) const;
  /// What a range of the inputs contributes: the sum over all ranges is the output, so that the bias is in the first.
  Projection inputs_of(AxisRange range) const;
  Tensor operator()(const Tensor& x) const;
};

/// Normalizes the last axis.
struct Norm {
  NormKind kind = NormKind::kRms;
  double eps = 1e-5;
  Tensor weight, bias;  ///< may be undefined
  /// Where the axis is divided among processes: their shares, and the sum of the sizes they have.
  ModelShare share = {};
  int64_t divided_size = 0;
  Tensor operator()(const Tensor& x) const;
  /// The norm of an axis of which this process has a range, as have `sharers` processes.
  Norm part(AxisRange range, const ModelShare& share, int64_t sharers) const;

 private:
  Tensor normalized(const Tensor& x) const;
};

/// Tensors of a file, on a device. Every function throws FormatError for a tensor whose shape is not the one asked for;
/// those without `find_` also for one that is missing.
class Weights {
 public:
  /// `adapters`, where given, makes those of projections; they are not divided.
  Weights(const io::GgufFile& file, const ModelConfig& config, std::string device, AdapterSet* adapters = nullptr,
          ModelShare share = {})
      : file_(file), config_(config), device_(std::move(device)), adapters_(adapters), share_(std::move(share)) {}

  bool has(const std::string& name) const { return file_.contains(name); }
  /// The sizes of a tensor; empty: there is none.
  std::vector<int64_t> shape(const std::string& name) const;
  /// Returns the hidden units of `size` that this process computes: whole blocks of matrix `down`, whose rows they are,
  /// where there are enough of them.
  AxisRange hidden_units(const std::string& down, int64_t size) const;
  PackedMatrix matrix(const std::string& name, const Shape& shape) const;
  Tensor vector(const std::string& name, int64_t size) const;        ///< float32
  Tensor find_vector(const std::string& name, int64_t size) const;   ///< undefined when there is none
  Tensor values(const std::string& name, const Shape& shape) const;  ///< float32
  /// `name`.weight (out, in) with `name`.bias where there is one.
  Projection projection(const std::string& name, int64_t out, int64_t in) const;
  Projection find_projection(const std::string& name, int64_t out, int64_t in) const;
  /// `name`.weight with `name`.bias where there is one, of the model's kind.
  Norm norm(const std::string& name, int64_t size) const;
  std::optional<Norm> find_norm(const std::string& name, int64_t size) const;

  const ModelConfig& config() const { return config_; }
  const ModelShare& share() const { return share_; }
  const std::string& device() const { return device_; }
  std::string file() const { return file_.metadata().file(); }

 private:
  const io::GgufTensor& checked(const std::string& name, const Shape& shape) const;
  const io::GgufFile& file_;
  const ModelConfig& config_;
  std::string device_;
  AdapterSet* adapters_;
  ModelShare share_;
};

}  // namespace tg::llm
