/// \file Detections as tensors, which are compared with what was recorded.
#pragma once
#include <vector>

#include "models/detection.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::zoo {

/// The tolerance of coordinates, which are a hundred times as large as the scores beside them.
inline constexpr double kOfPixels = 2e-5;

/// Returns rows of boxes, scores and labels.
inline Tensor table(const std::vector<models::Detection>& found) {
  std::vector<double> out;
  for (const models::Detection& d : found) {
    out.insert(out.end(), d.box.begin(), d.box.end());
    out.insert(out.end(), {d.score, static_cast<double>(d.label)});
  }
  return Tensor(out).reshape(-1, 6);
}

}  // namespace tg::zoo
