/// \file Agreeing on a group of devices, and looking after what they do.
#include "tinygrad/runtime/world/device_groups.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "tinygrad/base/env.h"
#include "tinygrad/base/output.h"
#include "tinygrad/runtime/transfers.h"
#include "tinygrad/runtime/world/this_world.h"
#include "tinygrad/runtime/world/world.h"
#include "tinygrad/runtime/world/world_progress.h"

namespace tg::distributed {
namespace {
constexpr double kGrace_s = 0.3;  ///< from an error of a device until a death that explains it is known
constexpr size_t kAhead = 64;     ///< starts of a group that the host is ahead of the device, at most
constexpr auto kErrorLook = std::chrono::milliseconds(20);  ///< between questions for errors

/// Groups by device and ranks; null: they use the host. Never destroyed: operations may be under way at the end.
struct Groups {
  using Key = std::pair<std::string, std::vector<int>>;
  std::mutex mutex;
  std::map<Key, std::unique_ptr<DeviceGroup>> known;
};
Groups& groups() {
  static auto* g = new Groups;
  return *g;
}

bool is_pair(const Collective& c) { return c.what == CollectiveKind::kSend || c.what == CollectiveKind::kReceive; }
/// Returns the processes that take part: of a pair the one that sends, then the one that receives.
std::vector<int> ranks_of(const Collective& c) {
  if (!is_pair(c)) return c.group;
  return c.what == CollectiveKind::kSend ? std::vector<int>{rank(), c.root} : std::vector<int>{c.root, rank()};
}

/// The two of a pair are not a group that others know as one.
Groups::Key key_of(Device& device, const Collective& c) {
  Groups::Key key{device.name(), ranks_of(c)};
  if (is_pair(c)) key.second.push_back(-1);
  return key;
}

/// What each process says before a group forms.
struct Card {
  char why[400] = {};       ///< it cannot; empty: it can
  char hardware[160] = {};  ///< of the device,
  char machine[160] = {};   ///< and where that is
  int32_t version = 0;      ///< of what connects the devices
  int32_t insists = 0;      ///< 1: NCCL=2
};
void fill(char* to, size_t room, const std::string& text) {
  std::memcpy(to, text.data(), std::min(room - 1, text.size()));
}

Card own_card_of(DeviceLink& link) {
  Card c;
  const WorldProgress& world = *progress_of_world();
  std::memcpy(c.machine, world.cards()[static_cast<size_t>(world.rank())].machine, sizeof c.machine);
  c.insists = env::NCCL.get() == 2;
  std::string why = link.missing();
  try {
    if (why.empty()) {
      fill(c.hardware, sizeof c.hardware, link.hardware());
      c.version = link.version();
    }
  } catch (const DeviceError& e) { why = e.what(); }
  fill(c.why, sizeof c.why, why);
  return c;
}
std::vector<Card> cards_of_all(const Card& mine, const std::vector<int>& ranks) {
  std::vector<Card> all(ranks.size());
  run({.what = CollectiveKind::kAllGather, .dtype = dtypes::uint8, .elements = sizeof(Card), .group = ranks}, &mine,
      all.data());
  return all;
}
/// Returns why processes with these cards cannot form a group; empty: they can. The same in all of them.
std::string refusal(const std::vector<Card>& cards, const std::vector<int>& ranks) {
  for (size_t i = 0; i < cards.size(); i++)
    if (*cards[i].why) return str("rank ", ranks[i], ": ", cards[i].why);
  for (size_t i = 0; i < cards.size(); i++)
    for (size_t k = 0; k < i; k++) {
      if (cards[i].version != cards[k].version)
        return str("ranks ", ranks[k], " and ", ranks[i], " have versions ", cards[k].version, " and ",
                   cards[i].version, ", expected the same");
      if (!std::strcmp(cards[i].hardware, cards[k].hardware) && !std::strcmp(cards[i].machine, cards[k].machine))
        return str("ranks ", ranks[k], " and ", ranks[i], " use one GPU, ", cards[i].hardware,
                   ": CUDA_VISIBLE_DEVICES gives each process its own");
    }
  return {};
}

/// Sleeps between looks: shortly at first.
class Looks {
 public:
  void pause() {
    if (++count_ < 200) std::this_thread::yield();
    else std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

 private:
  const Clock::time_point begin_ = Clock::now();
  int count_ = 0;
};

/// Throws the reason of the world's failure.
void raise(const std::string& operation) { progress_of_world()->throw_failure(operation); }
/// Calls `f`. An error that it throws while the world fails is not the reason of that, and where the world goes on it
/// has failed by the error.
template <class F> auto in_the_world(DeviceGroup& group, const std::string& operation, F&& f) {
  WorldProgress& world = *progress_of_world();
  try {
    if (!world.failed()) return f();
  } catch (const DeviceError& e) {
    for (Looks looks; !world.failed() && looks.seconds() < kGrace_s; looks.pause()) continue;
    if (!world.failed()) fail(str("has an error of its device: ", e.what()));
  }
  group.abandon(raise);
  world.throw_failure(operation);
}
/// Returns what launched() gives, when it does. PeerError where the world fails before; DeviceError.
EventRef await_launched(DeviceGroup& group, const std::string& operation) {
  const WorldProgress& world = *progress_of_world();
  for (Looks looks; !world.failed(); looks.pause()) {
    if (EventRef e = group.launched()) return e;
    if (looks.seconds() > world.timeout_s()) fail("waited in vain for the devices of others");
  }
  group.abandon(raise);
  progress_of_world()->throw_failure(operation);
}

/// Waits while the host is too far ahead. PeerError where the world fails.
void await_room(DeviceGroup& group, const std::string& operation) {
  for (Looks looks; in_the_world(group, operation, [&] { return group.under_way(); }) >= kAhead;) looks.pause();
}

/// Returns what went wrong in the first process in which something did; empty: nothing. `mine`: what did here.
std::string first_reason(const std::string& mine, const std::vector<int>& ranks) {
  Card card;
  fill(card.why, sizeof card.why, mine);
  const std::vector<Card> all = cards_of_all(card, ranks);
  for (size_t i = 0; i < all.size(); i++)
    if (*all[i].why) return str("rank ", ranks[i], ": ", all[i].why);
  return {};
}
/// Calls `f` and returns what the device says against it; empty: nothing.
template <class F> std::string device_error(F&& f) {
  try {
    f();
    return {};
  } catch (const DeviceError& e) { return e.what(); }
}

/// Makes the group of processes whose cards agree; null in all of them, with the reason, where that fails in one.
std::unique_ptr<DeviceGroup> join(DeviceLink& link, const std::vector<int>& ranks, bool pair, std::string* why) {
  char id[128] = {};
  std::unique_ptr<DeviceGroup> group;
  std::string mine;
  if (ranks[0] == rank())
    mine = device_error([&] {
      const std::string made = link.make_id();
      std::memcpy(id, made.data(), std::min(sizeof id, made.size()));
    });
  if (*why = first_reason(mine, ranks); !why->empty()) return nullptr;
  run({.what = CollectiveKind::kBroadcast, .dtype = dtypes::uint8, .elements = sizeof id, .group = ranks}, id, id);
  mine = device_error([&] { group = link.join({id, sizeof id}, ranks, rank(), pair); });
  // Before anybody waits for the others, who may not come.
  if (*why = first_reason(mine, ranks); !why->empty()) return nullptr;
  mine = device_error([&] { await_launched(*group, "forming a group of devices"); });
  *why = first_reason(mine, ranks);
  return why->empty() ? std::move(group) : nullptr;
}

std::unique_ptr<DeviceGroup> form(DeviceLink& link, const std::vector<int>& ranks, bool pair) {
  const std::vector<Card> cards = cards_of_all(own_card_of(link), ranks);
  std::string why = refusal(cards, ranks);
  std::unique_ptr<DeviceGroup> group = why.empty() ? join(link, ranks, pair, &why) : nullptr;
  if (group) return group;
  const bool insists = std::ranges::any_of(cards, [](const Card& c) { return c.insists != 0; });
  TG_CHECK(DeviceError, !insists, "[NCCL] got NCCL=2, but ", why);
  const bool asked = std::getenv("NCCL") || !env::NCCL_LIBRARY.get().empty();
  if (asked && env::NCCL) env::not_honoured("NCCL", str("memory of GPUs is exchanged through the host: ", why));
  return nullptr;
}

/// Looks whether devices are done, and for errors of them.
class Watched final : public Exchange {
 public:
  /// Where the event is put once the device has the commands.
  struct Place {
    EventRef event;
    std::atomic<bool> there{false};
  };
  Watched(DeviceGroup& group, std::shared_ptr<Place> place, std::vector<int> others)
      : group_(group), place_(std::move(place)), others_(std::move(others)) {}
  bool in_order() const override { return true; }
  bool advance(bool* moved) override {
    if (!place_->there.load(std::memory_order_acquire) || !place_->event->done()) return false;
    return *moved = true;
  }
  std::vector<int> missing() const override { return others_; }
  std::string broken() override {
    const Clock::time_point now = Clock::now();
    if (why_.empty() && now - looked_ > kErrorLook) {
      looked_ = now;
      why_ = group_.broken();
    }
    if (why_.empty()) return {};
    return std::chrono::duration<double>(now - looked_).count() > kGrace_s ? why_ : std::string();
  }

 private:
  DeviceGroup& group_;
  std::shared_ptr<Place> place_;
  std::vector<int> others_;
  Clock::time_point looked_{};
  std::string why_;
};

MemoryAccess access_of(MemoryPlace p, size_t bytes, bool writes) {
  return {p.block, static_cast<int64_t>(p.offset), static_cast<int64_t>(p.offset + bytes), writes};
}
std::vector<MemoryAccess> accesses_of(std::span<const DeviceOperation> operations) {
  std::vector<MemoryAccess> out;
  for (const DeviceOperation& o : operations) {
    const size_t n = o.what.group.size(), bytes = o.what.piece_bytes();
    const bool gives_all = o.what.what == CollectiveKind::kReduceScatter || o.what.what == CollectiveKind::kAllToAll,
               gets_all = o.what.what == CollectiveKind::kAllGather || o.what.what == CollectiveKind::kAllToAll;
    out.push_back(access_of(o.out, bytes * (gets_all ? n : 1), true));
    out.push_back(access_of(o.in, bytes * (gives_all ? n : 1), false));
  }
  return out;
}
}  // namespace

namespace {
/// Returns what connects a device to those of others; null: the host. In a world of different devices, of which some
/// may have no such thing, all use the host, for a group can only form when all of it ask the others.
DeviceLink* link_of(Device& device) {
  const WorldProgress* const world = progress_of_world();
  return world && world->devices_alike() ? device.link() : nullptr;
}
}  // namespace

DeviceGroup* device_group(Device& device, const Collective& c) {
  WorldProgress* const world = progress_of_world();
  DeviceLink* const link = link_of(device);
  if (!link) return nullptr;
  const std::vector<int> ranks = ranks_of(c);
  if (ranks.size() < 2) return nullptr;
  check(c);
  if (world->failed()) world->throw_failure(text_of(c));
  const Groups::Key key = key_of(device, c);
  std::unique_lock lock(groups().mutex);
  const auto known = groups().known.find(key);
  DeviceGroup* group = known == groups().known.end() ? nullptr : known->second.get();
  if (known == groups().known.end()) {
    lock.unlock();
    std::unique_ptr<DeviceGroup> formed = form(*link, ranks, is_pair(c));
    lock.lock();
    group = (groups().known[key] = std::move(formed)).get();
  }
  return group && group->takes(c) ? group : nullptr;
}

bool is_agreed(Device& device, const Collective& c) {
  if (!link_of(device)) return true;
  std::lock_guard lock(groups().mutex);
  return groups().known.contains(key_of(device, c));
}

OnDevice::OnDevice(DeviceGroup& group, Device& device, const Collective& whole,
                   std::span<const DeviceOperation> operations, std::shared_ptr<void> keep)
    : device_(&device), accesses_(accesses_of(operations)) {
  WorldProgress& world = *progress_of_world();
  std::vector<int> others = ranks_of(whole);
  std::erase(others, rank());
  Collective named = whole;
  if (is_pair(whole)) named.group = {rank()};
  await_room(group, text_of(whole));
  const auto place = std::make_shared<Watched::Place>();
  const auto op = std::make_shared<WorldOperation>(world, std::move(named), nullptr, nullptr, std::move(keep));
  op->exchange = std::make_unique<Watched>(group, place, std::move(others));
  world.submit(op, false);
  {
    const auto lock = device.transfers().before_launch(accesses_);
    in_the_world(group, text_of(whole), [&] { group.start(operations); });
  }
  done_ = in_the_world(group, text_of(whole), [&] { return await_launched(group, text_of(whole)); });
  place->event = done_;
  place->there.store(true, std::memory_order_release);
  operation_ = op;
}

void OnDevice::order() const {
  const auto lock = device_->transfers().before_launch(accesses_);
  device_->queue().wait_for(done_);
}

void abandon_device_groups() {
  std::lock_guard lock(groups().mutex);
  for (auto& [key, group] : groups().known)
    if (group) group->abandon(raise);
}

namespace {
/// Waits until `done` says so of every group, at most as long as others are waited for.
template <class F> void for_all_groups(F&& done) {
  const WorldProgress& world = *progress_of_world();
  std::lock_guard lock(groups().mutex);
  try {
    for (auto& [key, group] : groups().known)
      for (Looks looks; group && !world.failed() && !done(*group); looks.pause())
        if (looks.seconds() > world.timeout_s()) break;
  } catch (const Error& e) { note_lines(str("tinygrad: [finalize] ", e.what(), "\n")); }
}
}  // namespace

void settle_device_groups() {
  for_all_groups([](DeviceGroup& g) { return g.under_way() == 0; });
}
void leave_device_groups() {
  for_all_groups([](DeviceGroup& g) { return g.leave(); });
}

}  // namespace tg::distributed
