/// \file Chat templates.
#include "tinygrad/llm/chat_template.h"

#include "tinygrad/llm/template/marked_text.h"
#include "tinygrad/llm/template/template_ast.h"
#include "tinygrad/llm/template/template_eval.h"

namespace tg::llm {

ChatTemplate::ChatTemplate(std::string source, std::string name, const TemplateLimits& limits)
    : source_(std::move(source)), limits_(limits) {
  if (source_.size() > limits.source_bytes)
    throw TemplateError(
        TemplateError::Reason::limit, 1,
        str("[chat_template] ", name, ":1: got ", source_.size(), " bytes, at most ", limits.source_bytes));
  program_ = jinja::parse_program(source_, name, limits_);
}

RenderedChat ChatTemplate::render(const ChatInput& input) const {
  std::vector<Value::Entry> all{{"messages", input.messages},
                                {"tools", input.tools},
                                {"documents", input.documents},
                                {"add_generation_prompt", Value(input.add_generation_prompt)},
                                {"bos_token", Value(Text::of_template(input.bos_token))},
                                {"eos_token", Value(Text::of_template(input.eos_token))}};
  if (!input.variables.is_none()) {
    TG_CHECK(ValueError, input.variables.is_dict(), "[chat_template] got ", kind_name(input.variables.kind()),
             " as variables, expected a dictionary");
    for (const Value::Entry& e : input.variables.entries()) {
      bool reserved = false;
      for (size_t i = 0; i < 6; i++) reserved |= all[i].first == e.first;
      TG_CHECK(ValueError, e.first.is_string() && !reserved, "[chat_template] a variable may not be named ",
               e.first.is_string() ? e.first.as_string() : "so");
      all.push_back(e);
    }
  }
  return render_variables(Value::dict(std::move(all)), input.unix_seconds);
}

RenderedChat ChatTemplate::render_variables(const Value& variables, std::optional<int64_t> unix_seconds) const {
  jinja::Interpreter in(*program_, limits_, unix_seconds);
  for (const auto& [name, value] : variables.entries()) in.define(name.as_string(), value);
  return in.run();
}

bool ChatTemplate::reads(std::string_view variable) const { return program_->name_ids.contains(std::string(variable)); }

}  // namespace tg::llm
