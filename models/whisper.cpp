/// \file Forward passes of Whisper, greedy decoding, and names of its weights.
#include "models/whisper.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>

#include "models/whisper_audio.h"
#include "tinygrad/base/error.h"
#include "tinygrad/nn/torch_load.h"
#include "tinygrad/tensor/jit/jit.h"

namespace tg::models {
namespace {

/// Returns waves of growing length, sines and then cosines, (positions, width).
Tensor waves(int64_t positions, int64_t width) {
  const Tensor half = Tensor::arange(width / 2, dtypes::float32);
  const Tensor rates = (half * (-std::log(10000.0) / static_cast<double>(width / 2 - 1))).exp();
  const Tensor angles = Tensor::arange(positions, dtypes::float32).unsqueeze(1) * rates;
  return angles.sin().cat(angles.cos(), 1).is_param_(false);
}

void check_width(int64_t width, int64_t heads) {
  TG_CHECK(ValueError, heads > 0 && width % heads == 0, "[Whisper] got ", heads, " heads for width ", width,
           ", expected a divisor");
}

void check_tokens(const Tensor& tokens, int64_t most) {
  TG_CHECK(ShapeError, tokens.ndim() == 2 && tokens.shape(1) <= most, "[Whisper] got tokens ", tokens.shape(),
           ", expected (batch, time) of at most ", most);
}

}  // namespace

WhisperAttention::WhisperAttention(int64_t width, int64_t n)
    : query(width, width), key(width, width, false), value(width, width), out(width, width), heads(n) {}

Tensor WhisperAttention::operator()(const Tensor& x, const Tensor& keys, const Tensor& values,
                                    const Tensor::Attention& o) const {
  auto split = [&](const Tensor& t) { return t.unflatten(-1, {heads, -1}).transpose(1, 2); };
  const Tensor attended = split(query(x)).scaled_dot_product_attention(split(keys), split(values), o);
  return out(attended.transpose(1, 2).flatten(2));
}

WhisperBlock::WhisperBlock(int64_t width, int64_t heads, bool decodes)
    : attn(width, heads), attn_ln(width), mlp_in(width, 4 * width), mlp_out(4 * width, width), mlp_ln(width) {
  if (!decodes) return;
  cross_attn.emplace(width, heads);
  cross_attn_ln.emplace(width);
}

Tensor WhisperBlock::encode(const Tensor& x) const {
  const Tensor a = attn_ln(x);
  return finish(x + attn(a, attn.key(a), attn.value(a)), {}, {});
}

Tensor WhisperBlock::decode(const Tensor& x, const Tensor& audio) const {
  const Tensor a = attn_ln(x);
  return finish(x + attn(a, attn.key(a), attn.value(a), {.is_causal = true}), cross_attn->key(audio),
                cross_attn->value(audio));
}

Tensor WhisperBlock::step(const Tensor& x, const WhisperLayerCache& cache, const BoundVariable& at,
                          const Tensor& visible) const {
  const Tensor a = attn_ln(x);
  const Slice here(at, at + x.shape(1));
  cache.keys.at(Slice(), here) = attn.key(a);
  cache.values.at(Slice(), here) = attn.value(a);
  return finish(x + attn(a, cache.keys, cache.values, {.mask = visible}), cache.audio_keys, cache.audio_values);
}

Tensor WhisperBlock::finish(const Tensor& x, const Tensor& audio_keys, const Tensor& audio_values) const {
  const Tensor y = cross_attn ? x + (*cross_attn)((*cross_attn_ln)(x), audio_keys, audio_values) : x;
  return y + mlp_out(mlp_in(mlp_ln(y)).gelu(false));
}

void WhisperBlock::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("attn, attn_ln, cross_attn, cross_attn_ln, mlp.0, mlp.2, mlp_ln", attn, attn_ln, cross_attn,
                  cross_attn_ln, mlp_in, mlp_out, mlp_ln);
}

WhisperEncoder::WhisperEncoder(const WhisperOptions& o)
    : conv1(nn::Conv1d(o.mels, o.audio_width, 3, {.padding = 1})),
      conv2(nn::Conv1d(o.audio_width, o.audio_width, 3, {.stride = 2, .padding = 1})),
      positional_embedding(waves(o.audio_positions, o.audio_width)),
      ln_post(o.audio_width) {
  for (int64_t i = 0; i < o.audio_layers; i++) blocks.emplace_back(o.audio_width, o.audio_heads, false);
}

Tensor WhisperEncoder::operator()(const Tensor& mel) const {
  TG_CHECK(ShapeError, mel.ndim() == 3 && mel.shape(1) == conv1.weight.shape(1), "[Whisper] got spectrograms ",
           mel.shape(), ", expected (batch, ", conv1.weight.shape(1), ", spectra)");
  Tensor x = conv2(conv1(mel).gelu(false)).gelu(false).transpose(1, 2);
  TG_CHECK(ShapeError, x.shape(1) <= positional_embedding.shape(0), "[Whisper] got ", mel.shape(2),
           " spectra, expected at most ", 2 * positional_embedding.shape(0));
  x = x + positional_embedding[Slice(0, x.shape(1))];
  for (const WhisperBlock& block : blocks) x = block.encode(x);
  return ln_post(x);
}

WhisperDecoder::WhisperDecoder(const WhisperOptions& o)
    : token_embedding(o.vocab_size, o.text_width),
      positional_embedding(Tensor::normal({o.text_positions, o.text_width}, {.std = 0.01}).is_param_()),
      ln(o.text_width) {
  for (int64_t i = 0; i < o.text_layers; i++) blocks.emplace_back(o.text_width, o.text_heads, true);
}

Tensor WhisperDecoder::operator()(const Tensor& tokens, const Tensor& audio) const {
  check_tokens(tokens, positional_embedding.shape(0));
  Tensor x = token_embedding(tokens) + positional_embedding[Slice(0, tokens.shape(1))];
  for (const WhisperBlock& block : blocks) x = block.decode(x, audio);
  return ln(x).dot(token_embedding.weight.T());
}

std::vector<WhisperLayerCache> WhisperDecoder::cache(const Tensor& audio) const {
  std::vector<WhisperLayerCache> out;
  Tensors stored;
  const Shape shape{audio.shape(0), positional_embedding.shape(0), positional_embedding.shape(1)};
  auto empty = [&] { return Tensor::zeros(shape, {.dtype = audio.dtype(), .device = audio.device()}).contiguous(); };
  for (const WhisperBlock& block : blocks) {
    out.push_back(
        {empty(), empty(), block.cross_attn->key(audio).contiguous(), block.cross_attn->value(audio).contiguous()});
    for (const Tensor& t : {out.back().keys, out.back().values, out.back().audio_keys, out.back().audio_values})
      stored.push_back(t);
  }
  realize(stored);
  return out;
}

Tensor WhisperDecoder::step(const Tensor& tokens, const std::vector<WhisperLayerCache>& cache,
                            const BoundVariable& at) const {
  const int64_t time = tokens.shape(1), positions = positional_embedding.shape(0);
  check_tokens(tokens, positions);
  Tensor x = token_embedding(tokens) + positional_embedding[Slice(at, at + time)];
  const Tensor visible = Tensor::arange(positions) <= Tensor::arange(time).unsqueeze(1) + at.tensor();
  for (size_t i = 0; i < blocks.size(); i++) x = blocks[i].step(x, cache[i], at, visible);
  return ln(x).dot(token_embedding.weight.T());
}

Whisper::Whisper(const WhisperOptions& o) : encoder(o), decoder(o), options(o) {
  check_width(o.audio_width, o.audio_heads);
  check_width(o.text_width, o.text_heads);
  TG_CHECK(ValueError, o.audio_width == o.text_width, "[Whisper] got width ", o.audio_width, " of audio and ",
           o.text_width, " of text, expected one width");
}

/// Reads a prompt in pieces whose sizes are powers of two, so that prompts of all lengths share a few kernels, and
/// returns the most probable tokens behind it, (batch, 1).
Tensor Whisper::read_prompt(const std::vector<int32_t>& prompt, int64_t batch,
                            const std::vector<WhisperLayerCache>& cache) const {
  Tensor logits;
  for (size_t read = 0; read < prompt.size();) {
    const size_t size = std::bit_floor(prompt.size() - read);
    const auto length = static_cast<int64_t>(size);
    const std::span<const int32_t> piece(prompt.data() + read, size);
    const Tensor tokens = Tensor::from(piece, {1, length}).expand(batch, length);
    const Variable place("place", 0, options.text_positions - length);
    logits = decoder.step(tokens, cache, place.bind(static_cast<int64_t>(read))).realize();
    read += size;
  }
  return logits(Slice(), -1).argmax(-1).cast(dtypes::int32).unsqueeze(1).realize();
}

std::vector<std::vector<int32_t>> Whisper::greedy(const Tensor& mel, const WhisperGreedyOptions& o) const {
  const auto prompt = static_cast<int64_t>(o.prompt.size());
  TG_CHECK(ValueError, prompt > 0, "[Whisper] got no prompt, expected a token at least");
  TG_CHECK(ValueError, prompt + o.most <= options.text_positions, "[Whisper] got ", prompt, " tokens of a prompt and ",
           o.most, " of text, expected at most ", options.text_positions);
  const std::vector<WhisperLayerCache> cache = decoder.cache(encoder(mel));
  const auto next = jit(
      [&](const Tensor& tokens, const BoundVariable& at) {
        return decoder.step(tokens, cache, at)(Slice(), -1).argmax(-1).cast(dtypes::int32).unsqueeze(1).realize();
      },
      {.name = "next token"});
  const int64_t batch = mel.shape(0);
  Tensor tokens = read_prompt(o.prompt, batch, cache);
  std::vector<std::vector<int32_t>> out(static_cast<size_t>(batch));
  std::vector<bool> ended(out.size(), false);
  const Variable position("position", 0, options.text_positions - 1);
  for (int64_t written = 0; written < o.most; written++) {
    const std::vector<int32_t> values = tokens.to_vector<int32_t>();
    for (size_t i = 0; i < out.size(); i++) {
      ended[i] = ended[i] || values[i] == o.end;
      if (!ended[i]) out[i].push_back(values[i]);
    }
    if (written + 1 == o.most || std::find(ended.begin(), ended.end(), false) == ended.end()) break;
    tokens = next(tokens, position.bind(prompt + written));
  }
  return out;
}

std::vector<int32_t> Whisper::transcribe(const Tensor& audio, const WhisperTranscribeOptions& o) const {
  TG_CHECK(ShapeError, audio.ndim() == 1, "[Whisper] got audio ", audio.shape(), ", expected (samples,)");
  const int64_t spectra = 2 * options.audio_positions, segment = spectra * kWhisperHop;
  const int64_t segments = std::max<int64_t>(1, (audio.shape(0) + segment - 1) / segment);
  const WhisperMelOptions whole{.mels = options.mels, .samples = segments * segment};
  const Tensor mel = whisper_log_mel(audio.unsqueeze(0), whole).realize();
  // Half of the positions are for the prompt.
  const int64_t room = options.text_positions / 2 - std::ssize(o.each.prompt) - 1;
  std::vector<int32_t> out;
  for (int64_t i = 0; i < segments; i++) {
    WhisperGreedyOptions each = o.each;
    if (o.previous && !out.empty()) {
      each.prompt = {*o.previous};
      each.prompt.insert(each.prompt.end(), out.end() - std::clamp<int64_t>(room, 0, std::ssize(out)), out.end());
      each.prompt.insert(each.prompt.end(), o.each.prompt.begin(), o.each.prompt.end());
    }
    const std::vector<int32_t> written = greedy(mel.slice(2, i * spectra, (i + 1) * spectra), each)[0];
    std::copy_if(written.begin(), written.end(), std::back_inserter(out), [&](int32_t t) { return t < o.each.end; });
  }
  return out;
}

WhisperOptions whisper_options(const std::filesystem::path& file) {
  const nn::TorchValue dims = nn::torch_load_value(file).at("dims");
  auto size = [&](std::string_view name) { return dims.at(name).as_int(); };
  return {.mels = size("n_mels"),
          .audio_positions = size("n_audio_ctx"),
          .audio_width = size("n_audio_state"),
          .audio_heads = size("n_audio_head"),
          .audio_layers = size("n_audio_layer"),
          .vocab_size = size("n_vocab"),
          .text_positions = size("n_text_ctx"),
          .text_width = size("n_text_state"),
          .text_heads = size("n_text_head"),
          .text_layers = size("n_text_layer")};
}

nn::StateDict whisper_weights(const nn::StateDict& file) {
  // Longer names before those they contain.
  constexpr std::array<std::pair<const char*, const char*>, 15> kNames{
      {{"embed_tokens.", "token_embedding."},
       {"embed_positions.weight", "positional_embedding"},
       {".layers.", ".blocks."},
       {"self_attn_layer_norm.", "attn_ln."},
       {"encoder_attn_layer_norm.", "cross_attn_ln."},
       {"final_layer_norm.", "mlp_ln."},
       {"self_attn.", "attn."},
       {"encoder_attn.", "cross_attn."},
       {"q_proj.", "query."},
       {"k_proj.", "key."},
       {"v_proj.", "value."},
       {"out_proj.", "out."},
       {"fc1.", "mlp.0."},
       {"fc2.", "mlp.2."},
       {"encoder.layer_norm.", "encoder.ln_post."}}};
  nn::StateDict out;
  for (const auto& [name, t] : file) {
    std::string mine = name;
    for (const char* prefix : {"model_state_dict.", "model."})
      if (mine.starts_with(prefix)) mine.erase(0, std::string_view(prefix).size());
    if (!mine.starts_with("encoder.") && !mine.starts_with("decoder.")) continue;
    for (const auto& [from, to] : kNames)
      if (const size_t at = mine.find(from); at != std::string::npos)
        mine.replace(at, std::string_view(from).size(), to);
    if (mine.starts_with("decoder.layer_norm.")) mine.replace(8, 10, "ln");
    out.emplace_back(mine, t);
  }
  return out;
}

}  // namespace tg::models
