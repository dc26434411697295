/// \file From a rendered conversation to tokens: special tokens come from the template's own text, never a message.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/llm/chat_template.h"
#include "tinygrad/llm/tokenizer.h"

namespace tg::llm {

/// Finds the special tokens of a tokenizer in texts; made once for all conversations.
class ChatEncoder {
 public:
  explicit ChatEncoder(Tokenizer tokenizer);
  /// Returns the tokens of a conversation. A special token is recognized where all of it stands in the template; other
  /// text, with the template's around it, is encoded as one stretch. The begin token is put first where the model wants
  /// one and the template has none.
  std::vector<int32_t> encode(const RenderedChat& chat) const;
  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  Tokenizer tokenizer_;
  std::vector<std::pair<std::string, int32_t>> special_;  // by first byte, the longest first
};

}  // namespace tg::llm
