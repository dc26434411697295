#include "tiny_files.h"

#include <fstream>

#include "helpers/tiny_chat_model.h"

void snippets::write_tiny_model(const std::string& path) {
  std::ofstream(path, std::ios::binary) << tg::test::tiny_chat_model();
}
