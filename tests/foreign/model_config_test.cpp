/// \file Hyperparameters of decoders: what each architecture implies, and metadata that lies.
#include "tinygrad/llm/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "helpers/gguf_bytes.h"
#include "tinygrad/base/error.h"
#include "tinygrad/llm/language_model.h"

namespace tg::llm {
namespace {

using test::GgufBytes;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::span<const uint8_t> as_bytes(const std::string& s) {
  return {reinterpret_cast<const uint8_t*>(s.data()), s.size()};
}

ModelConfig read(const GgufBytes& model) {
  const std::string bytes = model.build();
  const io::Gguf g = io::parse_gguf(as_bytes(bytes), "m");
  return read_model_config(g.metadata, [&](std::string_view name) -> const io::GgufTensor* {
    for (const io::GgufTensor& t : g.tensors)
      if (t.name == name) return &t;
    return nullptr;
  });
}

/// Expects a FormatError that names the file and says `why`.
void refused(const GgufBytes& model, const std::string& why) {
  EXPECT_THAT([&] { read(model); }, ThrowsMessage<FormatError>(AllOf(HasSubstr("[gguf] m: "), HasSubstr(why))));
}

/// What an architecture implies, in words.
std::string traits(const ModelConfig& c) {
  std::string out = c.rope.pairs == RopePairs::kNone     ? "no rope"
                    : c.rope.pairs == RopePairs::kHalves ? "halves"
                                                         : "pairs";
  const auto add = [&](bool is, const std::string& word) { out += is ? ", " + word : ""; };
  add(c.norm == NormKind::kLayer, "LayerNorm");
  add(c.activation == Activation::kGelu, "gelu");
  add(c.parallel_blocks, "parallel");
  add(c.embedding_scale != 1, "scaled embeddings");
  add(c.experts.normalize, "weights sum to 1");
  add(c.post_norm_is_ffn_norm, "post norm");
  add(c.query_gate, "gate");
  add(c.attention_softcap != 0, str("caps ", c.attention_softcap, " ", c.logit_softcap));
  add(c.logit_scale != 1, str("logits ", c.logit_scale));
  std::string windows, rope;
  for (const LayerConfig& l : c.layers) {
    windows += l.window == 0 ? "-" : l.local_rope ? "L" : "w";
    rope += l.rope ? "r" : "-";
  }
  add(windows.find_first_not_of('-') != std::string::npos, windows);
  add(rope.find('-') != std::string::npos, rope);
  return out;
}

/// Expected traits of a file with experts, a window, eight layers and a logit scale of 0.5.
const std::map<std::string, std::string> kTraits = {
    {"command-r", "pairs, LayerNorm, parallel, logits 0.5"},
    {"deepseek", "pairs, logits 0.5"},
    {"deepseek2", "pairs, logits 0.5"},
    {"exaone", "halves, logits 0.5"},
    {"gemma", "halves, gelu, scaled embeddings, logits 0.5"},
    {"gemma2", "halves, gelu, scaled embeddings, caps 50 30, logits 0.5, w-w-w-w-"},
    {"gemma3", "halves, gelu, scaled embeddings, logits 0.5, LLLLL-LL"},
    {"glm4moe", "halves, weights sum to 1, post norm, logits 0.5"},
    {"gpt2", "no rope, LayerNorm, gelu, logits 0.5"},
    {"gptneox", "halves, LayerNorm, gelu, logits 0.5"},
    {"granite", "pairs, logits 2"},
    {"internlm2", "pairs, logits 0.5"},
    {"llama", "pairs, weights sum to 1, logits 0.5, wwwwwwww"},
    {"mistral", "pairs, weights sum to 1, logits 0.5, wwwwwwww"},
    {"olmo", "pairs, LayerNorm, logits 0.5"},
    {"olmo2", "halves, logits 0.5, www-www-"},
    {"olmoe", "halves, logits 0.5"},
    {"phi2", "halves, LayerNorm, gelu, parallel, logits 0.5"},
    {"phi3", "halves, logits 0.5, wwwwwwww"},
    {"qwen2", "halves, logits 0.5"},
    {"qwen2moe", "halves, logits 0.5"},
    {"qwen3", "halves, logits 0.5"},
    {"qwen35", "halves, weights sum to 1, post norm, gate, logits 0.5"},
    {"qwen35moe", "halves, weights sum to 1, post norm, gate, logits 0.5"},
    {"qwen3moe", "halves, weights sum to 1, logits 0.5"},
    {"qwen3next", "halves, weights sum to 1, post norm, gate, logits 0.5"},
    {"smollm3", "pairs, logits 0.5, rrr-rrr-"},
    {"stablelm", "halves, LayerNorm, logits 0.5"},
    {"starcoder2", "halves, LayerNorm, gelu, logits 0.5"},
};

TEST(ModelConfig, WhatEachArchitectureImplies) {
  const std::vector<std::string_view> known = known_architectures();
  EXPECT_EQ(known.size(), kTraits.size());
  for (const std::string_view name : known) {
    const std::string arch(name);
    GgufBytes m = test::tiny_decoder(arch, 8);
    m.integer(arch + ".attention.sliding_window", 5).real(arch + ".logit_scale", 0.5);
    m.integer(arch + ".expert_count", 4).integer(arch + ".expert_used_count", 2);
    const ModelConfig c = read(m);
    ASSERT_TRUE(kTraits.contains(arch)) << arch;
    EXPECT_EQ(traits(c), kTraits.at(arch)) << arch;
    EXPECT_EQ(c.architecture, arch);
    EXPECT_EQ(c.name, "tiny");
    EXPECT_EQ(c.blocks(), 8);
    EXPECT_EQ(c.dim, test::kTinyDim);
    EXPECT_EQ(c.head_dim, test::kTinyHead);
    EXPECT_EQ(c.vocab_size, test::kTinyVocabulary);
    EXPECT_EQ(c.trained_context, 64);
    for (const LayerConfig& l : c.layers) EXPECT_EQ(l.hidden_dim, test::kTinyHidden);
  }
}

TEST(ModelConfig, ArchitecturesThatAreNotKnown) {
  refused(test::tiny_decoder("mamba"), "byte 24 (general.architecture): got 'mamba', expected one of command-r, ");
  refused(test::tiny_decoder(std::string(5000, 'x')), "got '" + std::string(64, 'x') + "', expected");
  refused(test::tiny_decoder("llama").drop("general.architecture"), "the metadata has no general.architecture");
  refused(test::tiny_decoder("llama").integer("general.architecture", 1), "general.architecture");
}

TEST(ModelConfig, KeysThatMustBeThere) {
  for (const char* key : {"context_length", "embedding_length", "block_count", "attention.head_count"})
    refused(test::tiny_decoder("llama").drop(str("llama.", key)), str("the metadata has no llama.", key));
  refused(test::tiny_decoder("llama").drop("llama.feed_forward_length"), "feed_forward_length: missing for layer 0");
  EXPECT_EQ(read(test::tiny_decoder("llama").drop("llama.attention.layer_norm_rms_epsilon")).norm_eps, 1e-5);
  GgufBytes m = test::tiny_recurrent_decoder();
  for (const char* key : {"state_size", "group_count", "time_step_rank", "inner_size"})
    refused(test::tiny_recurrent_decoder().drop(str("qwen35.ssm.", key)), str("the metadata has no qwen35.ssm.", key));
  refused(test::tiny_decoder("llama").integer("llama.expert_count", 4), "the metadata has no llama.expert_used_count");
}

/// Returns files that have every key the reader knows.
std::vector<GgufBytes> full_models() {
  GgufBytes llama = test::tiny_decoder("gemma3"), latent = test::tiny_latent_decoder(),
            recurrent = test::tiny_recurrent_decoder();
  const std::string a = "gemma3.";
  for (const char* key : {"attention.key_length", "attention.value_length", "rope.dimension_count"})
    llama.integer(a + key, test::kTinyHead);
  for (const char* key : {"rope.freq_base", "rope.freq_base_swa"}) llama.real(a + key, 10000);
  llama.string(a + "rope.scaling.type", "yarn").integer(a + "rope.scaling.original_context_length", 32);
  for (const char* key :
       {"rope.scaling.factor", "rope.scaling.attn_factor", "rope.scaling.yarn_ext_factor",
        "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "rope.scaling.yarn_log_multiplier",
        "attention.scale", "attn_logit_softcapping", "final_logit_softcapping", "attention.clamp_kqv",
        "embedding_scale", "residual_scale", "logit_scale", "expert_weights_scale"})
    llama.real(a + key, 1);
  llama.integer(a + "attention.sliding_window", 4).integer(a + "attention.sliding_window_pattern", 2);
  llama.integer(a + "expert_count", 4).integer(a + "expert_used_count", 2);
  for (const char* key : {"expert_group_count", "expert_group_used_count", "expert_gating_func",
                          "expert_feed_forward_length", "leading_dense_block_count", "interleave_moe_layer_step"})
    llama.integer(a + key, 1);
  llama.flag(a + "expert_weights_norm", true).flag(a + "use_parallel_residual", true);
  llama.integer(a + "nextn_predict_layers", 0);
  latent.integer("deepseek2.attention.q_lora_rank", 4);
  recurrent.integer("qwen35.full_attention_interval", 4);
  return {llama, latent, recurrent};
}

/// Asserts that sizes are such that nothing made of them overflows or divides by zero.
void expect_sane(const ModelConfig& c) {
  EXPECT_TRUE(c.dim >= 1 && c.dim <= kMaxDim && c.head_dim >= 1 && c.head_dim <= kMaxDim && c.value_dim >= 1);
  EXPECT_TRUE(c.blocks() >= 1 && c.blocks() <= kMaxBlocks && c.vocab_size >= 1 && c.vocab_size <= kMaxVocabulary);
  EXPECT_TRUE(c.rope.dims % 2 == 0 && c.rope.dims <= c.head_dim);
  for (const LayerConfig& l : c.layers)
    EXPECT_TRUE(l.recurrent || (l.kv_heads > 0 && l.heads % l.kv_heads == 0 && l.heads > 0));
}

/// Whatever one key says, in whatever type: a configuration that is sane, or a FormatError that names the key or a
/// tensor.
TEST(ModelConfig, EveryValueOfEveryKey) {
  const int64_t numbers[] = {
      0,         1,         2,         3,         7, 16, -1, INT64_MIN, 1 << 20, 1LL << 31, (1LL << 31) - 1,
      1LL << 32, 1LL << 62, INT64_MAX, 0x55555555};
  const double reals[] = {0.0, -0.0, 1e-300, 1e300, -1.0, 0.5, NAN, INFINITY, -INFINITY};
  int accepted = 0, wrong = 0;
  const auto check = [&](const GgufBytes& m, const std::string& key) {
    try {
      expect_sane(read(m));
      accepted++;
    } catch (const FormatError& e) {
      wrong++;
      EXPECT_TRUE(std::string_view(e.what()).starts_with("[gguf] m: ")) << key << ": " << e.what();
    }
  };
  for (const GgufBytes& model : full_models()) {
    ASSERT_NO_THROW(read(model));
    for (const std::string& key : model.keys()) {
      for (const int64_t v : numbers) {
        check(GgufBytes(model).integer(key, v), key);
        check(GgufBytes(model).integers(key, {v}), key);
        check(GgufBytes(model).integers(key, {4, v, 2, 1, 2, 4}), key);
      }
      for (const double v : reals) check(GgufBytes(model).real(key, v), key);
      check(GgufBytes(model).unsigned64(key, UINT64_MAX), key);
      check(GgufBytes(model).string(key, ""), key);
      check(GgufBytes(model).string(key, std::string(70000, 'z')), key);
      check(GgufBytes(model).strings(key, {"a", ""}), key);
      check(GgufBytes(model).integers(key, {}), key);
      check(GgufBytes(model).flag(key, true), key);
      check(GgufBytes(model).drop(key), key);
    }
  }
  EXPECT_GT(accepted, 300);
  EXPECT_GT(wrong, 2000);
}

TEST(ModelConfig, NumbersThatContradictEachOther) {
  const auto llama = [] { return test::tiny_decoder("llama"); };
  refused(llama().integer("llama.attention.head_count_kv", 3), "(llama.attention.head_count_kv): got 3 in layer 0");
  refused(llama().integers("llama.attention.head_count_kv", {2, 0}), "got 0 in layer 1");
  refused(llama().integers("llama.attention.head_count", {4}).integers("llama.feed_forward_length", {24, 0}),
          "(llama.feed_forward_length): got 0 for layer 1");
  refused(llama().integers("llama.feed_forward_length", {24, 24}).integer("llama.block_count", 3), "got 2 values");
  refused(llama().integer("llama.attention.head_count", 64).integer("llama.attention.head_count_kv", 64),
          "(llama.attention.head_count): got 64, expected at most the 16 values of an embedding");
  refused(llama().integer("llama.rope.dimension_count", 6), "got 6, expected an even number up to 4");
  refused(llama().integer("llama.rope.dimension_count", 3), "got 3, expected an even number up to 4");
  refused(llama().integer("llama.nextn_predict_layers", 2), "nextn_predict_layers");
  const auto experts = [&](int64_t count, int64_t used) {
    return llama().integer("llama.expert_count", count).integer("llama.expert_used_count", used);
  };
  refused(experts(4, 5), "expert_used_count): got 5, expected 1 to 4");
  refused(experts(6, 2).integer("llama.expert_group_count", 4), "got 4, expected a divisor of 6 experts");
  refused(experts(8, 4).integer("llama.expert_group_count", 4).integer("llama.expert_group_used_count", 1),
          "got 1: these groups have fewer than 4 experts");
  refused(test::tiny_recurrent_decoder().integer("qwen35.ssm.inner_size", 18), "got 18, expected a multiple of 4");
  refused(test::tiny_recurrent_decoder().integer("qwen35.ssm.group_count", 3), "got 4, expected a multiple of 3");
}

/// Sizes that the tensors do not have: found before caches and tables of that size are made.
TEST(ModelConfig, SizesThatTensorsDoNotHave) {
  refused(test::tiny_decoder("llama").integer("llama.attention.key_length", 1 << 20),
          "tensor blk.0.attn_k.weight has shape (8, 16), expected (2097152, 16)");
  refused(test::tiny_decoder("llama").integer("llama.attention.value_length", 1 << 20),
          "tensor blk.0.attn_v.weight has shape (8, 16), expected (2097152, 16)");
  refused(test::tiny_decoder("llama").integer("llama.attention.head_count", 8), "expected (4, 16)");
  refused(test::tiny_latent_decoder().integer("deepseek2.attention.kv_lora_rank", 1 << 20),
          "tensor blk.0.attn_kv_a_mqa.weight has shape (10, 16), expected (1048578, 16)");
  refused(test::tiny_recurrent_decoder().integer("qwen35.ssm.state_size", 1 << 20),
          "tensor blk.0.ssm_conv1d.weight has shape (32, 3), expected (4194320, 3)");
  refused(test::tiny_recurrent_decoder().integer("qwen35.ssm.inner_size", 1 << 20), "blk.0.ssm_out.weight has shape");
  refused(test::tiny_decoder("llama").integer("llama.block_count", 3), "tensor blk.2.attn_k.weight is missing");
  refused(test::tiny_decoder("llama").drop_tensor("token_embd.weight"), "token_embd.weight is missing");
  refused(test::tiny_decoder("llama").integer("llama.embedding_length", 15), "token_embd.weight");
}

/// The same through the door users take.
TEST(ModelConfig, LoadingChecksBeforeItAllocates) {
  for (GgufBytes m : {test::tiny_decoder("llama").integer("llama.attention.key_length", 1 << 20),
                      test::tiny_decoder("llama").integer("llama.context_length", int64_t{1} << 28),
                      test::tiny_latent_decoder().integer("deepseek2.attention.kv_lora_rank", 1 << 20)}) {
    auto bytes = std::make_shared<std::string>(m.build());
    const io::GgufFile file =
        io::GgufFile::from_memory({reinterpret_cast<uint8_t*>(bytes->data()), bytes->size()}, bytes, "m");
    EXPECT_THROW(LanguageModel::load(file), FormatError);
  }
}

}  // namespace
}  // namespace tg::llm
