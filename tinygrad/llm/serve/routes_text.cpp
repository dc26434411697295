/// \file Routes that do not generate: embeddings, models, tokens, health, the chat page.
#include <cstring>

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

std::string base64(std::span<const float> values) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<unsigned char> bytes(values.size_bytes());
  std::memcpy(bytes.data(), values.data(), bytes.size());
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; k++) group = group << 8 | (k < n ? bytes[i + k] : 0u);
    for (size_t k = 0; k < 4; k++) text += k <= n ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

Value embedding_value(std::span<const float> vector, bool as_base64) {
  if (as_base64) return base64(vector);
  std::vector<Value> values;
  values.reserve(vector.size());
  for (const float v : vector) values.emplace_back(static_cast<double>(v));
  return Value::list(std::move(values));
}

}  // namespace

void serve_embeddings(ServerState& s, const io::HttpRequest& http, const ReplyPtr& reply) {
  if (!s.model.embed) throw ApiError(400, "this model makes no embeddings", "model");
  const EmbeddingRequest request = read_embedding_request(parse_api_body(http.body), s.vocabulary());
  s.check_model(request.model);
  std::vector<std::string> texts;
  int64_t tokens = 0;
  for (const TextOrTokens& input : request.inputs) {
    const std::string* text = std::get_if<std::string>(&input);
    texts.push_back(text ? *text : s.tokenizer().decode(std::get<std::vector<int32_t>>(input)));
    if (texts.back().empty()) throw ApiError(400, "an input is empty", "input");
    const auto n = static_cast<int64_t>(s.tokenizer().encode(texts.back()).size());
    if (n > s.model.embedding_context)
      throw ApiError(400, str("an input has ", n, " tokens, at most ", s.model.embedding_context), "input",
                     "context_length_exceeded");
    tokens += n;
  }
  std::vector<std::vector<float>> vectors;
  {
    const std::lock_guard lock(s.embedding_mutex);
    if (reply->closed()) return;
    vectors = s.model.embed(texts);
  }
  std::vector<Value> data;
  for (size_t i = 0; i < vectors.size(); i++) {
    const auto size = static_cast<int64_t>(vectors[i].size());
    if (request.dimensions && request.dimensions != size)
      throw ApiError(400, str("this model's embeddings have ", size, " dimensions"), "dimensions");
    data.push_back(Value::dict({{"object", "embedding"},
                                {"index", static_cast<int64_t>(i)},
                                {"embedding", embedding_value(vectors[i], request.base64)}}));
  }
  answer(reply, Value::dict({{"object", "list"},
                             {"data", Value::list(std::move(data))},
                             {"model", s.model.id},
                             {"usage", Value::dict({{"prompt_tokens", tokens}, {"total_tokens", tokens}})}}));
}

void serve_models(ServerState& s, const io::HttpRequest& http, const ReplyPtr& reply) {
  if (http.path == kModels)
    return answer(reply, Value::dict({{"object", "list"}, {"data", Value::list({model_entry(s)})}}));
  s.check_model(http.path.substr(kModels.size() + 1));
  answer(reply, model_entry(s));
}

void serve_tokenize(ServerState& s, const io::HttpRequest& http, const ReplyPtr& reply) {
  const Value body = parse_api_body(http.body);
  const ApiFields fields(body);
  const char* name = fields.find("content") ? "content" : fields.find("prompt") ? "prompt" : "text";
  const std::string text = fields.required_text(name);
  EncodeOptions options;
  options.add_special = fields.flag("add_special", fields.flag("add_special_tokens", false));
  options.parse_special = fields.flag("parse_special", false);
  const bool pieces = fields.flag("with_pieces", false);
  std::vector<Value> tokens;
  for (const int32_t t : s.tokenizer().encode(text, options)) {
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
  answer(reply, Value::dict({{"content", text}, {"prompt", text}}));
}

void serve_health(ServerState&, const io::HttpRequest&, const ReplyPtr& reply) {
  reply->send({200, R"({"status":"ok"})"});
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
