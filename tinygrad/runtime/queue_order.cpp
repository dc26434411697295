/// \file Finding the commands of the other queue that a command has to wait for.
#include "tinygrad/runtime/queue_order.h"

#include <algorithm>

#include "tinygrad/base/error.h"

namespace tg {

int QueueOrder::side_of(Queue& queue) {
  for (int s = 0; s < 2; s++) {
    if (!sides_[s].queue) sides_[s].queue = &queue;
    if (sides_[s].queue == &queue) return s;
  }
  TG_ASSERT(false, "a device of more than two queues");
  return 0;
}

/// Returns the number of the other side's last command that has to be done before, 0 where there is none.
uint64_t QueueOrder::last_conflict(int side, const MemoryAccess& a) const {
  const auto known = uses_.find(a.block);
  if (known == uses_.end()) return 0;
  uint64_t last = 0;
  for (const Use& u : known->second)
    if (u.side != side && (u.writes || a.writes) && u.begin < a.end && a.begin < u.end) last = std::max(last, u.number);
  return last;
}

void QueueOrder::note(int side, const MemoryAccess& a) {
  std::vector<Use>& uses = uses_[a.block];
  for (Use& u : uses)
    if (u.side == side && u.writes == a.writes && u.begin == a.begin && u.end == a.end) {
      u.number = sides_[side].commands;
      return;
    }
  uses.push_back({a.begin, a.end, a.writes, side, sides_[side].commands});
  count_++;
}

/// Forgets the uses of commands that are done, when there are many.
void QueueOrder::forget_done() {
  if (count_ < limit_) return;
  uint64_t done[2];
  for (int s = 0; s < 2; s++) {
    Side& x = sides_[s];
    done[s] = x.mark && x.mark->done() ? x.marked : 0;
    if (x.queue && x.marked < x.commands && (!x.mark || done[s])) {
      x.mark = x.queue->record();
      x.marked = x.commands;
    }
  }
  count_ = 0;
  for (auto it = uses_.begin(); it != uses_.end();) {
    std::erase_if(it->second, [&](const Use& u) { return u.number <= done[u.side]; });
    count_ += it->second.size();
    it = it->second.empty() ? uses_.erase(it) : std::next(it);
  }
  limit_ = std::max<size_t>(256, 2 * count_);
}

std::unique_lock<std::mutex> QueueOrder::before(Queue& queue, std::span<const MemoryAccess> accesses) {
  std::unique_lock lock(mutex_);
  const int side = side_of(queue);
  Side& other = sides_[1 - side];
  uint64_t last = 0;
  for (const MemoryAccess& a : accesses) last = std::max(last, last_conflict(side, a));
  if (last > other.awaited) {
    if (last > other.marked) {
      other.mark = other.queue->record();
      other.marked = other.commands;
    }
    if (!other.mark->done()) {
      other.queue->flush();
      queue.wait_for(other.mark);
    }
    other.awaited = other.marked;
  }
  forget_done();
  sides_[side].commands++;
  for (const MemoryAccess& a : accesses) note(side, a);
  return lock;
}

size_t QueueOrder::noted() {
  std::lock_guard lock(mutex_);
  return count_;
}

}  // namespace tg
