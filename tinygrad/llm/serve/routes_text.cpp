/// \file Routes about the model and its tokens, health, the chat page.
#include "tinygrad/base/text.h"
#include "tinygrad/llm/serve/api_error.h"
#include "tinygrad/llm/serve/api_fields.h"
#include "tinygrad/llm/serve/server_state.h"

namespace tg::llm {
namespace {

constexpr std::string_view kModels = "/v1/models";

void answer(const ReplyPtr& reply, const Value& body) { reply->send({200, body.json(compact_json())}); }

Value model_entry(const ServerState& s) {
  std::vector<Value::Entry> entries{{"id", s.model.id}, {"object", "model"}, {"created", 0}, {"owned_by", "tinygrad"}};
  if (s.model.model) entries.emplace_back("max_model_len", s.model.model->max_context());
  return Value::dict(std::move(entries));
}

}  // namespace

void serve_models(ServerState& s, const io::HttpRequest& http, const ReplyPtr& reply) {
  if (http.path == kModels)
    return answer(reply, Value::dict({{"object", "list"}, {"data", Value::list({model_entry(s)})}}));
  s.check_model(percent_decoded(std::string_view(http.path).substr(kModels.size() + 1)));
  answer(reply, model_entry(s));
}

void serve_tokenize(ServerState& s, const io::HttpRequest& http, const ReplyPtr& reply) {
  const Value body = parse_api_body(http.body);
  const ApiFields fields(body);
  const char* name = fields.find("content")  ? "content"
                     : fields.find("prompt") ? "prompt"
                     : fields.find("text")   ? "text"
                                             : "content";
  const std::string text = fields.required_text(name);
  EncodeOptions options;
  options.add_special = fields.flag("add_special", fields.flag("add_special_tokens", false));
  options.parse_special = fields.flag("parse_special", false);
  const bool pieces = fields.flag("with_pieces", false);
  s.check_model(fields.text("model"));
  fields.refuse_others();
  const std::vector<int32_t> found = s.tokenizer().encode(text, options);
  if (found.size() > kApiTokens)
    throw ApiError(400, str("the text has ", found.size(), " tokens, at most ", kApiTokens), name);
  std::vector<Value> tokens;
  for (const int32_t t : found) {
    if (pieces) tokens.push_back(Value::dict({{"id", t}, {"piece", std::string(s.tokenizer().token_text(t))}}));
    else tokens.emplace_back(t);
  }
  const auto count = static_cast<int64_t>(tokens.size());
  answer(reply, Value::dict({{"tokens", Value::list(std::move(tokens))}, {"count", count}}));
}

void serve_detokenize(ServerState& s, const io::HttpRequest& http, const ReplyPtr& reply) {
  const Value body = parse_api_body(http.body);
  const ApiFields fields(body);
  const Value* list = fields.find("tokens");
  if (!list) fields.refuse("tokens", "a list of tokens");
  const std::vector<int32_t> tokens = api_tokens(*list, s.tokenizer().vocab_size(), "tokens");
  const std::string text = s.tokenizer().decode(tokens, fields.flag("skip_special", false));
  s.check_model(fields.text("model"));
  fields.refuse_others();
  answer(reply, Value::dict({{"content", text}, {"prompt", text}}));
}

void serve_health(ServerState&, const io::HttpRequest&, const ReplyPtr& reply) {
  reply->send({200, std::string(kHealthy)});
}

void serve_page(ServerState&, const io::HttpRequest&, const ReplyPtr& reply) {
  reply->send({200,
               std::string(chat_page()),
               "text/html; charset=utf-8",
               {{"Content-Security-Policy",
                 "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
                 "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
                {"Referrer-Policy", "no-referrer"},
                {"X-Frame-Options", "DENY"}}});
}

}  // namespace tg::llm
