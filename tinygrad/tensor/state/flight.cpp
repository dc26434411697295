/// \file The list of running schedules and of readers, with the memory they use.
#include "tinygrad/tensor/state/flight.h"

#include <algorithm>
#include <thread>

#ifdef __unix__
#include <pthread.h>
#endif

#include "tinygrad/uop/graph_lock.h"

namespace tg::tensor_detail {

struct Flight::Uses {
  std::recursive_mutex landed;  ///< held until the run is over
  std::thread::id thread = std::this_thread::get_id();
  std::vector<const void*> used, written;  ///< memory, sorted

  bool overwrites(const Uses& o) const {
    return std::any_of(written.begin(), written.end(),
                       [&](const void* m) { return std::binary_search(o.used.begin(), o.used.end(), m); });
  }
};

namespace {
struct List {
  std::mutex mutex;
  std::vector<std::shared_ptr<Flight::Uses>> flights;
};
/// A forked child has only the thread that forked: nothing else is running there.
List& list() {
  static List* l = [] {
#ifdef __unix__
    pthread_atfork([] { list().mutex.lock(); }, [] { list().mutex.unlock(); },
                   [] {
                     list().flights.clear();
                     list().mutex.unlock();
                   });
#endif
    return new List;
  }();
  return *l;
}

/// Returns the identity of a BUFFER's memory, whichever views of it there are; its node while it has none.
const void* memory_behind(UOp buffer) {
  const BufferRef b = buffer_table::get(buffer);
  return b ? static_cast<const void*>(&b->base()) : buffer.node();
}
void add_memory(UOp u, std::vector<const void*>& out) {
  while (u.in(kViewOps | Ops::AFTER)) u = u.src(0);
  if (u.is(Ops::BUFFER)) out.push_back(memory_behind(u));
  else if (u.is(Ops::MSTACK))
    for (UOp s : u.srcs()) add_memory(s, out);
}
void sort_unique(std::vector<const void*>& v) {
  std::sort(v.begin(), v.end());
  v.erase(std::unique(v.begin(), v.end()), v.end());
}
}  // namespace

bool Flight::start(const BoundSchedule& bound, const Writes& writes) {
  auto uses = std::make_shared<Uses>();
  for (UOp e : writes.effects) add_memory(e.src(0), uses->written);
  uses->used = uses->written;
  for (UOp b : bound.inputs) add_memory(b, uses->used);
  sort_unique(uses->written);
  sort_unique(uses->used);
  return start(std::move(uses));
}

bool Flight::start_reading(const Buffer& memory) {
  auto uses = std::make_shared<Uses>();
  uses->used.push_back(&memory.base());
  return start(std::move(uses));
}

bool Flight::start(std::shared_ptr<Uses> uses) {
  // Before the list, as in the destructor. Nobody else knows this lock yet, so that it is never waited for.
  std::unique_lock landed(uses->landed, std::try_to_lock);
  std::lock_guard lock(list().mutex);
  if (graph_scope_depth() == 1)
    for (const auto& o : list().flights)
      if (o->thread != uses->thread && (uses->overwrites(*o) || o->overwrites(*uses))) {
        other_ = o;
        return false;
      }
  list().flights.push_back(uses);
  landed.release();
  mine_ = std::move(uses);
  return true;
}

void Flight::wait() {
  wait_for(other_->landed);
  other_->landed.unlock();
  other_.reset();
}

Flight::~Flight() {
  if (!mine_) return;
  {
    std::lock_guard lock(list().mutex);
    std::erase(list().flights, mine_);
  }
  mine_->landed.unlock();
}

}  // namespace tg::tensor_detail
