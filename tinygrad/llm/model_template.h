/// \file Which chat template a model is asked with: that of its file, or another one that a user gives.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/llm/chat_template.h"

namespace tg::io {
class GgufMetadata;
}

namespace tg::llm {

struct ModelTemplate {
  std::shared_ptr<const ChatTemplate> chat;                ///< none: the model can only continue texts
  std::string problem = "the model has no chat template";  ///< why there is none
};

/// Returns the template of a model file; one that is broken is a problem, not an error. `chosen`, unless it is empty,
/// stands in its place: one of `known_chat_templates`, or a file with a template. ValueError for a name that is
/// neither, TemplateError for a file whose template is broken.
ModelTemplate find_chat_template(const io::GgufMetadata& metadata, const std::string& chosen = {});

/// Returns the names of the templates that the library has.
std::vector<std::string_view> known_chat_templates();

}  // namespace tg::llm
