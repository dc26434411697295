/// \file Making adapters.
#include "tinygrad/llm/low_rank_adapter.h"

#include <algorithm>
#include <cmath>

#include "tinygrad/base/error.h"

namespace tg::llm {

AdapterSet::AdapterSet(AdapterOptions options, std::string device)
    : options_(std::move(options)), device_(std::move(device)) {
  TG_CHECK(ValueError, options_.rank >= 1 && options_.rank <= kMaxAdapterRank, "[adapters] got rank ", options_.rank,
           ", expected 1 to ", kMaxAdapterRank);
  TG_CHECK(ValueError, std::isfinite(options_.alpha), "[adapters] got alpha ", options_.alpha,
           ", expected a finite number");
  TG_CHECK(ValueError, !options_.targets.empty(), "[adapters] got no targets");
}

std::shared_ptr<const LowRankAdapter> AdapterSet::make(const std::string& name, int64_t out, int64_t in) {
  const std::string last = name.substr(name.rfind('.') + 1);
  const std::vector<std::string>& targets = options_.targets;
  if (std::find(targets.begin(), targets.end(), last) == targets.end()) return nullptr;
  auto adapter = std::make_shared<LowRankAdapter>();
  const TensorOptions floats{.dtype = dtypes::float32, .device = device_};
  adapter->a = (Tensor::randn({options_.rank, in}, floats) / std::sqrt(static_cast<double>(in))).contiguous().realize();
  adapter->b = Tensor::zeros({out, options_.rank}, floats).contiguous().realize();
  adapter->scale = options_.alpha / static_cast<double>(options_.rank);
  for (const Tensor* t : {&adapter->a, &adapter->b}) t->requires_grad_(true);
  state_.emplace_back(name + ".weight.lora_a", adapter->a);
  state_.emplace_back(name + ".weight.lora_b", adapter->b);
  return adapter;
}

}  // namespace tg::llm
