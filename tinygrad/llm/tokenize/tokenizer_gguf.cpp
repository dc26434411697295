/// \file The metadata of GGUF files that tokenizers are made from.
#include <limits>

#include "tinygrad/base/error.h"
#include "tinygrad/io/gguf.h"
#include "tinygrad/llm/tokenize/tokenizer_parts.h"

namespace tg::llm {

TokenizerData tokenizer_data(const io::GgufMetadata& metadata) {
  const auto key = [](std::string_view name) { return str("tokenizer.ggml.", name); };
  const auto id = [&](std::string_view name) -> std::optional<int64_t> {
    if (!metadata.contains(key(name))) return std::nullopt;
    return metadata.integer(key(name), -1, std::numeric_limits<uint32_t>::max());
  };
  const auto flag = [&](std::string_view name) -> std::optional<bool> {
    if (!metadata.contains(key(name))) return std::nullopt;
    return metadata.flag(key(name));
  };
  const auto texts = [&](std::string_view name) {
    const auto list = metadata.strings(key(name));
    return std::vector<std::string>(list.begin(), list.end());
  };
  TokenizerData d;
  d.model = metadata.string(key("model"));
  d.pre = metadata.string_or(key("pre"), "");
  d.tokens = texts("tokens");
  if (metadata.contains(key("merges"))) d.merges = texts("merges");
  if (metadata.contains(key("scores")))
    for (const double s : metadata.reals(key("scores"))) d.scores.push_back(static_cast<float>(s));
  if (metadata.contains(key("token_type")))
    for (const int64_t t : metadata.integers(key("token_type"), 0, static_cast<int64_t>(TokenType::kByte)))
      d.token_types.push_back(static_cast<int32_t>(t));
  if (metadata.contains(key("precompiled_charsmap")))
    for (const int64_t b : metadata.integers(key("precompiled_charsmap"), -128, 255))
      d.precompiled_charsmap.push_back(static_cast<uint8_t>(b));
  d.bos = id("bos_token_id");
  d.eos = id("eos_token_id");
  d.eot = id("eot_token_id");
  d.eom = id("eom_token_id");
  d.unk = id("unknown_token_id");
  d.sep = id("seperator_token_id");  // spelled so in the files
  d.pad = id("padding_token_id");
  d.cls = id("cls_token_id");
  d.mask = id("mask_token_id");
  d.add_bos = flag("add_bos_token");
  d.add_eos = flag("add_eos_token");
  d.add_sep = flag("add_sep_token");
  d.add_space_prefix = flag("add_space_prefix");
  d.remove_extra_whitespaces = flag("remove_extra_whitespaces");
  return d;
}

Tokenizer Tokenizer::from_gguf(const io::GgufMetadata& metadata) {
  return from_data(tokenizer_data(metadata), metadata.file());
}

}  // namespace tg::llm
