/// \file The handler of SIGBUS, and the table of mappings it looks into.
#include "tinygrad/base/host_faults.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <deque>
#include <mutex>
#include <vector>

namespace tg {

/// A mapping, or a free place (end 0). Written under a lock, read by the handler; never freed.
struct GuardedMapping::Slot {
  std::atomic<uintptr_t> begin{0}, end{0};
  Slot* next = nullptr;
};

/// All slots: a list that only grows, so that the handler may walk it at any time.
struct GuardedSlots {
  using Slot = GuardedMapping::Slot;
  std::mutex mutex;
  std::atomic<Slot*> first{nullptr};
  std::deque<Slot> made;
  std::vector<Slot*> free;

  static GuardedSlots& get() {
    static auto* slots = new GuardedSlots;  // mappings of static objects outlive static objects of ours
    return *slots;
  }
  Slot* take() {
    const std::lock_guard lock(mutex);
    if (!free.empty()) {
      Slot* slot = free.back();
      free.pop_back();
      return slot;
    }
    free.reserve(made.size() + 1);  // so that giving back does not allocate
    Slot& slot = made.emplace_back();
    slot.next = first.load();
    first.store(&slot, std::memory_order_release);
    return &slot;
  }
  void give_back(Slot* slot) {
    slot->end.store(0, std::memory_order_release);
    const std::lock_guard lock(mutex);
    free.push_back(slot);
  }
  bool covers(uintptr_t address) const {
    for (const Slot* s = first.load(std::memory_order_acquire); s; s = s->next)
      if (address < s->end.load(std::memory_order_acquire) && address >= s->begin.load(std::memory_order_acquire))
        return true;
    return false;
  }
};

namespace {

struct sigaction before{};
GuardedSlots* slots = nullptr;
uintptr_t page_size = 0;

/// Has the fault handled as if this handler were not there.
void pass_on(int number, siginfo_t* info, void* context) {
  if (before.sa_flags & SA_SIGINFO) return before.sa_sigaction(number, info, context);
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) return before.sa_handler(number);
  sigaction(number, &before, nullptr);  // the access is tried again, and ends the process
}

/// Puts a page of zeros where a file has none. Only what signal handlers may do.
void on_bus_error(int number, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (info->si_code != BUS_ADRERR || !slots->covers(address)) return pass_on(number, info, context);
  void* page = reinterpret_cast<void*>(address & ~(page_size - 1));
  if (mmap(page, page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
    return pass_on(number, info, context);
  host_faults::scratch_bytes.store(0, std::memory_order_relaxed);
  host_faults::count.fetch_add(1, std::memory_order_release);
}

void install_handler() {
  slots = &GuardedSlots::get();
  page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  struct sigaction ours{};
  ours.sa_sigaction = on_bus_error;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  sigaction(SIGBUS, &ours, &before);
}

}  // namespace

GuardedMapping::GuardedMapping(void* begin, size_t bytes) {
  static std::once_flag once;
  std::call_once(once, install_handler);
  slot_ = GuardedSlots::get().take();
  const auto at = reinterpret_cast<uintptr_t>(begin);
  slot_->begin.store(at, std::memory_order_release);
  slot_->end.store(at + bytes, std::memory_order_release);
}
GuardedMapping::~GuardedMapping() { GuardedSlots::get().give_back(slot_); }

}  // namespace tg
