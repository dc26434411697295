/// \file The inputs of a model from what a command line says: files, numbers, random values.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "apps/tg/pictures.h"
#include "tinygrad/onnx/model.h"

namespace tg::app {

struct InputOptions {
  std::map<std::string, std::string> given;  ///< by input: a file, "random", "zeros", "ones", or numbers "1,2,3"
  std::map<std::string, int64_t> sizes;      ///< of the sizes that the file names
  std::map<std::string, std::vector<int64_t>> shapes;  ///< of whole inputs
  Normalization picture;
  int64_t rate = 16000;  ///< of sound
  int64_t seed = 0;
};

/// A value, and how it was made, for people: "cat.jpg, resized to 224 x 224".
struct MadeInput {
  std::string name;
  onnx::Value value;
  std::string made;
};

/// Makes all inputs of a model; those that nothing is said of are random. Sizes that the file leaves open are those of
/// the file that is given, else 224 for the axes of pictures, 16 for those with a name but a batch's, 1 for others.
/// UsageError for a name that is no input and for what cannot be understood; FileError, FormatError; ShapeError for a
/// file that does not fit.
std::vector<MadeInput> make_inputs(const onnx::Model& model, const InputOptions& options);

/// Returns the type and the sizes of an input as text: "float32 (batch, 3, 224, 224)".
std::string describe(const onnx::ValueInfo& info);

}  // namespace tg::app
