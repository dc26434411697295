/// \file Low-rank adapters (LoRA, arXiv 2106.09685): thin matrices beside the projections of a model, all
/// that fine-tuning changes.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tinygrad/nn/state.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::llm {

inline constexpr int64_t kMaxAdapterRank = 4096;

struct AdapterOptions {
  int64_t rank = 8;                                         ///< rows of `a`, columns of `b`: 1 to kMaxAdapterRank
  double alpha = 16;                                        ///< what an adapter adds is multiplied with alpha / rank
  std::vector<std::string> targets = {"attn_q", "attn_v"};  ///< last parts of the names of adapted projections
};

/// scale * (x a^T) b^T.
struct LowRankAdapter {
  Tensor a;  ///< (rank, in)
  Tensor b;  ///< (out, rank)
  double scale = 1;
  Tensor operator()(const Tensor& x) const { return x.matmul(a.T()).matmul(b.T()) * scale; }
};

/// Makes adapters for those projections of a model that the options name, while it is loaded. They begin as zero: an
/// adapted model begins as the model it adapts.
class AdapterSet {
 public:
  /// ValueError for options out of range.
  AdapterSet(AdapterOptions options, std::string device);
  /// The adapter of projection `name` ("blk.0.attn_q"), or none.
  std::shared_ptr<const LowRankAdapter> make(const std::string& name, int64_t out, int64_t in);
  /// By name: "blk.0.attn_q.weight.lora_a" and "...lora_b", in the order they were made in.
  const nn::StateDict& state() const { return state_; }

 private:
  AdapterOptions options_;
  std::string device_;
  nn::StateDict state_;
};

}  // namespace tg::llm
