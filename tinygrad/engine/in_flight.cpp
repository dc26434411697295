/// \file Starting and awaiting collectives.
#include "tinygrad/engine/in_flight.h"

#include <algorithm>
#include <cstring>

#include "tinygrad/base/env.h"
#include "tinygrad/base/profile.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/engine/report.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/world/awaited.h"
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
bool is_pair(const Collective& c) { return c.what == CollectiveKind::kSend || c.what == CollectiveKind::kReceive; }
/// Numbers of pieces that a process gives and gets.
struct Pieces {
  size_t from, to;
};
Pieces pieces_of(const Collective& c) {
  const size_t n = c.group.size();
  return {c.what == CollectiveKind::kReduceScatter ? n : 1, c.what == CollectiveKind::kAllGather ? n : 1};
}
/// Returns the bytes of an operation that may be exchanged together with others of its kind; 0: it goes alone.
int64_t small_bytes(const Collective& c) {
  if (c.what != CollectiveKind::kAllReduce && c.what != CollectiveKind::kReduceScatter &&
      c.what != CollectiveKind::kAllGather)
    return 0;
  const Pieces p = pieces_of(c);
  const auto bytes = static_cast<int64_t>(c.piece_bytes() * std::max(p.from, p.to));
  return 2 * bytes <= InFlight::kBucketBytes ? bytes : 0;
}
bool combine_alike(const Collective& a, const Collective& b) {
  return a.what == b.what && a.op == b.op && a.dtype == b.dtype && a.group == b.group;
}

/// Memory of an operation on several buffers: piece p of all of them, then piece p + 1.
class StagedPieces {
 public:
  StagedPieces(std::byte* memory, size_t pieces, int64_t all) : at_(memory), pieces_(pieces), stride_(all / pieces) {}
  /// Copies the next buffer's contents there.
  void take(Buffer& b) {
    if (pieces_ == 1) b.copy_out({at_, static_cast<size_t>(b.nbytes())});
    else {
      const std::shared_ptr<std::byte> whole = host_memory(b.nbytes());
      b.copy_out({whole.get(), static_cast<size_t>(b.nbytes())});
      each_piece(b, [&](size_t offset, std::byte* piece, size_t n) { std::memcpy(piece, whole.get() + offset, n); });
    }
    at_ += piece_bytes(b);
  }
  /// Copies the next buffer's contents from there.
  void give(Buffer& b) {
    if (pieces_ == 1) b.copy_in({at_, static_cast<size_t>(b.nbytes())});
    else {
      const std::shared_ptr<std::byte> whole = host_memory(b.nbytes());
      each_piece(b, [&](size_t offset, std::byte* piece, size_t n) { std::memcpy(whole.get() + offset, piece, n); });
      b.copy_in({whole.get(), static_cast<size_t>(b.nbytes())});
    }
    at_ += piece_bytes(b);
  }

 private:
  size_t piece_bytes(const Buffer& b) const { return static_cast<size_t>(b.nbytes()) / pieces_; }
  template <class F> void each_piece(const Buffer& b, F&& f) {
    const size_t n = piece_bytes(b);
    for (size_t p = 0; p < pieces_; p++) f(p * n, at_ + p * stride_, n);
  }
  std::byte* at_;
  size_t pieces_, stride_;
};

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
      p.device ? p.device->wait() : p.event->wait();
    } catch (const Error&) {  // another error is on its way
    }
  }
}

void InFlight::start(const Launch& l) {
  const Collective c = collective_of(*l.call->collective, buffer_of(list_, l, 0), buffer_of(list_, l, 1));
  if (is_pair(c) && !distributed::is_agreed(buffer_of(list_, l, 0).device(), c)) {
    pairs_.push_back(&l);
    return;
  }
  const int64_t bytes = small_bytes(c);
  if (!bytes) return begin(c, {&l}, false);
  auto open = std::ranges::find_if(open_, [&](const Bucket& b) { return combine_alike(b.what, c); });
  if (open != open_.end() && open->bytes + bytes > kBucketBytes) {
    begin(open->what, std::move(open->launches), false);
    open_.erase(open);
    open = open_.end();
  }
  if (open == open_.end()) {
    open_.push_back({{&l}, c, bytes});
    return;
  }
  open->launches.push_back(&l);
  open->what.elements += c.elements;
  open->bytes += bytes;
  if (open->bytes < kBucketBytes) return;
  begin(open->what, std::move(open->launches), false);
  open_.erase(open);
}

/// Begins an operation on the sources of these launches, one after the other.
void InFlight::begin(const Collective& c, std::vector<const Launch*> launches, bool awaited) {
  Device& device = buffer_of(list_, *launches[0], 0).device();
  const bool alike = &buffer_of(list_, *launches[0], 1).device() == &device;
  DeviceGroup* const group = alike ? distributed::device_group(device, c) : nullptr;
  group ? begin_on_device(*group, c, std::move(launches)) : begin_on_host(c, std::move(launches), awaited);
  GlobalCounters::collectives++;
  GlobalCounters::sent += distributed::sent_bytes(c);
  // What is looked at runs one at a time, but for messages: who sends may have to receive before the send ends.
  if (launches_are_watched() && !is_pair(c)) wait_pending();
}

/// Begins the operations of these launches as one command of the device, each in its own memory.
void InFlight::begin_on_device(DeviceGroup& group, const Collective& c, std::vector<const Launch*> launches) {
  const int64_t now = profile::now();
  auto held = std::make_shared<std::vector<BufferRef>>();
  std::vector<DeviceOperation> operations;
  for (const Launch* l : launches) {
    Buffer &to = buffer_of(list_, *l, 0), &from = buffer_of(list_, *l, 1);
    held->insert(held->end(), {to.shared_from_this(), from.shared_from_this()});
    operations.push_back({collective_of(*l->call->collective, to, from), from.place(), to.place()});
  }
  Device& device = (*held)[0]->device();
  distributed::OnDevice begun(group, device, c, operations, std::move(held));
  pending_.push_back({std::move(launches), nullptr, std::move(begun), nullptr, now, c});
}

/// Begins what has been put off: two processes that exchange something for the first time agree on the way, for which
/// each waits for the other. All do so in the order of the pairs, so that nobody waits for one that waits elsewhere.
void InFlight::begin_pairs() {
  struct Pair {
    int from, to;
    Collective what;
    const Launch* launch;
  };
  std::vector<Pair> pairs;
  for (const Launch* l : pairs_) {
    Collective c = collective_of(*l->call->collective, buffer_of(list_, *l, 0), buffer_of(list_, *l, 1));
    const bool sends = c.what == CollectiveKind::kSend;
    const int me = distributed::rank();
    pairs.push_back({sends ? me : c.root, sends ? c.root : me, std::move(c), l});
  }
  pairs_.clear();
  std::ranges::stable_sort(pairs, {}, [](const Pair& p) { return std::pair(p.from, p.to); });
  for (const Pair& p : pairs) begin(p.what, {p.launch}, false);
}

void InFlight::begin_on_host(const Collective& c, std::vector<const Launch*> launches, bool awaited) {
  const int64_t now = profile::now();
  // Whoever makes progress may touch the memory after an error: it is held until then.
  struct Held {
    std::vector<BufferRef> buffers;
    std::shared_ptr<std::byte> staged_to, staged_from;
  };
  auto held = std::make_shared<Held>();
  int64_t from_bytes = 0, to_bytes = 0;
  for (const Launch* l : launches) {
    Buffer &to = buffer_of(list_, *l, 0), &from = buffer_of(list_, *l, 1);
    held->buffers.insert(held->buffers.end(), {to.shared_from_this(), from.shared_from_this()});
    to_bytes += to.nbytes();
    from_bytes += from.nbytes();
  }
  Buffer &to = *held->buffers[0], &from = *held->buffers[1];
  const void* in = nullptr;
  void* out = nullptr;
  if (launches.size() == 1 && to.device().host_visible()) {
    out = to.data();
    in = from.data();
    from.device().wait();
  } else {
    held->staged_to = host_memory(to_bytes);
    held->staged_from = host_memory(from_bytes);
    StagedPieces sources(held->staged_from.get(), pieces_of(c).from, from_bytes);
    for (size_t i = 1; i < held->buffers.size(); i += 2) sources.take(*held->buffers[i]);
    out = held->staged_to.get();
    in = held->staged_from.get();
  }
  const std::shared_ptr<std::byte> staged = held->staged_to;
  const auto start = awaited ? distributed::start_awaited : distributed::start;
  pending_.push_back({std::move(launches), start(c, in, out, std::move(held)), {}, staged, now, c});
}

bool InFlight::conflicts(const std::vector<const Launch*>& members, const Launch& l) const {
  for (const Launch* m : members)
    for (size_t k = 0; k < l.nbuffers; k++)
      if (overlap(list_, *m, 0, l, k) || (writes_buffer(l.kernel, k) && overlap(list_, *m, 1, l, k))) return true;
  return false;
}

void InFlight::wait_for(const Launch& l) {
  if (conflicts(pairs_, l)) begin_pairs();
  for (auto it = open_.begin(); it != open_.end();) {
    if (!conflicts(it->launches, l)) {
      ++it;
      continue;
    }
    begin(it->what, std::move(it->launches), true);
    it = open_.erase(it);
  }
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (!conflicts(it->launches, l)) {
      ++it;
      continue;
    }
    finish(*it);
    it = pending_.erase(it);
  }
}

void InFlight::begin_all() {
  begin_pairs();
  while (!open_.empty()) {
    begin(open_.front().what, std::move(open_.front().launches), true);
    open_.pop_front();
  }
}

void InFlight::wait_pending() {
  while (!pending_.empty()) {
    finish(pending_.front());
    pending_.pop_front();
  }
}

void InFlight::wait_all() {
  begin_all();
  wait_pending();
}

void InFlight::finish(const Pending& p) {
  if (p.device) {
    p.device->order();
    if (launches_are_watched()) p.device->wait();
  } else p.event->wait();
  if (p.staged) {
    int64_t all = 0;
    for (const Launch* l : p.launches) all += buffer_of(list_, *l, 0).nbytes();
    StagedPieces results(p.staged.get(), pieces_of(p.what).to, all);
    for (const Launch* l : p.launches) results.give(buffer_of(list_, *l, 0));
  }
  if (launches_are_watched()) report_collective(p.what, p.begin, p.device ? " by NCCL" : "");
}

}  // namespace tg
