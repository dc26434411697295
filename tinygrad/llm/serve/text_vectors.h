/// \file Vectors of texts for one request, from an encoder in a thread of its own or from a decoder's last layer.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tinygrad/llm/serve/server_state.h"

namespace tg::llm {

/// A request under way that wants the vector of each of its texts.
class VectorJob {
 public:
  VectorJob(std::vector<TextOrTokens> inputs, ReplyPtr reply) : inputs_(std::move(inputs)), reply_(std::move(reply)) {}
  virtual ~VectorJob() = default;

  const std::vector<TextOrTokens>& inputs() const { return inputs_; }
  /// Returns the field of the request that text number `i` stands in.
  virtual std::string field(size_t i) const = 0;
  const ReplyPtr& reply() const { return reply_; }
  int64_t tokens() const { return tokens_; }
  void count_tokens(size_t tokens) { tokens_ += static_cast<int64_t>(tokens); }

  /// Checks that vectors of this length can be answered; ApiError otherwise.
  virtual void check_size(size_t dim) const = 0;
  /// Takes the vector of the next text, of length one.
  virtual void add(std::span<const float> vector) = 0;
  /// Answers, when all vectors are there.
  virtual void send() = 0;

 private:
  std::vector<TextOrTokens> inputs_;
  ReplyPtr reply_;
  int64_t tokens_ = 0;
};

/// Has the vectors computed. The answer is sent in time; ApiError for a text that is empty or too long, QueueFullError.
void queue_vectors(ServerState& s, std::shared_ptr<VectorJob> job);

}  // namespace tg::llm
