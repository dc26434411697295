/// \file Tokenizers from tokenizer.json files: the parts that published models use. Any other is a FormatError that
/// names it.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "tinygrad/base/error.h"
#include "tinygrad/llm/tokenize/json_fields.h"
#include "tinygrad/llm/tokenize/tokenizer_parts.h"
#include "tinygrad/llm/tokenize/unicode_text.h"

namespace tg::llm {
namespace {

/// Ids may leave gaps, of as many tokens in all.
constexpr size_t kMaxGap = 1 << 20;

class JsonReader {
 public:
  JsonReader(const Json& root, std::string_view name)
      : in_(name), root_(root), parts_(std::make_shared<Tokenizer::Parts>()) {}

  std::shared_ptr<const Tokenizer::Parts> read() {
    in_.check(root_.is_object(), "the file", "no object");
    read_added();
    read_normalizers();
    read_pre_tokenizers();
    read_model();
    read_decoders();
    read_post_processors();
    search_added();
    parts_->bos = parts_->before.empty() ? named({"<s>", "<|begin_of_text|>", "<bos>", "[CLS]"}) : parts_->before[0];
    parts_->eos = named({"</s>", "<|end_of_text|>", "<eos>", "<|im_end|>", "<|endoftext|>", "[SEP]"});
    parts_->pad = named({"<pad>", "[PAD]"});
    parts_->finish({});
    return parts_;
  }

 private:
  // ---- tokens ----
  void put_text(int64_t id, const std::string& text, std::string_view field) {
    in_.check(id >= 0 && static_cast<size_t>(id) < kMaxVocabulary &&
                  static_cast<size_t>(id) < expected_ + added_.size() + kMaxGap,
              field, str("the id ", id));
    in_.check(text.size() <= kMaxVocabularyBytes, field, "a token that is too long");
    const auto i = static_cast<size_t>(id);
    if (i >= parts_->texts.size()) {
      parts_->texts.resize(i + 1);
      parts_->special.resize(i + 1);
      taken_.resize(i + 1);
    }
    in_.check(!taken_[i] || parts_->texts[i] == text, field, str("the id ", id, " of two tokens"));
    taken_[i] = true;
    parts_->texts[i] = text;
  }
  void read_added() {
    const Json& list = in_.optional(root_, "added_tokens");
    if (list.is_null()) return;
    in_.check(list.is_array() && list.size() <= kMaxVocabulary, "added_tokens", "no list");
    for (const Json& t : list) {
      const bool special = in_.flag(t, "special", false);
      added_.push_back({.id = static_cast<int32_t>(std::clamp<int64_t>(in_.number(t, "id"), -1, 1 << 30)),
                        .text = in_.text(t, "content"),
                        .special = special,
                        .single_word = in_.flag(t, "single_word", false),
                        .lstrip = in_.flag(t, "lstrip", false),
                        .rstrip = in_.flag(t, "rstrip", false),
                        .normalized = in_.flag(t, "normalized", !special)});
    }
  }
  void search_added() {
    for (AddedToken& t : added_) {
      const std::string search = t.normalized ? parts_->normalize(t.text) : t.text;
      if (search != t.text) parts_->decoded.emplace(t.id, search);  // a text had the normalized one where it was found
      parts_->added.add(std::move(t), search, in_.name);
    }
  }
  std::optional<int32_t> named(std::initializer_list<std::string_view> texts) const {
    for (const std::string_view text : texts)
      for (size_t i = 0; i < parts_->texts.size(); i++)
        if (parts_->special[i] && parts_->texts[i] == text) return static_cast<int32_t>(i);
    return std::nullopt;
  }

  // ---- normalizers ----
  void read_normalizers() {
    for (const Json* n : in_.flattened(in_.optional(root_, "normalizer"), "normalizers")) {
      const std::string type = in_.text(*n, "type");
      if (NormalizerPtr step = plain_normalizer(type)) {
        parts_->normalizers.push_back(std::move(step));
      } else if (type == "BertNormalizer") {
        const bool lower = in_.flag(*n, "lowercase", true);
        parts_->normalizers.push_back(bert_normalizer({.clean = in_.flag(*n, "clean_text", true),
                                                       .cjk = in_.flag(*n, "handle_chinese_chars", true),
                                                       .accents = in_.flag(*n, "strip_accents", lower),
                                                       .lower = lower}));
      } else if (type == "Strip") {
        parts_->normalizers.push_back(
            strip_normalizer(in_.flag(*n, "strip_left", true), in_.flag(*n, "strip_right", true)));
      } else if (type == "Prepend") {
        parts_->normalizers.push_back(prepend_normalizer(in_.text(*n, "prepend")));
      } else if (type == "Replace") {
        parts_->normalizers.push_back(replace_normalizer(pattern(*n), in_.text(*n, "content")));
      } else if (type == "Precompiled") {
        const std::vector<uint8_t> bytes = in_.base64(in_.text(*n, "precompiled_charsmap"));
        if (!bytes.empty()) parts_->normalizers.push_back(precompiled_normalizer(CharsMap(bytes, in_.name)));
      } else {
        in_.unknown("normalizer", type);
      }
    }
  }
  static NormalizerPtr plain_normalizer(std::string_view type) {
    if (type == "NFC") return unicode_normalizer(NormalForm::kNFC);
    if (type == "NFD") return unicode_normalizer(NormalForm::kNFD);
    if (type == "NFKC") return unicode_normalizer(NormalForm::kNFKC);
    if (type == "NFKD") return unicode_normalizer(NormalForm::kNFKD);
    if (type == "Lowercase") return lowercase_normalizer();
    if (type == "StripAccents") return strip_accents_normalizer();
    if (type == "Nmt") return nmt_normalizer();
    return nullptr;
  }
  /// Returns the pattern of a component: {"String": text} or {"Regex": expression}.
  SplitPattern pattern(const Json& owner) {
    const Json& p = in_.field(owner, "pattern");
    if (p.is_object() && p.contains("Regex")) return {in_.text(p, "Regex"), in_.name};
    return {quoted_pattern(in_.text(p, "String")), in_.name};
  }

  // ---- pre-tokenizers ----
  SplitBehavior behavior(const Json& owner, std::string_view key) {
    const std::string text = in_.text(owner, key, "Isolated");
    static constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
        {"Removed", SplitBehavior::kRemoved},
        {"Isolated", SplitBehavior::kIsolated},
        {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
        {"MergedWithNext", SplitBehavior::kMergedWithNext},
        {"Contiguous", SplitBehavior::kContiguous}};
    for (const auto& [name, value] : kNames)
      if (name == text) return value;
    in_.unknown("behavior", text);
  }
  void read_pre_tokenizers() {
    const std::vector<const Json*> list = in_.flattened(in_.optional(root_, "pre_tokenizer"), "pretokenizers");
    for (size_t i = 0; i < list.size(); i++) {
      const std::string type = in_.text(*list[i], "type");
      if (type == "ByteLevel") read_byte_level(*list[i], i + 1 == list.size());
      else if (type == "Metaspace") read_metaspace(*list[i]);
      else read_splitter(*list[i], type);
    }
  }
  void add_split(std::unique_ptr<SplitStep> step) { parts_->splits.push_back(std::move(step)); }
  void read_splitter(const Json& p, const std::string& type) {
    if (type == "Split") {
      const SplitBehavior b = behavior(p, "behavior");
      add_split(split_at_pattern(pattern(p), b, in_.flag(p, "invert", false)));
    } else if (type == "Digits") {
      add_split(split_at_class(
          is_numeric, in_.flag(p, "individual_digits", false) ? SplitBehavior::kIsolated : SplitBehavior::kContiguous));
    } else if (type == "Punctuation") {
      add_split(split_at_class(is_punctuation, behavior(p, "behavior")));
    } else if (type == "BertPreTokenizer") {
      add_split(split_at_class(is_white_space, SplitBehavior::kRemoved));
      add_split(split_at_class(is_punctuation, SplitBehavior::kIsolated));
    } else if (type == "Whitespace") {
      add_split(split_at_class(is_white_space, SplitBehavior::kRemoved));
      add_split(split_at_class(is_word_char, SplitBehavior::kContiguous));
    } else if (type == "WhitespaceSplit") {
      add_split(split_at_class(is_white_space, SplitBehavior::kRemoved));
    } else if (type == "CharDelimiterSplit") {
      add_split(
          split_at_pattern(SplitPattern(quoted_pattern(in_.text(p, "delimiter")), in_.name), SplitBehavior::kRemoved));
    } else {
      in_.unknown("pre_tokenizer", type);
    }
  }
  void read_byte_level(const Json& p, bool last) {
    in_.check(!byte_level_, "pre_tokenizer", "two of type ByteLevel");
    byte_level_ = true;
    if (in_.flag(p, "add_prefix_space", true)) add_split(byte_level_step(true, false));
    if (in_.flag(p, "use_regex", true))
      add_split(split_at_pattern(SplitPattern(kGpt2Pattern, in_.name), SplitBehavior::kIsolated));
    if (last) return;
    add_split(byte_level_step(false, true));
    parts_->spelled_words = true;
  }
  PrependMark prepend_scheme(const Json& p) {
    const std::string scheme =
        in_.text(p, "prepend_scheme", in_.flag(p, "add_prefix_space", true) ? "always" : "never");
    if (scheme == "always") return PrependMark::kAlways;
    if (scheme == "first") return PrependMark::kFirst;
    if (scheme == "never") return PrependMark::kNever;
    in_.unknown("prepend_scheme", scheme);
  }
  void read_metaspace(const Json& p) {
    std::string mark = in_.text(p, "replacement");
    in_.check(!mark.empty(), "replacement", "no text");
    add_split(split_at_marks(std::move(mark), prepend_scheme(p), in_.flag(p, "split", true)));
  }

  // ---- models ----
  void read_model() {
    const Json& m = in_.field(root_, "model");
    in_.check(m.is_object(), "model", "no object");
    const std::string type = in_.text(m, "type", guessed_type(m));
    const Json& vocab = in_.field(m, "vocab");
    in_.check(vocab.is_array() == (type == "Unigram") && vocab.is_structured(), "vocab", "another kind of list");
    in_.check(!vocab.empty() && vocab.size() <= kMaxVocabulary, "vocab", str(vocab.size(), " tokens"));
    expected_ = vocab.size();
    if (vocab.is_object()) {
      for (const auto& [text, id] : vocab.items()) {
        in_.check(id.is_number_integer(), "vocab", str("no number for \"", text.substr(0, 100), "\""));
        put_text(id.get<int64_t>(), text, "vocab");
      }
    } else {
      int64_t id = 0;
      for (const Json& pair : vocab) {
        in_.check(pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_number(), "vocab",
                  str("an entry ", id, " that is no pair of a text and a number"));
        put_text(id++, pair[0].get_ref<const std::string&>(), "vocab");
      }
    }
    in_model_ = taken_;
    for (const AddedToken& t : added_) {
      put_text(t.id, t.text, "added_tokens");
      if (t.special) parts_->special[static_cast<size_t>(t.id)] = true;
    }
    in_model_.resize(taken_.size());
    if (type == "BPE") read_bpe(m);
    else if (type == "Unigram") read_unigram(m);
    else if (type == "WordPiece") read_word_piece(m);
    else if (type == "WordLevel") read_word_level(m);
    else in_.unknown("model", type);
  }
  static std::string guessed_type(const Json& m) {
    if (m.contains("merges")) return "BPE";
    if (m.contains("vocab") && m["vocab"].is_array()) return "Unigram";
    return m.contains("continuing_subword_prefix") ? "WordPiece" : "WordLevel";
  }
  /// Returns the token of the vocabulary that a field names; -1 when the field is null.
  int32_t token_named(const Json& m, std::string_view key, const TokenTable& all) {
    const std::string text = in_.text(m, key, "");
    if (text.empty()) return -1;
    const int32_t id = all.find(text);
    in_.check(id >= 0, key, str("\"", text.substr(0, 100), "\", which is no token"));
    return id;
  }
  TokenTable all_tokens() const {
    TokenTable all(parts_->texts.size());
    for (size_t i = 0; i < parts_->texts.size(); i++) all.add(parts_->texts[i], static_cast<int32_t>(i));
    return all;
  }
  bool from_text(size_t i) const { return in_model_[i] && !parts_->special[i] && !parts_->texts[i].empty(); }
  ByteTokens byte_tokens() const {
    ByteTokens bytes;
    for (size_t i = 0; i < parts_->texts.size(); i++)
      if (const int byte = byte_of_spelling(parts_->texts[i]); byte >= 0) bytes.ids[byte] = static_cast<int32_t>(i);
    return bytes;
  }

  void read_bpe(const Json& m) {
    auto model = std::make_unique<MergeBpe>();
    const TokenTable all = all_tokens();
    in_.check(in_.optional(m, "dropout").is_null() || m["dropout"] == 0.0, "dropout", "merges dropped at random");
    model->unk = token_named(m, "unk_token", all);
    if (model->unk >= 0) parts_->unk = model->unk;
    model->fuse_unk = in_.flag(m, "fuse_unk", false);
    model->byte_fallback = in_.flag(m, "byte_fallback", false);
    model->whole_words = in_.flag(m, "ignore_merges", false);
    model->continuing_prefix = in_.text(m, "continuing_subword_prefix", "");
    model->word_suffix = in_.text(m, "end_of_word_suffix", "");
    model->byte_level = byte_level_ && model->continuing_prefix.empty() && model->word_suffix.empty();
    if (byte_level_ && !model->byte_level) spell_for_model();
    if (!model->byte_level) model->bytes = byte_tokens();
    model->tokens = TokenTable(parts_->texts.size());
    std::string bytes;
    for (size_t i = 0; i < parts_->texts.size(); i++) {
      if (!from_text(i)) continue;
      std::string_view text = parts_->texts[i];
      bytes.clear();
      if (model->byte_level) {
        if (!append_spelled_bytes(bytes, text)) continue;
        text = bytes;
        if (text.size() == 1) model->bytes.ids[static_cast<unsigned char>(text[0])] = static_cast<int32_t>(i);
      }
      model->tokens.add(text, static_cast<int32_t>(i));
    }
    model->split_before_mark = !model->byte_level && model->continuing_prefix.empty() && model->word_suffix.empty() &&
                               !model->whole_words && marks_begin_words() && model->tokens.find(kSpaceMark) >= 0;
    read_merges(m, all, *model);
    parts_->model = std::move(model);
  }
  /// Lets the model see words as they are spelled, character by character.
  void spell_for_model() {
    if (!parts_->spelled_words) add_split(byte_level_step(false, true));
    parts_->spelled_words = false;
  }
  /// Returns whether no token has a space mark behind another character, so that words can be merged one by one.
  bool marks_begin_words() const {
    for (size_t i = 0; i < parts_->texts.size(); i++) {
      const std::string_view text = parts_->texts[i];
      for (size_t at = text.find(kSpaceMark, 1); from_text(i) && at != text.npos; at = text.find(kSpaceMark, at + 1))
        if (at < kSpaceMark.size() || !text.substr(at - kSpaceMark.size()).starts_with(kSpaceMark)) return false;
    }
    return true;
  }
  void read_merges(const Json& m, const TokenTable& all, MergeBpe& model) {
    const Json& merges = in_.field(m, "merges");
    in_.check(merges.is_array() && merges.size() <= kMaxVocabulary, "merges", "no list");
    model.merges = MergeTable(merges.size());
    std::string both;
    uint32_t rank = 0;
    for (const Json& merge : merges) {
      std::string_view left, right;
      if (merge.is_string()) {
        const std::string_view text = merge.get_ref<const std::string&>();
        const size_t space = text.find(' ');
        in_.check(space != text.npos && text.find(' ', space + 1) == text.npos, "merges",
                  str("merge ", rank, " \"", text.substr(0, 100), "\", expected two tokens"));
        left = text.substr(0, space);
        right = text.substr(space + 1);
      } else {
        in_.check(merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string(), "merges",
                  str("merge ", rank, " that is no pair of texts"));
        left = merge[0].get_ref<const std::string&>();
        right = merge[1].get_ref<const std::string&>();
      }
      const std::string_view tail =
          right.starts_with(model.continuing_prefix) ? right.substr(model.continuing_prefix.size()) : right;
      both.assign(left).append(tail);
      const int32_t a = all.find(left), b = all.find(right), c = all.find(both);
      in_.check(
          a >= 0 && b >= 0 && c >= 0, "merges",
          str("merge ", rank, " \"", left.substr(0, 50), " ", right.substr(0, 50), "\" of or to an unknown token"));
      if (from_text(static_cast<size_t>(c))) model.merges.add(a, b, {rank, c});
      rank++;
    }
  }
  void read_unigram(const Json& m) {
    auto model = std::make_unique<Unigram>();
    const Json& vocab = m["vocab"];
    const int64_t unk = in_.number(m, "unk_id");
    in_.check(unk >= 0 && static_cast<size_t>(unk) < vocab.size(), "unk_id", str(unk));
    model->unk = static_cast<int32_t>(unk);
    parts_->unk = model->unk;
    model->byte_fallback = in_.flag(m, "byte_fallback", false);
    model->bytes = byte_tokens();
    model->scores.resize(parts_->texts.size());
    double low = std::numeric_limits<double>::max();
    for (size_t i = 0; i < vocab.size(); i++) {
      model->scores[i] = vocab[i][1].get<double>();
      in_.check(std::abs(model->scores[i]) < 1e30, "vocab", str("a score of ", model->scores[i]));
      low = std::min(low, model->scores[i]);
      if (!from_text(i) || i == static_cast<size_t>(unk)) continue;
      in_.check(model->trie.add(parts_->texts[i], static_cast<int32_t>(i)), "vocab",
                str("\"", parts_->texts[i].substr(0, 100), "\" twice, again as token ", i));
    }
    model->unk_score = low - 10;
    parts_->model = std::move(model);
  }
  void read_word_piece(const Json& m) {
    auto model = std::make_unique<WordPiece>();
    const TokenTable all = all_tokens();
    model->unk = token_named(m, "unk_token", all);
    in_.check(model->unk >= 0, "unk_token", "no token");
    parts_->unk = model->unk;
    const int64_t chars = in_.number(m, "max_input_chars_per_word", 100);
    in_.check(chars >= 0 && chars <= 100'000, "max_input_chars_per_word", str(chars));
    model->max_chars = static_cast<size_t>(chars);
    const std::string prefix = in_.text(m, "continuing_subword_prefix", "##");
    model->begins = model->continues = TokenTable(parts_->texts.size());
    for (size_t i = 0; i < parts_->texts.size(); i++) {
      if (!from_text(i)) continue;
      const std::string_view text = parts_->texts[i];
      model->begins.add(text, static_cast<int32_t>(i));
      if (text.size() > prefix.size() && text.starts_with(prefix))
        model->continues.add(text.substr(prefix.size()), static_cast<int32_t>(i));
    }
    parts_->model = std::move(model);
  }
  void read_word_level(const Json& m) {
    auto model = std::make_unique<WordLevel>();
    model->unk = token_named(m, "unk_token", all_tokens());
    if (model->unk >= 0) parts_->unk = model->unk;
    for (size_t i = 0; i < parts_->texts.size(); i++)
      if (from_text(i)) model->tokens.add(parts_->texts[i], static_cast<int32_t>(i));
    parts_->model = std::move(model);
  }

  // ---- decoders, post-processors ----
  void read_decoders() {
    std::vector<DecodeStep>& steps = parts_->decoder.steps;
    const Json& root = in_.optional(root_, "decoder");
    if (root.is_null()) steps.push_back({.kind = DecodeStep::kWordPiece});
    for (const Json* d : in_.flattened(root, "decoders")) {
      const std::string type = in_.text(*d, "type");
      if (type == "ByteLevel") {
        steps.push_back({.kind = DecodeStep::kByteLevel});
      } else if (type == "ByteFallback") {
        steps.push_back({.kind = DecodeStep::kByteFallback});
      } else if (type == "Fuse") {
        steps.push_back({.kind = DecodeStep::kFuse});
      } else if (type == "WordPiece") {
        steps.push_back({.kind = DecodeStep::kWordPiece,
                         .from = in_.text(*d, "prefix", "##"),
                         .cleanup = in_.flag(*d, "cleanup", true)});
      } else if (type == "Metaspace") {
        steps.push_back({.kind = DecodeStep::kMetaspace,
                         .from = in_.text(*d, "replacement"),
                         .left = prepend_scheme(*d) == PrependMark::kNever ? size_t(0) : size_t(1)});
      } else if (type == "Replace") {
        steps.push_back({.kind = DecodeStep::kReplace,
                         .from = in_.text(in_.field(*d, "pattern"), "String"),
                         .to = in_.text(*d, "content")});
      } else if (type == "Strip") {
        const int64_t left = in_.number(*d, "start", 0), right = in_.number(*d, "stop", 0);
        in_.check(left >= 0 && right >= 0, "decoder", "a Strip of negative length");
        steps.push_back({.kind = DecodeStep::kStrip,
                         .from = in_.text(*d, "content"),
                         .left = static_cast<size_t>(left),
                         .right = static_cast<size_t>(right)});
      } else if (type == "BPEDecoder") {
        steps.push_back({.kind = DecodeStep::kSuffix, .from = in_.text(*d, "suffix", "</w>")});
      } else {
        in_.unknown("decoder", type);
      }
    }
  }
  int32_t known_id(int64_t id) {
    in_.check(id >= 0 && static_cast<size_t>(id) < parts_->texts.size(), "post_processor", str("the token ", id));
    return static_cast<int32_t>(id);
  }
  void read_post_processors() {
    for (const Json* p : in_.flattened(in_.optional(root_, "post_processor"), "processors")) {
      const std::string type = in_.text(*p, "type");
      if (type == "ByteLevel") continue;  // of offsets only
      if (type == "TemplateProcessing") {
        read_template(*p);
      } else if (type == "BertProcessing" || type == "RobertaProcessing") {
        parts_->before.push_back(known_id(in_.number_of_pair(*p, "cls")));
        parts_->behind.push_back(known_id(in_.number_of_pair(*p, "sep")));
      } else {
        in_.unknown("post_processor", type);
      }
    }
  }
  void read_template(const Json& p) {
    const Json& single = in_.field(p, "single");
    in_.check(single.is_array() && single.size() <= 64, "single", "no list, or a long one");
    std::vector<int32_t> before, behind;
    bool seen = false;
    for (const Json& part : single) {
      if (part.is_object() && part.contains("Sequence")) {
        in_.check(!seen, "single", "the text twice");
        seen = true;
        continue;
      }
      const std::string name = in_.text(in_.field(part, "SpecialToken"), "id");
      const Json& ids = in_.field(in_.field(in_.field(p, "special_tokens"), name), "ids");
      in_.check(ids.is_array() && ids.size() <= 64, "special_tokens", "no list of ids");
      for (const Json& id : ids) {
        in_.check(id.is_number_integer(), "special_tokens", "an id that is no number");
        (seen ? behind : before).push_back(known_id(id.get<int64_t>()));
      }
    }
    in_.check(seen, "single", "no place for the text");
    parts_->before.insert(parts_->before.begin(), before.begin(), before.end());
    parts_->behind.insert(parts_->behind.end(), behind.begin(), behind.end());
  }

  JsonFields in_;
  const Json& root_;
  std::shared_ptr<Tokenizer::Parts> parts_;
  std::vector<AddedToken> added_;
  std::vector<bool> taken_, in_model_;  ///< ids that are tokens, that the model has
  size_t expected_ = 0;
  bool byte_level_ = false;
};

}  // namespace

Tokenizer Tokenizer::from_json(std::span<const uint8_t> json, std::string_view name) {
  const Json root = parse_json({reinterpret_cast<const char*>(json.data()), json.size()}, name);
  return Tokenizer(JsonReader(root, name).read());
}

}  // namespace tg::llm
