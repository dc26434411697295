/// \file What a model's reply says: its text, its reasoning and the tools it calls, from the forms models were
/// trained to
/// write. The parser takes the reply in pieces of any size and gives out what is certain, so it serves streams.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tg::llm {

/// How a model writes calls of tools.
enum class ToolCallForm : uint8_t {
  none,     ///< all is text
  hermes,   ///< <tool_call>{"name": ..., "arguments": {...}}</tool_call>: Hermes, Qwen 2.5 and 3, Granite 4, SmolLM3
  xml,      ///< <tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>: Qwen 3 Coder
  glm,      ///< <tool_call>NAME<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>: GLM 4.5
  llama3,   ///< {"name": ..., "parameters": {...}}, perhaps after <|python_tag|>: Llama 3.1 to 3.3
  mistral,  ///< [TOOL_CALLS][{"name": ..., "arguments": {...}}], or [TOOL_CALLS]NAME[ARGS]{...}
  functionary,  ///< <function=NAME>{...}</function>, or >>>NAME\n{...}, where >>>all\n begins text
  deepseek,     ///< <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\n{...}\n```...
  command_r,    ///< Action: ```json [{"tool_name": ..., "parameters": {...}}] ```, or <|START_ACTION|>[...]
  granite,      ///< <|tool_call|>[{"name": ..., "arguments": {...}}]: Granite 3; Phi-4 mini writes the same
  kimi,         ///< <|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{...}<|tool_call_end|>
  harmony       ///< <|channel|>commentary to=functions.NAME <|message|>{...}<|call|>, perhaps with the name before the
                ///< channel: gpt-oss
};

struct ReplyForm {
  ToolCallForm tools = ToolCallForm::none;
  std::string reasoning_open, reasoning_close;  ///< `<think>`, `</think>`; empty: the model does not mark reasoning
  bool starts_in_reasoning = false;             ///< the prompt already ends with reasoning_open
};

/// Returns the form that a chat template shows: it looks for the marks of each form in the source. `prompt` is the
/// rendered conversation, whose end says whether the reply begins inside of reasoning.
ReplyForm detect_reply_form(std::string_view template_source, std::string_view prompt = {});

struct ToolCall {
  std::string id;  ///< as the model wrote it, or call_N
  std::string name;
  std::string arguments;  ///< JSON text of an object
};

/// What a piece of a reply added.
struct ReplyDelta {
  std::string content, reasoning;
  std::vector<ToolCall> tool_calls;  ///< those complete now
  bool empty() const { return content.empty() && reasoning.empty() && tool_calls.empty(); }
};

/// Reads a reply piece by piece. A call that turns out to be malformed is given out as content, never lost. A call
/// above
/// kMaxToolCallBytes is content too.
class ReplyParser {
 public:
  static constexpr size_t kMaxToolCallBytes = size_t{1} << 20;
  static constexpr size_t kMaxToolCalls = 128;

  explicit ReplyParser(ReplyForm form);
  /// Takes more text; what could be the beginning of a mark is held back until it is certain.
  ReplyDelta feed(std::string_view text);
  /// Takes the end of the reply: gives out what was held back.
  ReplyDelta finish();

 private:
  enum class State : uint8_t { content, reasoning, call };
  /// A mark in the text that is held.
  struct Mark {
    enum class Kind : uint8_t { thought, call, noise };
    size_t at = 0, free = 0;
    std::string_view open, close;
    Kind kind = Kind::noise;
    bool certain = false;
  };
  Mark first_mark(bool at_end) const;
  size_t end_of_call();
  bool step(ReplyDelta& out, bool at_end);
  bool step_reasoning(ReplyDelta& out, bool at_end);
  bool step_content(ReplyDelta& out, bool at_end);
  bool step_call(ReplyDelta& out, bool at_end);
  void give_content(ReplyDelta& out, std::string_view text);

  ReplyForm form_;
  State state_;
  std::string held_;          // not given out yet
  std::string open_, close_;  // the marks around the call being read
  size_t searched_ = 0;       // bytes of held_ without close_
  size_t calls_ = 0;
  bool content_begun_ = false, trim_ = false;
};

/// Reads a whole reply.
ReplyDelta parse_reply(std::string_view text, const ReplyForm& form);

}  // namespace tg::llm
