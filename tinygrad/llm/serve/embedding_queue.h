/// \file Embeddings wait for one thread of their own, so that a long list of texts keeps no other request waiting.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace tg::llm {

class EmbeddingQueue {
 public:
  /// Work of one request, called from the queue's thread: it answers its client. What it throws ends nothing else.
  /// What it computes ends with Cancelled when the queue stops.
  using Work = std::function<void()>;

  explicit EmbeddingQueue(int64_t limit);
  /// Stops: work under way ends early, each waiting one is called with the thread cancelled, so that it can say so.
  ~EmbeddingQueue();
  EmbeddingQueue(const EmbeddingQueue&) = delete;
  EmbeddingQueue& operator=(const EmbeddingQueue&) = delete;

  /// Queues work; QueueFullError when as much as the limit is waiting.
  void push(Work work);
  /// Throws QueueFullError where push would: before texts are looked at.
  void check_queue() const;

 private:
  void run();
  void check_room() const;

  int64_t limit_;
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;  // guards the queue
  std::condition_variable wake_;
  std::deque<Work> queue_;
  std::thread thread_;
};

}  // namespace tg::llm
