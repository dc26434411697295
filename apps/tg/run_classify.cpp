/// \file tg run classify: of what kind the content of a file is, by Magika (github.com/google/magika).
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/tg/command.h"
#include "apps/tg/pipelines.h"
#include "apps/tg/usage_error.h"
#include "tinygrad/base/text.h"
#include "tinygrad/io/file.h"
#include "tinygrad/tensor/jit/jit.h"

namespace tg::app {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kPackage = "magika";

/// What the package says of its model: which bytes it sees, and when it is believed.
struct MagikaConfig {
  int64_t begin = 0, end = 0;  ///< bytes of a file's begin and end that the model sees
  int64_t block = 0;           ///< bytes on either side in which white space is left out
  int64_t least = 0;           ///< bytes that a file needs
  int32_t padding = 0;
  float confident = 0;  ///< the score from which labels without a threshold of their own are believed
  std::vector<std::string> labels;
  Json thresholds, renamed;
  Json kinds;  ///< of all labels: group, description, mime_type, is_text
};

Json parse(const HostBytes& bytes) {
  const auto* text = reinterpret_cast<const char*>(bytes.bytes.data());
  return Json::parse(text, text + bytes.bytes.size());
}

MagikaConfig read_config(const PipelineOptions& o) {
  try {
    const Json c = parse(package_file(o, kPackage, "config.min.json"));
    MagikaConfig out{c.at("beg_size"),
                     c.at("end_size"),
                     c.at("block_size"),
                     c.at("min_file_size_for_dl"),
                     c.at("padding_token"),
                     c.at("medium_confidence_threshold"),
                     c.at("target_labels_space"),
                     c.at("thresholds"),
                     c.at("overwrite_map"),
                     parse(package_file(o, kPackage, "content_types_kb.min.json"))};
    constexpr int64_t kMost = 1 << 20;
    TG_CHECK(FormatError,
             c.at("mid_size") == 0 && c.at("use_inputs_at_offsets") == false && out.begin > 0 && out.end > 0 &&
                 out.begin < kMost && out.end < kMost && out.block >= 0 && out.least > 0 && out.least <= out.begin,
             "[classify] the model sees other parts of files than their begin and end, which is not supported");
    return out;
  } catch (const Json::exception& e) {
    throw FormatError(str("[classify] the description of the model is damaged: ", e.what()));
  }
}

bool is_space(uint8_t c) { return c == ' ' || (c >= 9 && c <= 13); }

/// Returns what the model sees: the first bytes and the last ones, without white space before and behind, filled up.
std::vector<int32_t> features(const MagikaConfig& c, std::span<const uint8_t> file) {
  const size_t n = std::min(file.size(), static_cast<size_t>(c.block));
  std::span<const uint8_t> head = file.first(n), tail = file.last(n);
  while (!head.empty() && is_space(head.front())) head = head.subspan(1);
  while (!tail.empty() && is_space(tail.back())) tail = tail.first(tail.size() - 1);
  head = head.first(std::min(head.size(), static_cast<size_t>(c.begin)));
  tail = tail.last(std::min(tail.size(), static_cast<size_t>(c.end)));
  std::vector<int32_t> out(static_cast<size_t>(c.begin + c.end), c.padding);
  std::ranges::copy(head, out.begin());
  std::ranges::copy(tail, out.end() - static_cast<std::ptrdiff_t>(tail.size()));
  return out;
}

struct Kind {
  std::string label;
  float score = 1;
};

/// Returns the label that is shown: a general one where the score is not high enough for the model's.
std::string believed(const MagikaConfig& c, const Kind& k) {
  const std::string label = c.renamed.value(k.label, k.label);
  if (static_cast<double>(k.score) >= c.thresholds.value(k.label, static_cast<double>(c.confident))) return label;
  return c.kinds.at(label).at("is_text").get<bool>() ? "txt" : "unknown";
}

using Call = std::function<std::vector<float>(const std::vector<int32_t>&)>;

Kind kind_of(const MagikaConfig& c, std::span<const uint8_t> file, const Call& scores) {
  if (file.empty()) return {"empty"};
  const std::vector<int32_t> seen = features(c, file);
  if (file.size() < static_cast<size_t>(c.least) || seen[static_cast<size_t>(c.least - 1)] == c.padding) {
    const auto known = file.first(std::min(file.size(), static_cast<size_t>(c.block)));
    return {is_utf8({reinterpret_cast<const char*>(known.data()), known.size()}) ? "txt" : "unknown"};
  }
  const std::vector<float> all = scores(seen);
  TG_CHECK(FormatError, all.size() == c.labels.size(), "[classify] the model gives ", all.size(), " scores for ",
           c.labels.size(), " labels");
  const auto best = static_cast<size_t>(std::ranges::max_element(all) - all.begin());
  Kind out{c.labels[best], all[best]};
  out.label = believed(c, out);
  return out;
}

Json report(const MagikaConfig& c, const std::string& path, const Kind& k) {
  const Json& of = c.kinds.at(k.label);
  return {{"file", onnx::printable(path)},       {"label", k.label},
          {"description", of.at("description")}, {"group", of.at("group")},
          {"mime_type", of.at("mime_type")},     {"score", k.score}};
}

}  // namespace

int run_classify(const PipelineOptions& o) {
  TG_CHECK(app::UsageError, !o.weights.ends_with(".onnx"),
           "[run] classify needs what the package says of its model: give --weights a folder or a wheel");
  const MagikaConfig config = read_config(o);
  const onnx::Model model = package_model(o, kPackage, "model.onnx");
  auto step = jit([&](const Tensor& x) { return model(x); });
  const Call scores = [&](const std::vector<int32_t>& seen) {
    return step(Tensor::from(seen, Shape{1, static_cast<int64_t>(seen.size())})).to_vector<float>();
  };
  for (const std::string& path : o.files) {
    const io::MappedFile file = io::map_file(path, "classify");
    try {
      const Json r = report(config, path, kind_of(config, file.bytes, scores));
      if (o.json) std::cout << r.dump() << '\n';
      else
        std::cout << r["file"].get<std::string>() << ": " << r["label"].get<std::string>() << ", "
                  << r["description"].get<std::string>() << " (" << r["score"].dump() << ")\n";
    } catch (const Json::exception& e) {
      throw FormatError(str("[classify] the description of the labels is damaged: ", e.what()));
    }
  }
  return kOk;
}

}  // namespace tg::app
