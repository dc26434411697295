#include "apps/tg/led_processes.h"

#include <cstdio>

#include "apps/tg/command.h"
#include "tinygrad/base/error.h"
#include "tinygrad/io/gguf.h"
#include "tinygrad/llm/model_registry.h"
#include "tinygrad/llm/model_template.h"
#include "tinygrad/runtime/world/agree.h"
#include "tinygrad/runtime/world/world.h"

namespace tg::app {

std::filesystem::path file_of_model(const std::string& model) {
  if (std::filesystem::is_directory(model)) return model;
  return llm::find_model(model, [](const std::string& line) {
    if (distributed::rank() == 0) std::fprintf(stderr, "%s\n", line.c_str());
  });
}

std::string chat_template_help() {
  std::string names;
  for (const std::string_view name : llm::known_chat_templates()) names += str(names.empty() ? "" : ", ", name);
  return str("A template of conversations in place of the model's: a file, or one of ", names);
}

int with_led_processes(const std::string& model, const std::string& device,
                       const std::function<int(std::shared_ptr<llm::WorldLeader>)>& lead) {
  distributed::init();
  if (distributed::size() == 1) return lead(nullptr);
  std::filesystem::path file;
  distributed::together("find model", [&] {
    file = file_of_model(model);
    TG_CHECK(ValueError, !std::filesystem::is_directory(file), "[llm] ", file.string(),
             " is an encoder, which one process computes: start it without a launcher");
  });
  if (distributed::rank() == 0) return lead(llm::WorldLeader::begin());
  llm::follow_leader(io::GgufFile::open(file), device);
  return kOk;
}

}  // namespace tg::app
