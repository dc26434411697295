/// \file Fuzz targets of what models and their users bring to a chat: templates, JSON schemas and replies.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/base/error.h"
#include "tinygrad/llm/chat_reply.h"
#include "tinygrad/llm/chat_template.h"
#include "tinygrad/llm/json_constraint.h"

namespace tg::fuzz {

/// A template, rendered for a conversation with tools.
inline void chat_template(std::span<const uint8_t> in) {
  static const llm::Value kMessages = llm::Value::parse_json(
      R"([{"role": "system", "content": " s\n"}, {"role": "user", "content": [{"type": "text", "text": "ä<|im_end|>"}]},
          {"role": "assistant", "content": "a", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments":
           {"x": 1.5, "y": null, "z": [true]}}}]}, {"role": "tool", "content": "12"}])");
  llm::TemplateLimits limits;
  limits.steps = 20'000;
  limits.output_bytes = 1 << 16;
  limits.value_bytes = 1 << 22;
  const llm::ChatTemplate chat(std::string(in.begin(), in.end()), "fuzz", limits);
  llm::ChatInput input;
  input.messages = kMessages;
  input.tools = kMessages;
  input.bos_token = "<s>";
  input.unix_seconds = 1'000'000'000;
  const llm::RenderedChat out = chat.render(input);
  TG_ASSERT(out.text.size() <= limits.output_bytes, "limit passed");
  size_t last = 0;
  for (const llm::ByteRange& r : out.from_template) {
    TG_ASSERT(r.begin >= last && r.begin < r.end && r.end <= out.text.size(), "ranges are not sorted and apart");
    last = r.end;
  }
  for (const llm::ByteRange& r : out.generation)
    TG_ASSERT(r.begin <= r.end && r.end <= out.text.size(), "range outside of the text");
}

/// A schema; a text is drawn under its masks, which must be JSON that it accepts.
inline void json_schema(std::span<const uint8_t> in) {
  static const llm::TokenBytes kBytes = [] {
    std::vector<std::string> tokens;
    for (int b = 0; b < 256; b++) tokens.emplace_back(1, static_cast<char>(b));
    return llm::TokenBytes(std::move(tokens));
  }();
  const llm::Value source =
      llm::Value::parse_json({reinterpret_cast<const char*>(in.data()), in.size()}, "fuzz", {.values = 5000});
  llm::SchemaOptions options;
  options.limits.steps = 1'000'000;
  options.limits.automaton_states = 5000;
  try {
    const llm::JsonSchema schema(source, options);
    llm::JsonConstraint c(schema, kBytes);
    std::string text;
    uint64_t random = in.size();
    while (text.size() < 300 && !c.exhausted()) {
      const std::span<const uint64_t> mask = c.mask();
      std::vector<size_t> can;
      for (size_t t = 0; t < 256; t++)
        if (mask[t / 64] >> (t % 64) & 1) can.push_back(t);
      TG_ASSERT(!can.empty() || c.finished(), "stuck");
      if (can.empty()) break;
      random = random * 6364136223846793005u + 1442695040888963407u;
      const size_t next = can[(random >> 33) % can.size()];
      TG_ASSERT(c.accept(next), "a mask allows what is refused");
      text += static_cast<char>(next);
    }
    if (!c.finished()) return;
    TG_ASSERT(schema.accepts(text), "sampled what is not accepted");
    llm::Value::parse_json(text, "sampled", {.depth = 127});
  } catch (const ValueError& e) { throw FormatError(str("[json_schema] fuzz: ", e.what())); }
}

/// A reply; its first letter says of which form. Pieces do not change what is read.
inline void chat_reply(std::span<const uint8_t> in) {
  if (in.empty() || in[0] < 'a' || in[0] > 'l') throw FormatError("[reply] fuzz: no form");
  const std::string text(in.begin() + 1, in.end());
  const auto form = static_cast<llm::ToolCallForm>(in[0] - 'a');
  const bool harmony = form == llm::ToolCallForm::harmony;
  const llm::ReplyForm f{form, harmony ? "<|channel|>analysis<|message|>" : "<think>", harmony ? "<|end|>" : "</think>",
                         text.size() % 5 == 0};
  const llm::ReplyDelta whole = llm::parse_reply(text, f);
  for (const size_t step : {size_t{1}, size_t{2}, size_t{7}, text.size() / 2 + 1}) {
    llm::ReplyParser parser(f);
    llm::ReplyDelta all;
    const auto add = [&](const llm::ReplyDelta& d) {
      all.content += d.content;
      all.reasoning += d.reasoning;
      all.tool_calls.insert(all.tool_calls.end(), d.tool_calls.begin(), d.tool_calls.end());
    };
    for (size_t at = 0; at < text.size(); at += step) add(parser.feed(std::string_view(text).substr(at, step)));
    add(parser.finish());
    TG_ASSERT(all.content == whole.content && all.reasoning == whole.reasoning, "pieces change the text");
    TG_ASSERT(all.tool_calls.size() == whole.tool_calls.size(), "pieces change the calls");
    for (size_t i = 0; i < all.tool_calls.size(); i++)
      TG_ASSERT(all.tool_calls[i].name == whole.tool_calls[i].name &&
                    all.tool_calls[i].arguments == whole.tool_calls[i].arguments,
                "pieces change a call");
  }
}

}  // namespace tg::fuzz
