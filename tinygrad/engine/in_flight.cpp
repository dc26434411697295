/// \file Starting and awaiting collectives.
#include "tinygrad/engine/in_flight.h"

#include <algorithm>

#include "tinygrad/base/env.h"
#include "tinygrad/base/profile.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/engine/report.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/world/world.h"
#include "tinygrad/uop/mesh.h"

namespace tg {
namespace {
Buffer& buffer_of(const LaunchList& list, const Launch& l, size_t k) { return *list.buffers[list.numbers_of(l)[k]]; }

/// Returns what this process does for a launch, on so many bytes of source and result.
Collective collective_of(const CollectiveArg& c, const Buffer& to, const Buffer& from) {
  Collective out{.what = c.what, .op = c.op, .dtype = from.dtype(), .elements = from.size(), .root = c.root};
  out.group = world_of(c.world).group_of(distributed::rank(), c.mesh_axes);
  if (c.what == CollectiveKind::kReduceScatter) out.elements = to.size();
  if (c.what == CollectiveKind::kAllToAll) out.elements /= static_cast<int64_t>(out.group.size());
  return out;
}
std::shared_ptr<std::byte> host_memory(int64_t n) {
  return {new std::byte[static_cast<size_t>(n)], std::default_delete<std::byte[]>()};
}
std::span<std::byte> bytes_of(const std::shared_ptr<std::byte>& memory, const Buffer& b) {
  return {memory.get(), static_cast<size_t>(b.nbytes())};
}
bool overlap(const LaunchList& list, const Launch& a, size_t i, const Launch& b, size_t k) {
  return list.numbers_of(a)[i] == list.numbers_of(b)[k] ||
         buffers_overlap(buffer_of(list, a, i), buffer_of(list, b, k));
}
}  // namespace

void tell_error(const char* what) { distributed::fail(str("cannot go on: ", what)); }
bool has_collectives(std::span<const ScheduleCall> calls) {
  return distributed::size() > 1 &&
         std::ranges::any_of(calls, [](const ScheduleCall& c) { return c.kind == ScheduleCall::kCollective; });
}
bool has_collectives(const LaunchList& list) {
  return distributed::size() > 1 && std::ranges::any_of(list.launches, &Launch::is_collective);
}

InFlight::~InFlight() {
  for (const Pending& p : pending_) {
    try {
      p.event->wait();
    } catch (const Error&) {  // another error is on its way
    }
  }
}

void InFlight::start(const Launch& l) {
  Buffer &to = buffer_of(list_, l, 0), &from = buffer_of(list_, l, 1);
  const Collective c = collective_of(*l.call->collective, to, from);
  const int64_t begin = profile::now();
  const bool here = to.device().host_visible();
  // Whoever makes progress may touch the memory after an error: it is held until then.
  struct Held {
    BufferRef to, from;
    std::shared_ptr<std::byte> staged_to, staged_from;
  };
  auto held = std::make_shared<Held>(Held{to.shared_from_this(), from.shared_from_this(), {}, {}});
  const void* in = nullptr;
  void* out = nullptr;
  if (here) {
    out = to.data();
    in = from.data();
    from.device().wait();
  } else {
    held->staged_to = host_memory(to.nbytes());
    held->staged_from = host_memory(from.nbytes());
    from.copy_out(bytes_of(held->staged_from, from));
    out = held->staged_to.get();
    in = held->staged_from.get();
  }
  const std::shared_ptr<std::byte> staged = held->staged_to;
  GlobalCounters::collectives++;
  GlobalCounters::sent += c.sent_bytes();
  pending_.push_back({&l, distributed::start(c, in, out, std::move(held)), staged, begin});
  // What is looked at runs one at a time.
  if (launches_are_watched()) wait_all();
}

bool InFlight::conflicts(const Pending& p, const Launch& l) const {
  for (size_t k = 0; k < l.nbuffers; k++)
    if (overlap(list_, *p.launch, 0, l, k) || (writes_buffer(l.kernel, k) && overlap(list_, *p.launch, 1, l, k)))
      return true;
  return false;
}

void InFlight::wait_for(const Launch& l) {
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (!conflicts(*it, l)) {
      ++it;
      continue;
    }
    finish(*it);
    it = pending_.erase(it);
  }
}

void InFlight::wait_all() {
  while (!pending_.empty()) {
    finish(pending_.front());
    pending_.pop_front();
  }
}

void InFlight::finish(const Pending& p) {
  p.event->wait();
  Buffer& to = buffer_of(list_, *p.launch, 0);
  if (p.staged) to.copy_in(bytes_of(p.staged, to));
  if (launches_are_watched()) {
    const Collective c = collective_of(*p.launch->call->collective, to, buffer_of(list_, *p.launch, 1));
    report_collective(text_of(c), c.sent_bytes(), p.begin);
  }
}

}  // namespace tg
