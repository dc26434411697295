#include "tinygrad/llm/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "tinygrad/base/cancellation.h"
#include "tinygrad/llm/json_constraint.h"

namespace tg::llm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kPrefixWorthWaiting =
    32;  // tokens another prompt must be going to share before a request waits for it
constexpr int64_t kPrefixWorthCopying = 8;

double since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

int64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  const size_t n = std::min(a.size(), b.size());
  return std::mismatch(a.begin(), a.begin() + static_cast<int64_t>(n), b.begin()).first - a.begin();
}

/// Returns a vector of length one in the same direction; zeros stay.
std::vector<float> unit(std::span<const double> v) {
  double squares = 0;
  for (const double x : v) squares += x * x;
  const double length = std::sqrt(squares);
  std::vector<float> out;
  out.reserve(v.size());
  for (const double x : v) out.push_back(static_cast<float>(length > 0 ? x / length : 0));
  return out;
}

}  // namespace

/// A request on its way.
struct Engine::Job {
  EngineRequest request;
  std::shared_ptr<RequestTicket> ticket;
  Sampler sampler;
  ReplyEnd end;
  Clock::time_point submitted = Clock::now(), first_token;
  uint64_t turn = 0;  // the lowest one's prompt is computed first
  int32_t next = -1;  // drawn, not given to the model yet; -1 while the prompt is computed
  size_t text = 0;    // of an embedding: the one that is being computed, and what its tokens sum to
  std::vector<double> sum;
  std::vector<uint64_t> mask;
  bool computing_prompt() const { return next < 0; }
  int64_t prompt_size() const { return static_cast<int64_t>(request.prompt.size()); }
};

/// The job that uses a sequence of the model.
struct Engine::Sequence {
  std::unique_ptr<Job> job;
  uint64_t used = 0;  // when: the least recently used is replaced first
};

Engine::Engine(std::shared_ptr<LanguageModel> model, EngineOptions options)
    : model_(std::move(model)), options_(options), sequences_(static_cast<size_t>(model_->max_sequences())) {
  TG_CHECK(ValueError, options_.max_queue >= 1 && options_.prefill_tokens >= 1 && options_.shared_prefill_tokens >= 1,
           "[engine] got a limit below 1");
  TG_CHECK(ValueError, options_.prefill_share > 0 && options_.prefill_share < 1, "[engine] got a share of ",
           options_.prefill_share, " for prompts, expected one between 0 and 1");
  counters_.sequences = model_->max_sequences();
  worker_ = std::thread([this] { work(); });
}

Engine::~Engine() { stop(); }

void Engine::check_prompt(std::span<const int32_t> prompt) const {
  TG_CHECK(ValueError, !prompt.empty(), "[engine] got an empty prompt");
  TG_CHECK(ValueError, static_cast<int64_t>(prompt.size()) < model_->max_context(), "[engine] got a prompt of ",
           prompt.size(), " tokens, expected fewer than the context's ", model_->max_context());
  for (const int32_t token : prompt)
    TG_CHECK(ValueError, token >= 0 && token < model_->vocab_size(), "[engine] got token ", token, ", expected one of ",
             model_->vocab_size());
}

std::unique_ptr<Engine::Job> Engine::make_job(EngineRequest request) const {
  auto job = std::make_unique<Job>();
  if (request.embedding) {
    TG_CHECK(ValueError, request.prompt.empty() && !request.embedding->tokens.empty(),
             "[engine] got a prompt beside texts, or no texts");
    for (const std::vector<int32_t>& text : request.embedding->tokens) {
      check_prompt(text);
      job->end.prompt_tokens += static_cast<int64_t>(text.size());
    }
  } else {
    check_prompt(request.prompt);
    job->sampler = Sampler(request.sampling);
    for (const int32_t token : request.prompt) job->sampler.accept(token);
    job->end.prompt_tokens = static_cast<int64_t>(request.prompt.size());
  }
  job->ticket = std::make_shared<RequestTicket>();
  job->request = std::move(request);
  return job;
}

void Engine::check_queue() {
  const std::lock_guard lock(mutex_);
  check_room(1);
}

/// Checks that the queue takes more requests. To be called with the lock held.
void Engine::check_room(size_t requests) {
  const auto most = options_.max_queue + static_cast<int64_t>(sequences_.size());
  if (static_cast<int64_t>(queue_.size() + requests) <= most - counters_.active) return;
  counters_.rejected += requests;
  throw QueueFullError(str("[engine] ", queue_.size(), " requests are waiting, expected at most ", options_.max_queue));
}

std::vector<std::shared_ptr<RequestTicket>> Engine::submit(std::vector<EngineRequest> requests) {
  std::vector<std::unique_ptr<Job>> jobs;
  std::vector<std::shared_ptr<RequestTicket>> tickets;
  for (EngineRequest& r : requests) {
    jobs.push_back(make_job(std::move(r)));
    tickets.push_back(jobs.back()->ticket);
  }
  {
    const std::lock_guard lock(mutex_);
    TG_CHECK(Cancelled, !stopping_, "[engine] is stopping");
    const auto most = options_.max_queue + static_cast<int64_t>(sequences_.size());
    TG_CHECK(ValueError, static_cast<int64_t>(jobs.size()) <= most, "[engine] got ", jobs.size(),
             " requests at once, expected at most ", most);
    check_room(jobs.size());
    counters_.requests += jobs.size();
    for (auto& job : jobs) queue_.push_back(std::move(job));
    counters_.waiting = static_cast<int64_t>(queue_.size());
  }
  wake_.notify_one();
  return tickets;
}

void Engine::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (worker_.joinable()) worker_.join();
}

EngineCounters Engine::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

// ---- the worker ----

void Engine::work() {
  const StopScope stoppable(stopping_);  // a prompt or a compilation under way ends early
  while (true) {
    {
      std::unique_lock lock(mutex_);
      const auto busy = [&] {
        return std::any_of(sequences_.begin(), sequences_.end(), [](const Sequence& s) { return s.job != nullptr; });
      };
      wake_.wait(lock, [&] { return stopping_ || !queue_.empty() || busy(); });
    }
    try {
      end_cancelled();
      if (stopping_) return;
      while (admit_one()) {}
      if (!replies_are_behind()) prefill_some();
      decode_all();
    } catch (const std::exception& e) { fail_all(e.what()); }  // no memory for a list of ours, say
  }
}

/// Ends all requests that have a sequence, so that what failed once is not tried for ever.
void Engine::fail_all(const std::string& error) {
  for (size_t s = 0; s < sequences_.size(); s++)
    if (sequences_[s].job) finish(static_cast<int64_t>(s), FinishReason::kCancelled, error);
}

/// Ends what was cancelled since the last step; everything when the engine stops.
void Engine::end_cancelled() {
  for (size_t s = 0; s < sequences_.size(); s++)
    if (sequences_[s].job && (stopping_ || sequences_[s].job->ticket->cancelled()))
      finish(static_cast<int64_t>(s), FinishReason::kCancelled);
  std::vector<std::unique_ptr<Job>> gone;
  {
    const std::lock_guard lock(mutex_);
    for (auto& job : queue_)
      if (stopping_ || job->ticket->cancelled()) gone.push_back(std::move(job));
    std::erase_if(queue_, [](const std::unique_ptr<Job>& job) { return !job; });
    counters_.waiting = static_cast<int64_t>(queue_.size());
  }
  for (auto& job : gone) report_end(*job, FinishReason::kCancelled);
}

/// Returns whether another request is computing a prefix of this prompt that no sequence holds yet.
bool Engine::must_wait_for_prefix(const Job& job) const {
  int64_t held = 0, coming = 0;
  for (size_t i = 0; i < sequences_.size(); i++) {
    const Sequence& s = sequences_[i];
    held = std::max(held, common_prefix(job.request.prompt, model_->tokens(static_cast<int64_t>(i))));
    if (s.job && s.job->computing_prompt())
      coming = std::max(coming, common_prefix(job.request.prompt, s.job->request.prompt));
  }
  // The last token of a prompt is computed in any case: its logits are needed.
  return std::min(coming, job.prompt_size() - 1) >= held + kPrefixWorthWaiting;
}

/// Chooses the sequence for a request: the one that holds its longest prefix when that is free and loses little, else
/// the least recently used one, which then gets a copy of the prefix. -1: none is free.
int64_t Engine::choose_slot(const Job& job, int64_t& donor, int64_t& shared) const {
  donor = -1;
  shared = 0;
  int64_t oldest = -1;
  for (size_t i = 0; i < sequences_.size(); i++) {
    const Sequence& s = sequences_[i];
    const auto slot = static_cast<int64_t>(i);
    if (!s.job && (oldest < 0 || s.used < sequences_[static_cast<size_t>(oldest)].used)) oldest = slot;
    int64_t common = std::min(common_prefix(job.request.prompt, model_->tokens(slot)), job.prompt_size() - 1);
    if (common > 0) common = model_->rewindable(slot, common);
    const bool better = common > shared || (common == shared && common > 0 && !s.job);
    if (better) {
      donor = slot;
      shared = common;
    }
  }
  if (donor < 0 || oldest < 0) return oldest;
  const Sequence& d = sequences_[static_cast<size_t>(donor)];
  const bool loses_little = 2 * shared >= model_->position(donor);
  if (!d.job && (loses_little || oldest == donor)) return donor;
  if (shared < kPrefixWorthCopying) donor = -1;
  return oldest;
}

/// Gives the first request that need not wait a sequence; false when there is no such request or no sequence.
bool Engine::admit_one() {
  std::unique_ptr<Job> job;
  {
    const std::lock_guard lock(mutex_);
    const bool free = std::any_of(sequences_.begin(), sequences_.end(), [](const Sequence& s) { return !s.job; });
    if (!free) return false;
    const auto first =
        std::find_if(queue_.begin(), queue_.end(), [&](const auto& j) { return !must_wait_for_prefix(*j); });
    if (first == queue_.end()) return false;
    job = std::move(*first);
    queue_.erase(first);
    counters_.waiting = static_cast<int64_t>(queue_.size());
    counters_.active++;
  }
  int64_t donor = -1, shared = 0;
  const int64_t slot = choose_slot(*job, donor, shared);
  Sequence& s = sequences_[static_cast<size_t>(slot)];
  job->end.queue_seconds = since(job->submitted);
  s.used = ++clock_;
  job->turn = ++turns_;
  s.job = std::move(job);
  guarded({&slot, 1}, [&] {
    if (donor < 0) {
      model_->rewind(slot, 0);
      shared = 0;
    } else if (donor == slot) {
      model_->rewind(slot, shared);
    } else {
      model_->copy(donor, slot, shared);
      sequences_[static_cast<size_t>(donor)].used = ++clock_;
    }
    s.job->end.cached_tokens = shared;
    const std::lock_guard lock(mutex_);
    counters_.cached_tokens += static_cast<uint64_t>(shared);
    counters_.queue_seconds += s.job->end.queue_seconds;
  });
  return true;
}

/// Calls the model. When that fails the requests of these sequences end, and the sequences are empty.
template <class F> void Engine::guarded(std::span<const int64_t> slots, F call) {
  std::string error;
  Refusal refusal = Refusal::kNone;
  try {
    return call();
  } catch (const Cancelled&) {
  } catch (const NoTokenLeftError& e) {
    error = e.what();
    refusal = Refusal::kNoTokenLeft;
  } catch (const ConstraintLimitError& e) {
    error = e.what();
    refusal = Refusal::kConstraint;
  } catch (const std::exception& e) { error = e.what(); }
  for (const int64_t slot : slots) {
    Sequence& s = sequences_[static_cast<size_t>(slot)];
    try {
      model_->rewind(slot, 0);
    } catch (const std::exception&) {  // the next use of the sequence says so again
    }
    if (s.job) finish(slot, FinishReason::kCancelled, error, refusal);
  }
}

/// Returns whether prompts have had more than their share of the time: then replies go on alone.
bool Engine::replies_are_behind() const {
  return prefill_credit_ < 0 && std::any_of(
                                    sequences_.begin(), sequences_.end(),
                                    [](const Sequence& s) { return s.job && !s.job->computing_prompt(); });
}

/// Computes a piece of the prompt or text whose turn it is.
void Engine::prefill_some() {
  int64_t slot = -1;
  bool decoding = false;
  for (size_t i = 0; i < sequences_.size(); i++) {
    const Job* job = sequences_[i].job.get();
    if (!job) continue;
    if (!job->computing_prompt()) decoding = true;
    else if (slot < 0 || job->turn < sequences_[static_cast<size_t>(slot)].job->turn) slot = static_cast<int64_t>(i);
  }
  if (slot < 0) return;
  const int64_t most = decoding ? options_.shared_prefill_tokens : options_.prefill_tokens;
  const auto start = Clock::now();
  guarded({&slot, 1}, [&] {
    if (sequences_[static_cast<size_t>(slot)].job->request.embedding) prefill_text(slot, most);
    else prefill_prompt(slot, most);
  });
  prefill_credit_ = decoding ? prefill_credit_ - since(start) : 0;
}

void Engine::count_prefill(Job& job, size_t tokens, double seconds) {
  job.end.prefill_seconds += seconds;
  const std::lock_guard lock(mutex_);
  counters_.prefill_calls++;
  counters_.prompt_tokens += tokens;
  counters_.prefill_seconds += seconds;
}

void Engine::prefill_prompt(int64_t slot, int64_t most) {
  Job& job = *sequences_[static_cast<size_t>(slot)].job;
  const auto start = Clock::now();
  const std::span<const int32_t> prompt = job.request.prompt;
  const auto done = static_cast<size_t>(model_->position(slot));
  const auto piece = prompt.subspan(done, std::min(prompt.size() - done, static_cast<size_t>(most)));
  const std::span<const float> logits = model_->prefill(slot, piece);
  count_prefill(job, piece.size(), since(start));
  if (done + piece.size() == prompt.size() && !draw(job, logits)) finish(slot, job.end.reason);
}

/// The same of a text whose vector is wanted. Between two texts of a request others have their turn.
void Engine::prefill_text(int64_t slot, int64_t most) {
  Job& job = *sequences_[static_cast<size_t>(slot)].job;
  const EmbeddingTexts& e = *job.request.embedding;
  const auto start = Clock::now();
  const std::span<const int32_t> text = e.tokens[job.text];
  const auto done = static_cast<size_t>(model_->position(slot));
  const auto piece = text.subspan(done, std::min(text.size() - done, static_cast<size_t>(most)));
  const std::vector<float> rows = model_->prefill_hidden(slot, piece);
  count_prefill(job, piece.size(), since(start));
  const size_t dim = rows.size() / piece.size();
  job.sum.resize(dim);
  for (size_t r = e.last_token ? piece.size() - 1 : 0; r < piece.size(); r++)
    for (size_t i = 0; i < dim; i++)
      job.sum[i] = (e.last_token ? 0 : job.sum[i]) + static_cast<double>(rows[r * dim + i]);
  if (done + piece.size() < text.size()) return;
  if (e.on_vector) e.on_vector(job.text, unit(job.sum));
  job.sum.clear();
  if (++job.text == e.tokens.size()) return finish(slot, FinishReason::kStop);
  model_->rewind(slot, 0);
  job.turn = ++turns_;
}

/// Gives every sequence with a drawn token that token, and draws the next ones.
void Engine::decode_all() {
  std::vector<int64_t> slots;
  std::vector<NextToken> next;
  for (size_t i = 0; i < sequences_.size(); i++) {
    if (!sequences_[i].job || sequences_[i].job->computing_prompt()) continue;
    slots.push_back(static_cast<int64_t>(i));
    next.push_back({static_cast<int64_t>(i), sequences_[i].job->next});
  }
  if (slots.empty()) return;
  const auto start = Clock::now();
  std::span<const float> logits;
  guarded(slots, [&] { logits = model_->decode(next); });
  if (logits.empty()) return;
  const auto row = static_cast<size_t>(model_->vocab_size());
  for (size_t r = 0; r < slots.size(); r++)
    guarded({&slots[r], 1}, [&] {
      Job& job = *sequences_[static_cast<size_t>(slots[r])].job;
      if (!draw(job, logits.subspan(r * row, row))) finish(slots[r], job.end.reason);
    });
  // Credit does not add up: after a long reply alone, prompts do not take as long.
  prefill_credit_ =
      std::min(0.0, prefill_credit_ + since(start) * options_.prefill_share / (1 - options_.prefill_share));
  const std::lock_guard lock(mutex_);
  counters_.decode_steps++;
  counters_.decode_rows += slots.size();
  counters_.decode_seconds += since(start);
}

/// Returns what the constraint of a request allows: the end of the reply too, where its text is complete.
TokenMask Engine::allowed(Job& job) {
  JsonConstraint* constraint = job.request.constraint.get();
  if (!constraint) return {};
  const std::span<const uint64_t> mask = constraint->mask();
  job.mask.assign(mask.begin(), mask.end());
  job.mask.resize((static_cast<size_t>(model_->vocab_size()) + 63) / 64);
  if (constraint->finished())
    for (const int32_t token : job.request.stop_tokens)
      job.mask[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
  return job.mask;
}

/// Draws the next token of a reply and tells the caller; false when the reply ends, for the reason in `end`.
bool Engine::draw(Job& job, std::span<const float> logits) {
  const EngineRequest& r = job.request;
  const auto ends = [&](FinishReason reason) {
    job.end.reason = reason;
    return false;
  };
  if (job.computing_prompt()) {
    job.first_token = Clock::now();
    const std::lock_guard lock(mutex_);
    counters_.first_token_seconds += since(job.submitted);
  }
  if (r.max_tokens == 0) return ends(FinishReason::kLength);
  if (r.constraint && r.constraint->exhausted()) return ends(FinishReason::kStop);
  const int32_t token = job.sampler.sample(logits, allowed(job));
  if (std::find(r.stop_tokens.begin(), r.stop_tokens.end(), token) != r.stop_tokens.end())
    return ends(FinishReason::kStop);
  if (r.constraint)
    TG_CHECK(ValueError, r.constraint->accept(static_cast<size_t>(token)), "[engine] the constraint refuses token ",
             token);
  job.next = token;
  job.end.reply_tokens++;
  ReplyToken reply{token, 0, {}};
  std::vector<TokenProbability> top;
  if (r.logprobs >= 0) {
    reply.logprob = logprob_of(logits, token);
    top = top_logprobs(logits, r.logprobs);
    reply.top = top;
  }
  {
    const std::lock_guard lock(mutex_);
    counters_.reply_tokens++;
  }
  const bool goes_on = !r.on_token || r.on_token(reply);
  if (job.ticket->cancelled()) return ends(FinishReason::kCancelled);
  if (!goes_on) return ends(FinishReason::kStop);
  if (r.constraint && r.constraint->exhausted()) return ends(FinishReason::kStop);
  if (r.max_tokens >= 0 && job.end.reply_tokens >= r.max_tokens) return ends(FinishReason::kLength);
  if (job.prompt_size() + job.end.reply_tokens >= model_->max_context()) return ends(FinishReason::kContext);
  return true;
}

/// Ends the request of a sequence, which keeps its tokens for later prompts.
void Engine::finish(int64_t slot, FinishReason reason, std::string error, Refusal refusal) {
  Sequence& s = sequences_[static_cast<size_t>(slot)];
  const std::unique_ptr<Job> job = std::move(s.job);
  s.used = ++clock_;
  if (!job->computing_prompt()) job->end.decode_seconds = since(job->first_token);
  {
    const std::lock_guard lock(mutex_);
    counters_.active--;
  }
  job->end.refusal = refusal;
  report_end(*job, reason, std::move(error));
}

void Engine::report_end(Job& job, FinishReason reason, std::string error) {
  job.end.reason = reason;
  job.end.error = std::move(error);
  {
    const std::lock_guard lock(mutex_);
    if (!job.end.error.empty()) counters_.failed++;
    else if (reason == FinishReason::kCancelled) counters_.cancelled++;
    else counters_.finished++;
  }
  if (!job.request.on_end) return;
  try {
    job.request.on_end(job.end);
  } catch (...) {  // an answer that could not be made is dropped, which its client is told; other requests go on
    const std::lock_guard lock(mutex_);
    counters_.failed++;
  }
}

}  // namespace tg::llm
