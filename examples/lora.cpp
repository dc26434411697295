/// \file Fine-tuning a language model with low-rank adapters (LoRA, https://arxiv.org/abs/2106.09685): its weights stay
/// packed as the file has them, and only thin matrices beside some of its projections are trained. The run is saved as
/// a checkpoint and goes on from it as if it had not stopped.
///
///     example_lora [MODEL.gguf [TEXT]]
///
/// Without a model a small one with random weights is made.
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "tinygrad/io/gguf_writer.h"
#include "tinygrad/llm/adapted_model.h"
#include "tinygrad/llm/tokenizer.h"
#include "tinygrad/tinygrad.h"

using tg::Tensor;
namespace fs = std::filesystem;
namespace io = tg::io;
namespace llm = tg::llm;
namespace nn = tg::nn;

constexpr int64_t kTime = 32, kBatch = 4;
constexpr int kSteps = 20;

/// Writes a model whose tokens are bytes.
void write_small_model(const fs::path& file) {
  constexpr int64_t kDim = 64, kHidden = 128, kHeads = 4, kLayers = 2, kVocab = 257;
  std::vector<std::string> tokens{"<unk>"};
  for (int byte = 0; byte < 256; byte++) {
    const char* digits = "0123456789ABCDEF";
    tokens.push_back(std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">");
  }
  std::vector<int32_t> types(kVocab, 6);  // bytes
  types[0] = 2;                           // unknown
  io::GgufWriter w;
  w.add("general.architecture", "llama").add("llama.context_length", uint32_t{128});
  w.add("llama.embedding_length", uint32_t{kDim}).add("llama.feed_forward_length", uint32_t{kHidden});
  w.add("llama.block_count", uint32_t{kLayers}).add("llama.attention.head_count", uint32_t{kHeads});
  w.add("llama.attention.layer_norm_rms_epsilon", 1e-5f).add("tokenizer.ggml.model", "llama");
  w.add("tokenizer.ggml.tokens", tokens).add("tokenizer.ggml.token_type", types);
  w.add("tokenizer.ggml.scores", std::vector<float>(kVocab, 0)).add("tokenizer.ggml.add_bos_token", false);
  const auto matrix = [&](const std::string& name, int64_t out, int64_t in) {
    w.add_tensor(name + ".weight", Tensor::randn({out, in}) / std::sqrt(static_cast<double>(in)), io::GgmlType::kQ8_0);
  };
  const auto norm = [&](const std::string& name) { w.add_tensor(name + ".weight", Tensor::ones({kDim})); };
  matrix("token_embd", kVocab, kDim);
  norm("output_norm");
  for (int i = 0; i < kLayers; i++) {
    const std::string p = "blk." + std::to_string(i) + ".";
    for (const char* name : {"attn_norm", "ffn_norm"}) norm(p + name);
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) matrix(p + name, kDim, kDim);
    for (const char* name : {"ffn_gate", "ffn_up"}) matrix(p + name, kHidden, kDim);
    matrix(p + "ffn_down", kDim, kHidden);
  }
  w.save(file);
}

std::string read_text(const char* file) {
  std::ifstream in(file);
  if (!in) throw std::runtime_error(std::string("cannot read ") + file);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; i++) out += text;
  return out;
}

/// Random windows of a text: int32 (kBatch, kTime).
Tensor some_of(const Tensor& text) {
  const Tensor begin = Tensor::randint({kBatch, 1}, {.high = text.shape(0) - kTime});
  return text[begin + Tensor::arange(kTime).reshape(1, kTime)].realize();
}

int main(int argc, char** argv) {
  Tensor::manual_seed(1);
  const fs::path small = fs::temp_directory_path() / ("tinygrad_lora_" + std::to_string(::getpid()) + ".gguf");
  if (argc < 2) write_small_model(small);
  const fs::path file = argc < 2 ? small : fs::path(argv[1]);

  const llm::Tokenizer tokenizer = llm::Tokenizer::from_gguf(io::GgufFile::open(file).metadata());
  const std::string words =
      argc < 3 ? repeated("Low rank adapters learn new words with few numbers. ", 40) : read_text(argv[2]);
  const std::vector<int32_t> tokens = tokenizer.encode(words);
  if (static_cast<int64_t>(tokens.size()) <= kTime) throw std::runtime_error("the text is too short");
  const Tensor text(tokens);

  const llm::AdaptedModel model =
      llm::AdaptedModel::load(file, {.rank = 8, .targets = {"attn_q", "attn_v", "attn_output", "ffn_down"}}, kTime);
  tg::Tensors trained;
  int64_t numbers = 0;
  for (const auto& [name, t] : model.adapters()) {
    trained.push_back(t);
    numbers += t.numel();
  }
  std::cout << numbers << " numbers in " << trained.size() << " tensors are trained\n";

  nn::AdamW optimizer(trained, {.lr = argc < 2 ? 2e-2 : 1e-3});
  const auto step = tg::jit([&](const Tensor& batch) {
    const nn::Training mode;
    optimizer.zero_grad();
    const Tensor loss = model.loss(batch).backward();
    optimizer.step();
    return loss.realize();
  });
  const auto train = [&] {
    float last = 0;
    for (int i = 0; i < kSteps; i++) last = step(some_of(text)).item<float>();
    return last;
  };

  const float before = model.loss(some_of(text)).item<float>();
  nn::Checkpoint run{model.adapters(), {&optimizer}};
  const fs::path saved = fs::temp_directory_path() / ("tinygrad_lora_" + std::to_string(::getpid()) + ".safetensors");
  const float middle = train();
  run.step = kSteps;
  nn::save_checkpoint(run, saved);  // adapters, their optimizer, the random numbers and the step
  const float straight = train();

  nn::load_checkpoint(run, saved);  // back to step 20
  const float resumed = train();
  fs::remove(saved);
  fs::remove(small);
  std::cout << "loss " << before << ", after " << kSteps << " steps " << middle << ", after " << 2 * kSteps << " "
            << straight << "; resumed at step " << run.step << ": " << resumed << "\n";
  if (!(straight < 0.8f * before)) throw std::runtime_error("the loss did not fall");
  if (straight != resumed) throw std::runtime_error("the resumed run differs");
}
