#include "tinygrad/llm/serve/choice_text.h"

#include <algorithm>
#include <array>

#include "tinygrad/base/text.h"

namespace tg::llm {
namespace {

/// Returns the bytes of a token as text; what is no UTF-8 becomes U+FFFD.
std::string shown(const Tokenizer& tokenizer, int32_t token) {
  const std::array<int32_t, 1> one{token};
  return tokenizer.decode(one, false);
}

/// Returns the name of a token in the log-probabilities of completions, where names are keys: its text, or its bytes
/// where they are a part of a character, as OpenAI's API writes them.
std::string completion_name(const Tokenizer& tokenizer, int32_t token) {
  const std::string bytes = tokenizer.token_bytes(token);
  if (is_utf8(bytes)) return shown(tokenizer, token);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string name = "bytes:";
  for (const char c : bytes) {
    const auto b = static_cast<unsigned char>(c);
    name += {'\\', 'x', kDigits[b >> 4], kDigits[b & 15]};
  }
  return name;
}

Value bytes_of(const Tokenizer& tokenizer, int32_t token) {
  std::vector<Value> bytes;
  for (const char c : tokenizer.token_bytes(token)) bytes.emplace_back(int64_t{static_cast<unsigned char>(c)});
  return Value::list(std::move(bytes));
}

/// JSON has no infinities.
Value finite(double logprob) { return logprob < -9999 ? Value(-9999.0) : Value(logprob); }

Value token_entry(const Tokenizer& tokenizer, int32_t token, double logprob) {
  return Value::dict(
      {{"token", shown(tokenizer, token)}, {"logprob", finite(logprob)}, {"bytes", bytes_of(tokenizer, token)}});
}

/// Appends an item of a JSON list.
void append_item(std::string& list, const Value& item) {
  if (!list.empty()) list += ',';
  list += item.json(compact_json());
}

/// Special tokens carry the marks of calls and reasoning in many models.
bool has_marks(const std::optional<ReplyForm>& form) {
  return form && (form->tools != ToolCallForm::none || !form->reasoning_open.empty());
}

}  // namespace

ChoiceText::ChoiceText(const Tokenizer& tokenizer, std::vector<std::string> stop, std::optional<ReplyForm> form)
    : decoder_(tokenizer.stream_decoder(!has_marks(form))), stops_(std::move(stop)) {
  if (form) parser_.emplace(std::move(*form));
}

ReplyDelta ChoiceText::parsed(std::string text) {
  if (parser_) return parser_->feed(text);
  ReplyDelta delta;
  delta.content = std::move(text);
  return delta;
}

ReplyDelta ChoiceText::add(const ReplyToken& token, bool record) {
  if (record) records_.push_back({token.token, token.logprob, {token.top.begin(), token.top.end()}});
  return parsed(stops_.add(decoder_.push(token.token)));
}

ReplyDelta ChoiceText::finish() {
  std::string rest;
  if (!stops_.stopped()) rest = stops_.add(decoder_.finish());
  if (!stops_.stopped()) rest += stops_.finish();
  ReplyDelta delta = parsed(std::move(rest));
  if (!parser_) return delta;
  ReplyDelta end = parser_->finish();
  delta.content += end.content;
  delta.reasoning += end.reasoning;
  for (ToolCall& call : end.tool_calls) delta.tool_calls.push_back(std::move(call));
  return delta;
}

std::string chat_logprobs(const Tokenizer& tokenizer, const std::vector<TokenRecord>& records) {
  std::string content;
  for (const TokenRecord& r : records) {
    std::vector<Value> top;
    for (const TokenProbability& t : r.top) top.push_back(token_entry(tokenizer, t.token, t.logprob));
    append_item(content, Value::dict({{"token", shown(tokenizer, r.token)},
                                      {"logprob", finite(r.logprob)},
                                      {"bytes", bytes_of(tokenizer, r.token)},
                                      {"top_logprobs", Value::list(std::move(top))}}));
  }
  return str(R"({"content":[)", content, R"(],"refusal":null})");
}

int64_t count_characters(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

std::string completion_logprobs(const Tokenizer& tokenizer, const std::vector<TokenRecord>& records, int64_t& offset) {
  std::string tokens, logprobs, tops, offsets;
  for (const TokenRecord& r : records) {
    std::vector<Value::Entry> top;
    for (const TokenProbability& t : r.top) top.emplace_back(completion_name(tokenizer, t.token), finite(t.logprob));
    append_item(tokens, completion_name(tokenizer, r.token));
    append_item(logprobs, finite(r.logprob));
    append_item(tops, Value::dict(std::move(top)));
    append_item(offsets, offset);
    offset += count_characters(tokenizer.token_bytes(r.token));
  }
  return str(R"({"tokens":[)", tokens, R"(],"token_logprobs":[)", logprobs, R"(],"top_logprobs":[)", tops,
             R"(],"text_offset":[)", offsets, "]}");
}

Value tool_call_value(const ToolCall& call, std::optional<int64_t> index) {
  std::vector<Value::Entry> entries;
  if (index) entries.emplace_back("index", *index);
  entries.emplace_back("id", call.id);
  entries.emplace_back("type", "function");
  entries.emplace_back("function", Value::dict({{"name", call.name}, {"arguments", call.arguments}}));
  return Value::dict(std::move(entries));
}

}  // namespace tg::llm
