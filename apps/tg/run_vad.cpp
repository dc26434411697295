/// \file tg run vad: where in a sound somebody speaks, by Silero's model (github.com/snakers4/silero-vad).
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/tg/command.h"
#include "apps/tg/pipelines.h"
#include "apps/tg/usage_error.h"
#include "tinygrad/io/file.h"
#include "tinygrad/io/sound.h"
#include "tinygrad/tensor/jit/jit.h"

namespace tg::app {
namespace {

constexpr int64_t kRate = 16000, kWindow = 512, kContext = 64;

/// From which sample to which; the second is behind the last.
struct Speech {
  int64_t begin, end;
};

/// Returns the probability of speech in each window of 512 samples. A window is given with the 64 samples before it,
/// and with the state that the one before has left.
std::vector<float> probabilities(const onnx::Model& model, std::vector<float> samples) {
  const auto windows = (static_cast<int64_t>(samples.size()) + kWindow - 1) / kWindow;
  samples.insert(samples.begin(), kContext, 0.f);
  samples.resize(static_cast<size_t>(windows * kWindow + kContext));
  const onnx::Value rate(onnx::HostArray::scalar(kRate));
  auto step = jit([&](const Tensor& input, const Tensor& state) {
    const onnx::Model::NamedValues out = model.run({{"input", input}, {"state", state}, {"sr", rate}});
    return std::pair(out.at(0).second.as_tensor(), out.at(1).second.as_tensor());
  });
  std::vector<float> out;
  Tensor state = Tensor::zeros({2, 1, 128}).contiguous().realize();
  for (int64_t w = 0; w < windows; w++) {
    const auto from = samples.begin() + w * kWindow;
    const Tensor input =
        Tensor::from(std::vector<float>(from, from + kWindow + kContext), Shape{1, kWindow + kContext});
    const auto [speech, next] = step(input, state);
    out.push_back(speech.item<float>());
    state = next;
  }
  return out;
}

/// Joins windows to speech: it begins at a probability of 0.5 and ends below 0.35 for a tenth of a second; shorter than
/// a quarter of a second it is none. Each part gets 30 ms to both sides.
std::vector<Speech> speech_in(const std::vector<float>& probability, int64_t samples) {
  constexpr float kBegins = 0.5f, kEnds = 0.35f;
  constexpr int64_t kSilence = kRate / 10, kShortest = kRate / 4, kPad = kRate * 3 / 100;
  std::vector<Speech> out;
  int64_t begin = -1, quiet = -1;
  const auto finish = [&](int64_t end) {
    if (end - begin > kShortest) out.push_back({std::max<int64_t>(begin - kPad, 0), std::min(end + kPad, samples)});
    begin = quiet = -1;
  };
  for (size_t w = 0; w < probability.size(); w++) {
    const int64_t at = static_cast<int64_t>(w) * kWindow;
    if (probability[w] >= kBegins) {
      if (begin < 0) begin = at;
      quiet = -1;
    } else if (begin >= 0 && probability[w] < kEnds) {
      if (quiet < 0) quiet = at;
      if (at - quiet >= kSilence) finish(quiet);
    }
  }
  if (begin >= 0) finish(samples);
  for (size_t i = 1; i < out.size(); i++)  // two pads may meet
    if (out[i].begin < out[i - 1].end) out[i].begin = out[i - 1].end = (out[i].begin + out[i - 1].end) / 2;
  return out;
}

}  // namespace

int run_vad(const PipelineOptions& o) {
  const onnx::Model model = package_model(o, "silero-vad", "silero_vad.onnx");
  for (const std::string& path : o.files) {
    const io::MappedFile file = io::map_file(path, "run");
    const std::vector<float> samples = io::mono(io::decode_sound(file.bytes, str("[run] ", path)), kRate);
    const auto seconds = [](int64_t n) { return static_cast<double>(n) / kRate; };
    nlohmann::ordered_json parts = nlohmann::ordered_json::array();
    for (const Speech& s : speech_in(probabilities(model, samples), static_cast<int64_t>(samples.size()))) {
      if (o.json) parts.push_back({{"begin", seconds(s.begin)}, {"end", seconds(s.end)}});
      else std::printf("%s  %.2f s to %.2f s\n", path.c_str(), seconds(s.begin), seconds(s.end));
    }
    if (o.json) std::cout << nlohmann::ordered_json{{"file", onnx::printable(path)}, {"speech", parts}}.dump() << '\n';
  }
  return kOk;
}

}  // namespace tg::app
