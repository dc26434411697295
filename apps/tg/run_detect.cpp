/// \file tg run detect: objects in a picture, by a YOLOv8 or a later one in an ONNX file (github.com/ultralytics).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/tg/command.h"
#include "apps/tg/pictures.h"
#include "apps/tg/pipelines.h"
#include "apps/tg/usage_error.h"
#include "models/detection.h"

namespace tg::app {
namespace {

using models::Box, models::Detection;

/// How a picture lies in what the model sees.
struct Placed {
  Tensor input;
  double scale = 1;
  int64_t left = 0, top = 0;
};

/// Scales a picture to fit between grey borders.
Placed placed(const Tensor& picture, int64_t height, int64_t width) {
  const auto h = static_cast<double>(picture.shape(2)), w = static_cast<double>(picture.shape(3));
  Placed p;
  p.scale = std::min(static_cast<double>(height) / h, static_cast<double>(width) / w);
  const int64_t own_h = std::clamp<int64_t>(std::llround(h * p.scale), 1, height),
                own_w = std::clamp<int64_t>(std::llround(w * p.scale), 1, width);
  p.left = (width - own_w) / 2;
  p.top = (height - own_h) / 2;
  const Tensor small = normalized(resized(picture, own_h, own_w), {});
  p.input =
      (small - 114 / 255.0).pad(Ints{p.left, width - own_w - p.left, p.top, height - own_h - p.top}) + 114 / 255.0;
  return p;
}

/// Returns the size that the model sees, 640 where it takes any.
int64_t side(const onnx::Model& model, size_t axis) {
  const onnx::ValueInfo& in = model.inputs().at(0);
  TG_CHECK(FormatError, in.type.shape && in.type.shape->size() == 4, "[detect] input ", onnx::printable(in.name),
           " has other than four axes, expected (1, 3, height, width)");
  const int64_t n = (*in.type.shape)[axis].value.value_or(640);
  TG_CHECK(FormatError, n > 0 && n <= 8192, "[detect] the model takes pictures of size ", n);
  return n;
}

/// Returns the names of classes from the text "names" of the file, a dictionary as Python writes it: {0: 'cat', ...}.
std::vector<std::string> class_names(const onnx::Model& model) {
  std::vector<std::string> out;
  for (const auto& [key, text] : model.proto().metadata) {
    if (key != "names") continue;
    for (size_t at = 0; at < text.size(); at++) {
      const char quote = text[at];
      if (quote != '\'' && quote != '"') continue;
      out.emplace_back();
      for (at++; at < text.size() && text[at] != quote; at++) {
        if (text[at] == '\\' && at + 1 < text.size()) at++;
        out.back() += text[at];
      }
    }
  }
  return out;
}

/// Reads objects from (1, 4 + classes, n): centres, sizes and a score for each class; or from (1, n, 6), which models
/// give that suppress boxes themselves: corners, a score and a class.
std::vector<Detection> objects_of(const Tensor& result, bool& suppressed) {
  TG_CHECK(FormatError, result.ndim() == 3 && result.shape(0) == 1, "[detect] the model gives ", result.shape(),
           ", expected (1, 4 + classes, n) or (1, n, 6)");
  constexpr float kLeastScore = 0.25f;
  suppressed = result.shape(2) == 6 && result.shape(1) != 5;
  const Tensor rows = (suppressed ? result[0] : result[0].transpose()).cast(dtypes::float32);
  TG_CHECK(FormatError, rows.shape(1) > 4, "[detect] the model gives ", result.shape(),
           ", expected scores of classes after the boxes");
  const auto width = static_cast<size_t>(rows.shape(1));
  const std::vector<float> v = rows.contiguous().to_vector<float>();
  std::vector<Detection> out;
  for (size_t i = 0; i + width <= v.size(); i += width) {
    const float* p = &v[i];
    const float* best = suppressed ? p + 4 : std::max_element(p + 4, p + width);
    if (!(*best >= kLeastScore)) continue;
    const auto x = static_cast<double>(p[0]), y = static_cast<double>(p[1]), w = static_cast<double>(p[2]),
               h = static_cast<double>(p[3]);
    const Box box = suppressed ? Box{x, y, w, h} : Box{x - w / 2, y - h / 2, x + w / 2, y + h / 2};
    out.push_back({box, static_cast<double>(*best),
                   suppressed ? static_cast<int64_t>(std::clamp(p[5], 0.f, 1e6f)) : best - (p + 4)});
  }
  return out;
}

/// Returns the objects in a picture, best first, in its pixels.
std::vector<Detection> detect(const onnx::Model& model, const Tensor& picture) {
  constexpr double kMostOverlap = 0.7;
  constexpr size_t kMostObjects = 300;
  const Placed p = placed(picture, side(model, 2), side(model, 3));
  bool are_suppressed = false;
  std::vector<Detection> found = objects_of(model(p.input), are_suppressed);
  if (!are_suppressed) found = models::suppressed(found, kMostOverlap);
  if (found.size() > kMostObjects) found.resize(kMostObjects);
  for (Detection& d : found)
    for (size_t i = 0; i < 4; i++) {
      const auto border = static_cast<double>(i % 2 ? p.top : p.left);
      const auto most = static_cast<double>(picture.shape(i % 2 ? 2 : 3));
      d.box[i] = std::clamp((d.box[i] - border) / p.scale, 0.0, most);
    }
  return found;
}

/// Draws the outlines of objects, each class in a color of its own.
Tensor with_boxes(const Tensor& picture, const std::vector<Detection>& found) {
  const int64_t height = picture.shape(2), width = picture.shape(3);
  std::vector<uint8_t> pixels = picture.to_vector<uint8_t>();  // (channels, height, width)
  const int64_t line = std::max<int64_t>(1, std::min(height, width) / 200);
  for (const Detection& d : found) {
    const uint32_t mixed = static_cast<uint32_t>(d.label + 1) * 2654435761u;
    const std::array<uint8_t, 3> color{static_cast<uint8_t>(128 | mixed >> 24), static_cast<uint8_t>(mixed >> 16),
                                       static_cast<uint8_t>(mixed >> 8)};
    const auto pixel = [&](size_t i) { return static_cast<int64_t>(std::llround(d.box[i])); };
    const int64_t left = pixel(0), top = pixel(1), right = std::min(width, pixel(2)),
                  bottom = std::min(height, pixel(3));
    for (int64_t y = top; y < bottom; y++)
      for (int64_t x = left; x < right; x++) {
        if (y - top >= line && bottom - y > line && x - left >= line && right - x > line) continue;
        for (int64_t c = 0; c < 3; c++)
          pixels[static_cast<size_t>((c * height + y) * width + x)] = color[static_cast<size_t>(c)];
      }
  }
  return Tensor::from(pixels, Shape{3, height, width});
}

}  // namespace

int run_detect(const PipelineOptions& o) {
  TG_CHECK(app::UsageError, !o.weights.empty(), "[run] detect needs a model: give --weights an ONNX file of YOLOv8");
  TG_CHECK(app::UsageError, o.output.empty() || o.files.size() == 1, "[run] got --output for ", o.files.size(),
           " pictures, expected one");
  const onnx::Model model = package_model(o, "", ".onnx");
  const std::vector<std::string> names = class_names(model);
  for (const std::string& path : o.files) {
    const Tensor picture = load_picture(path);
    const std::vector<Detection> found = detect(model, picture);
    nlohmann::ordered_json objects = nlohmann::ordered_json::array();
    for (const Detection& d : found) {
      const auto label = static_cast<size_t>(d.label);
      const std::string name = label < names.size() ? onnx::printable(names[label]) : str("class ", d.label);
      if (o.json) objects.push_back({{"label", name}, {"class", d.label}, {"score", d.score}, {"box", d.box}});
      else
        std::printf("%s  %5.1f %%  %s  (%.0f, %.0f) to (%.0f, %.0f)\n", path.c_str(), 100 * d.score, name.c_str(),
                    d.box[0], d.box[1], d.box[2], d.box[3]);
    }
    if (o.json) std::cout << nlohmann::ordered_json{{"file", path}, {"objects", objects}}.dump() << '\n';
    else if (found.empty()) std::printf("%s  no objects\n", path.c_str());
    if (!o.output.empty()) save_picture(with_boxes(picture, found), o.output);
  }
  return kOk;
}

}  // namespace tg::app
