#include "tinygrad/llm/chat_prompt.h"

#include <algorithm>

namespace tg::llm {

ChatEncoder::ChatEncoder(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {
  for (const int32_t id : tokenizer_.special_tokens())
    if (!tokenizer_.token_text(id).empty()) special_.emplace_back(tokenizer_.token_text(id), id);
  std::sort(special_.begin(), special_.end(), [](const auto& a, const auto& b) {
    const auto key = [](const auto& s) { return static_cast<unsigned char>(s.first[0]); };
    if (key(a) != key(b)) return key(a) < key(b);
    return a.first.size() != b.first.size() ? a.first.size() > b.first.size() : a.second < b.second;
  });
}

std::vector<int32_t> ChatEncoder::encode(const RenderedChat& chat) const {
  const std::string_view text = chat.text;
  std::vector<int32_t> tokens;
  size_t begin = 0;  // of the stretch that is not encoded yet
  const auto encode_to = [&](size_t end) {
    if (end == begin) return;
    const std::vector<int32_t> some = tokenizer_.encode(text.substr(begin, end - begin), {.add_special = false});
    tokens.insert(tokens.end(), some.begin(), some.end());
  };
  for (const ByteRange& range : chat.from_template) {
    for (size_t at = std::max(range.begin, begin); at < range.end;) {
      const std::string_view rest = text.substr(at, range.end - at);
      const auto first = std::lower_bound(special_.begin(), special_.end(), rest[0], [](const auto& s, char c) {
        return static_cast<unsigned char>(s.first[0]) < static_cast<unsigned char>(c);
      });
      auto found = special_.end();
      for (auto s = first; s != special_.end() && s->first[0] == rest[0] && found == special_.end(); ++s)
        if (rest.starts_with(s->first)) found = s;
      if (found == special_.end()) {
        at++;
        continue;
      }
      encode_to(at);
      tokens.push_back(found->second);
      at += found->first.size();
      begin = at;
    }
  }
  encode_to(text.size());
  if (tokenizer_.adds_bos() && tokenizer_.bos() && (tokens.empty() || tokens[0] != *tokenizer_.bos()))
    tokens.insert(tokens.begin(), *tokenizer_.bos());
  return tokens;
}

}  // namespace tg::llm
