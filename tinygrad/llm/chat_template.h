/// \file Chat templates: the text a model was trained to read, from messages and tools. The language is the part of
/// Jinja that GGUF and Hugging Face files use; a template sees nothing but the values it is given, and every limit
/// below
/// ends it with an error. Blocks are trimmed as Hugging Face's `apply_chat_template` does (trim_blocks, lstrip_blocks).
/// Source: https://jinja.palletsprojects.com/en/stable/templates/
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/base/error.h"
#include "tinygrad/llm/value.h"

namespace tg::llm {

/// What a template may cost before it is refused.
struct TemplateLimits {
  size_t source_bytes = size_t{1} << 20;   ///< length of the template
  int nesting = 100;                       ///< brackets and blocks inside of each other in the source
  int call_depth = 64;                     ///< macros that call macros
  int64_t steps = 10'000'000;              ///< expressions, statements and compared characters (by 64)
  size_t output_bytes = size_t{32} << 20;  ///< length of the rendered text
  size_t value_bytes = size_t{256} << 20;  ///< all strings and lists made on the way
};

/// A template that is wrong, fails or passes a limit. The message is `[chat_template] NAME:LINE: what`.
struct TemplateError : FormatError {
  enum class Reason {
    syntax,   ///< no such statement, filter, ...
    runtime,  ///< a value of the wrong kind, a missing key, ...
    limit,    ///< a limit of TemplateLimits
    raised    ///< the template called raise_exception: the conversation does not suit it
  };
  TemplateError(Reason reason, int line, const std::string& message)
      : FormatError(message), reason(reason), line(line) {}
  Reason reason;
  int line;  ///< of the template, from 1
};

/// A rendered conversation. `from_template` are the parts that stand in the template (or are its begin and end tokens),
/// sorted and apart: only there may a tokenizer look for special tokens, so that no message can contain one.
struct RenderedChat {
  std::string text;
  std::vector<ByteRange> from_template;
  std::vector<ByteRange> generation;  ///< what stood in `{% generation %}` blocks: replies of the assistant
};

/// What a template is given. Where a member is none, the template sees `none`, as with Hugging Face.
struct ChatInput {
  Value messages;   ///< list of dictionaries with `role`, `content`, perhaps `tool_calls`, ...
  Value tools;      ///< list of tools in OpenAI's form, or none
  Value documents;  ///< list of documents, or none
  bool add_generation_prompt = true;
  std::string bos_token, eos_token;     ///< texts of the tokenizer's special tokens; their parts are `from_template`
  Value variables;                      ///< dictionary of further variables (`enable_thinking`, ...), or none
  std::optional<int64_t> unix_seconds;  ///< what strftime_now says, in UTC; the clock's local time where empty
};

namespace jinja {
struct Program;
}

/// A template, parsed once; rendering is const and may run on several threads.
class ChatTemplate {
 public:
  /// Parses a template; TemplateError where it is wrong, too long or nested too deeply. `name` is for messages.
  explicit ChatTemplate(std::string source, std::string name = "chat template", const TemplateLimits& limits = {});

  /// Renders a conversation; TemplateError that names the line where the template fails.
  RenderedChat render(const ChatInput& input) const;
  /// Renders with these variables and nothing else: any template of the language.
  RenderedChat render_variables(const Value& variables, std::optional<int64_t> unix_seconds = {}) const;

  const std::string& source() const { return source_; }
  /// Returns whether the template reads a variable of this name anywhere, e.g. "tools" or "enable_thinking".
  bool reads(std::string_view variable) const;

 private:
  std::string source_;
  TemplateLimits limits_;
  std::shared_ptr<const jinja::Program> program_;
};

}  // namespace tg::llm
