#include "tinygrad/llm/serve/reply_job.h"

#include <chrono>
#include <random>

#include "tinygrad/llm/json_constraint.h"
#include "tinygrad/llm/serve/api_error.h"

namespace tg::llm {
namespace {

// Statuses of replies that do not end.
constexpr int kRefused = 400, kFailed = 500, kStopping = 503;

/// Returns an object as JSON with one more member, whose value is JSON.
std::string with_member(const Value& object, std::string_view name, std::string_view json) {
  std::string text = object.json(compact_json());
  text.pop_back();
  return str(text, object.size() > 0 ? ",\"" : "\"", name, "\":", json, "}");
}
std::string with_member(const std::string& object, std::string_view name, const Value& value) {
  return str(std::string_view(object).substr(0, object.size() - 1), ",\"", name, "\":", value.json(compact_json()),
             "}");
}

int64_t now_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string random_id(std::string_view prefix) {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  static thread_local std::mt19937_64 random{std::random_device{}()};
  std::string id(prefix);
  for (int i = 0; i < 24; i++) id += kLetters[random() % kLetters.size()];
  return id;
}

ReplyJob::ReplyJob(const Tokenizer& tokenizer, ReplyPlan plan, std::shared_ptr<io::HttpReply> reply)
    : tokenizer_(tokenizer),
      plan_(std::move(plan)),
      reply_(std::move(reply)),
      id_(random_id(plan_.chat ? "chatcmpl-" : "cmpl-")),
      created_(now_seconds()) {
  for (size_t p = 0; p < plan_.prompts.size(); p++)
    for (int64_t n = 0; n < plan_.options.choices; n++) {
      Choice c{ChoiceText(tokenizer_, plan_.options.stop, plan_.form), {}, {}, {}, {}, {}};
      if (!plan_.echo.empty()) c.text_offset = count_characters(plan_.echo[p]);
      choices_.push_back(std::move(c));
    }
}

EngineRequest ReplyJob::request(size_t i) {
  EngineRequest r;
  r.prompt = plan_.prompts[i / static_cast<size_t>(plan_.options.choices)];
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
  for (size_t i = 0; i < job->choices_.size(); i++) requests.push_back(job->request(i));
  job->tickets_ = engine.submit(std::move(requests));
  job->reply_->on_close([tickets = job->tickets_] {
    for (const auto& t : tickets) t->cancel();
  });
  if (!job->plan_.options.stream) return;
  job->reply_->start({200, {}, "text/event-stream; charset=utf-8", {{"Cache-Control", "no-cache"}}});
  for (size_t i = 0; i < job->choices_.size(); i++) {
    ReplyDelta first;
    if (!job->plan_.echo.empty()) first.content = job->plan_.echo[i / static_cast<size_t>(job->plan_.options.choices)];
    if (job->plan_.chat || !first.empty()) job->send_delta(i, first);
  }
}

bool ReplyJob::on_token(size_t i, const ReplyToken& token) {
  const std::lock_guard lock(mutex_);
  if (failed_) return false;
  Choice& c = choices_[i];
  const bool record = plan_.options.logprobs >= 0;
  ReplyDelta delta = c.text.add(token, record);
  if (!delta.empty() || record) take(i, std::move(delta));
  return !c.text.stopped();
}

/// Adds text to a choice, and sends it where the answer is a stream.
void ReplyJob::take(size_t i, ReplyDelta delta) {
  Choice& c = choices_[i];
  const bool stream = plan_.options.stream && !plan_.is_call;
  if (stream) send_delta(i, delta);
  c.content += delta.content;
  c.reasoning += delta.reasoning;
  for (ToolCall& call : delta.tool_calls) c.calls.push_back(std::move(call));
  if (stream) return;
  for (TokenRecord& r : c.text.take_records()) c.records.push_back(std::move(r));
}

/// Reads a reply that is one call as a whole.
void ReplyJob::take_call(Choice& c) const {
  try {
    const Value call = Value::parse_json(c.content, "call", {.values = kApiJsonValues});
    const Value* name = call.find(std::string_view("name"));
    const Value* arguments = call.find(std::string_view("arguments"));
    if (!name || !name->is_string() || !arguments) return;
    c.calls.push_back({random_id("call_"), name->as_string(), arguments->json()});
    c.content.clear();
  } catch (const Error&) {  // cut off by max_tokens: the text stays content
  }
}

void ReplyJob::on_end(size_t i, const ReplyEnd& end) {
  const std::lock_guard lock(mutex_);
  Choice& c = choices_[i];
  c.end = end;
  c.ended = true;
  ended_++;
  if (failed_) return;
  if (!end.error.empty() || end.reason == FinishReason::kCancelled) return fail(end);
  take(i, c.text.finish());
  ReplyDelta call;
  if (plan_.is_call) {
    take_call(c);
    call.content = c.content;
    call.tool_calls = c.calls;
  }
  if (plan_.options.stream) send_delta(i, call, finish_reason(c));
  if (ended_ == choices_.size()) complete();
}

/// Answers that the model failed or that the server stops, and gives up the other choices.
void ReplyJob::fail(const ReplyEnd& end) {
  failed_ = true;
  for (const auto& t : tickets_) t->cancel();
  if (reply_->closed()) return reply_.reset();
  const int status = end.error.empty() ? kStopping : end.refusal != Refusal::kNone ? kRefused : kFailed;
  std::string error;
  if (status == kStopping) error = api_error_json(status, "the server is stopping");
  else if (end.refusal == Refusal::kConstraint)
    error = api_error_json({status, end.error, plan_.is_call ? "tools" : "response_format", "unsupported_schema"});
  else if (status == kRefused) error = api_error_json(status, str("the reply cannot go on: ", end.error));
  else error = api_error_json(status, str("the model failed: ", end.error));
  if (!plan_.options.stream) {
    reply_->send({status, error});
  } else {
    reply_->write(str("data: ", error, "\n\n"));
    reply_->finish();
  }
}

void ReplyJob::complete() {
  if (plan_.options.stream) {
    if (plan_.options.include_usage)
      send_event(
          with_member(with_member(head(plan_.chat ? "chat.completion.chunk" : "text_completion"), "choices", "[]"),
                      "usage", usage()));
    reply_->write("data: [DONE]\n\n");
    return reply_->finish();
  }
  std::string all;
  for (size_t i = 0; i < choices_.size(); i++) all += (i ? "," : "[") + whole_choice(i);
  const std::string answer =
      with_member(head(plan_.chat ? "chat.completion" : "text_completion"), "choices", all + "]");
  reply_->send({200, with_member(with_member(answer, "usage", usage()), "timings", timings())});
}

// ---- the texts ----

std::string ReplyJob::finish_reason(const Choice& c) const {
  if (!c.calls.empty()) return "tool_calls";
  return c.end.reason == FinishReason::kStop ? "stop" : "length";
}

Value ReplyJob::head(std::string_view object) const {
  return Value::dict({{"id", id_}, {"object", Value(object)}, {"created", created_}, {"model", plan_.model}});
}

Value ReplyJob::usage() const {
  int64_t prompt = 0, cached = 0, reply = 0;
  for (size_t i = 0; i < choices_.size(); i++) {
    reply += choices_[i].end.reply_tokens;
    if (i % static_cast<size_t>(plan_.options.choices)) continue;
    prompt += choices_[i].end.prompt_tokens;
    cached += choices_[i].end.cached_tokens;
  }
  return Value::dict({{"prompt_tokens", prompt},
                      {"completion_tokens", reply},
                      {"total_tokens", prompt + reply},
                      {"prompt_tokens_details", Value::dict({{"cached_tokens", cached}})}});
}

/// Returns how long the first choice took, in milliseconds.
Value ReplyJob::timings() const {
  const ReplyEnd& e = choices_[0].end;
  return Value::dict({{"queue_ms", e.queue_seconds * 1e3},
                      {"prompt_n", e.prompt_tokens - e.cached_tokens},
                      {"cache_n", e.cached_tokens},
                      {"prompt_ms", e.prefill_seconds * 1e3},
                      {"predicted_n", e.reply_tokens},
                      {"predicted_ms", e.decode_seconds * 1e3}});
}

std::string ReplyJob::logprobs(Choice& c, const std::vector<TokenRecord>& records) const {
  if (plan_.options.logprobs < 0) return "null";
  return plan_.chat ? chat_logprobs(tokenizer_, records) : completion_logprobs(tokenizer_, records, c.text_offset);
}

std::string ReplyJob::whole_choice(size_t i) {
  Choice& c = choices_[i];
  const auto index = static_cast<int64_t>(i);
  if (!plan_.chat) {
    const std::string echo =
        plan_.echo.empty() ? std::string() : plan_.echo[i / static_cast<size_t>(plan_.options.choices)];
    const Value choice =
        Value::dict({{"text", echo + c.content}, {"index", index}, {"finish_reason", finish_reason(c)}});
    return with_member(choice, "logprobs", logprobs(c, c.records));
  }
  std::vector<Value::Entry> message{{"role", "assistant"}};
  message.emplace_back("content", c.content.empty() && !c.calls.empty() ? Value() : Value(c.content));
  if (!c.reasoning.empty()) message.emplace_back("reasoning_content", c.reasoning);
  if (!c.calls.empty()) {
    std::vector<Value> calls;
    for (const ToolCall& call : c.calls) calls.push_back(tool_call_value(call));
    message.emplace_back("tool_calls", Value::list(std::move(calls)));
  }
  const Value choice = Value::dict(
      {{"index", index}, {"message", Value::dict(std::move(message))}, {"finish_reason", finish_reason(c)}});
  return with_member(choice, "logprobs", logprobs(c, c.records));
}

std::string ReplyJob::delta_choice(size_t i, const ReplyDelta& delta, std::optional<std::string> finish) {
  Choice& c = choices_[i];
  const auto index = static_cast<int64_t>(i);
  const Value reason = finish ? Value(*finish) : Value();
  const std::vector<TokenRecord> records = c.text.take_records();
  const std::string probabilities = records.empty() ? "null" : logprobs(c, records);
  if (!plan_.chat)
    return with_member(Value::dict({{"text", delta.content}, {"index", index}, {"finish_reason", reason}}), "logprobs",
                       probabilities);
  std::vector<Value::Entry> entries;
  const bool first = !finish && delta.empty() && records.empty();
  if (first) entries.emplace_back("role", "assistant");
  if (first || !delta.content.empty()) entries.emplace_back("content", delta.content);
  if (!delta.reasoning.empty()) entries.emplace_back("reasoning_content", delta.reasoning);
  if (!delta.tool_calls.empty()) {
    const size_t before = plan_.is_call ? 0 : c.calls.size();
    std::vector<Value> calls;
    for (size_t k = 0; k < delta.tool_calls.size(); k++)
      calls.push_back(tool_call_value(delta.tool_calls[k], static_cast<int64_t>(before + k)));
    entries.emplace_back("tool_calls", Value::list(std::move(calls)));
  }
  const Value choice =
      Value::dict({{"index", index}, {"delta", Value::dict(std::move(entries))}, {"finish_reason", reason}});
  return with_member(choice, "logprobs", probabilities);
}

void ReplyJob::send_event(const std::string& json) { reply_->write(str("data: ", json, "\n\n")); }

void ReplyJob::send_delta(size_t i, const ReplyDelta& delta, std::optional<std::string> finish) {
  const std::string event = with_member(head(plan_.chat ? "chat.completion.chunk" : "text_completion"), "choices",
                                        str("[", delta_choice(i, delta, std::move(finish)), "]"));
  send_event(plan_.options.include_usage ? with_member(event, "usage", Value()) : event);
}

}  // namespace tg::llm
