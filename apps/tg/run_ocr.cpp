/// \file tg run ocr: the text in a picture, by the three models of PaddleOCR that the package rapidocr-onnxruntime has:
/// where lines of text are, which are upside down, and what they say.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/tg/command.h"
#include "apps/tg/pictures.h"
#include "apps/tg/pipelines.h"
#include "apps/tg/text_regions.h"
#include "apps/tg/usage_error.h"

namespace tg::app {
namespace {

constexpr int64_t kLineHeight = 48;
const Normalization kSymmetric{.mean = {0.5}, .deviation = {0.5}, .bgr = true};

/// A picture on the host: red, green, blue from 0 to 255, (height, width, 3).
struct Pixels {
  int64_t height, width;
  std::vector<float> values;

  explicit Pixels(const Tensor& picture)
      : height(picture.shape(2)),
        width(picture.shape(3)),
        values(picture.cast(dtypes::float32).permute({0, 2, 3, 1}).contiguous().to_vector<float>()) {}

  /// The color between the four pixels around a place; outside, that of the edge.
  std::array<float, 3> at(double x, double y) const {
    x = std::clamp(x, 0.0, static_cast<double>(width - 1));
    y = std::clamp(y, 0.0, static_cast<double>(height - 1));
    const auto x0 = static_cast<int64_t>(x), y0 = static_cast<int64_t>(y);
    const int64_t x1 = std::min(x0 + 1, width - 1), y1 = std::min(y0 + 1, height - 1);
    const auto fx = static_cast<float>(x - std::floor(x)), fy = static_cast<float>(y - std::floor(y));
    std::array<float, 3> out;
    for (int64_t c = 0; c < 3; c++) {
      const auto v = [&](int64_t row, int64_t column) {
        return values[static_cast<size_t>((row * width + column) * 3 + c)];
      };
      out[static_cast<size_t>(c)] =
          (v(y0, x0) * (1 - fx) + v(y0, x1) * fx) * (1 - fy) + (v(y1, x0) * (1 - fx) + v(y1, x1) * fx) * fy;
    }
    return out;
  }
};

/// Returns a region as a picture of its own: (1, 3, 48, width). What is taller than wide is turned by 90 degrees.
Tensor line_of(const Pixels& p, const TextRegion& region) {
  std::array<Point, 4> c = region.corners;
  if (region.height() >= 1.5 * region.width()) std::ranges::rotate(c, c.begin() + 1);
  const double w = std::hypot(c[1].x - c[0].x, c[1].y - c[0].y), h = std::hypot(c[3].x - c[0].x, c[3].y - c[0].y);
  const auto width = std::clamp<int64_t>(static_cast<int64_t>(std::ceil(kLineHeight * w / std::max(h, 1.0))), 8, 4096);
  std::vector<float> out(static_cast<size_t>(3 * kLineHeight * width));
  for (int64_t y = 0; y < kLineHeight; y++)
    for (int64_t x = 0; x < width; x++) {
      const double u = (static_cast<double>(x) + 0.5) / static_cast<double>(width);
      const double v = (static_cast<double>(y) + 0.5) / kLineHeight;
      const std::array<float, 3> color = p.at(c[0].x + u * (c[1].x - c[0].x) + v * (c[3].x - c[0].x),
                                              c[0].y + u * (c[1].y - c[0].y) + v * (c[3].y - c[0].y));
      for (int64_t k = 0; k < 3; k++)
        out[static_cast<size_t>((k * kLineHeight + y) * width + x)] = color[static_cast<size_t>(k)];
    }
  return Tensor::from(out, Shape{1, 3, kLineHeight, width});
}

/// What the models of one package find.
class Reader {
 public:
  explicit Reader(const PipelineOptions& o)
      : detector_(package_model(o, kPackage, "det_infer.onnx")),
        turner_(package_model(o, kPackage, "cls_infer.onnx")),
        recognizer_(package_model(o, kPackage, "rec_infer.onnx")) {
    for (const auto& [key, value] : recognizer_.proto().metadata)
      if (key == "character") {
        std::istringstream lines{std::string(value)};
        for (std::string line; std::getline(lines, line);) characters_.push_back(line);
      }
    TG_CHECK(FormatError, !characters_.empty(),
             "[ocr] the recognizer has no text \"character\", expected its alphabet");
    characters_.push_back(" ");
  }

  /// Returns where lines are, in pixels of the picture. The detector sees it with its shorter side at 736 pixels or
  /// more, both sides multiples of 32.
  std::vector<TextRegion> regions(const Tensor& picture) const {
    const int64_t h = picture.shape(2), w = picture.shape(3);
    constexpr int64_t kShorter = 736, kMost = 2048;
    double scale = std::max(1.0, kShorter / static_cast<double>(std::min(h, w)));
    scale = std::min(scale, kMost / static_cast<double>(std::max(h, w)));
    const auto size = [&](int64_t n) {
      return std::max<int64_t>(32, 32 * std::llround(static_cast<double>(n) * scale / 32));
    };
    const Tensor map = detector_(normalized(resized(picture, size(h), size(w)), kSymmetric));
    std::vector<TextRegion> out = text_regions(map.to_vector<float>(), map.shape(2), map.shape(3));
    for (TextRegion& r : out)
      for (Point& p : r.corners) {
        p.x *= static_cast<double>(w) / static_cast<double>(map.shape(3));
        p.y *= static_cast<double>(h) / static_cast<double>(map.shape(2));
      }
    return out;
  }

  /// Turns a line that is upside down: the classifier sees its beginning at 192 x 48.
  Tensor upright(const Tensor& line) const {
    const int64_t width = std::min<int64_t>(line.shape(3), 192);
    const Tensor shown = normalized(resized(line, kLineHeight, width), kSymmetric).pad(Ints{0, 192 - width, 0, 0});
    const std::vector<float> p = turner_(shown).to_vector<float>();
    return p.at(1) > 0.9f ? line.flip(2).flip(3) : line;
  }

  struct Text {
    std::string text;
    double score = 0;  ///< mean probability of its characters
  };
  /// Reads a line. The width is a multiple of 32, so that lines share kernels.
  Text read(const Tensor& line) const {
    const int64_t width = (line.shape(3) + 31) / 32 * 32;
    const Tensor shown = normalized(line, kSymmetric).pad(Ints{0, width - line.shape(3), 0, 0});
    const Tensor p = recognizer_(shown);  // (1, steps, characters)
    const std::vector<int64_t> best = p.argmax(2).cast(dtypes::int64).to_vector<int64_t>();
    const std::vector<float> most = p.max(2).to_vector<float>();
    Text out;
    int64_t count = 0;
    for (size_t i = 0; i < best.size(); i++) {  // the same one twice in a row is one; 0 is none
      if (best[i] == 0 || (i > 0 && best[i] == best[i - 1])) continue;
      const auto at = static_cast<size_t>(best[i] - 1);
      TG_CHECK(FormatError, at < characters_.size(), "[run] the model reads character ", best[i], " of an alphabet of ",
               characters_.size(), ": the alphabet belongs to another model");
      out.text += characters_[at];
      out.score += static_cast<double>(most[i]);
      count++;
    }
    if (count) out.score /= static_cast<double>(count);
    return out;
  }

 private:
  static constexpr const char* kPackage = "rapidocr-onnxruntime";
  onnx::Model detector_, turner_, recognizer_;
  std::vector<std::string> characters_;
};

/// Draws the outlines of regions in red.
Tensor with_outlines(const Tensor& picture, const std::vector<TextRegion>& regions) {
  Pixels p(picture);
  for (const TextRegion& r : regions)
    for (size_t i = 0; i < 4; i++) {
      const Point &a = r.corners[i], &b = r.corners[(i + 1) % 4];
      const double steps = std::max(1.0, std::ceil(2 * std::hypot(b.x - a.x, b.y - a.y)));
      for (double s = 0; s <= steps; s++) {
        const int64_t x = std::llround(a.x + (b.x - a.x) * s / steps), y = std::llround(a.y + (b.y - a.y) * s / steps);
        if (x < 0 || y < 0 || x >= p.width || y >= p.height) continue;
        const auto at = static_cast<size_t>((y * p.width + x) * 3);
        p.values[at] = 255;
        p.values[at + 1] = p.values[at + 2] = 0;
      }
    }
  return Tensor::from(p.values, Shape{p.height, p.width, 3}).permute({2, 0, 1}).cast(dtypes::uint8).contiguous();
}

}  // namespace

int run_ocr(const PipelineOptions& o) {
  TG_CHECK(app::UsageError, o.weights.empty() || !o.weights.ends_with(".onnx"),
           "[run] ocr has three models: give --weights a folder or a wheel");
  TG_CHECK(app::UsageError, o.output.empty() || o.files.size() == 1, "[run] got --output for ", o.files.size(),
           " pictures, expected one");
  const Reader reader(o);
  for (const std::string& path : o.files) {
    const Tensor picture = load_picture(path);
    const std::vector<TextRegion> regions = reader.regions(picture);
    const Pixels pixels(picture);
    nlohmann::ordered_json lines = nlohmann::ordered_json::array();
    for (const TextRegion& r : regions) {
      const Reader::Text t = reader.read(reader.upright(line_of(pixels, r)));
      if (t.text.empty()) continue;
      nlohmann::ordered_json corners = nlohmann::ordered_json::array();
      for (const Point& p : r.corners) corners.push_back({p.x, p.y});
      if (o.json) lines.push_back({{"text", t.text}, {"score", t.score}, {"corners", corners}});
      else std::printf("%s\n", t.text.c_str());
    }
    if (o.json) std::cout << nlohmann::ordered_json{{"file", onnx::printable(path)}, {"lines", lines}}.dump() << '\n';
    if (!o.output.empty()) save_picture(with_outlines(picture, regions), o.output);
  }
  return kOk;
}

}  // namespace tg::app
