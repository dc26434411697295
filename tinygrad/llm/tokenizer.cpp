#include "tinygrad/llm/tokenizer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tinygrad/base/error.h"
#include "tinygrad/base/hash.h"
#include "tinygrad/base/text.h"
#include "tinygrad/llm/tokenize/growth_limit.h"
#include "tinygrad/llm/tokenize/tokenizer_parts.h"
#include "tinygrad/llm/tokenize/unicode_text.h"

namespace tg::llm {
namespace {

/// Special tokens that end a reply, by the spellings of published models.
constexpr std::string_view kEndTexts[] = {
    "<|eot_id|>", "<|im_end|>",      "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>",
    "<EOT>",      "_<EOT>",          "[EOT]",   "[EOS]",         "<|return|>",    "<｜end▁of▁sentence｜>",
    "<|call|>",   "<|end_of_text|>", "<|eot|>", "<|eom|>",       "<|endofturn|>", "<end_of_utterance>"};

/// Encodes the words of one text.
class TextEncoder {
 public:
  TextEncoder(const Tokenizer::Parts& parts, bool parse_special, std::vector<int32_t>& out)
      : parts_(parts), parse_special_(parse_special), out_(out), lock_(parts.cache_lock, std::try_to_lock) {}

  void encode(std::string_view text) {
    for (const AddedSpan& span : parts_.added.find(text, false, parse_special_)) {
      if (span.id >= 0) out_.push_back(span.id);
      else normalize(text.substr(span.begin, span.end - span.begin), span.begin == 0);
    }
  }

 private:
  void normalize(std::string_view text, bool first) {
    const std::string normal = parts_.normalize(text);
    for (const AddedSpan& span : parts_.added.find(normal, true, parse_special_)) {
      if (span.id >= 0) out_.push_back(span.id);
      else words(normal.substr(span.begin, span.end - span.begin), first && span.begin == 0);
    }
  }
  void words(std::string text, bool first) {
    const auto size = static_cast<uint32_t>(text.size());
    SplitText split{std::move(text), {{0, size}}, first};
    for (const auto& step : parts_.splits) {
      step->split(split);
      TG_CHECK(ValueError, split.text.size() <= (size_t(1) << 31), "[tokenizer] got a text that grows too long");
    }
    for (const TextSpan span : split.spans) {
      if (span.begin == span.end) continue;
      if (parts_.spelled_words) {
        bytes_.clear();
        append_spelled_bytes(bytes_, split.at(span));
        word(bytes_);
      } else {
        word(split.at(span));
      }
    }
  }
  void word(std::string_view w) {
    if (!lock_.owns_lock() || w.size() > WordCache::kMaxWord) return parts_.model->encode(w, scratch_, out_);
    size_t slot = 0;
    if (parts_.cache.find(w, out_, slot)) return;
    const size_t before = out_.size();
    parts_.model->encode(w, scratch_, out_);
    parts_.cache.put(w, out_.data() + before, out_.size() - before, slot);
  }

  const Tokenizer::Parts& parts_;
  bool parse_special_;
  std::vector<int32_t>& out_;
  std::unique_lock<std::mutex> lock_;  ///< of the cache; another thread has it: this one does without
  ModelScratch scratch_;
  std::string bytes_;
};

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  size_t i = text.size() - 1;
  while (i > 0 && (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80) i--;
  return is_word_char(next_char(text, i));
}
bool begins_with_word(std::string_view text) {
  size_t i = 0;
  return !text.empty() && is_word_char(next_char(text, i));
}
size_t spaces_at_begin(std::string_view text) {
  size_t end = 0;
  for (size_t i = 0; i < text.size() && is_white_space(next_char(text, i));) end = i;
  return end;
}
/// Returns where the white space at the end of a text begins.
size_t spaces_at_end(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0) {
    size_t i = begin - 1;
    while (i > 0 && (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80) i--;
    size_t behind = i;
    if (!is_white_space(next_char(text, behind))) break;
    begin = i;
  }
  return begin;
}

}  // namespace

void AddedTokens::add(AddedToken token, std::string_view search_text, std::string_view name) {
  TG_CHECK(FormatError, search_text.size() <= kMaxAddedTokenBytes, "[tokenizer] ", name, ": got an added token of ",
           search_text.size(), " bytes, expected at most ", kMaxAddedTokenBytes);
  if (search_text.empty()) return;
  PrefixTrie& trie = token.normalized ? normalized_ : raw_;
  if (trie.add(search_text, static_cast<int32_t>(tokens_.size()))) tokens_.push_back(std::move(token));
}

std::vector<AddedSpan> AddedTokens::find(std::string_view text, bool normalized, bool parse_special) const {
  std::vector<AddedSpan> spans;
  const PrefixTrie& trie = normalized ? normalized_ : raw_;
  size_t done = 0;
  for (size_t i = 0; i < text.size() && !trie.empty();) {
    int32_t index = -1;
    const size_t size = trie.longest_prefix(text.substr(i), index);
    if (size == 0) {
      i++;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    size_t begin = i, end = i + size;
    i = end;  // a match that does not count is passed over too
    if (token.special && !parse_special) continue;
    if (token.single_word && (ends_with_word(text.substr(0, begin)) || begins_with_word(text.substr(end)))) continue;
    if (token.lstrip) begin = std::max(done, spaces_at_end(text.substr(0, begin)));
    if (token.rstrip) end += spaces_at_begin(text.substr(end));
    if (done < begin) spans.push_back({done, begin, -1});
    spans.push_back({begin, end, token.id});
    done = std::max(done, end);
  }
  if (done < text.size()) spans.push_back({done, text.size(), -1});
  return spans;
}

bool WordCache::find(std::string_view word, std::vector<int32_t>& out, size_t& slot) {
  if (slots_.empty()) slots_.resize(kSlots);
  uint64_t h = word.size();
  size_t i = 0;
  for (; i + 8 <= word.size(); i += 8) {
    uint64_t w;
    std::memcpy(&w, word.data() + i, 8);
    h = (h ^ w) * 0x9fb21c651e98df25ull;
    h ^= h >> 32;
  }
  uint64_t tail = 0;
  std::memcpy(&tail, word.data() + i, word.size() - i);
  slot = mix64(h ^ tail) & (kSlots - 1);
  const Slot& s = slots_[slot];
  if (s.size != word.size() || std::memcmp(s.word, word.data(), word.size()) != 0) return false;
  out.insert(out.end(), s.tokens, s.tokens + s.count);
  return true;
}

void WordCache::put(std::string_view word, const int32_t* tokens, size_t count, size_t slot) {
  if (count > kMaxTokens) return;
  Slot& s = slots_[slot];
  s.size = static_cast<uint8_t>(word.size());
  s.count = static_cast<uint8_t>(count);
  std::copy(word.begin(), word.end(), s.word);
  std::copy(tokens, tokens + count, s.tokens);
}

std::string Tokenizer::Parts::normalize(std::string_view text) const {
  std::string normal(text);
  const GrowthLimit limit(text.size());
  for (const NormalizerPtr& step : normalizers) {
    normal = step->apply(normal);
    limit.check(normal.size());
  }
  return normal;
}

std::string_view Tokenizer::Parts::decoded_text(int32_t id) const {
  const auto found = decoded.find(id);
  return found == decoded.end() ? std::string_view(texts[static_cast<size_t>(id)]) : found->second;
}

void Tokenizer::Parts::finish(std::vector<int32_t> ends) {
  if (ids.size() == 0) {
    ids = TokenTable(texts.size());
    for (size_t i = 0; i < texts.size(); i++) ids.add(texts[i], static_cast<int32_t>(i));
  }
  for (size_t i = 0; i < texts.size(); i++)
    if (special[i]) special_tokens.push_back(static_cast<int32_t>(i));
  // "<|end|>" ends a channel, not the reply, where there is "<|return|>".
  const bool channels = ids.find("<|return|>") >= 0 && ids.find("<|call|>") >= 0;
  for (const std::string_view text : kEndTexts) {
    const int32_t id = ids.find(text);
    if (id >= 0 && special[static_cast<size_t>(id)] && !(channels && text == "<|end|>")) ends.push_back(id);
  }
  for (const auto& id : {eos, eot})
    if (id) ends.push_back(*id);
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  end_tokens = std::move(ends);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  TG_CHECK(ValueError, text.size() <= kMaxTextBytes, "[encode] got a text of ", text.size(),
           " bytes, expected at most ", kMaxTextBytes);
  std::string repaired;
  if (!is_utf8(text)) text = repaired = utf8_lossy(text);
  std::vector<int32_t> out;
  out.reserve(text.size() / 4 + parts_->before.size() + parts_->behind.size());
  if (options.add_special) out = parts_->before;
  TextEncoder(*parts_, options.parse_special, out).encode(text);
  if (options.add_special) out.insert(out.end(), parts_->behind.begin(), parts_->behind.end());
  return out;
}

std::string Tokenizer::decode(std::span<const int32_t> tokens, bool skip_special) const {
  std::vector<std::string> texts;
  texts.reserve(tokens.size());
  for (const int32_t id : tokens) {
    token_text(id);  // checks the id
    if (!skip_special || !is_special(id)) texts.emplace_back(parts_->decoded_text(id));
  }
  return parts_->decoder.decode(std::move(texts));
}

StreamDecoder Tokenizer::stream_decoder(bool skip_special) const { return StreamDecoder(*this, skip_special); }

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(parts_->texts.size()); }
std::string_view Tokenizer::token_text(int32_t id) const {
  TG_CHECK(IndexError, id >= 0 && id < vocab_size(), "[tokenizer] got token ", id, ", expected one of ", vocab_size());
  return parts_->texts[static_cast<size_t>(id)];
}
std::string Tokenizer::token_bytes(int32_t id, bool first) const {
  token_text(id);  // checks the id
  const std::string_view text = parts_->decoded_text(id);
  return is_special(id) ? std::string(text) : parts_->decoder.bytes(text, first);
}
std::optional<int32_t> Tokenizer::token_id(std::string_view text) const {
  const int32_t id = parts_->ids.find(text);
  return id < 0 ? std::nullopt : std::optional<int32_t>(id);
}
bool Tokenizer::is_special(int32_t id) const {
  token_text(id);  // checks the id
  return parts_->special[static_cast<size_t>(id)];
}
bool Tokenizer::is_end(int32_t id) const {
  return std::binary_search(parts_->end_tokens.begin(), parts_->end_tokens.end(), id);
}
const std::vector<int32_t>& Tokenizer::end_tokens() const { return parts_->end_tokens; }
const std::vector<int32_t>& Tokenizer::special_tokens() const { return parts_->special_tokens; }
std::optional<int32_t> Tokenizer::bos() const { return parts_->bos; }
std::optional<int32_t> Tokenizer::eos() const { return parts_->eos; }
std::optional<int32_t> Tokenizer::eot() const { return parts_->eot; }
std::optional<int32_t> Tokenizer::unk() const { return parts_->unk; }
std::optional<int32_t> Tokenizer::pad() const { return parts_->pad; }
bool Tokenizer::adds_bos() const {
  return parts_->bos && !parts_->before.empty() && parts_->before.front() == *parts_->bos;
}

std::string StreamDecoder::push(int32_t token) {
  if (skip_ && tokenizer_.is_special(token)) return {};
  kept_ += tokenizer_.token_bytes(token, first_);
  first_ = false;
  size_t whole = 0;
  while (whole < kept_.size()) {
    const Utf8Step step = utf8_step(std::string_view(kept_).substr(whole));
    if (step.kind == Utf8Step::kCutOff) break;
    whole += step.size;
  }
  std::string out = utf8_lossy(std::string_view(kept_).substr(0, whole));
  kept_.erase(0, whole);
  return out;
}

std::string StreamDecoder::finish() {
  std::string out = utf8_lossy(kept_);
  kept_.clear();
  first_ = true;
  return out;
}

}  // namespace tg::llm
