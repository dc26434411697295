/// \file Fine-tuning with low-rank adapters (LoRA, https://arxiv.org/abs/2106.09685): a small language model is frozen,
/// and only thin matrices beside two of its projections are trained. The run is saved as a checkpoint and goes on from
/// it as if it had not stopped.
#include <cmath>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tinygrad/tinygrad.h"

using tg::Tensor;
namespace nn = tg::nn;

constexpr int64_t kVocab = 128, kDim = 64, kHeads = 4, kLayers = 2, kTime = 32, kBatch = 16, kRank = 4;

/// x W^T + (x A^T) B^T * scale. B begins as zeros, so that an adapted model begins as the model it adapts.
struct AdaptedLinear {
  nn::Linear base;
  Tensor a, b;
  AdaptedLinear(int64_t in, int64_t out) : base(in, out, false) {}
  void adapt() {
    const int64_t out = base.weight.shape(0), in = base.weight.shape(1);
    a = Tensor::randn(kRank, in) / std::sqrt(static_cast<double>(in));
    b = Tensor::zeros(out, kRank);
  }
  Tensor operator()(const Tensor& x) const {
    const Tensor y = base(x);
    return a.defined() ? y + x.matmul(a.T()).matmul(b.T()) * 2 : y;
  }
  TG_STATE(base, a, b)
};

struct Block {
  nn::RMSNorm attention_norm{kDim}, mlp_norm{kDim};
  AdaptedLinear q{kDim, kDim}, v{kDim, kDim};
  nn::Linear k{kDim, kDim, false}, out{kDim, kDim, false}, up{kDim, 4 * kDim, false}, down{4 * kDim, kDim, false};

  Tensor operator()(const Tensor& x) const {
    const Tensor n = attention_norm(x);
    const auto heads = [](const Tensor& t) {
      return t.reshape(t.shape(0), t.shape(1), kHeads, kDim / kHeads).transpose(1, 2);
    };
    const Tensor seen = heads(q(n)).scaled_dot_product_attention(heads(k(n)), heads(v(n)), {}, 0, true);
    const Tensor h = x + out(seen.transpose(1, 2).reshape(x.shape()));
    return h + down(up(mlp_norm(h)).silu());
  }
  TG_STATE(attention_norm, mlp_norm, q, v, k, out, up, down)
};

/// Predicts the next character at each position.
struct Model {
  nn::Embedding token{kVocab, kDim}, position{kTime, kDim};
  std::vector<Block> blocks{kLayers};
  nn::RMSNorm norm{kDim};

  Tensor operator()(const Tensor& tokens) const {
    Tensor x = token(tokens) + position(Tensor::arange(kTime));
    for (const Block& b : blocks) x = b(x);
    return norm(x).matmul(token.weight.T());
  }
  void adapt() {
    for (Block& b : blocks) {
      b.q.adapt();
      b.v.adapt();
    }
  }
  TG_STATE(token, position, blocks, norm)
};

/// Adapters are what has ".a" or ".b" at its end.
bool is_adapter(const std::string& name) { return name.ends_with(".a") || name.ends_with(".b"); }

nn::StateDict adapters_of(const Model& model) {
  nn::StateDict out;
  for (const auto& [name, t] : nn::get_state_dict(model))
    if (is_adapter(name)) out.emplace_back(name, t);
  return out;
}

/// Loss on random windows of a text.
Tensor loss_on(const Model& model, const Tensor& text) {
  const Tensor begin = Tensor::randint({kBatch, 1}, {.high = text.shape(0) - kTime - 1});
  const Tensor at = begin + Tensor::arange(kTime).reshape(1, kTime);
  return model(text[at]).sparse_categorical_crossentropy(text[at + 1]);
}

float train(const Model& model, nn::Optimizer& optimizer, const Tensor& text, int steps) {
  float last = 0;
  for (int i = 0; i < steps; i++) {
    const nn::Training mode;
    optimizer.zero_grad();
    const Tensor loss = loss_on(model, text).backward();
    optimizer.step();
    last = loss.item<float>();
  }
  return last;
}

Tensor as_tensor(const std::string& text) { return Tensor(std::vector<int32_t>(text.begin(), text.end())); }

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; i++) out += text;
  return out;
}

int main() {
  Tensor::manual_seed(1);
  const Tensor general = as_tensor(repeated("the quick brown fox jumps over the lazy dog. ", 40));
  const Tensor special = as_tensor(repeated("low rank adapters learn new words with few numbers. ", 40));

  Model model;
  nn::AdamW all(nn::get_parameters(model), {.lr = 3e-3});
  std::cout << "the model learns one text: loss " << train(model, all, general, 40) << "\n";

  // From here on the model's own weights stay as they are.
  for (const Tensor& t : nn::get_parameters(model)) t.requires_grad_(false);
  model.adapt();
  const nn::StateDict adapters = adapters_of(model);
  tg::Tensors trained;
  int64_t adapted = 0, total = 0;
  for (const auto& [name, t] : adapters) {
    trained.push_back(t);
    adapted += t.numel();
  }
  for (const Tensor& t : nn::get_parameters(model)) total += t.numel();
  std::cout << adapted << " of " << total << " numbers are trained\n";
  const std::vector<float> frozen = model.blocks[0].q.base.weight.to_vector<float>();
  const float before = loss_on(model, special).item<float>();

  nn::AdamW optimizer(trained, {.lr = 1e-2});
  nn::Checkpoint run{adapters, {&optimizer}};
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "tinygrad_lora.safetensors";
  train(model, optimizer, special, 20);
  run.step = 20;
  nn::save_checkpoint(run, file);  // adapters, their optimizer, the random numbers and the step: a few kilobytes
  const float straight = train(model, optimizer, special, 20);

  nn::load_checkpoint(run, file);  // back to step 20
  const float resumed = train(model, optimizer, special, 20);
  std::filesystem::remove(file);
  std::cout << "the adapters learn another: loss " << before << ", then " << straight << "; resumed at step "
            << run.step << ": " << resumed << "\n";
  if (!(straight < 0.8f * before)) throw std::runtime_error("the loss did not fall");
  if (straight != resumed) throw std::runtime_error("the resumed run differs");
  if (model.blocks[0].q.base.weight.to_vector<float>() != frozen) throw std::runtime_error("a frozen weight changed");
}
