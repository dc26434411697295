/// \file CLIP's list of merges as a tokenizer.json.
#include "models/clip_tokenizer.h"

#include <nlohmann/json.hpp>
#include <string>

#include "tinygrad/base/error.h"
#include "tinygrad/base/text.h"

namespace tg::models {
namespace {

using Json = nlohmann::ordered_json;
constexpr size_t kMerges = 49152 - 256 - 2;
constexpr const char* kBegin = "<|startoftext|>";
constexpr const char* kEnd = "<|endoftext|>";

/// Appends a character below U+0800 as UTF-8.
void append_character(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else {
    out += static_cast<char>(0xC0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

/// Returns the characters that stand for bytes: printable ones for themselves, in their order, then U+0100 and on for
/// the others.
std::vector<std::string> spelled_bytes() {
  auto printable = [](uint32_t b) { return (b > 32 && b < 127) || (b > 160 && b != 173); };
  std::vector<std::string> out;
  for (uint32_t b = 0; b < 256; b++)
    if (printable(b)) append_character(out.emplace_back(), b);
  for (uint32_t other = 256; out.size() < 256; other++) append_character(out.emplace_back(), other);
  return out;
}

std::vector<std::string> merges_of(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty() && out.size() < kMerges) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    // A comment is longer than a merge, which may begin with this character too.
    if (!line.empty() && !(out.empty() && line.starts_with("\"bpe_simple_vocab")) && !line.starts_with("#version"))
      out.emplace_back(line);
  }
  return out;
}

Json tokenizer_json(std::string_view text) {
  TG_CHECK(FormatError, is_utf8(text), "[ClipTokenizer] got a list of merges that is not UTF-8");
  const std::vector<std::string> merges = merges_of(text);
  Json vocabulary = Json::object();
  int32_t next = 0;
  for (const char* end : {"", "</w>"})
    for (const std::string& byte : spelled_bytes()) vocabulary[byte + end] = next++;
  for (const std::string& merge : merges) {
    const size_t space = merge.find(' ');
    TG_CHECK(FormatError, space != std::string::npos, "[ClipTokenizer] got \"", merge.substr(0, 100),
             "\", expected two parts of a word");
    vocabulary[merge.substr(0, space) + merge.substr(space + 1)] = next++;
  }
  Json added = Json::array();
  for (const char* special : {kBegin, kEnd})
    added.push_back({{"id", next++},
                     {"content", special},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", R"('s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+)"}}},
                      {"behavior", "Removed"},
                      {"invert", true}};
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "NFC"}},
              {{"type", "Replace"}, {"pattern", {{"Regex", "\\s+"}}}, {"content", " "}},
              {{"type", "Lowercase"}}}}}},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}}},
          {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}}},
          {"model",
           {{"type", "BPE"},
            {"end_of_word_suffix", "</w>"},
            {"continuing_subword_prefix", ""},
            {"vocab", vocabulary},
            {"merges", merges}}}};
}

llm::Tokenizer made(std::string_view merges) {
  const std::string json = tokenizer_json(merges).dump();
  return llm::Tokenizer::from_json({reinterpret_cast<const uint8_t*>(json.data()), json.size()}, "CLIP's merges");
}

}  // namespace

ClipTokenizer::ClipTokenizer(std::string_view merges) : tokenizer_(made(merges)) {}

std::vector<int32_t> ClipTokenizer::encode(std::string_view text, bool pad_with_zeros, int64_t length) const {
  TG_CHECK(ValueError, length >= 2, "[ClipTokenizer] got length ", length, ", expected room for begin and end");
  const std::vector<int32_t> words = tokenizer_.encode(text, {.add_special = false});
  const int32_t begin = *tokenizer_.token_id(kBegin), end = *tokenizer_.token_id(kEnd);
  std::vector<int32_t> out = {begin};
  for (size_t i = 0; i < words.size() && out.size() + 1 < static_cast<size_t>(length); i++) out.push_back(words[i]);
  out.push_back(end);
  out.resize(static_cast<size_t>(length), pad_with_zeros ? 0 : end);
  return out;
}

}  // namespace tg::models
