/// \file The engine that serves many requests with one model: continuous batching. Requests wait in a queue, get a
/// sequence of the model, have their prompt computed in pieces between the steps of the others, and then take part in
/// one batched step a token until they end. What a sequence has computed stays, so that a later prompt that begins the
/// same way starts from there (a prefix cache shared by all conversations).
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tinygrad/base/error.h"
#include "tinygrad/llm/generate.h"
#include "tinygrad/llm/language_model.h"
#include "tinygrad/llm/sampler.h"

namespace tg::llm {

class JsonConstraint;

/// The queue of the engine has no room; a later try may succeed.
struct QueueFullError : Error {
  using Error::Error;
};

struct EngineOptions {
  int64_t max_queue = 128;       ///< requests that wait for a sequence
  int64_t prefill_tokens = 512;  ///< of a prompt computed at once while no other sequence waits for its next token
  int64_t shared_prefill_tokens = 32;  ///< while others do: it bounds the pause in their replies
  double prefill_share = 0.5;          ///< of the time goes to prompts, at most, while others wait for their next token
};

/// A token of a reply.
struct ReplyToken {
  int32_t token = 0;
  double logprob = 0;                     ///< 0 unless logprobs were asked for
  std::span<const TokenProbability> top;  ///< the most likely ones, when asked for; valid during the call
};

/// What in a request makes its reply impossible: every token is masked or banned, or the constraint passes a limit.
enum class Refusal : uint8_t { kNone, kNoTokenLeft, kConstraint };

/// How a request ended, and what it cost.
struct ReplyEnd {
  FinishReason reason = FinishReason::kStop;
  std::string error;                 ///< not empty: the request failed for this reason
  Refusal refusal = Refusal::kNone;  ///< ... which lies in the request
  int64_t prompt_tokens = 0, cached_tokens = 0, reply_tokens = 0;
  double queue_seconds = 0, prefill_seconds = 0, decode_seconds = 0;
};

/// Texts whose vectors are wanted. A text's vector is the mean of its tokens' (what LanguageModel::prefill_hidden
/// gives), or that of its last token, and of length one.
struct EmbeddingTexts {
  std::vector<std::vector<int32_t>> tokens;
  bool last_token = false;
  /// Called from the engine's thread for one text after another; must not throw or wait.
  std::function<void(size_t text, std::vector<float> vector)> on_vector = {};
};

/// What is to be generated. The functions are called from the engine's thread, one after another, and must not throw
/// or wait; `on_end` is the last call, made exactly once.
struct EngineRequest {
  std::vector<int32_t> prompt;
  std::optional<EmbeddingTexts> embedding = {};  ///< in place of a prompt: nothing is generated
  int64_t max_tokens = -1;                       ///< -1: until the context is full
  SamplingOptions sampling = {};
  std::vector<int32_t> stop_tokens = {};                 ///< end the reply and are not part of it
  int64_t logprobs = -1;                                 ///< -1: none; n: of the token and of the n most likely ones
  std::shared_ptr<JsonConstraint> constraint = {};       ///< what the text must be; used by this request alone
  std::function<bool(const ReplyToken&)> on_token = {};  ///< false: the reply ends here (a stop string)
  std::function<void(const ReplyEnd&)> on_end = {};
};

/// Cancels a request; keeping it is not needed.
class RequestTicket {
 public:
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> cancelled_{false};
};

/// Sums since the start, and the current state.
struct EngineCounters {
  uint64_t requests = 0, finished = 0, cancelled = 0, failed = 0, rejected = 0;
  uint64_t prompt_tokens = 0, cached_tokens = 0, reply_tokens = 0;
  uint64_t decode_steps = 0, decode_rows = 0, prefill_calls = 0;
  double prefill_seconds = 0, decode_seconds = 0, queue_seconds = 0, first_token_seconds = 0;
  int64_t waiting = 0, active = 0, sequences = 0;
};

class Engine {
 public:
  /// Starts the worker. Each of the model's sequences is for one request at a time. The model belongs to the engine
  /// while it lives: nobody else may call it.
  explicit Engine(std::shared_ptr<LanguageModel> model, EngineOptions options = {});
  /// Stops.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Queues requests, all or none; those that share a prompt have it computed once. Returns a ticket for each. Throws
  /// QueueFullError, ValueError for an empty prompt or text, one that leaves no room for a token, sampling options out
  /// of range and more requests than the queue ever takes, Cancelled once stopped. Takes calls from any thread.
  std::vector<std::shared_ptr<RequestTicket>> submit(std::vector<EngineRequest> requests);
  /// Throws QueueFullError where a request would not be taken now: before work is put into making one.
  void check_queue();
  /// Ends all requests, waiting ones too, as cancelled, and joins the worker.
  void stop();
  EngineCounters counters() const;
  const LanguageModel& model() const { return *model_; }

 private:
  struct Job;
  struct Sequence;
  void work();
  void end_cancelled();
  void fail_all(const std::string& error);
  bool admit_one();
  void place(std::unique_ptr<Job> job, int64_t slot);
  void prefill_some();
  void prefill_prompt(int64_t slot, int64_t most);
  void prefill_text(int64_t slot, int64_t most);
  void count_prefill(Job& job, size_t tokens, double seconds);
  std::unique_ptr<Job> make_job(EngineRequest request) const;
  void check_room(size_t requests);
  void check_prompt(std::span<const int32_t> prompt) const;
  void decode_all();
  bool replies_are_behind() const;
  bool draw(Job& job, std::span<const float> logits);
  TokenMask allowed(Job& job);
  void finish(int64_t slot, FinishReason reason, std::string error = {}, Refusal refusal = Refusal::kNone);
  void report_end(Job& job, FinishReason reason, std::string error = {});
  bool must_wait_for_prefix(const Job& job) const;
  int64_t choose_slot(const Job& job, int64_t& donor, int64_t& shared) const;
  template <class F> void guarded(std::span<const int64_t> slots, F call);

  std::shared_ptr<LanguageModel> model_;
  EngineOptions options_;
  std::vector<Sequence> sequences_;  // of the worker alone
  uint64_t clock_ = 0;               // of the worker: numbers uses of sequences
  uint64_t turns_ = 0;               // of the worker: numbers prompts in the order they are computed in
  double prefill_credit_ = 0;        // of the worker: seconds that prompts may take before replies have their share
  mutable std::mutex mutex_;         // guards what follows
  std::condition_variable wake_;
  std::deque<std::unique_ptr<Job>> queue_;
  EngineCounters counters_;
  std::atomic<bool> stopping_{false};
  std::thread worker_;
};

}  // namespace tg::llm
