#include "apps/tg/llm_batch.h"

#include <chrono>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "tinygrad/base/error.h"
#include "tinygrad/llm/engine.h"

namespace tg::app {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kPromptTokens = 16;  // the same for all, so that it is computed once
constexpr int64_t kWarmTokens = 4;     // of each reply: the first calls of a shape run, then capture

/// When the replies began together and when the first one ended. Written by the engine's thread until `done`.
struct BatchRun {
  int64_t warm = 0, generated = 0;
  Clock::time_point begin, end;
  bool ended = false;
  std::vector<int64_t> tokens;
  std::vector<std::promise<std::string>> done;
};

llm::EngineRequest batch_request(BatchRun& run, size_t i, int64_t vocabulary, const llm::SamplingOptions& sampling) {
  const auto sequences = static_cast<int64_t>(run.done.size());
  llm::EngineRequest r;
  for (int64_t t = 0; t < kPromptTokens; t++) r.prompt.push_back(static_cast<int32_t>((t * 7919 + 13) % vocabulary));
  r.sampling = sampling;
  r.sampling.seed += i;
  r.on_token = [&run, i, sequences](const llm::ReplyToken&) {
    if (++run.tokens[i] == kWarmTokens && ++run.warm == sequences) run.begin = Clock::now();
    else if (run.warm == sequences && !run.ended) run.generated++;
    return true;
  };
  r.on_end = [&run, i](const llm::ReplyEnd& e) {
    if (!std::exchange(run.ended, true)) run.end = Clock::now();
    run.done[i].set_value(e.error);
  };
  return r;
}

}  // namespace

double batch_decode_rate(const std::filesystem::path& file, const llm::ModelOptions& options, int64_t sequences,
                         int64_t tokens, const llm::SamplingOptions& sampling) {
  llm::ModelOptions o = options;
  o.max_sequences = sequences;
  const std::shared_ptr<llm::LanguageModel> model = llm::LanguageModel::load(file, o);
  TG_CHECK(ValueError, kPromptTokens + 2 * kWarmTokens + tokens <= model->max_context(), "[llm] got --reply-tokens ",
           tokens, ", which do not fit into the context of ", model->max_context());
  llm::Engine engine(model);
  BatchRun run;
  run.tokens.resize(static_cast<size_t>(sequences));
  run.done.resize(static_cast<size_t>(sequences));
  std::vector<llm::EngineRequest> requests;
  for (size_t i = 0; i < run.done.size(); i++) {
    requests.push_back(batch_request(run, i, model->vocab_size(), sampling));
    requests.back().max_tokens = tokens + 2 * kWarmTokens;
  }
  engine.submit(std::move(requests));
  for (std::promise<std::string>& one : run.done) {
    const std::string error = one.get_future().get();
    TG_CHECK(Error, error.empty(), "[llm] the model failed: ", error);
  }
  return static_cast<double>(run.generated) / std::chrono::duration<double>(run.end - run.begin).count();
}

}  // namespace tg::app
