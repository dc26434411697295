/// \file Routes that generate: chats in three APIs, which become one plan, and completions.
#include <algorithm>
#include <random>

#include "tinygrad/llm/serve/api_error.h"
#include "tinygrad/llm/serve/reply_job.h"
#include "tinygrad/llm/serve/server_state.h"

namespace tg::llm {
namespace {

constexpr int64_t kTokensForContext = 1;  // a prompt must leave room for

SamplingOptions sampling_defaults(const ServerState& s) {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  SamplingOptions defaults = s.options.sampling;
  defaults.seed = random();
  return defaults;
}

void check_fits(const ServerState& s, const std::vector<int32_t>& prompt, const char* param) {
  const int64_t context = s.model.model->max_context();
  if (static_cast<int64_t>(prompt.size()) + kTokensForContext > context)
    throw ApiError(
        400,
        str("the prompt has ", prompt.size(), " tokens; this model's context is ", context, " tokens, with the reply"),
        param, "context_length_exceeded");
  if (prompt.empty()) throw ApiError(400, "the prompt is empty", param);
}

/// Bounds the log-probabilities that are collected for one answer; a stream sends them as they come.
void check_logprobs(const ServerState& s, const ReplyPlan& plan) {
  const ApiReplyOptions& o = plan.options;
  if (o.logprobs < 0 || o.stream) return;
  int64_t tokens = 0;
  for (const std::vector<int32_t>& prompt : plan.prompts) {
    const int64_t room = s.model.model->max_context() - static_cast<int64_t>(prompt.size());
    tokens += o.choices * (o.max_tokens < 0 ? room : std::min(o.max_tokens, room));
  }
  if (tokens > kApiLogprobEntries / (o.logprobs + 1))
    throw ApiError(400,
                   str("logprobs of up to ", tokens, " tokens with ", o.logprobs, " others each, at most ",
                       kApiLogprobEntries, " together: set max_tokens, or stream"),
                   "logprobs");
}

/// Returns a text for models whose template knows no tools, in the form that most models were trained on.
std::string tools_as_text(const Value& tools) {
  std::string text = "You can call these functions; each is described by a line of JSON:\n";
  for (const Value& tool : tools.items()) text += tool.json() + "\n";
  return text +
         "To call one, answer with <tool_call>{\"name\": NAME, \"arguments\": OBJECT}</tool_call> and nothing else.";
}

/// Returns the messages with a text added to the system message, which is made where there is none.
Value with_system_text(const Value& messages, const std::string& text) {
  std::vector<Value> all(messages.items().begin(), messages.items().end());
  const auto role = [](const Value& m) { return m.find("role")->as_string(); };
  if (role(all[0]) == "system") {
    const std::string& before = all[0].find(std::string_view("content"))->as_string();
    all[0] = Value::dict({{"role", "system"}, {"content", before.empty() ? text : before + "\n\n" + text}});
  } else {
    all.insert(all.begin(), Value::dict({{"role", "system"}, {"content", text}}));
  }
  return Value::list(std::move(all));
}

struct Prompt {
  std::vector<int32_t> tokens;
  ReplyForm form;
};

Prompt chat_prompt(const ServerState& s, const ChatRequest& request) {
  if (!s.model.chat_template.chat)
    throw ApiError(400, s.model.chat_template.problem + ": use /v1/completions", "model", "template_error");
  const ChatTemplate& chat = *s.model.chat_template.chat;
  ChatInput input;
  input.messages = request.messages;
  input.variables = request.template_variables;
  const bool tools = !request.tools.is_none() && request.tool_choice != ToolChoice::kNone;
  const bool known = chat.reads("tools");
  if (tools && known) input.tools = request.tools;
  if (tools && !known) input.messages = with_system_text(input.messages, tools_as_text(request.tools));
  const auto special = [&](std::optional<int32_t> token) {
    return token ? std::string(s.tokenizer().token_text(*token)) : std::string();
  };
  input.bos_token = special(s.tokenizer().bos());
  input.eos_token = special(s.tokenizer().eos());
  RenderedChat rendered;
  try {
    rendered = chat.render(input);
  } catch (const TemplateError& e) { throw ApiError(400, e.what(), request.messages_field, "template_error"); }
  Prompt prompt{s.chat_encoder->encode(rendered), detect_reply_form(chat.source(), rendered.text)};
  if (!tools) prompt.form.tools = ToolCallForm::none;
  else if (!known) prompt.form.tools = ToolCallForm::hermes;
  return prompt;
}

/// Returns what makes a constraint for each reply; a schema that cannot be enforced is refused.
std::function<std::shared_ptr<JsonConstraint>()> constraint_of(ServerState& s, const ChatRequest& request) {
  if (request.constraint.is_none()) return {};
  try {
    SchemaOptions options;
    options.ordered = request.tool_choice == ToolChoice::kRequired;  // the name decides what the arguments are
    const JsonSchema schema = s.schemas.compiled(request.constraint, options);
    return [schema, &s] { return std::make_shared<JsonConstraint>(schema, s.vocabulary_bytes()); };
  } catch (const Error& e) { throw ApiError(400, e.what(), request.constraint_field, "unsupported_schema"); }
}

std::vector<int32_t> end_tokens(const ServerState& s) {
  std::vector<int32_t> tokens;
  for (const int32_t t : s.tokenizer().end_tokens())
    if (t < s.model.model->vocab_size()) tokens.push_back(t);
  return tokens;
}

void require_generation(const ServerState& s) {
  if (!s.engine) throw ApiError(400, "this model makes embeddings only", "model");
}
/// The same, and that the queue takes a request: asked before work is put into reading one.
void require_place(ServerState& s) {
  require_generation(s);
  s.engine->check_queue();
}

/// Generates the replies of a chat, in whichever API it was asked for.
void start_chat(ServerState& s, const ChatRequest& request, AnswerFormatFactory format, const ReplyPtr& reply) {
  s.check_model(request.reply.model);
  Prompt prompt = chat_prompt(s, request);
  check_fits(s, prompt.tokens, request.messages_field.c_str());
  ReplyPlan plan;
  plan.format = std::move(format);
  plan.model = s.model.id;
  plan.options = request.reply;
  plan.prompts.push_back(std::move(prompt.tokens));
  plan.constraint = constraint_of(s, request);
  plan.constraint_field = request.constraint_field;
  plan.is_call = request.tool_choice == ToolChoice::kRequired;
  plan.one_call = request.one_call;
  if (!plan.constraint) plan.form = std::move(prompt.form);
  plan.stop_tokens = end_tokens(s);
  check_logprobs(s, plan);
  ReplyJob::start(*s.engine, s.tokenizer(), std::move(plan), reply);
}

}  // namespace

void serve_chat(ServerState& s, const io::HttpRequest& http, const ReplyPtr& reply) {
  require_place(s);
  start_chat(s, read_chat_request(parse_api_body(http.body), sampling_defaults(s), s.vocabulary()), make_chat_answer,
             reply);
}

void serve_responses(ServerState& s, const io::HttpRequest& http, const ReplyPtr& reply) {
  require_place(s);
  ResponsesRequest request = read_responses_request(parse_api_body(http.body), sampling_defaults(s), s.vocabulary());
  start_chat(s, request.chat, responses_answer(std::move(request.echo)), reply);
}

void serve_messages(ServerState& s, const io::HttpRequest& http, const ReplyPtr& reply) {
  require_place(s);
  start_chat(s, read_messages_request(parse_api_body(http.body), sampling_defaults(s), s.vocabulary()),
             make_messages_answer, reply);
}

void serve_count_tokens(ServerState& s, const io::HttpRequest& http, const ReplyPtr& reply) {
  require_generation(s);
  const ChatRequest request =
      read_messages_request(parse_api_body(http.body), sampling_defaults(s), s.vocabulary(), false);
  s.check_model(request.reply.model);
  const auto tokens = static_cast<int64_t>(chat_prompt(s, request).tokens.size());
  reply->send({200, Value::dict({{"input_tokens", tokens}}).json(compact_json())});
}

void serve_completions(ServerState& s, const io::HttpRequest& http, const ReplyPtr& reply) {
  require_place(s);
  const CompletionRequest request =
      read_completion_request(parse_api_body(http.body), sampling_defaults(s), s.vocabulary());
  s.check_model(request.reply.model);
  ReplyPlan plan;
  plan.format = make_completion_answer;
  plan.model = s.model.id;
  plan.options = request.reply;
  for (const TextOrTokens& input : request.prompts) {
    plan.prompts.push_back(s.tokens_of(input));
    check_fits(s, plan.prompts.back(), "prompt");
    if (!request.echo) continue;
    const std::string* text = std::get_if<std::string>(&input);
    plan.echo.push_back(text ? *text : s.tokenizer().decode(plan.prompts.back()));
  }
  plan.stop_tokens = end_tokens(s);
  check_logprobs(s, plan);
  ReplyJob::start(*s.engine, s.tokenizer(), std::move(plan), reply);
}

}  // namespace tg::llm
