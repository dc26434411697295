/// \file The fake language model with a tokenizer of bytes and a chat template, as the server takes it.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "helpers/fake_language_model.h"
#include "tinygrad/llm/server.h"

namespace tg::test {

inline void append_utf8(std::string& s, unsigned code) {
  if (code < 0x80) {
    s += static_cast<char>(code);
  } else {
    s += static_cast<char>(0xc0 | code >> 6);
    s += static_cast<char>(0x80 | (code & 63));
  }
}

/// Returns a vocabulary whose tokens are the bytes, <|im_end|> and <|im_start|>.
inline llm::TokenizerData byte_vocabulary() {
  llm::TokenizerData data;
  data.model = "gpt2";
  data.pre = "gpt-2";
  unsigned extra = 256;  // byte-level vocabularies spell bytes that are no visible characters with those from U+0100 on
  for (unsigned b = 0; b < 256; b++) {
    const bool visible = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
    std::string text;
    append_utf8(text, visible ? b : extra++);
    data.tokens.push_back(std::move(text));
    data.token_types.push_back(1);
  }
  for (const char* special : {"<|im_end|>", "<|im_start|>"}) {
    data.tokens.emplace_back(special);
    data.token_types.push_back(3);
  }
  data.eos = data.eot = kFakeEnd;
  data.add_bos = false;
  return data;
}
inline llm::Tokenizer byte_tokenizer() { return llm::Tokenizer::from_data(byte_vocabulary(), "bytes"); }

inline constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

inline llm::ServedModel served(std::shared_ptr<FakeLanguageModel> model) {
  llm::ServedModel m;
  m.id = "fake";
  m.aliases = {"other-name"};
  m.model = std::move(model);
  m.tokenizer = byte_tokenizer();
  m.chat_template.chat = std::make_shared<llm::ChatTemplate>(kChatMl);
  m.embed = [](std::span<const std::string> texts) {
    std::vector<std::vector<float>> out;
    for (const std::string& t : texts) out.push_back({static_cast<float>(t.size()), 0.5f, -1.0f});
    return out;
  };
  m.embedding_context = 50;
  return m;
}

}  // namespace tg::test
