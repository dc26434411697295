/// \file POST /v1/embeddings: vectors of texts, from an encoder or from a decoder's last layer.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "tinygrad/llm/serve/api_error.h"
#include "tinygrad/llm/serve/text_vectors.h"

namespace tg::llm {
namespace {

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
class EmbeddingJob final : public VectorJob {
 public:
  EmbeddingJob(std::string model, EmbeddingRequest request, const ReplyPtr& reply)
      : VectorJob(std::move(request.inputs), reply), model_(std::move(model)), request_(std::move(request)) {}

  std::string field(size_t) const override { return "input"; }
  /// Checks that the answer has the length the client asked for, and that it is not too long.
  void check_size(size_t dim) const override {
    if (request_.dimensions && request_.dimensions != static_cast<int64_t>(dim))
      throw ApiError(400, str("this model's embeddings have ", dim, " dimensions"), "dimensions");
    if (inputs().size() > kMaxNumbers / std::max<size_t>(dim, 1))
      throw ApiError(400, str("at most ", kMaxNumbers / dim, " inputs at once, of ", dim, " dimensions each"), "input");
  }
  void add(std::span<const float> vector) override {
    for (const float v : vector)
      if (!std::isfinite(v)) throw ApiError(500, "the model gave a vector that is not finite");
    data_ += str(count_ ? "," : "", R"({"object":"embedding","index":)", count_, R"(,"embedding":)");
    data_ += request_.base64 ? '"' : '[';
    if (request_.base64) append_base64(data_, vector);
    else append_numbers(data_, vector);
    data_ += request_.base64 ? "\"}" : "]}";
    count_++;
  }
  void send() override {
    const Value usage = Value::dict({{"prompt_tokens", tokens()}, {"total_tokens", tokens()}});
    reply()->send({200, str(R"({"object":"list","data":[)", data_, R"(],"model":)", Value(model_).json(),
                            R"(,"usage":)", usage.json(compact_json()), "}")});
  }

 private:
  std::string model_;
  EmbeddingRequest request_;
  size_t count_ = 0;
  std::string data_;
};
}  // namespace

void serve_embeddings(ServerState& s, const io::HttpRequest& http, const ReplyPtr& reply) {
  EmbeddingRequest request = read_embedding_request(parse_api_body(http.body), s.vocabulary());
  s.check_model(request.model);
  queue_vectors(s, std::make_shared<EmbeddingJob>(s.model.id, std::move(request), reply));
}

}  // namespace tg::llm
