/// \file A decoder of random weights in a GGUF file that can chat: tokens are bytes, conversations are ChatML. Small
/// enough that tests run the whole program on it.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "helpers/fake_served_model.h"
#include "helpers/gguf_bytes.h"

namespace tg::test {

/// Returns `n` numbers around 0, the same on every machine.
inline std::vector<float> some_weights(size_t n, double scale, uint64_t& state) {
  std::vector<float> out;
  for (size_t i = 0; i < n; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    out.push_back(static_cast<float>((static_cast<double>(state >> 40) / (1 << 23) - 1) * scale));
  }
  return out;
}

/// An empty `chat_template` leaves it out.
inline std::string tiny_chat_model(int64_t context = 512, const std::string& chat_template = kChatMl) {
  constexpr int64_t kDim = 32, kHeads = 2, kHead = 16, kHidden = 48;
  GgufBytes g;
  uint64_t state = 1;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, double scale) {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    g.tensor(name, shape, some_weights(static_cast<size_t>(n), scale, state));
  };
  g.string("general.architecture", "llama").string("general.name", "tiny").integer("llama.context_length", context);
  g.integer("llama.embedding_length", kDim).integer("llama.block_count", 1);
  g.integer("llama.feed_forward_length", kHidden).integer("llama.attention.head_count", kHeads);
  g.integer("llama.attention.head_count_kv", 1).real("llama.attention.layer_norm_rms_epsilon", 1e-5);
  const llm::TokenizerData vocabulary = byte_vocabulary();
  g.string("tokenizer.ggml.model", vocabulary.model).string("tokenizer.ggml.pre", vocabulary.pre);
  g.strings("tokenizer.ggml.tokens", vocabulary.tokens);
  g.integers("tokenizer.ggml.token_type", {vocabulary.token_types.begin(), vocabulary.token_types.end()});
  g.integer("tokenizer.ggml.eos_token_id", kFakeEnd).flag("tokenizer.ggml.add_bos_token", false);
  if (!chat_template.empty()) g.string("tokenizer.chat_template", chat_template);
  add("token_embd.weight", {kFakeVocabulary, kDim}, 1);
  std::vector<float> output = some_weights(kFakeVocabulary * kDim, 1, state);
  std::fill_n(output.begin() + kFakeEnd * kDim, kDim, 0.f);  // never the best: replies do not end by themselves
  g.tensor("output.weight", {kFakeVocabulary, kDim}, output);
  g.tensor("output_norm.weight", {kDim}, std::vector<float>(kDim, 1));
  for (const char* norm : {"blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"})
    g.tensor(norm, {kDim}, std::vector<float>(kDim, 1));
  const double scale = std::sqrt(3.0 / kDim);
  add("blk.0.attn_q.weight", {kHeads * kHead, kDim}, scale);
  add("blk.0.attn_k.weight", {kHead, kDim}, scale);
  add("blk.0.attn_v.weight", {kHead, kDim}, scale);
  add("blk.0.attn_output.weight", {kDim, kHeads * kHead}, scale);
  add("blk.0.ffn_gate.weight", {kHidden, kDim}, scale);
  add("blk.0.ffn_up.weight", {kHidden, kDim}, scale);
  add("blk.0.ffn_down.weight", {kDim, kHidden}, scale);
  return g.build();
}

}  // namespace tg::test
