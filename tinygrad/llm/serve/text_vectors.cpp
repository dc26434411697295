#include "tinygrad/llm/serve/text_vectors.h"

#include <algorithm>

#include "tinygrad/base/cancellation.h"
#include "tinygrad/llm/serve/api_error.h"

namespace tg::llm {
namespace {

constexpr size_t kSlice = 32;  // texts between two looks at whether the client is still there
using VectorJobPtr = std::shared_ptr<VectorJob>;

void check_length(size_t tokens, int64_t limit, const std::string& field) {
  if (tokens == 0) throw ApiError(400, "an input is empty", field);
  if (static_cast<int64_t>(tokens) > limit)
    throw ApiError(400, str("an input has ", tokens, " tokens, at most ", limit), field, "context_length_exceeded");
}

/// Has an encoder embed the texts, slice by slice, in the thread of the queue.
void embed_by_encoder(const ServerState& s, const std::vector<std::string>& texts, VectorJob& job) {
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

void queue_for_encoder(ServerState& s, const VectorJobPtr& job) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < job->inputs().size(); i++) {
    const std::string* text = std::get_if<std::string>(&job->inputs()[i]);
    texts.push_back(text ? *text : s.tokenizer().decode(std::get<std::vector<int32_t>>(job->inputs()[i])));
    const size_t tokens = texts.back().empty() ? 0 : s.tokenizer().encode(texts.back()).size();
    check_length(tokens, s.model.embedding_context, job->field(i));
    job->count_tokens(tokens);
  }
  s.embeddings->push([&s, texts = std::move(texts), job] {
    try {
      embed_by_encoder(s, texts, *job);
    } catch (...) { refuse_request(job->reply()); }
  });
}

void queue_for_decoder(ServerState& s, const VectorJobPtr& job) {
  job->check_size(static_cast<size_t>(s.model.model->config().dim));
  EngineRequest request;
  EmbeddingTexts& e = request.embedding.emplace();
  e.last_token = s.model.embed_last_token;
  for (size_t i = 0; i < job->inputs().size(); i++) {
    e.tokens.push_back(s.tokens_of(job->inputs()[i]));
    check_length(e.tokens.back().size(), s.model.model->max_context() - 1, job->field(i));
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

void queue_vectors(ServerState& s, VectorJobPtr job) {
  // Asked before the texts are tokenised, which takes its time.
  if (s.embeddings) s.embeddings->check_queue();
  else s.engine->check_queue();
  if (s.embeddings) queue_for_encoder(s, job);
  else queue_for_decoder(s, job);
}

}  // namespace tg::llm
