#include "tinygrad/llm/bert.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "tinygrad/base/at.h"
#include "tinygrad/base/error.h"
#include "tinygrad/io/file.h"
#include "tinygrad/io/gguf.h"
#include "tinygrad/llm/tokenize/json_fields.h"
#include "tinygrad/nn/nn.h"
#include "tinygrad/nn/state_file.h"

namespace tg::llm {
namespace {

/// Limits of what a file may ask for.
constexpr int64_t kMaxDim = 1 << 16, kMaxLayers = 512, kMaxPositions = 1 << 20, kMaxTypes = 1 << 10;
/// Sizes that batches and texts are padded to.
constexpr int64_t kBatches[] = {1, 2, 4, 8, 16, 32}, kTimes[] = {16, 32, 48, 64, 96, 128, 192, 256, 384, 512};
constexpr size_t kMaxBatch = 32;
constexpr int64_t kMaxBatchTokens = 8192;  ///< padding included

struct Affine {
  Tensor weight, bias;  ///< (out, in), (out); of a norm: (dim), (dim)
};
struct Layer {
  Affine query, key, value, output, output_norm, up, down, norm;
};

Tensor dense(const Tensor& x, const Affine& a) { return x.linear(a.weight.transpose(0, 1), a.bias); }
Tensor norm(const Tensor& x, const Affine& a, double eps) { return x.layernorm(-1, eps) * a.weight + a.bias; }

/// Names of tensors in a kind of file.
struct Names {
  std::string words, positions, types, embed_norm, layer;  ///< layer: with "N" for its number
  std::string query, key, value, output, output_norm, up, down, norm;
};
const Names kHuggingFace{.words = "embeddings.word_embeddings",
                         .positions = "embeddings.position_embeddings",
                         .types = "embeddings.token_type_embeddings",
                         .embed_norm = "embeddings.LayerNorm",
                         .layer = "encoder.layer.N.",
                         .query = "attention.self.query",
                         .key = "attention.self.key",
                         .value = "attention.self.value",
                         .output = "attention.output.dense",
                         .output_norm = "attention.output.LayerNorm",
                         .up = "intermediate.dense",
                         .down = "output.dense",
                         .norm = "output.LayerNorm"};
const Names kGguf{.words = "token_embd",
                  .positions = "position_embd",
                  .types = "token_types",
                  .embed_norm = "token_embd_norm",
                  .layer = "blk.N.",
                  .query = "attn_q",
                  .key = "attn_k",
                  .value = "attn_v",
                  .output = "attn_output",
                  .output_norm = "attn_output_norm",
                  .up = "ffn_up",
                  .down = "ffn_down",
                  .norm = "layer_output_norm"};

/// Returns a tensor by name; undefined when there is none.
using Find = std::function<Tensor(const std::string&)>;

void check_config(const BertConfig& c, std::string_view name) {
  const auto check = [&](const char* what, int64_t value, int64_t most) {
    TG_CHECK(FormatError, value > 0 && value <= most, "[bert] ", name, ": got ", what, " ", value, ", expected 1 to ",
             most);
  };
  check("a vocabulary of", c.vocab_size, 1 << 24);
  check("vectors of size", c.dim, kMaxDim);
  check("layers:", c.layers, kMaxLayers);
  check("heads:", c.heads, c.dim);
  check("a hidden size of", c.hidden_dim, kMaxDim * 16);
  check("positions:", c.max_positions, kMaxPositions);
  check("types of segments:", c.types, kMaxTypes);
  TG_CHECK(FormatError, c.dim % c.heads == 0, "[bert] ", name, ": got ", c.heads, " heads for vectors of size ", c.dim);
  TG_CHECK(FormatError, c.norm_eps >= 0 && c.norm_eps < 1, "[bert] ", name, ": got an epsilon of ", c.norm_eps);
}

BertConfig read_config(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.json";
  const std::vector<uint8_t> bytes = io::read_file(file, 1 << 20);
  const JsonFields in(file.string(), "bert");
  const Json root = parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, in.name, "bert");
  const std::string type = in.text(root, "model_type", "bert");
  if (type != "bert") in.unknown("model_type", type);
  if (const std::string kind = in.text(root, "position_embedding_type", "absolute"); kind != "absolute")
    in.unknown("position_embedding_type", kind);
  BertConfig c;
  c.vocab_size = in.number(root, "vocab_size");
  c.dim = in.number(root, "hidden_size");
  c.layers = in.number(root, "num_hidden_layers");
  c.heads = in.number(root, "num_attention_heads");
  c.hidden_dim = in.number(root, "intermediate_size");
  c.max_positions = in.number(root, "max_position_embeddings");
  c.types = in.number(root, "type_vocab_size", 2);
  c.norm_eps = in.real(root, "layer_norm_eps", 1e-12);
  const std::string act = in.text(root, "hidden_act", "gelu");
  c.tanh_gelu = act == "gelu_new" || act == "gelu_pytorch_tanh";
  if (!c.tanh_gelu && act != "gelu") in.unknown("hidden_act", act);
  check_config(c, in.name);
  return c;
}

/// Reads how sentence-transformers uses the model, where the folder says so: pooling, and the longest text.
void read_sentence_config(const std::filesystem::path& folder, BertConfig& c) {
  const auto read = [&](const std::filesystem::path& file, auto&& use) {
    if (!std::filesystem::exists(file)) return;
    const std::vector<uint8_t> bytes = io::read_file(file, 1 << 20);
    const JsonFields in(file.string(), "bert");
    use(in, parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, in.name, "bert"));
  };
  read(folder / "1_Pooling" / "config.json", [&](const JsonFields& in, const Json& root) {
    if (in.flag(root, "pooling_mode_cls_token", false)) c.pooling = Pooling::kFirst;
    else if (!in.flag(root, "pooling_mode_mean_tokens", true)) in.unknown("pooling", "neither cls nor mean");
  });
  read(folder / "sentence_bert_config.json", [&](const JsonFields& in, const Json& root) {
    const int64_t most = in.number(root, "max_seq_length", c.max_positions);
    in.check(most >= 2, "max_seq_length", str(most));
    c.max_positions = std::min(c.max_positions, most);
  });
}

BertConfig read_config(const io::GgufMetadata& m) {
  const std::string_view arch = m.string("general.architecture");
  TG_CHECK(FormatError, arch == "bert", "[bert] ", m.file(), ": general.architecture: got \"", arch.substr(0, 100),
           "\", expected bert");
  BertConfig c;
  c.vocab_size = static_cast<int64_t>(m.strings("tokenizer.ggml.tokens").size());
  c.dim = m.integer("bert.embedding_length", 1, kMaxDim);
  c.layers = m.integer("bert.block_count", 1, kMaxLayers);
  c.heads = m.integer("bert.attention.head_count", 1, kMaxDim);
  c.hidden_dim = m.integer("bert.feed_forward_length", 1, kMaxDim * 16);
  c.max_positions = m.integer("bert.context_length", 1, kMaxPositions);
  c.types = m.integer_or("tokenizer.ggml.token_type_count", 2, 1, kMaxTypes);
  c.norm_eps = m.real_or("bert.attention.layer_norm_epsilon", 1e-12);
  constexpr int64_t kMeanPooling = 1, kClsPooling = 2;
  const int64_t pooling = m.integer_or("bert.pooling_type", kMeanPooling, 0, 16);
  TG_CHECK(FormatError, pooling <= kClsPooling, "[bert] ", m.file(), ": bert.pooling_type: got ", pooling,
           ", expected 1 (mean) or 2 (first)");
  c.pooling = pooling == kClsPooling ? Pooling::kFirst : Pooling::kMean;
  check_config(c, m.file());
  return c;
}

/// Returns the smallest of sorted sizes that is at least n; n itself above the largest.
int64_t padded(std::span<const int64_t> sizes, int64_t n) {
  const auto at = std::lower_bound(sizes.begin(), sizes.end(), n);
  return at == sizes.end() ? n : *at;
}

}  // namespace

struct BertModel::Parts {
  BertConfig config;
  Tokenizer tokenizer;
  std::string device;
  Tensor words = {}, positions = {}, types = {};
  Affine embed_norm = {};
  std::vector<Layer> layers = {};

  void read(const Names& names, const Find& find, std::string_view file) {
    const BertConfig& c = config;
    const auto tensor = [&](const std::string& name, const Shape& shape) {
      const Tensor t = find(name);
      TG_CHECK(FormatError, t.defined(), "[bert] ", file, ": got no tensor ", name);
      TG_CHECK(FormatError, t.shape() == shape, "[bert] ", file, ": ", name, ": got shape ", t.shape(), ", expected ",
               shape);
      return t.dtype() == dtypes::float32 ? t : t.cast(dtypes::float32);
    };
    const auto affine = [&](const std::string& name, const Shape& shape) {
      return Affine{tensor(name + ".weight", shape), tensor(name + ".bias", {shape[0]})};
    };
    words = tensor(names.words + ".weight", {c.vocab_size, c.dim});
    const Tensor p = find(names.positions + ".weight");
    const int64_t rows = p.defined() && p.ndim() == 2 ? p.shape()[0].value() : 0;
    TG_CHECK(FormatError, rows >= c.max_positions, "[bert] ", file, ": ", names.positions, ": got ", rows,
             " positions, expected ", c.max_positions);
    positions = tensor(names.positions + ".weight", {rows, c.dim});
    types = tensor(names.types + ".weight", {c.types, c.dim});
    embed_norm = affine(names.embed_norm, {c.dim});
    for (int64_t i = 0; i < c.layers; i++) {
      std::string prefix = names.layer;
      prefix.replace(prefix.find('N'), 1, std::to_string(i));
      const auto square = [&](const std::string& n) { return affine(prefix + n, {c.dim, c.dim}); };
      layers.push_back({.query = square(names.query),
                        .key = square(names.key),
                        .value = square(names.value),
                        .output = square(names.output),
                        .output_norm = affine(prefix + names.output_norm, {c.dim}),
                        .up = affine(prefix + names.up, {c.hidden_dim, c.dim}),
                        .down = affine(prefix + names.down, {c.dim, c.hidden_dim}),
                        .norm = affine(prefix + names.norm, {c.dim})});
    }
  }

  Tensor attention(const Layer& l, const Tensor& x, const Tensor& mask) const {
    const auto heads = [&](const Affine& a) {
      const SInt batch = x.shape()[0], time = x.shape()[1];
      return dense(x, a).reshape({batch, time, config.heads, config.dim / config.heads}).transpose(1, 2);
    };
    const Tensor y = heads(l.query).scaled_dot_product_attention(heads(l.key), heads(l.value), mask);
    return dense(y.transpose(1, 2).reshape(x.shape()), l.output);
  }
};

BertModel BertModel::open(const std::filesystem::path& path, const std::string& device) {
  if (std::filesystem::is_directory(path)) {
    BertConfig config = read_config(path);
    read_sentence_config(path, config);
    const std::filesystem::path vocabulary = path / "tokenizer.json", weights = path / "model.safetensors";
    const std::vector<uint8_t> json = io::read_file(vocabulary, kMaxJsonBytes);
    auto parts = std::make_shared<Parts>(
        Parts{.config = config, .tokenizer = Tokenizer::from_json(json, vocabulary.string()), .device = device});
    const nn::StateDict state = nn::safe_load(weights, device);
    const auto find = [&](const std::string& name) {
      for (const std::string& n : {name, "bert." + name})
        if (state.contains(n)) return state.at(n);
      return Tensor();
    };
    parts->read(kHuggingFace, find, weights.string());
    return BertModel(std::move(parts));
  }
  const io::GgufFile file = io::GgufFile::open(path);
  auto parts = std::make_shared<Parts>(Parts{
      .config = read_config(file.metadata()), .tokenizer = Tokenizer::from_gguf(file.metadata()), .device = device});
  const auto find = [&](const std::string& name) { return file.contains(name) ? file.tensor(name, device) : Tensor(); };
  parts->read(kGguf, find, path.string());
  return BertModel(std::move(parts));
}

const BertConfig& BertModel::config() const { return parts_->config; }
const Tokenizer& BertModel::tokenizer() const { return parts_->tokenizer; }

std::vector<int32_t> BertModel::tokens(std::string_view text, const EmbedOptions& o) const {
  TG_CHECK(ValueError, o.max_tokens >= 0, "[embed] got max_tokens ", o.max_tokens);
  std::vector<int32_t> ids = parts_->tokenizer.encode(text);
  const int64_t most = parts_->config.max_positions;
  const auto limit = static_cast<size_t>(o.max_tokens > 0 ? std::min(o.max_tokens, most) : most);
  if (ids.size() > limit) {
    ids[limit - 1] = ids.back();
    ids.resize(limit);
  }
  return ids;
}

Tensor BertModel::hidden(const Tensor& ids, const Tensor& keep) const {
  const Parts& p = *parts_;
  TG_CHECK(ShapeError, ids.ndim() == 2 && keep.shape() == ids.shape(), "[BertModel] got ids of shape ", ids.shape(),
           " and a mask of shape ", keep.shape(), ", expected (batch, time) of both");
  const int64_t batch = ids.shape()[0].value(), time = ids.shape()[1].value();
  TG_CHECK(ShapeError, time > 0 && time <= p.config.max_positions, "[BertModel] got ", time, " tokens, expected 1 to ",
           p.config.max_positions);
  const double eps = p.config.norm_eps;
  Tensor x = nn::embedding(p.words, ids) + p.positions.slice(0, 0, time) + p.types.slice(0, 0, 1);
  x = norm(x, p.embed_norm, eps);
  const Tensor mask = keep.reshape({batch, 1, 1, time});
  for (const Layer& l : p.layers) {
    x = norm(x + p.attention(l, x, mask), l.output_norm, eps);
    x = norm(x + dense(dense(x, l.up).gelu(p.config.tanh_gelu), l.down), l.norm, eps);
  }
  return x;
}

std::vector<std::vector<float>> BertModel::embed(std::span<const std::string> texts, const EmbedOptions& o) const {
  const Parts& p = *parts_;
  std::vector<std::vector<int32_t>> ids;
  for (const std::string& text : texts) ids.push_back(tokens(text, o));
  std::vector<size_t> order(texts.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ids[a].size() > ids[b].size(); });
  std::vector<std::vector<float>> out(texts.size());
  for (size_t done = 0; done < order.size();) {
    const auto longest = std::max<int64_t>(1, static_cast<int64_t>(ids[order[done]].size()));
    const int64_t time = std::min(padded(kTimes, longest), p.config.max_positions);
    const size_t most = std::clamp<size_t>(static_cast<size_t>(kMaxBatchTokens / time), 1, kMaxBatch);
    const size_t count = std::min(order.size() - done, most);
    const int64_t batch = std::min<int64_t>(padded(kBatches, static_cast<int64_t>(count)), static_cast<int64_t>(most));
    std::vector<int32_t> rows(static_cast<size_t>(batch * time));
    std::vector<uint8_t> keep(rows.size());
    for (size_t i = 0; i < static_cast<size_t>(batch); i++) {
      const size_t row = i * static_cast<size_t>(time), n = i < count ? ids[order[done + i]].size() : 0;
      if (n > 0) std::copy_n(ids[order[done + i]].begin(), n, rows.begin() + static_cast<std::ptrdiff_t>(row));
      std::fill_n(keep.begin() + static_cast<std::ptrdiff_t>(row), std::max<size_t>(n, 1), uint8_t(1));
    }
    const TensorOptions on{.device = p.device};
    const Tensor mask = Tensor::from(keep, {batch, time}, on).cast(dtypes::bool_);
    const Tensor x = hidden(Tensor::from(rows, {batch, time}, on), mask);
    Tensor pooled = x.slice(1, 0, 1).squeeze(1);
    if (p.config.pooling == Pooling::kMean) {
      const Tensor weight = mask.cast(dtypes::float32).unsqueeze(-1);
      pooled = (x * weight).sum(1) / weight.sum(1);
    }
    if (o.normalize) pooled = pooled.normalize(2, -1);
    const std::vector<float> values = pooled.to_vector<float>();
    for (size_t i = 0; i < count; i++) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i) * p.config.dim;
      out[order[done + i]].assign(begin, begin + p.config.dim);
    }
    done += count;
  }
  return out;
}

}  // namespace tg::llm
