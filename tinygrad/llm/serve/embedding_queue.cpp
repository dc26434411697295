#include "tinygrad/llm/serve/embedding_queue.h"

#include "tinygrad/base/cancellation.h"
#include "tinygrad/llm/engine.h"

namespace tg::llm {

EmbeddingQueue::EmbeddingQueue(int64_t limit) : limit_(limit), thread_([this] { run(); }) {}

EmbeddingQueue::~EmbeddingQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

/// Checks that one more request may wait. To be called with the lock held.
void EmbeddingQueue::check_room() const {
  if (static_cast<int64_t>(queue_.size()) >= limit_)
    throw QueueFullError(str("[embeddings] ", queue_.size(), " requests are waiting, expected at most ", limit_));
}

void EmbeddingQueue::check_queue() const {
  const std::lock_guard lock(mutex_);
  check_room();
}

void EmbeddingQueue::push(Work work) {
  {
    const std::lock_guard lock(mutex_);
    check_room();
    queue_.push_back(std::move(work));
  }
  wake_.notify_one();
}

void EmbeddingQueue::run() {
  const StopScope stoppable(stopping_);
  while (true) {
    Work work;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    try {
      work();
    } catch (...) {  // work answers its client, or drops the answer; the next one goes on
    }
  }
}

}  // namespace tg::llm
