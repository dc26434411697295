/// \file The templates of families of models, for files that bring none, or a wrong one. Each writes what the models of
/// its name were trained with; where such a conversation has no place for a system message, it joins the first message.
#include "tinygrad/llm/model_template.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tinygrad/base/error.h"
#include "tinygrad/io/gguf.h"

namespace tg::llm {
namespace {

struct KnownTemplate {
  std::string_view name, source;
};

constexpr KnownTemplate kKnown[] = {
    {"chatml",
     "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
     "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"},
    {"gemma",
     "{{ bos_token }}{% set ns = namespace(before='') %}{% for m in messages %}"
     "{% if m.role == 'system' %}{% set ns.before = m.content ~ '\\n\\n' %}{% else %}"
     "<start_of_turn>{{ 'model' if m.role == 'assistant' else 'user' }}\n{{ ns.before }}{{ m.content | trim }}"
     "<end_of_turn>\n{% set ns.before = '' %}{% endif %}{% endfor %}"
     "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"},
    {"llama2",
     "{% set ns = namespace(before='') %}{% for m in messages %}"
     "{% if m.role == 'system' %}{% set ns.before = '<<SYS>>\\n' ~ m.content ~ '\\n<</SYS>>\\n\\n' %}"
     "{% elif m.role == 'assistant' %} {{ m.content | trim }} {{ eos_token }}{% else %}"
     "{{ bos_token }}[INST] {{ ns.before }}{{ m.content | trim }} [/INST]{% set ns.before = '' %}{% endif %}{% endfor "
     "%}"},
    {"llama3",
     "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
     "{{ m.content | trim }}<|eot_id|>{% endfor %}"
     "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"},
    {"mistral",
     "{{ bos_token }}{% set ns = namespace(before='') %}{% for m in messages %}"
     "{% if m.role == 'system' %}{% set ns.before = m.content ~ '\\n\\n' %}"
     "{% elif m.role == 'assistant' %} {{ m.content | trim }}{{ eos_token }}{% else %}"
     "[INST] {{ ns.before }}{{ m.content | trim }} [/INST]{% set ns.before = '' %}{% endif %}{% endfor %}"},
    {"phi3",
     "{% for m in messages %}"
     "{{ '<|system|>' if m.role == 'system' else '<|assistant|>' if m.role == 'assistant' else '<|user|>' }}\n"
     "{{ m.content }}<|end|>\n{% endfor %}"
     "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"},
    {"vicuna",
     "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}\n\n"
     "{% elif m.role == 'assistant' %}ASSISTANT: {{ m.content }}{{ eos_token }}\n{% else %}USER: {{ m.content }}\n"
     "{% endif %}{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"},
    {"zephyr",
     "{% for m in messages %}"
     "{{ '<|system|>' if m.role == 'system' else '<|assistant|>' if m.role == 'assistant' else '<|user|>' }}\n"
     "{{ m.content }}{{ eos_token }}\n{% endfor %}"
     "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"},
};

std::string text_of_file(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  TG_CHECK(FileError, in.good() || in.eof(), "[chat_template] cannot read ", file);
  return text.str();
}

ModelTemplate chosen_template(const std::string& chosen) {
  for (const KnownTemplate& known : kKnown)
    if (chosen == known.name)
      return {std::make_shared<ChatTemplate>(std::string(known.source), std::string(known.name)), {}};
  std::string names;
  for (const KnownTemplate& known : kKnown) names += str(names.empty() ? "" : ", ", known.name);
  TG_CHECK(ValueError, std::filesystem::is_regular_file(chosen), "[chat_template] got '", chosen,
           "', expected a file or one of ", names);
  return {std::make_shared<ChatTemplate>(text_of_file(chosen), chosen), {}};
}

}  // namespace

ModelTemplate find_chat_template(const io::GgufMetadata& metadata, const std::string& chosen) {
  if (!chosen.empty()) return chosen_template(chosen);
  const std::string_view text = metadata.string_or("tokenizer.chat_template", "");
  if (text.empty()) return {};
  try {
    return {std::make_shared<ChatTemplate>(std::string(text)), {}};
  } catch (const TemplateError& e) { return {nullptr, str("the model's chat template is broken: ", e.what())}; }
}

std::vector<std::string_view> known_chat_templates() {
  std::vector<std::string_view> names;
  for (const KnownTemplate& known : kKnown) names.push_back(known.name);
  return names;
}

}  // namespace tg::llm
