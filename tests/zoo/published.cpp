#include "zoo/published.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tinygrad/base/error.h"
#include "zoo/pattern.h"

namespace tg::zoo {

nn::StateDict published(std::string_view file) {
  std::ifstream in(std::filesystem::path(TG_TESTS_DIR) / "zoo" / "expected" / (std::string(file) + ".names"));
  TG_CHECK(FileError, in, file, ".names cannot be read");
  nn::StateDict out;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    Shape shape;
    for (int64_t size; words >> size;) shape.push_back(size);
    out.emplace_back(name, Tensor::empty(shape));
  }
  return out;
}

nn::StateDict published_weights(std::string_view file) {
  nn::StateDict out = published(file);
  give_weights(out);
  return out;
}

}  // namespace tg::zoo
