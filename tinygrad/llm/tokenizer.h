/// \file Text <-> tokens of language models: byte-level BPE, SentencePiece (BPE and unigram) and WordPiece, read from
/// the metadata of GGUF files or from tokenizer.json files. Nothing in such data is trusted.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tg::io {
class GgufMetadata;
}

namespace tg::llm {

/// What a token is, as in `tokenizer.ggml.token_type`.
enum class TokenType : uint8_t { kUndefined, kNormal, kUnknown, kControl, kUserDefined, kUnused, kByte };

/// The keys `tokenizer.ggml.*` of a GGUF file as plain values, not checked yet. Empty or absent: the key is missing.
struct TokenizerData {
  std::string model;                 ///< "gpt2" (byte-level BPE), "llama" (SentencePiece BPE), "t5" (unigram), "bert"
  std::string pre;                   ///< how byte-level BPE splits text into words: "llama-bpe", "qwen2", "smollm", ...
  std::vector<std::string> tokens;   ///< the id of a token is its place
  std::vector<float> scores;         ///< one for each token; what SentencePiece models merge or choose by
  std::vector<int32_t> token_types;  ///< a TokenType for each token
  std::vector<std::string> merges;   ///< "left right", the first one is merged first
  std::optional<int64_t> bos, eos, eot, eom, unk, sep, pad, cls, mask;
  std::optional<bool> add_bos, add_eos, add_sep, add_space_prefix, remove_extra_whitespaces;
  std::vector<uint8_t> precompiled_charsmap;  ///< the normalization of SentencePiece: a double array trie and texts
};

/// Reads these keys of a GGUF file. FormatError for those of another type.
TokenizerData tokenizer_data(const io::GgufMetadata& metadata);

struct EncodeOptions {
  bool add_special = true;     ///< puts the tokens the model wants around a text (begin, end, classification)
  bool parse_special = false;  ///< reads special tokens in the text; without it they are text like any other
};

class StreamDecoder;

/// A tokenizer: a shared handle of immutable parts, cheap to copy, safe to use from several threads at once.
class Tokenizer {
 public:
  /// Makes a tokenizer from the metadata of a GGUF file. FormatError naming `name` and the key for data that is
  /// inconsistent: no tokens, lists of different lengths, ids out of range, tokens that stand twice, merges of unknown
  /// tokens, byte tokens that are not <0x00> to <0xFF>, unknown values of `model` and `pre`.
  static Tokenizer from_data(TokenizerData data, std::string_view name);
  /// The same, from the keys `tokenizer.ggml.*`; FormatError also for those of another type.
  static Tokenizer from_gguf(const io::GgufMetadata& metadata);
  /// Makes a tokenizer from the bytes of a Hugging Face tokenizer.json. FormatError naming `name` and the field for
  /// data that is inconsistent and for components that are not supported.
  static Tokenizer from_json(std::span<const uint8_t> json, std::string_view name);

  /// Returns the tokens of a text of at most kMaxTextBytes (else ValueError). Bytes that are not UTF-8 count as U+FFFD,
  /// one for each maximal part of a sequence (the Unicode Standard, section 3.9).
  std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {}) const;
  /// Returns the text of tokens; bytes that are not UTF-8 become U+FFFD. IndexError for ids outside of the vocabulary.
  std::string decode(std::span<const int32_t> tokens, bool skip_special = true) const;
  /// Returns a decoder of tokens that arrive one by one.
  StreamDecoder stream_decoder(bool skip_special = true) const;

  int32_t vocab_size() const;
  /// Returns a token as the vocabulary spells it ("Ġthe", "▁the", "##ing", "<0x0A>"). IndexError.
  std::string_view token_text(int32_t id) const;
  /// Returns the bytes that a token adds to a text; `first`: it is the first token of the text. IndexError.
  std::string token_bytes(int32_t id, bool first = false) const;
  /// Returns the token that is spelled so in the vocabulary.
  std::optional<int32_t> token_id(std::string_view text) const;

  /// Returns whether a token is special: text never gives it unless parse_special is set. IndexError.
  bool is_special(int32_t id) const;
  /// Returns whether a token ends a reply: end of text, of turn or of message.
  bool is_end(int32_t id) const;
  const std::vector<int32_t>& end_tokens() const;      ///< sorted
  const std::vector<int32_t>& special_tokens() const;  ///< sorted
  std::optional<int32_t> bos() const;
  std::optional<int32_t> eos() const;
  std::optional<int32_t> eot() const;  ///< end of a turn
  std::optional<int32_t> unk() const;
  std::optional<int32_t> pad() const;
  bool adds_bos() const;  ///< whether encode puts the begin token first

  static constexpr size_t kMaxTextBytes = size_t(1) << 26;

  struct Parts;  ///< of the implementation
  explicit Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  const Parts& parts() const { return *parts_; }

 private:
  std::shared_ptr<const Parts> parts_;
};

/// Decodes tokens as they arrive: gives out whole characters only and keeps the bytes of one that is incomplete.
class StreamDecoder {
 public:
  StreamDecoder(Tokenizer tokenizer, bool skip_special) : tokenizer_(std::move(tokenizer)), skip_(skip_special) {}
  /// Adds a token and returns the text that is complete now. IndexError.
  std::string push(int32_t token);
  /// Ends the text: returns what was kept, as U+FFFD when it is incomplete, and starts over.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  std::string kept_;
  bool skip_, first_ = true;
};

}  // namespace tg::llm
