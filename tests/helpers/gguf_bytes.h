/// \file GGUF files in memory, as tests of hostile files need them: nothing is checked, so that any lie can be told.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tinygrad/io/gguf.h"

namespace tg::test {

class GgufBytes {
 public:
  using Type = io::GgufValueType;

  GgufBytes& integer(const std::string& key, int64_t v) { return set(key, Type::kInt64, raw(v)); }
  GgufBytes& unsigned64(const std::string& key, uint64_t v) { return set(key, Type::kUint64, raw(v)); }
  GgufBytes& real(const std::string& key, double v) { return set(key, Type::kFloat64, raw(v)); }
  GgufBytes& flag(const std::string& key, bool v) { return set(key, Type::kBool, std::string(1, v ? '\1' : '\0')); }
  GgufBytes& string(const std::string& key, std::string_view v) { return set(key, Type::kString, text(v)); }
  GgufBytes& integers(const std::string& key, const std::vector<int64_t>& v) {
    std::string out = list_head(Type::kInt64, v.size());
    for (const int64_t i : v) out += raw(i);
    return set(key, Type::kArray, out);
  }
  GgufBytes& strings(const std::string& key, const std::vector<std::string>& v) {
    std::string out = list_head(Type::kString, v.size());
    for (const std::string& s : v) out += text(s);
    return set(key, Type::kArray, out);
  }
  GgufBytes& drop(std::string_view key) {
    std::erase_if(values_, [&](const Value& v) { return v.key == key; });
    return *this;
  }
  bool has(std::string_view key) const {
    return std::any_of(values_.begin(), values_.end(), [&](const Value& v) { return v.key == key; });
  }
  /// Returns the keys in their order.
  std::vector<std::string> keys() const {
    std::vector<std::string> out;
    for (const Value& v : values_) out.push_back(v.key);
    return out;
  }

  /// Adds a tensor of float32 zeros, or of `values`; the slowest axis comes first.
  GgufBytes& tensor(const std::string& name, std::vector<int64_t> shape, std::vector<float> values = {}) {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    values.resize(static_cast<size_t>(n));
    tensors_.push_back({name, std::move(shape), std::move(values)});
    return *this;
  }
  /// Gives tensors that are zero numbers between -scale and scale, the same on every machine.
  GgufBytes& randomize(double scale) {
    uint64_t state = 1;
    for (Tensor& t : tensors_) {
      if (std::any_of(t.values.begin(), t.values.end(), [](float v) { return v != 0; })) continue;
      for (float& v : t.values) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        v = static_cast<float>((static_cast<double>(state >> 40) / (1 << 23) - 1) * scale);
      }
    }
    return *this;
  }
  GgufBytes& drop_tensor(std::string_view name) {
    std::erase_if(tensors_, [&](const Tensor& t) { return t.name == name; });
    return *this;
  }

  std::string build() const {
    constexpr size_t kAlignment = 32;
    const auto pad = [](std::string& s) { s.resize((s.size() + kAlignment - 1) / kAlignment * kAlignment); };
    std::string out = "GGUF" + raw(uint32_t{3}) + raw(uint64_t{tensors_.size()}) + raw(uint64_t{values_.size()}), data;
    for (const Value& v : values_) out += text(v.key) + raw(static_cast<uint32_t>(v.type)) + v.bytes;
    for (const Tensor& t : tensors_) {
      out += text(t.name) + raw(static_cast<uint32_t>(t.shape.size()));
      for (size_t i = t.shape.size(); i-- > 0;) out += raw(t.shape[i]);
      out += raw(uint32_t{0}) + raw(uint64_t{data.size()});
      data.append(reinterpret_cast<const char*>(t.values.data()), t.values.size() * sizeof(float));
      pad(data);
    }
    pad(out);
    return out + data;
  }

 private:
  struct Value {
    std::string key;
    Type type;
    std::string bytes;
  };
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<float> values;
  };
  template <class T> static std::string raw(T v) {
    std::string out(sizeof v, '\0');
    std::memcpy(out.data(), &v, sizeof v);
    return out;
  }
  static std::string text(std::string_view s) { return raw(uint64_t{s.size()}).append(s); }
  static std::string list_head(Type type, size_t n) {
    return raw(static_cast<uint32_t>(type)).append(raw(uint64_t{n}));
  }
  GgufBytes& set(const std::string& key, Type type, std::string bytes) {
    for (Value& v : values_)
      if (v.key == key) {
        v.type = type;
        v.bytes = std::move(bytes);
        return *this;
      }
    values_.push_back({key, type, std::move(bytes)});
    return *this;
  }

  std::vector<Value> values_;
  std::vector<Tensor> tensors_;
};

/// Sizes of the small decoders below.
inline constexpr int64_t kTinyDim = 16, kTinyHeads = 4, kTinyKvHeads = 2, kTinyHead = 4, kTinyHidden = 24,
                         kTinyVocabulary = 12;

/// Adds what every decoder's file has but the mixers of its layers.
inline GgufBytes tiny_decoder_start(const std::string& arch, int64_t layers) {
  GgufBytes g;
  g.string("general.architecture", arch).string("general.name", "tiny");
  g.integer(arch + ".context_length", 64).integer(arch + ".embedding_length", kTinyDim);
  g.integer(arch + ".block_count", layers).integer(arch + ".feed_forward_length", kTinyHidden);
  g.integer(arch + ".attention.head_count", kTinyHeads).integer(arch + ".attention.head_count_kv", kTinyKvHeads);
  g.real(arch + ".attention.layer_norm_rms_epsilon", 1e-5).real(arch + ".attention.layer_norm_epsilon", 1e-5);
  g.tensor("token_embd.weight", {kTinyVocabulary, kTinyDim}).tensor("output_norm.weight", {kTinyDim});
  return g;
}
inline void add_tiny_attention(GgufBytes& g, const std::string& p, int64_t query_factor = 1) {
  g.tensor(p + "attn_q.weight", {kTinyHeads * kTinyHead * query_factor, kTinyDim});
  g.tensor(p + "attn_k.weight", {kTinyKvHeads * kTinyHead, kTinyDim});
  g.tensor(p + "attn_v.weight", {kTinyKvHeads * kTinyHead, kTinyDim});
  g.tensor(p + "attn_output.weight", {kTinyDim, kTinyHeads * kTinyHead});
}
inline void add_tiny_network(GgufBytes& g, const std::string& p) {
  for (const char* norm : {"attn_norm", "ffn_norm"}) g.tensor(p + norm + ".weight", {kTinyDim});
  for (const char* name : {"ffn_gate", "ffn_up"}) g.tensor(p + name + ".weight", {kTinyHidden, kTinyDim});
  g.tensor(p + "ffn_down.weight", {kTinyDim, kTinyHidden});
}

/// Returns a decoder of an architecture with ordinary attention in every layer; weights are zeros.
inline GgufBytes tiny_decoder(const std::string& arch, int64_t layers = 2) {
  GgufBytes g = tiny_decoder_start(arch, layers);
  for (int64_t i = 0; i < layers; i++) {
    const std::string p = "blk." + std::to_string(i) + ".";
    add_tiny_attention(g, p);
    add_tiny_network(g, p);
  }
  return g;
}

/// Returns one with latent attention.
inline GgufBytes tiny_latent_decoder() {
  constexpr int64_t kRank = 8, kRope = 2, kKey = 6, kValue = 4;
  GgufBytes g = tiny_decoder_start("deepseek2", 2);
  const std::string a = "deepseek2.";
  g.integer(a + "attention.kv_lora_rank", kRank).integer(a + "rope.dimension_count", kRope);
  g.integer(a + "attention.key_length_mla", kKey).integer(a + "attention.value_length_mla", kValue);
  g.integer(a + "attention.head_count_kv", 1);
  for (const char* p : {"blk.0.", "blk.1."}) {
    const std::string n = p;
    g.tensor(n + "attn_q.weight", {kTinyHeads * kKey, kTinyDim});
    g.tensor(n + "attn_kv_a_mqa.weight", {kRank + kRope, kTinyDim}).tensor(n + "attn_kv_a_norm.weight", {kRank});
    g.tensor(n + "attn_k_b.weight", {kTinyHeads, kRank, kKey - kRope});
    g.tensor(n + "attn_v_b.weight", {kTinyHeads, kValue, kRank});
    g.tensor(n + "attn_output.weight", {kTinyDim, kTinyHeads * kValue});
    add_tiny_network(g, n);
  }
  return g;
}

/// Returns one with gated delta nets, every fourth layer attention with a gate.
inline GgufBytes tiny_recurrent_decoder(const std::string& arch = "qwen35") {
  constexpr int64_t kConv = 3, kState = 4, kGroups = 2, kHeads = 4, kInner = 16;
  GgufBytes g = tiny_decoder_start(arch, 4);
  g.integer(arch + ".ssm.conv_kernel", kConv).integer(arch + ".ssm.state_size", kState);
  g.integer(arch + ".ssm.group_count", kGroups).integer(arch + ".ssm.time_step_rank", kHeads);
  g.integer(arch + ".ssm.inner_size", kInner);
  constexpr int64_t kChannels = kInner + 2 * kState * kGroups;
  for (int i = 0; i < 4; i++) {
    const std::string p = "blk." + std::to_string(i) + ".";
    add_tiny_network(g, p);
    g.tensor(p + "post_attention_norm.weight", {kTinyDim});
    if (i == 3) {
      add_tiny_attention(g, p, /*query_factor=*/2);
      continue;
    }
    g.tensor(p + "attn_qkv.weight", {kChannels, kTinyDim}).tensor(p + "attn_gate.weight", {kInner, kTinyDim});
    g.tensor(p + "ssm_alpha.weight", {kHeads, kTinyDim}).tensor(p + "ssm_beta.weight", {kHeads, kTinyDim});
    g.tensor(p + "ssm_conv1d.weight", {kChannels, kConv}).tensor(p + "ssm_dt.bias", {kHeads});
    g.tensor(p + "ssm_a", {kHeads}).tensor(p + "ssm_norm.weight", {kInner / kHeads});
    g.tensor(p + "ssm_out.weight", {kTinyDim, kInner});
  }
  return g;
}

}  // namespace tg::test
