/// \file Tokenizers from the metadata of GGUF files.
#include <algorithm>
#include <limits>
#include <utility>

#include "tinygrad/base/error.h"
#include "tinygrad/base/text.h"
#include "tinygrad/llm/tokenize/split_presets.h"
#include "tinygrad/llm/tokenize/tokenizer_parts.h"
#include "tinygrad/llm/tokenize/unicode_text.h"

namespace tg::llm {
namespace {

/// SentencePiece's constant: a character that is no token costs this much more than the worst token.
constexpr float kUnknownPenalty = 10.0f;

class DataReader {
 public:
  DataReader(TokenizerData data, std::string_view name)
      : data_(std::move(data)), name_(name), parts_(std::make_shared<Tokenizer::Parts>()) {}

  std::shared_ptr<const Tokenizer::Parts> read() {
    check_lists();
    read_ids();
    if (data_.model == "gpt2") byte_level_bpe();
    else if (data_.model == "llama") sentencepiece_bpe();
    else if (data_.model == "t5") unigram();
    else if (data_.model == "bert") word_piece();
    else fail("model", str("\"", data_.model.substr(0, 100), "\", expected gpt2, llama, t5 or bert"));
    add_searched_tokens();
    surround();
    std::vector<int32_t> ends;
    if (const auto eom = token("eom_token_id", data_.eom)) ends.push_back(*eom);
    parts_->texts = std::move(data_.tokens);
    parts_->finish(std::move(ends));
    return parts_;
  }

 private:
  [[noreturn]] void fail(std::string_view key, const std::string& got) const {
    throw FormatError(str("[tokenizer] ", name_, ": tokenizer.ggml.", key, ": got ", got));
  }
  /// Texts are made of their parts only when the check fails: there is one for every token and merge.
  template <class... Parts> void check(bool ok, std::string_view key, const Parts&... got) const {
    if (!ok) [[unlikely]]
      fail(key, str(got...));
  }
  /// The beginning of a token, for errors.
  std::string_view shown(size_t i) const { return std::string_view(data_.tokens[i]).substr(0, 100); }
  size_t size() const { return data_.tokens.size(); }
  TokenType type(size_t i) const {
    return data_.token_types.empty() ? TokenType::kNormal : static_cast<TokenType>(data_.token_types[i]);
  }
  /// Returns an id that is a token; llama.cpp's converters write 2^32 - 1 or -1 for "none".
  std::optional<int32_t> token(std::string_view key, std::optional<int64_t> id) const {
    if (!id || *id == -1 || *id == 0xffffffff) return std::nullopt;
    if (*id < 0 || static_cast<uint64_t>(*id) >= size()) fail(key, str(*id, ", expected one of ", size(), " tokens"));
    return static_cast<int32_t>(*id);
  }

  void check_lists() {
    check(!data_.tokens.empty(), "tokens", "no tokens");
    check(size() <= kMaxVocabulary, "tokens", size(), " tokens, expected at most ", kMaxVocabulary);
    check(data_.scores.empty() || data_.scores.size() == size(), "scores", data_.scores.size(), " scores of ", size(),
          " tokens");
    check(data_.token_types.empty() || data_.token_types.size() == size(), "token_type", data_.token_types.size(),
          " types of ", size(), " tokens");
    check(data_.merges.size() <= kMaxVocabulary, "merges", data_.merges.size(), " merges");
    size_t bytes = 0;
    parts_->special.resize(size());
    for (size_t i = 0; i < size(); i++) {
      const std::string& text = data_.tokens[i];
      check(is_utf8(text), "tokens", "token ", i, " that is not UTF-8");
      check((bytes += text.size()) <= kMaxVocabularyBytes, "tokens", "too many bytes");
      if (data_.token_types.empty()) continue;
      const int32_t t = data_.token_types[i];
      check(t >= 0 && t <= static_cast<int32_t>(TokenType::kByte), "token_type", t, " of token ", i);
      parts_->special[i] = type(i) == TokenType::kControl || type(i) == TokenType::kUnknown;
    }
    for (const float s : data_.scores) check(s == s && std::abs(s) < 1e30f, "scores", "a score of ", s);
  }

  void read_ids() {
    parts_->bos = token("bos_token_id", data_.bos);
    parts_->eos = token("eos_token_id", data_.eos);
    parts_->eot = token("eot_token_id", data_.eot);
    parts_->unk = token("unknown_token_id", data_.unk);
    parts_->pad = token("padding_token_id", data_.pad);
    for (const auto& id : {parts_->bos, parts_->eos, parts_->eot, token("eom_token_id", data_.eom),
                           token("seperator_token_id", data_.sep), token("cls_token_id", data_.cls),
                           token("mask_token_id", data_.mask)}) {
      if (id && type(static_cast<size_t>(*id)) != TokenType::kUserDefined)
        parts_->special[static_cast<size_t>(*id)] = true;
    }
  }

  /// Returns whether a token may come out of text: it is neither special nor looked for apart.
  bool from_text(size_t i) const { return !parts_->special[i] && type(i) != TokenType::kByte; }

  /// Adds a token to a table; one that stands twice is refused, unless it is marked as unused.
  void add_token(TokenTable& table, std::string_view text, size_t i) {
    if (text.empty()) return;
    check(table.add(text, static_cast<int32_t>(i)) || type(i) == TokenType::kUnused, "tokens", "\"", shown(i),
          "\" twice, again as token ", i);
  }

  void read_byte_tokens(ByteTokens& bytes) {
    for (size_t i = 0; i < size(); i++) {
      const int byte = byte_of_spelling(data_.tokens[i]);
      const bool is_byte = type(i) == TokenType::kByte;
      check(!is_byte || byte >= 0, "tokens", "the byte token \"", shown(i), "\", expected <0x00> to <0xFF>");
      if (byte < 0 || (!is_byte && !data_.token_types.empty())) continue;
      check(bytes.ids[byte] < 0, "tokens", "\"", data_.tokens[i], "\" twice, again as token ", i);
      bytes.ids[byte] = static_cast<int32_t>(i);
    }
  }
  static bool has_bytes(const ByteTokens& bytes) {
    return std::all_of(std::begin(bytes.ids), std::end(bytes.ids), [](int32_t id) { return id >= 0; });
  }

  void byte_level_bpe() {
    SplitPreset preset = split_preset(data_.pre.empty() ? "default" : data_.pre, name_);
    parts_->splits = std::move(preset.steps);
    parts_->spelled_words = preset.spelled;
    parts_->decoder.steps = {{.kind = DecodeStep::kByteLevel}};
    if (!data_.add_bos) data_.add_bos = preset.add_bos;
    if (!data_.add_sep) data_.add_sep = preset.add_sep;
    parts_->ids = TokenTable(size());
    TokenTable &by_text = parts_->ids, by_bytes(size());
    ByteTokens first;
    std::string bytes;
    for (size_t i = 0; i < size(); i++) {
      add_token(by_text, data_.tokens[i], i);
      bytes.clear();
      if (!from_text(i) || type(i) == TokenType::kUserDefined || !append_spelled_bytes(bytes, data_.tokens[i]))
        continue;
      add_token(by_bytes, bytes, i);
      if (bytes.size() == 1) first.ids[static_cast<unsigned char>(bytes[0])] = static_cast<int32_t>(i);
    }
    if (data_.merges.empty()) {  // tiktoken's way: a token with a smaller id is merged first
      auto model = std::make_unique<RankBpe>();
      model->tokens = std::move(by_bytes);
      model->byte_level = model->whole_words = true;
      for (size_t i = 0; i < size(); i++) model->ranks.push_back(static_cast<uint32_t>(i));
      parts_->model = std::move(model);
      return;
    }
    auto model = std::make_unique<MergeBpe>();
    model->tokens = std::move(by_bytes);
    model->byte_level = true;
    model->whole_words = preset.whole_words;
    model->bytes = first;
    read_merges(by_text, model->merges);
    parts_->model = std::move(model);
  }

  void read_merges(const TokenTable& by_text, MergeTable& merges) {
    merges = MergeTable(data_.merges.size());
    std::string both;
    for (size_t i = 0; i < data_.merges.size(); i++) {
      const std::string_view merge = data_.merges[i];
      const size_t space = merge.size() < 3 ? merge.npos : merge.find(' ', 1);
      check(space != merge.npos && space + 1 < merge.size(), "merges", "merge ", i, " \"", merge.substr(0, 100),
            "\", expected two tokens");
      const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
      both.assign(left).append(right);
      const int32_t a = by_text.find(left), b = by_text.find(right), c = by_text.find(both);
      check(a >= 0 && b >= 0 && c >= 0, "merges", "merge ", i, " \"", merge.substr(0, 100),
            "\" of or to a token that is unknown");
      if (from_text(static_cast<size_t>(c))) merges.add(a, b, {static_cast<uint32_t>(i), c});
    }
  }

  /// Returns the user-defined tokens, which SentencePiece finds before all else.
  PrefixTrie user_defined() const {
    PrefixTrie trie;
    for (size_t i = 0; i < size(); i++) {
      const std::string& text = data_.tokens[i];
      if (type(i) != TokenType::kUserDefined || text.empty() || parts_->special[i]) continue;
      check(text.size() <= kMaxAddedTokenBytes, "tokens", "the user-defined token ", i, " of ", text.size(), " bytes");
      trie.add(text, static_cast<int32_t>(i));
      std::string spaced;  // the vocabulary may spell it with marks
      for (size_t k = 0; k < text.size();) {
        const bool mark = text.compare(k, kSpaceMark.size(), kSpaceMark) == 0;
        spaced += mark ? ' ' : text[k];
        k += mark ? kSpaceMark.size() : 1;
      }
      trie.add(spaced, static_cast<int32_t>(i));
    }
    return trie;
  }

  void sentencepiece_steps(bool add_prefix, bool squeeze) {
    add_prefix = data_.add_space_prefix.value_or(add_prefix);
    squeeze = data_.remove_extra_whitespaces.value_or(squeeze);
    parts_->normalizers.push_back(
        sentencepiece_normalizer(CharsMap(data_.precompiled_charsmap, name_), user_defined(),
                                 {.add_dummy_prefix = add_prefix, .remove_extra_whitespaces = squeeze}));
    parts_->decoder.steps = {{.kind = DecodeStep::kReplace, .from = std::string(kSpaceMark), .to = " "},
                             {.kind = DecodeStep::kByteFallback},
                             {.kind = DecodeStep::kFuse}};
    if (add_prefix || squeeze)
      parts_->decoder.steps.push_back(
          {.kind = DecodeStep::kStrip, .from = " ", .left = squeeze ? std::numeric_limits<size_t>::max() : 1});
  }

  /// Returns the unknown token, which SentencePiece models have.
  int32_t unknown() {
    if (!parts_->unk) {
      for (size_t i = 0; i < size() && !parts_->unk; i++)
        if (type(i) == TokenType::kUnknown) parts_->unk = static_cast<int32_t>(i);
    }
    if (!parts_->unk) fail("unknown_token_id", "no unknown token");
    return *parts_->unk;
  }

  /// Returns whether no token has a space mark behind another character, so that words can be merged one by one.
  bool marks_begin_words() const {
    bool marks = true;
    for (size_t i = 0; i < size() && marks; i++) {
      const std::string_view text = data_.tokens[i];
      for (size_t at = text.find(kSpaceMark, 1); at != text.npos && marks; at = text.find(kSpaceMark, at + 1))
        marks =
            !from_text(i) || (at >= kSpaceMark.size() && text.substr(at - kSpaceMark.size()).starts_with(kSpaceMark));
    }
    return marks;
  }

  void sentencepiece_bpe() {
    sentencepiece_steps(true, false);
    if (!data_.add_bos) data_.add_bos = true;
    auto model = std::make_unique<RankBpe>();
    read_byte_tokens(model->bytes);
    model->byte_fallback = has_bytes(model->bytes);
    if (!model->byte_fallback) model->unk = unknown();
    model->user_defined = user_defined();
    model->tokens = TokenTable(size());
    for (size_t i = 0; i < size(); i++) {
      if (from_text(i)) add_token(model->tokens, data_.tokens[i], i);
      if (type(i) == TokenType::kUnused) {
        model->unused.resize(size());
        model->unused[i] = true;
      }
    }
    model->ranks = ranks_of_scores();
    model->split_before_mark = marks_begin_words() && model->tokens.find(kSpaceMark) >= 0;
    parts_->model = std::move(model);
  }

  /// Returns the rank of each token: the largest score first, equals the same. Without scores the id is the rank.
  std::vector<uint32_t> ranks_of_scores() const {
    std::vector<uint32_t> order(size()), ranks(size());
    for (size_t i = 0; i < size(); i++) order[i] = ranks[i] = static_cast<uint32_t>(i);
    if (data_.scores.empty()) return ranks;
    const std::vector<float>& scores = data_.scores;
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return scores[a] > scores[b]; });
    for (size_t k = 1; k < order.size(); k++)
      ranks[order[k]] = scores[order[k]] == scores[order[k - 1]] ? ranks[order[k - 1]] : static_cast<uint32_t>(k);
    ranks[order[0]] = 0;
    return ranks;
  }

  void unigram() {
    sentencepiece_steps(true, true);
    if (!data_.add_eos) data_.add_eos = true;
    check(!data_.scores.empty(), "scores", "no scores");
    auto model = std::make_unique<Unigram>();
    read_byte_tokens(model->bytes);
    model->byte_fallback = has_bytes(model->bytes);
    model->fuse_unk = !model->byte_fallback;
    model->unk = unknown();
    model->single = true;
    float low = std::numeric_limits<float>::max();
    for (size_t i = 0; i < size(); i++)
      if (type(i) == TokenType::kNormal) low = std::min(low, data_.scores[i]);
    model->unk_score = low - kUnknownPenalty;
    model->scores.assign(data_.scores.begin(), data_.scores.end());
    for (size_t i = 0; i < size(); i++) {
      const std::string& text = data_.tokens[i];
      if (!from_text(i) || text.empty() || type(i) == TokenType::kUnused) continue;
      check(model->trie.add(text, static_cast<int32_t>(i)), "tokens", "\"", shown(i), "\" twice, again as token ", i);
    }
    parts_->model = std::move(model);
  }

  void word_piece() {
    parts_->normalizers.push_back(bert_normalizer({}));
    parts_->splits.push_back(split_at_class(is_white_space, SplitBehavior::kRemoved));
    parts_->splits.push_back(split_at_class(is_punctuation, SplitBehavior::kIsolated));
    parts_->decoder.steps = {{.kind = DecodeStep::kReplace, .from = std::string(kSpaceMark), .to = " "},
                             {.kind = DecodeStep::kFuse},
                             {.kind = DecodeStep::kStrip, .from = " ", .left = 1}};
    if (!data_.add_bos) data_.add_bos = true;
    if (!data_.add_sep) data_.add_sep = true;
    auto model = std::make_unique<WordPiece>();
    model->unk = unknown_piece();
    model->begins = model->continues = TokenTable(size());
    // The converters of GGUF files put a space mark before the pieces that begin a word and drop "##" of the others.
    const bool marked = std::any_of(data_.tokens.begin(), data_.tokens.end(),
                                    [](const std::string& t) { return t.starts_with(kSpaceMark); });
    for (size_t i = 0; i < size(); i++) {
      const std::string_view text = data_.tokens[i], prefix = marked ? kSpaceMark : "##";
      if (!from_text(i)) continue;
      const bool has = text.starts_with(prefix);
      if (has == marked) add_token(model->begins, has ? text.substr(prefix.size()) : text, i);
      else add_token(model->continues, has ? text.substr(prefix.size()) : text, i);
    }
    if (!marked) parts_->decoder.steps = {{.kind = DecodeStep::kWordPiece, .from = "##", .cleanup = true}};
    if (!parts_->bos) parts_->bos = token("cls_token_id", data_.cls);
    parts_->model = std::move(model);
  }
  int32_t unknown_piece() {
    if (!parts_->unk) {
      const auto at = std::find(data_.tokens.begin(), data_.tokens.end(), "[UNK]");
      if (at != data_.tokens.end()) parts_->unk = static_cast<int32_t>(at - data_.tokens.begin());
    }
    const int32_t id = unknown();
    parts_->special[static_cast<size_t>(id)] = true;
    return id;
  }

  /// Adds the tokens that are looked for in texts: special ones, and those users defined (SentencePiece's models look
  /// for these themselves).
  void add_searched_tokens() {
    const bool user_defined_too = data_.model == "gpt2" || data_.model == "bert";
    for (size_t i = 0; i < size(); i++) {
      const bool special = parts_->special[i];
      if (!special && !(user_defined_too && type(i) == TokenType::kUserDefined)) continue;
      const std::string& text = data_.tokens[i];
      parts_->added.add({.id = static_cast<int32_t>(i), .text = text, .special = special}, text, name_);
    }
  }

  /// Sets what goes around a text; a token the file does not have does not.
  void surround() {
    if (data_.add_bos.value_or(false) && parts_->bos) parts_->before.push_back(*parts_->bos);
    std::optional<int32_t> sep = token("seperator_token_id", data_.sep);
    if (!sep) sep = parts_->eos;
    const bool separates = data_.add_sep.value_or(false);
    if (separates && sep) parts_->behind.push_back(*sep);
    if (!separates && data_.add_eos.value_or(false) && parts_->eos) parts_->behind.push_back(*parts_->eos);
  }

  TokenizerData data_;
  std::string name_;
  std::shared_ptr<Tokenizer::Parts> parts_;
};

}  // namespace

Tokenizer Tokenizer::from_data(TokenizerData data, std::string_view name) {
  return Tokenizer(DataReader(std::move(data), name).read());
}

}  // namespace tg::llm
