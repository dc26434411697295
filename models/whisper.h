/// \file Whisper (Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision", arXiv 2212.04356):
/// speech to text, with OpenAI's names of weights. What it hears are the spectrograms of models/whisper_audio.h.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "tinygrad/nn/nn.h"
#include "tinygrad/tensor/variable.h"

namespace tg::models {

/// Sizes of Whisper; those of tiny.en without changes.
struct WhisperOptions {
  int64_t mels = 80;
  int64_t audio_positions = 1500;  ///< half as many as spectra
  int64_t audio_width = 384;
  int64_t audio_heads = 6;  ///< divides audio_width
  int64_t audio_layers = 4;
  int64_t vocab_size = 51864;
  int64_t text_positions = 448;  ///< tokens a text may have
  int64_t text_width = 384;      ///< equal to audio_width
  int64_t text_heads = 6;
  int64_t text_layers = 4;
};

/// Attention with projections of what asks, of what is looked at, and of the result.
struct WhisperAttention {
  nn::Linear query, key, value, out;
  int64_t heads;
  WhisperAttention(int64_t width, int64_t heads);
  /// Attends from `x` (batch, time, width) to projected keys and values (batch, other time, width).
  Tensor operator()(const Tensor& x, const Tensor& keys, const Tensor& values, const Tensor::Attention& o = {}) const;
  TG_STATE(query, key, value, out)
};

/// What a layer of the decoder keeps: keys and values of the text so far, in storage for all positions, and of the
/// audio. All are (batch, positions, width).
struct WhisperLayerCache {
  Tensor keys, values, audio_keys, audio_values;
};

/// A layer of the encoder, or with attention to audio one of the decoder.
struct WhisperBlock {
  WhisperAttention attn;
  nn::LayerNorm attn_ln;
  std::optional<WhisperAttention> cross_attn;
  std::optional<nn::LayerNorm> cross_attn_ln;
  nn::Linear mlp_in, mlp_out;
  nn::LayerNorm mlp_ln;
  WhisperBlock(int64_t width, int64_t heads, bool decodes);
  /// Every position sees all others.
  Tensor encode(const Tensor& x) const;
  /// Every position sees those before it, and the audio.
  Tensor decode(const Tensor& x, const Tensor& audio) const;
  /// Does so for positions from `at` on, whose keys and values it stores. `visible` is (time, all positions).
  Tensor step(const Tensor& x, const WhisperLayerCache& cache, const BoundVariable& at, const Tensor& visible) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;

 private:
  Tensor finish(const Tensor& x, const Tensor& audio_keys, const Tensor& audio_values) const;
};

/// Spectrograms (batch, mels, spectra) -> (batch, spectra / 2, width).
struct WhisperEncoder {
  nn::Conv2d conv1, conv2;
  Tensor positional_embedding;  ///< (positions, width): waves, not trained
  std::vector<WhisperBlock> blocks;
  nn::LayerNorm ln_post;
  explicit WhisperEncoder(const WhisperOptions& o);
  /// Throws ShapeError for other spectrograms, and for more spectra than there are positions.
  Tensor operator()(const Tensor& mel) const;
  TG_STATE(conv1, conv2, positional_embedding, blocks, ln_post)
};

/// Tokens and audio -> logits of the next tokens.
struct WhisperDecoder {
  nn::Embedding token_embedding;
  Tensor positional_embedding;  ///< (positions, width)
  std::vector<WhisperBlock> blocks;
  nn::LayerNorm ln;
  explicit WhisperDecoder(const WhisperOptions& o);
  /// Returns logits (batch, time, vocabulary) for tokens (batch, time); `audio` is what the encoder returns. Throws
  /// ShapeError for other tokens, and for more than there are positions.
  Tensor operator()(const Tensor& tokens, const Tensor& audio) const;
  /// Returns a cache for texts about `audio`, with room for all positions.
  std::vector<WhisperLayerCache> cache(const Tensor& audio) const;
  /// Returns logits for tokens at positions from `at` on, a variable from 0 to positions - time; those before are in
  /// the cache, and these are stored there.
  Tensor step(const Tensor& tokens, const std::vector<WhisperLayerCache>& cache, const BoundVariable& at) const;
  TG_STATE(token_embedding, positional_embedding, blocks, ln)
};

/// How texts are written.
struct WhisperGreedyOptions {
  std::vector<int32_t> prompt;  ///< the tokens every text begins with: start, language, task, no timestamps
  int32_t end = 50256;          ///< the token behind a text
  int64_t most = 224;           ///< tokens of a text, without prompt and end
};

/// How long audio is written.
struct WhisperTranscribeOptions {
  WhisperGreedyOptions each;             ///< of a segment; tokens from its end on are no text
  std::optional<int32_t> previous = {};  ///< the token before the text so far, which segments see then
};

/// The network.
struct Whisper {
  WhisperEncoder encoder;
  WhisperDecoder decoder;
  WhisperOptions options;
  /// Makes the network with random weights. ValueError unless heads divide widths, which are equal.
  explicit Whisper(const WhisperOptions& o = {});
  /// Returns logits (batch, time, vocabulary) for spectrograms and the tokens of texts. ShapeError as both parts.
  Tensor operator()(const Tensor& mel, const Tensor& tokens) const { return decoder(tokens, encoder(mel)); }
  /// Returns for each spectrogram the most probable tokens, one after the other, without prompt and end. ValueError for
  /// no prompt, and for more tokens than there are positions.
  std::vector<std::vector<int32_t>> greedy(const Tensor& mel, const WhisperGreedyOptions& o) const;
  /// Returns the tokens of audio (samples,) of any length, 16000 in a second: segments as long as the encoder has
  /// positions for, one after the other, each with the last tokens of text before it. ShapeError for other than one
  /// axis, ValueError as greedy().
  std::vector<int32_t> transcribe(const Tensor& audio, const WhisperTranscribeOptions& o) const;
  TG_STATE(encoder, decoder)

 private:
  Tensor read_prompt(const std::vector<int32_t>& prompt, int64_t batch,
                     const std::vector<WhisperLayerCache>& cache) const;
};

/// Returns the sizes that one of OpenAI's files (.pt) has under "dims". FileError, FormatError; IndexError for a file
/// without them.
WhisperOptions whisper_options(const std::filesystem::path& file);
/// Returns weights of OpenAI's files, or of those with the names of transformers, under the names above.
nn::StateDict whisper_weights(const nn::StateDict& file);

}  // namespace tg::models
