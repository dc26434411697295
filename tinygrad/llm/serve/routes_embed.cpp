/// \file POST /v1/embeddings: vectors of texts, from an encoder or from a decoder's last layer.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "tinygrad/base/cancellation.h"
#include "tinygrad/llm/serve/api_error.h"
#include "tinygrad/llm/serve/server_state.h"

namespace tg::llm {
namespace {

constexpr size_t kSlice = 32;                    // texts between two looks at whether the client is still there
constexpr size_t kMaxNumbers = size_t{1} << 21;  // of one answer

void append_base64(std::string& text, std::span<const float> values) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<unsigned char> bytes(values.size_bytes());
  std::memcpy(bytes.data(), values.data(), bytes.size());
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; k++) group = group << 8 | (k < n ? bytes[i + k] : 0u);
    for (size_t k = 0; k < 4; k++) text += k <= n ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
}

void append_numbers(std::string& text, std::span<const float> values) {
  char digits[32];
  for (size_t i = 0; i < values.size(); i++) {
    if (i > 0) text += ',';
    text.append(digits, std::to_chars(digits, digits + sizeof digits, values[i]).ptr);
  }
}

/// A request under way: its answer is written vector by vector.
class EmbeddingJob {
 public:
  EmbeddingJob(std::string model, EmbeddingRequest request, ReplyPtr reply)
      : model_(std::move(model)), request_(std::move(request)), reply_(std::move(reply)) {}

  const EmbeddingRequest& request() const { return request_; }
  const ReplyPtr& reply() const { return reply_; }
  void count_tokens(size_t tokens) { tokens_ += static_cast<int64_t>(tokens); }

  /// Checks that the answer has the length the client asked for, and that it is not too long.
  void check_size(size_t dim) const {
    if (request_.dimensions && request_.dimensions != static_cast<int64_t>(dim))
      throw ApiError(400, str("this model's embeddings have ", dim, " dimensions"), "dimensions");
    if (request_.inputs.size() > kMaxNumbers / std::max<size_t>(dim, 1))
      throw ApiError(400, str("at most ", kMaxNumbers / dim, " inputs at once, of ", dim, " dimensions each"), "input");
  }
  void add(std::span<const float> vector) {
    for (const float v : vector)
      if (!std::isfinite(v)) throw ApiError(500, "the model gave a vector that is not finite");
    data_ += str(count_ ? "," : "", R"({"object":"embedding","index":)", count_, R"(,"embedding":)");
    data_ += request_.base64 ? '"' : '[';
    if (request_.base64) append_base64(data_, vector);
    else append_numbers(data_, vector);
    data_ += request_.base64 ? "\"}" : "]}";
    count_++;
  }
  void send() {
    const Value usage = Value::dict({{"prompt_tokens", tokens_}, {"total_tokens", tokens_}});
    reply_->send({200, str(R"({"object":"list","data":[)", data_, R"(],"model":)", Value(model_).json(), R"(,"usage":)",
                           usage.json(compact_json()), "}")});
  }

 private:
  std::string model_;
  EmbeddingRequest request_;
  ReplyPtr reply_;
  int64_t tokens_ = 0;
  size_t count_ = 0;
  std::string data_;
};
using EmbeddingJobPtr = std::shared_ptr<EmbeddingJob>;

void check_length(size_t tokens, int64_t limit) {
  if (tokens == 0) throw ApiError(400, "an input is empty", "input");
  if (static_cast<int64_t>(tokens) > limit)
    throw ApiError(400, str("an input has ", tokens, " tokens, at most ", limit), "input", "context_length_exceeded");
}

/// Has an encoder embed the texts, slice by slice, in the thread of the queue.
void embed_by_encoder(const ServerState& s, const std::vector<std::string>& texts, EmbeddingJob& job) {
  for (size_t i = 0; i < texts.size() && !job.reply()->closed(); i += kSlice) {
    Cancellation::check("embeddings");
    const std::span<const std::string> slice = std::span(texts).subspan(i, std::min(kSlice, texts.size() - i));
    for (const std::vector<float>& vector : s.model.embed(slice)) {
      job.check_size(vector.size());
      job.add(vector);
    }
  }
  if (!job.reply()->closed()) job.send();
}

void queue_for_encoder(ServerState& s, const EmbeddingJobPtr& job) {
  std::vector<std::string> texts;
  for (const TextOrTokens& input : job->request().inputs) {
    const std::string* text = std::get_if<std::string>(&input);
    texts.push_back(text ? *text : s.tokenizer().decode(std::get<std::vector<int32_t>>(input)));
    if (texts.back().empty()) throw ApiError(400, "an input is empty", "input");
    const size_t tokens = s.tokenizer().encode(texts.back()).size();
    check_length(tokens, s.model.embedding_context);
    job->count_tokens(tokens);
  }
  s.embeddings->push([&s, texts = std::move(texts), job] {
    try {
      embed_by_encoder(s, texts, *job);
    } catch (...) { refuse_request(job->reply()); }
  });
}

void queue_for_decoder(ServerState& s, const EmbeddingJobPtr& job) {
  job->check_size(static_cast<size_t>(s.model.model->config().dim));
  EngineRequest request;
  EmbeddingTexts& e = request.embedding.emplace();
  e.last_token = s.model.embed_last_token;
  for (const TextOrTokens& input : job->request().inputs) {
    e.tokens.push_back(s.tokens_of(input));
    check_length(e.tokens.back().size(), s.model.model->max_context() - 1);
    job->count_tokens(e.tokens.back().size());
  }
  const auto failed = std::make_shared<bool>(false);
  e.on_vector = [job, failed](size_t, const std::vector<float>& vector) {
    if (*failed) return;
    try {
      job->add(vector);
    } catch (...) {
      *failed = true;
      refuse_request(job->reply());
    }
  };
  request.on_end = [job, failed](const ReplyEnd& end) {
    if (*failed || job->reply()->closed()) return;
    if (!end.error.empty()) job->reply()->send({500, api_error_json(500, str("the model failed: ", end.error))});
    else if (end.reason == FinishReason::kCancelled)
      job->reply()->send({503, api_error_json(503, "the server is stopping")});
    else job->send();
  };
  std::vector<EngineRequest> one;
  one.push_back(std::move(request));
  const auto tickets = s.engine->submit(std::move(one));
  job->reply()->on_close([ticket = tickets[0]] { ticket->cancel(); });
}

}  // namespace

void serve_embeddings(ServerState& s, const io::HttpRequest& http, const ReplyPtr& reply) {
  const auto job = std::make_shared<EmbeddingJob>(
      s.model.id, read_embedding_request(parse_api_body(http.body), s.vocabulary()), reply);
  s.check_model(job->request().model);
  if (s.embeddings) queue_for_encoder(s, job);
  else queue_for_decoder(s, job);
}

}  // namespace tg::llm
