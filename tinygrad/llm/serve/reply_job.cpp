#include "tinygrad/llm/serve/reply_job.h"

#include <chrono>

#include "tinygrad/llm/json_constraint.h"

namespace tg::llm {
namespace {

// Statuses of replies that do not end.
constexpr int kRefused = 400, kFailed = 500, kStopping = 503;

int64_t now_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Returns a reply that is one call as a whole; as text where max_tokens cut it off.
ReplyDelta read_call(std::string text) {
  ReplyDelta delta;
  try {
    const Value call = Value::parse_json(text, "call", {.values = kApiJsonValues});
    const Value* name = call.find("name");
    const Value* arguments = call.find("arguments");
    if (name && name->is_string() && arguments)
      delta.tool_calls.push_back({random_id("call_"), name->as_string(), arguments->json()});
  } catch (const Error&) {}
  if (delta.tool_calls.empty()) delta.content = std::move(text);
  return delta;
}

/// Returns what the client is told of a reply that did not end.
ApiError error_of(const ReplyEnd& end, const std::string& constraint_field) {
  if (end.error.empty()) return {kStopping, "the server is stopping"};
  if (end.refusal == Refusal::kConstraint) return {kRefused, end.error, constraint_field, "unsupported_schema"};
  if (end.refusal != Refusal::kNone) return {kRefused, str("the reply cannot go on: ", end.error)};
  return {kFailed, str("the model failed: ", end.error)};
}

}  // namespace

ReplyJob::ReplyJob(const Tokenizer& tokenizer, ReplyPlan plan, std::shared_ptr<io::HttpReply> reply)
    : tokenizer_(tokenizer),
      plan_(std::move(plan)),
      reply_(std::move(reply)),
      state_{tokenizer_, plan_.model, plan_.options, {}, plan_.echo, {}, now_seconds()} {
  for (size_t p = 0; p < plan_.prompts.size(); p++) {
    state_.prompt_tokens.push_back(plan_.prompts[p].size());
    for (int64_t n = 0; n < plan_.options.choices; n++) {
      texts_.emplace_back(tokenizer_, plan_.options.stop, plan_.form);
      state_.choices.emplace_back();
      if (!plan_.echo.empty()) state_.choices.back().text_offset = count_characters(plan_.echo[p]);
    }
  }
  format_ = plan_.format(state_);
}

EngineRequest ReplyJob::request(size_t i) {
  EngineRequest r;
  r.prompt = plan_.prompts[state_.prompt_of(i)];
  r.max_tokens = plan_.options.max_tokens;
  r.sampling = plan_.options.sampling;
  r.sampling.seed += i;  // choices differ, each the same at every try
  r.stop_tokens = plan_.stop_tokens;
  r.logprobs = plan_.options.logprobs;
  if (plan_.constraint) r.constraint = plan_.constraint();
  r.on_token = [self = shared_from_this(), i](const ReplyToken& t) { return self->on_token(i, t); };
  r.on_end = [self = shared_from_this(), i](const ReplyEnd& e) { self->on_end(i, e); };
  return r;
}

void ReplyJob::start(Engine& engine, const Tokenizer& tokenizer, ReplyPlan plan, std::shared_ptr<io::HttpReply> reply) {
  const auto job = std::make_shared<ReplyJob>(tokenizer, std::move(plan), std::move(reply));
  const std::lock_guard lock(job->mutex_);
  std::vector<EngineRequest> requests;
  for (size_t i = 0; i < job->texts_.size(); i++) requests.push_back(job->request(i));
  job->tickets_ = engine.submit(std::move(requests));
  job->reply_->on_close([tickets = job->tickets_] {
    for (const auto& t : tickets) t->cancel();
  });
  if (!job->plan_.options.stream) return;
  job->reply_->start({200, {}, "text/event-stream; charset=utf-8", {{"Cache-Control", "no-cache"}}});
  job->reply_->write(job->format_->begin());
}

bool ReplyJob::on_token(size_t i, const ReplyToken& token) {
  const std::lock_guard lock(mutex_);
  if (failed_) return false;
  take(i, texts_[i].add(token, plan_.options.logprobs >= 0));
  const bool called = plan_.one_call && !state_.choices[i].calls.empty();
  return !texts_[i].stopped() && !called;
}

/// Takes text of a choice; one that is a call is kept until it is whole.
void ReplyJob::take(size_t i, ReplyDelta delta) {
  ReplyChoice& c = state_.choices[i];
  for (TokenRecord& r : texts_[i].take_records()) c.records.push_back(std::move(r));
  if (plan_.is_call) c.content += delta.content;
  else deliver(i, std::move(delta));
}

/// Adds to a choice, and sends what is new where the answer is a stream.
void ReplyJob::deliver(size_t i, ReplyDelta delta) {
  ReplyChoice& c = state_.choices[i];
  if (plan_.one_call && c.calls.size() + delta.tool_calls.size() > 1) delta.tool_calls.resize(c.calls.empty() ? 1 : 0);
  if (plan_.options.stream && (!delta.empty() || !c.records.empty())) reply_->write(format_->delta(i, delta));
  c.content += delta.content;
  c.reasoning += delta.reasoning;
  for (ToolCall& call : delta.tool_calls) c.calls.push_back(std::move(call));
}

void ReplyJob::on_end(size_t i, const ReplyEnd& end) {
  const std::lock_guard lock(mutex_);
  ReplyChoice& c = state_.choices[i];
  c.end = end;
  ended_++;
  if (failed_) return;
  if (!end.error.empty() || end.reason == FinishReason::kCancelled) return fail(end);
  take(i, texts_[i].finish());
  c.stop_string = texts_[i].stop_string();
  if (plan_.is_call) deliver(i, read_call(std::exchange(c.content, {})));
  if (plan_.options.stream) reply_->write(format_->end(i));
  if (ended_ == texts_.size()) complete();
}

/// Answers that the model failed or that the server stops, and gives up the other choices.
void ReplyJob::fail(const ReplyEnd& end) {
  failed_ = true;
  for (const auto& t : tickets_) t->cancel();
  if (reply_->closed()) return reply_.reset();
  const ApiError error = error_of(end, plan_.constraint_field);
  if (!plan_.options.stream) return reply_->send({error.status, api_error_json(error, format_->errors())});
  reply_->write(format_->failure(error));
  reply_->finish();
}

void ReplyJob::complete() {
  if (!plan_.options.stream) return reply_->send({200, format_->whole()});
  reply_->write(format_->finish());
  reply_->finish();
}

}  // namespace tg::llm
