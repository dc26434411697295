#include "tinygrad/llm/tokenize/text_normalizer.h"

#include <cstring>
#include <utility>

#include "tinygrad/base/error.h"
#include "tinygrad/base/text.h"
#include "tinygrad/llm/tokenize/growth_limit.h"

namespace tg::llm {
namespace {

/// A step that is a function of the text.
template <class F> class FunctionStep : public NormalizerStep {
 public:
  explicit FunctionStep(F f) : f_(std::move(f)) {}
  std::string apply(std::string_view text) const override { return f_(text); }

 private:
  F f_;
};
template <class F> NormalizerPtr step(F f) { return std::make_unique<FunctionStep<F>>(std::move(f)); }

/// Returns the text of what `each(out, character)` appends.
template <class F> std::string map_chars(std::string_view text, F&& each) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) each(out, next_char(text, i));
  return out;
}

bool is_ascii(std::string_view text) {
  for (const char c : text)
    if (static_cast<signed char>(c) < 0) return false;
  return true;
}

std::string clean_text(std::string_view text, bool pad_cjk, bool clean) {
  return map_chars(text, [&](std::string& out, char32_t c) {
    if (clean) {
      const bool line = c == '\t' || c == '\n' || c == '\r';
      if (!line && (c == 0xfffd || is_other(c))) return;
      if (line || is_white_space(c)) {
        out += ' ';
        return;
      }
    }
    const bool pad = pad_cjk && is_cjk(c);
    if (pad) out += ' ';
    append_utf8(out, c);
    if (pad) out += ' ';
  });
}

std::string without_accents(std::string_view text) {
  return map_chars(normalized(text, NormalForm::kNFD), [](std::string& out, char32_t c) {
    if (!is_nonspacing_mark(c)) append_utf8(out, c);
  });
}

std::string lower(std::string_view text) { return map_chars(text, append_lower); }

/// What sentencepiece's rule nmt drops, and what becomes a space.
bool nmt_drops(char32_t c) {
  return (c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f;
}
bool nmt_spaces(char32_t c) {
  return c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 || (c >= 0x200b && c <= 0x200f) || c == 0x2028 ||
         c == 0x2029 || c == 0x2581 || c == 0xfeff || c == 0xfffd;
}

class SentencePieceStep : public NormalizerStep {
 public:
  SentencePieceStep(CharsMap map, PrefixTrie user_defined, SentencePieceOptions options)
      : map_(std::move(map)), user_defined_(std::move(user_defined)), options_(options) {}

  std::string apply(std::string_view text) const override {
    const bool squeeze = options_.remove_extra_whitespaces;
    if (squeeze) {
      size_t used = 0;
      while (!text.empty() && prefix(text, used) == " ") text.remove_prefix(used);
    }
    std::string out;
    if (text.empty()) return out;
    out.reserve(text.size() + text.size() / 4);
    if (options_.add_dummy_prefix) out += kSpaceMark;
    bool after_space = squeeze;
    const GrowthLimit limit(text.size());
    while (!text.empty()) {
      limit.check(out.size());
      size_t used = 0;
      std::string_view part = prefix(text, used);
      while (after_space && part.starts_with(' ')) part.remove_prefix(1);
      for (const char c : part) {
        if (c == ' ') out += kSpaceMark;
        else out += c;
      }
      if (!part.empty()) after_space = part.ends_with(' ');
      if (!squeeze) after_space = false;
      text.remove_prefix(used);
    }
    while (squeeze && std::string_view(out).ends_with(kSpaceMark)) out.resize(out.size() - kSpaceMark.size());
    return out;
  }

 private:
  /// Returns what the first part of a text becomes, and the bytes of that part.
  std::string_view prefix(std::string_view text, size_t& used) const {
    int32_t id = -1;
    used = user_defined_.longest_prefix(text, id);
    if (used > 0) return text.substr(0, used);
    std::string_view replacement;
    used = map_.find(text, true, replacement);
    if (used > 0) return replacement;
    used = utf8_length(text[0]);
    return text.substr(0, used);
  }
  CharsMap map_;
  PrefixTrie user_defined_;
  SentencePieceOptions options_;
};

}  // namespace

CharsMap::CharsMap(std::span<const uint8_t> bytes, std::string_view name) {
  if (bytes.empty()) return;
  uint32_t size = 0;
  if (bytes.size() > sizeof size) std::memcpy(&size, bytes.data(), sizeof size);
  TG_CHECK(FormatError, size > 0 && size % 4 == 0 && size < bytes.size() - 4, "[tokenizer] ", name,
           ": got a precompiled_charsmap of ", bytes.size(), " bytes with a trie of ", size);
  units_.resize(size / 4);
  std::memcpy(units_.data(), bytes.data() + 4, size);
  const auto rest = bytes.subspan(4 + size);
  texts_.assign(rest.begin(), rest.end());
  TG_CHECK(FormatError, is_utf8(texts_) && texts_.back() == 0, "[tokenizer] ", name,
           ": got a precompiled_charsmap whose texts are not UTF-8 that ends with a zero byte");
}

size_t CharsMap::find(std::string_view at, bool longest, std::string_view& replacement) const {
  if (units_.empty()) return 0;
  // A unit: its label in bits 0 to 7, whether a value follows in bit 8, the offset of its children above that.
  const auto offset = [](uint32_t unit) { return (unit >> 10) << ((unit & 1u << 9) >> 6); };
  size_t best = 0, node = offset(units_[0]);
  for (size_t i = 0; i < at.size(); i++) {
    const auto byte = static_cast<unsigned char>(at[i]);
    if (byte == 0) break;
    node ^= byte;
    if (node >= units_.size()) break;
    const uint32_t unit = units_[node];
    if ((unit & (1u << 31 | 0xff)) != byte) break;
    node ^= offset(unit);
    if (node >= units_.size()) break;
    if ((unit >> 8 & 1) == 0) continue;
    const size_t value = units_[node] & ((1u << 31) - 1);
    if (value >= texts_.size()) break;
    if (value > 0 && (static_cast<unsigned char>(texts_[value]) & 0xc0) == 0x80) break;  // inside of a character
    replacement = std::string_view(texts_).substr(value, texts_.find('\0', value) - value);
    best = i + 1;
    if (!longest) break;
  }
  return best;
}

NormalizerPtr bert_normalizer(BertNormalizerOptions o) {
  return step([o](std::string_view text) {
    std::string out = o.clean || o.cjk ? clean_text(text, o.cjk, o.clean) : std::string(text);
    if (o.accents && !is_ascii(out)) out = without_accents(out);
    return o.lower ? lower(out) : out;
  });
}
NormalizerPtr unicode_normalizer(NormalForm form) {
  return step([form](std::string_view text) { return is_ascii(text) ? std::string(text) : normalized(text, form); });
}
NormalizerPtr lowercase_normalizer() { return step(lower); }
NormalizerPtr strip_normalizer(bool left, bool right) {
  return step([=](std::string_view text) {
    size_t begin = text.size(), end = 0;
    for (size_t i = 0; i < text.size();) {
      const size_t at = i;
      if (is_white_space(next_char(text, i))) continue;
      begin = std::min(begin, at);
      end = i;
    }
    if (end == 0) return left || right ? std::string() : std::string(text);
    return std::string(text.substr(left ? begin : 0, (right ? end : text.size()) - (left ? begin : 0)));
  });
}
NormalizerPtr strip_accents_normalizer() {
  return step([](std::string_view text) {
    return map_chars(text, [](std::string& out, char32_t c) {
      if (!is_mark(c)) append_utf8(out, c);
    });
  });
}
NormalizerPtr prepend_normalizer(std::string prefix) {
  return step(
      [prefix = std::move(prefix)](std::string_view text) { return text.empty() ? std::string() : str(prefix, text); });
}
NormalizerPtr replace_normalizer(SplitPattern pattern, std::string content) {
  return step([pattern = std::move(pattern), content = std::move(content)](std::string_view text) {
    std::string out;
    const GrowthLimit limit(text.size());
    SplitPattern::Search search(pattern, text);
    size_t done = 0, from = 0, begin = 0, end = 0;
    while (from <= text.size() && search.find(from, begin, end)) {
      out += text.substr(done, begin - done);
      out += content;
      limit.check(out.size());
      done = end;
      from = end > begin ? end : end < text.size() ? end + utf8_length(text[end]) : end + 1;
    }
    return out += text.substr(done);
  });
}
NormalizerPtr nmt_normalizer() {
  return step([](std::string_view text) {
    return map_chars(text, [](std::string& out, char32_t c) {
      if (nmt_spaces(c)) out += ' ';
      else if (!nmt_drops(c)) append_utf8(out, c);
    });
  });
}
NormalizerPtr precompiled_normalizer(CharsMap map) {
  return step([map = std::move(map)](std::string_view text) {
    constexpr size_t kWholeCluster = 6;  // longer clusters are replaced character by character
    std::string out;
    const GrowthLimit limit(text.size());
    for (size_t i = 0; i < text.size();) {
      limit.check(out.size());
      const size_t end = grapheme_end(text, i);
      std::string_view replacement;
      if (end - i < kWholeCluster && map.find(text.substr(i, end - i), false, replacement) > 0) {
        out += replacement;
        i = end;
      }
      while (i < end) {
        const std::string_view c = text.substr(i, utf8_length(text[i]));
        out += map.find(c, false, replacement) > 0 ? replacement : c;
        i += c.size();
      }
    }
    return out;
  });
}
NormalizerPtr sentencepiece_normalizer(CharsMap map, PrefixTrie user_defined, SentencePieceOptions options) {
  return std::make_unique<SentencePieceStep>(std::move(map), std::move(user_defined), options);
}

}  // namespace tg::llm
