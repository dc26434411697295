/// \file POST /v1/rerank: documents in the order in which they fit a query, by the angle between their vectors.
/// Sources of the fields: https://jina.ai/reranker, llama.cpp's server, vLLM.
#include <algorithm>
#include <cmath>

#include "tinygrad/llm/serve/answer_format.h"
#include "tinygrad/llm/serve/text_vectors.h"

namespace tg::llm {
namespace {

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); i++) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

/// A request under way: the first text is the query.
class RerankJob final : public VectorJob {
 public:
  RerankJob(std::string model, RerankRequest request, const ReplyPtr& reply)
      : VectorJob(texts_of(request), reply), model_(std::move(model)), request_(std::move(request)) {}

  std::string field(size_t i) const override { return i == 0 ? "query" : str("documents[", i - 1, "]"); }
  void check_size(size_t) const override {}
  void add(std::span<const float> vector) override {
    const double length = std::sqrt(dot(vector, vector));
    if (!std::isfinite(length)) throw ApiError(500, "the model gave a vector that is not finite");
    if (query_.empty()) {
      query_.assign(vector.begin(), vector.end());
      query_length_ = length;
      return;
    }
    const double lengths = query_length_ * length;
    scores_.push_back(lengths > 0 ? dot(query_, vector) / lengths : 0);
  }
  void send() override {
    std::vector<size_t> order(scores_.size());
    for (size_t i = 0; i < order.size(); i++) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores_[a] > scores_[b]; });
    if (request_.top > 0) order.resize(std::min(order.size(), static_cast<size_t>(request_.top)));
    std::vector<Value> results;
    for (const size_t i : order) {
      std::vector<Value::Entry> entries{{"index", static_cast<int64_t>(i)}, {"relevance_score", scores_[i]}};
      if (request_.with_documents) entries.emplace_back("document", Value::dict({{"text", request_.documents[i]}}));
      results.push_back(Value::dict(std::move(entries)));
    }
    const Value answer =
        Value::dict({{"id", random_id("rerank-")},
                     {"object", "list"},
                     {"model", model_},
                     {"results", Value::list(std::move(results))},
                     {"usage", Value::dict({{"prompt_tokens", tokens()}, {"total_tokens", tokens()}})}});
    reply()->send({200, answer.json(compact_json())});
  }

 private:
  static std::vector<TextOrTokens> texts_of(const RerankRequest& request) {
    std::vector<TextOrTokens> texts{request.query};
    texts.insert(texts.end(), request.documents.begin(), request.documents.end());
    return texts;
  }
  std::string model_;
  RerankRequest request_;
  std::vector<float> query_;
  double query_length_ = 0;
  std::vector<double> scores_;  // of the documents
};

}  // namespace

void serve_rerank(ServerState& s, const io::HttpRequest& http, const ReplyPtr& reply) {
  RerankRequest request = read_rerank_request(parse_api_body(http.body));
  s.check_model(request.model);
  queue_vectors(s, std::make_shared<RerankJob>(s.model.id, std::move(request), reply));
}

}  // namespace tg::llm
