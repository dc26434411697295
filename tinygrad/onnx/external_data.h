/// \file Elements of tensors that lie in files next to a model.
#pragma once
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "tinygrad/io/file.h"
#include "tinygrad/onnx/proto.h"

namespace tg::onnx {

/// The files of a model's folder, each mapped once.
class ExternalData {
 public:
  /// Without a folder there are no such files.
  explicit ExternalData(std::filesystem::path folder) : folder_(std::move(folder)) {}
  /// A part of a file.
  struct Part {
    std::string_view bytes;
    std::shared_ptr<const void> owner;
    size_t new_bytes = 0;  ///< size of the file if no part of it was asked for before
  };
  /// Returns the part of a file that `entries` (location, offset, length) name. FormatError for a location outside of
  /// the folder, also through a symbolic link, and for a part outside of the file.
  Part part(const std::vector<std::pair<std::string_view, std::string_view>>& entries);

 private:
  const io::MappedFile& file(std::string_view location);

  std::filesystem::path folder_;
  std::map<std::string, io::MappedFile, std::less<>> files_;
};

}  // namespace tg::onnx
