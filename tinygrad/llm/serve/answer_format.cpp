#include "tinygrad/llm/serve/answer_format.h"

#include <random>

namespace tg::llm {

ReplyUsage usage_of(const ReplyState& s) {
  ReplyUsage sum;
  for (size_t i = 0; i < s.choices.size(); i++) {
    sum.reply += s.choices[i].end.reply_tokens;
    if (i % static_cast<size_t>(s.options.choices)) continue;
    sum.prompt += s.choices[i].end.prompt_tokens;
    sum.cached += s.choices[i].end.cached_tokens;
  }
  return sum;
}

std::string stream_event(std::string_view name, std::string_view json) {
  return name.empty() ? str("data: ", json, "\n\n") : str("event: ", name, "\ndata: ", json, "\n\n");
}

std::string with_member(const Value& object, std::string_view name, std::string_view json) {
  std::string text = object.json(compact_json());
  text.pop_back();
  return str(text, object.size() > 0 ? ",\"" : "\"", name, "\":", json, "}");
}

std::string random_id(std::string_view prefix) {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  static thread_local std::mt19937_64 random{std::random_device{}()};
  std::string id(prefix);
  for (int i = 0; i < 24; i++) id += kLetters[random() % kLetters.size()];
  return id;
}

}  // namespace tg::llm
