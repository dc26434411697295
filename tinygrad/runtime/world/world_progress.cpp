/// \file The thread that makes progress, what it tells the others, and how a world ends.
#include "tinygrad/runtime/world/world_progress.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <set>

#include "tinygrad/base/contains.h"

namespace tg {
namespace {
using std::chrono::milliseconds;
constexpr int kControlTag = 1, kCardTag = 2, kFirstTag = 16;
constexpr auto kStalled = milliseconds(500);    ///< so long without a message, the others are asked what they do
constexpr auto kLastWords = milliseconds(100);  ///< from the death of a process until what it said last has arrived
constexpr auto kOwnDeath = milliseconds(300);   ///< from SIGTERM until the process whose death it is about is known
constexpr auto kUnattended = std::chrono::seconds(5);  ///< from SIGTERM until a program that waits for nothing ends
constexpr auto kIdle = milliseconds(20);  ///< between looks at the messages of others when there is nothing to do
constexpr auto kLook = std::chrono::microseconds(100);  ///< between looks while operations are under way
constexpr auto kSpin = milliseconds(4);                 ///< who waits longer lets others run between its looks
constexpr auto kBusyWait = milliseconds(8);             ///< who waits longer sleeps between them
constexpr size_t kRemembered = 256;                     ///< operations of a group

double seconds_since(Clock::time_point t, Clock::time_point now) {
  return std::chrono::duration<double>(now - t).count();
}
uint64_t id_of(const std::vector<int>& group) {
  Hash128 h;
  for (int r : group) h.add(static_cast<uint64_t>(r));
  return h.lo;
}
/// Returns the processors that the processes here share: those that this one may use, or, where the launcher bound it
/// to one of its own, all.
long shared_processors() {
  cpu_set_t set;
  const int usable = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return usable > 1 ? usable : sysconf(_SC_NPROCESSORS_ONLN);
}
/// Returns how long to sleep where nothing has happened for `quiet`: what arrives meanwhile is found a tenth later.
Clock::duration nap_after(Clock::duration quiet) {
  return std::clamp<Clock::duration>(quiet / 10, std::chrono::microseconds(50), milliseconds(1));
}
/// Returns a number for each rank, equal on one machine; `each`: so many consecutive ranks are one, 0: as they are.
std::vector<int> machines_of(const std::vector<PeerCard>& cards, int64_t each) {
  std::vector<int> out;
  for (size_t r = 0; r < cards.size(); r++) {
    size_t first = 0;
    while (std::strcmp(cards[first].machine, cards[r].machine) != 0) first++;
    out.push_back(static_cast<int>(each > 0 ? r / static_cast<size_t>(each) : first));
  }
  return out;
}
bool is_pair(const Collective& c) { return c.what == CollectiveKind::kSend || c.what == CollectiveKind::kReceive; }
}  // namespace

// ---- operations as their owners see them ----

bool WorldOperation::done() { return complete || progress_.failed(); }
void WorldOperation::wait() {
  if (!complete) progress_.wait_for(*this);
}

// ---- joining ----

void WorldProgress::join(int expected) {
  thread_ = std::thread([this] { run(); });
  std::unique_lock lock(mutex_);
  const bool in_time = changed_.wait_for(lock, std::chrono::duration<double>(timeout_s_),
                                         [&] { return joined_ || join_error_ != nullptr; });
  if (!in_time) {
    thread_.detach();  // it waits in MPI
    throw PeerError(str("[init] the world of ", expected, " processes did not form within ", timeout_s_,
                        " s: some process did not come to init(); WORLD_TIMEOUT sets the limit"));
  }
  if (join_error_) {
    lock.unlock();
    thread_.join();
    std::rethrow_exception(join_error_);
  }
  lock.unlock();
  if (size() != expected) {
    const int found = size();
    fail({rank_, "the world has another size than the launcher says"}, false);
    thread_.join();
    throw PeerError(str("[init] got a world of ", found, " from ", version_, ", but the launcher started ", expected,
                        " processes: they belong to different MPI libraries; name the launcher's with MPI_LIBRARY"));
  }
}

void WorldProgress::exchange_cards() {
  const int n = mpi_->size();
  rank_ = mpi_->rank();
  version_ = mpi_->version();
  tags_ = mpi_->tag_limit();
  cards_.assign(static_cast<size_t>(n), own_card(device_));
  const PeerCard mine = cards_[static_cast<size_t>(rank_)];
  Messages messages(*mpi_);
  for (int r = 0; r < n; r++)
    if (r != rank_) messages.receive(&cards_[static_cast<size_t>(r)], sizeof mine, r, kCardTag);
  for (int r = 0; r < n; r++)
    if (r != rank_) messages.send(&mine, sizeof mine, r, kCardTag);
  bool moved = false;
  while (!messages.all_done(&moved)) sched_yield();
  machines_ = machines_of(cards_, mine.per_machine);
  left_.assign(static_cast<size_t>(n), false);
  const auto here =
      std::ranges::count_if(cards_, [&](const PeerCard& c) { return !std::strcmp(c.machine, mine.machine); });
  crowded_ = here > shared_processors();
  for (int r = 0; r < n; r++) {
    devices_alike_ &= std::strcmp(cards_[static_cast<size_t>(r)].device, mine.device) == 0;
    const char* theirs = cards_[static_cast<size_t>(r)].version;
    TG_CHECK(PeerError, std::strcmp(theirs, mine.version) == 0, "[init] got version ", theirs, " in rank ", r,
             ", expected ", mine.version, ", as rank ", rank_, " has");
    const int64_t each = cards_[static_cast<size_t>(r)].per_machine;
    TG_CHECK(PeerError, each == mine.per_machine, "[init] got WORLD_PER_MACHINE ", each, " in rank ", r, ", expected ",
             mine.per_machine, ", as rank ", rank_, " has");
  }
  mpi_->receive(&incoming_, sizeof incoming_, Mpi::kAnySource, kControlTag, &incoming_request_);
}

void WorldProgress::watch() {
  watch_.emplace(cards_, rank_,
                 PeerWatch::Events{[this](int r) {
                                     std::lock_guard lock(mutex_);
                                     dead_.emplace(r, Clock::now());
                                     changed_.notify_all();
                                   },
                                   [this] {
                                     std::lock_guard lock(mutex_);
                                     asked_to_end_ = Clock::now();
                                     changed_.notify_all();
                                   }});
}

// ---- the thread ----

void WorldProgress::run() {
  try {
    mpi_->init();
    exchange_cards();
    watch();
  } catch (...) {
    std::lock_guard lock(mutex_);
    join_error_ = std::current_exception();
    changed_.notify_all();
    return;
  }
  {
    std::lock_guard lock(mutex_);
    joined_ = true;
    changed_.notify_all();
  }
  Clock::time_point moved_at = Clock::now();
  while (true) {
    bool busy = false;
    bool moved = false;
    {
      std::lock_guard mpi(mpi_mutex_);
      moved = poll();
      busy = !active_.empty();
    }
    if (failed_ && all_told_) {
      if (on_failure) on_failure();
      break;
    }
    if (moved || !busy) moved_at = Clock::now();
    if (moved) continue;
    std::unique_lock lock(mutex_);
    if (stop_) return;
    if (!submitted_.empty()) continue;
    if (busy && waiting_ == 0) changed_.wait_for(lock, nap_after(Clock::now() - moved_at));
    else changed_.wait_for(lock, leaving_ ? milliseconds(1) : kIdle);
  }
  end_unattended();
}

/// After a failure: a program that does not come to notice ends with the reason, soon where the launcher asked for it.
void WorldProgress::end_unattended() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (!seen_) {
      const Clock::time_point until =
          asked_to_end_
              ? *asked_to_end_ + kUnattended
              : failed_at_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s_));
      const bool asked = asked_to_end_.has_value();
      const auto noticed = [&] { return stop_ || seen_ || asked != asked_to_end_.has_value(); };
      if (!changed_.wait_until(lock, until, noticed)) {
        std::fprintf(stderr, "tinygrad: PeerError: rank %d ended: %s\n", rank_, failure_->why.c_str());
        _exit(143);
      }
    } else changed_.wait(lock);
  }
}

/// Does everything that can be done now. True when something happened.
bool WorldProgress::poll() {
  bool moved = false;
  try {
    if (closed_) return false;
    if (!failed_) {
      begin_submitted();
      const Clock::time_point now = Clock::now();
      moved = advance_all(now);
      if (active_.empty() || now - looked_ > kLook) {
        looked_ = now;
        receive_controls();
        notice_deaths(now);
      }
    }
    if (failed_ && !all_told_) tell_failure();
  } catch (const std::exception& e) {
    if (failed_) all_told_ = true;  // telling them failed, too
    else fail({-1, e.what()}, true);
  }
  return moved;
}

void WorldProgress::begin_submitted() {
  while (true) {
    std::shared_ptr<WorldOperation> op;
    {
      std::lock_guard lock(mutex_);
      if (submitted_.empty()) return;
      op = std::move(submitted_.front());
      submitted_.pop_front();
    }
    // Messages between two processes are numbered by sender and receiver, operations of a group by the group.
    const Collective& c = op->what;
    op->group_id = is_pair(c) ? id_of(c.what == CollectiveKind::kSend ? std::vector<int>{-1, rank_, c.root}
                                                                      : std::vector<int>{-1, c.root, rank_})
                              : id_of(c.group);
    op->number = numbers_[op->group_id]++;
    const uint64_t print = fingerprint_of(c);
    std::deque<Known>& history = history_[op->group_id];
    history.push_back({op->number, print, op});
    if (history.size() > kRemembered) history.pop_front();
    // A tag says which operation it is: operations of a group that are alike never share one while they are under way,
    // others hardly ever.
    Hash128 h;
    h.add(op->group_id);
    h.add(print);
    const auto tags = static_cast<uint64_t>((tags_ - kFirstTag) / Exchange::kTags);
    const int tag = kFirstTag + static_cast<int>((h.lo % tags + op->number) % tags) * Exchange::kTags;
    op->moved = Clock::now();
    if (!op->exchange)  // else it has begun already
      op->exchange = start_exchange(*mpi_, c, rank_, machines_, static_cast<const std::byte*>(op->input),
                                    static_cast<std::byte*>(op->output), tag);
    active_.push_back(std::move(op));
  }
}

bool WorldProgress::advance_all(Clock::time_point now) {
  bool any = false;
  std::set<uint64_t> went_on, waiting;  // groups
  std::erase_if(active_, [&](const std::shared_ptr<WorldOperation>& op) {
    if (op->exchange->in_order() && waiting.contains(op->group_id)) return false;
    bool moved = false;
    const bool done = op->exchange->advance(&moved);
    if (moved) op->moved = now;
    any |= moved || done;
    if (!done) {
      // What waits behind another operation of its group waits for the same processes.
      if (waiting.insert(op->group_id).second) look_after(*op, now);
      return false;
    }
    went_on.insert(op->group_id);
    op->exchange.reset();
    op->owner.reset();
    op->complete = true;
    return true;
  });
  // What waits behind others of its group has not stalled while they go on.
  for (const std::shared_ptr<WorldOperation>& op : active_)
    if (went_on.contains(op->group_id)) op->moved = now;
  return any;
}

/// Asks those who do not take part what they do, and gives up in time.
void WorldProgress::look_after(WorldOperation& op, Clock::time_point now) {
  if (const std::string why = op.exchange->broken(); !why.empty())
    return fail({rank_, str(why, ", in ", text_of(op.what))}, true);
  if (now - op.moved < kStalled || now - op.told < kStalled) return;
  op.told = now;
  const std::vector<int> missing = op.exchange->missing();
  if (missing.empty()) return;
  const std::string text = text_of(op.what);
  for (int r : missing)
    if (left_[static_cast<size_t>(r)]) return fail({r, "ended the program, in which others wait for it"}, true);
  if (seconds_since(op.moved, now) > timeout_s_) {
    // Rather one that has not said that it waits in the same.
    const auto late = std::ranges::find_if(missing, [&](int r) { return reached_[{op.group_id, r}] <= op.number; });
    const int r = late == missing.end() ? missing.front() : *late;
    const auto known = doing_.find(r);
    return fail({r, str("did not take part in ", text, " within ", timeout_s_, " s",
                        known == doing_.end() ? "" : ": it waits in " + known->second)},
                true);
  }
  Control c{Control::kStatus, rank_, op.group_id, op.number, fingerprint_of(op.what), {}};
  std::strncpy(c.text, text.c_str(), sizeof c.text - 1);
  for (int r : missing) send_control(c, r);
}

// ---- what processes tell each other ----

void WorldProgress::send_control(const Control& c, int to) {
  Told& t = told_.emplace_back(Told{std::make_unique<Control>(c), {}});
  mpi_->send(t.message.get(), sizeof c, to, kControlTag, &t.request);
}

void WorldProgress::receive_controls() {
  while (!told_.empty() && mpi_->test(&told_.front().request)) told_.pop_front();
  while (const std::optional<Mpi::Arrived> arrived = mpi_->test(&incoming_request_)) {
    const Control c = incoming_;
    mpi_->receive(&incoming_, sizeof incoming_, Mpi::kAnySource, kControlTag, &incoming_request_);
    handle(c, arrived->source);
  }
}

void WorldProgress::handle(const Control& c, int from) {
  switch (c.kind) {
    case Control::kStatus: return compare(c, from);
    case Control::kFailure: return fail({c.rank, c.text}, false);
    case Control::kLeaving: left_[static_cast<size_t>(from)] = true; return;
  }
}

/// Compares the operation in which another process waits with ours of the same number.
void WorldProgress::compare(const Control& c, int from) {
  doing_[from] = c.text;
  uint64_t& reached = reached_[{c.group, from}];
  reached = std::max(reached, c.number + 1);
  for (const Known& k : history_[c.group])
    if (k.number == c.number && k.fingerprint != c.fingerprint)
      return fail({from, str("does something else: ", c.text, " there, ", text_of(k.operation->what), " in rank ",
                             rank_, ": processes run different programs, or on values of different shapes")},
                  true);
}

/// Tells everybody why the world ends, for as long as that takes no time.
void WorldProgress::tell_failure() {
  if (tell_.exchange(false)) {
    if (watch_) watch_->wake_stopped();
    Control c{Control::kFailure, -1, 0, 0, 0, {}};
    {
      std::lock_guard lock(mutex_);
      c.rank = failure_->rank;
      std::strncpy(c.text, failure_->why.c_str(), sizeof c.text - 1);
    }
    for (int r = 0; r < size(); r++) {
      std::unique_lock lock(mutex_);
      const bool dead = dead_.contains(r);
      lock.unlock();
      if (r != rank_ && !dead && !left_[static_cast<size_t>(r)]) send_control(c, r);
    }
  }
  const Clock::time_point until = Clock::now() + milliseconds(200);
  bool all = false;
  while (!all && Clock::now() < until) {
    all = true;
    for (Told& t : told_) all &= !t.request.handle || mpi_->test(&t.request).has_value();
    if (!all) sched_yield();
  }
  all_told_ = true;
  std::lock_guard lock(mutex_);
  changed_.notify_all();
}

// ---- the end ----

void WorldProgress::notice_deaths(Clock::time_point now) {
  std::optional<WorldFailure> found;
  {
    std::lock_guard lock(mutex_);
    for (auto [r, at] : dead_)
      if (!found && !left_[static_cast<size_t>(r)] && now - at > kLastWords)
        found = WorldFailure{r, str("died (process ", cards_[static_cast<size_t>(r)].pid, ")")};
    if (!found && asked_to_end_ && now - *asked_to_end_ > kOwnDeath && dead_.empty())
      found = WorldFailure{-1,
                           "the launcher asks this process to end (SIGTERM): a process on another machine died, or "
                           "the job was cancelled"};
  }
  if (found) fail(*found, true);
}

void WorldProgress::fail(WorldFailure f, bool tell) {
  std::lock_guard lock(mutex_);
  if (failed_) return;
  failure_ = std::move(f);
  failed_at_ = Clock::now();
  tell_ = tell;
  failed_ = true;
  changed_.notify_all();
}

void WorldProgress::throw_failure(const std::string& operation) {
  seen_ = true;
  std::lock_guard lock(mutex_);
  changed_.notify_all();
  const std::string who = failure_->rank == rank_ ? "this process" : str("rank ", failure_->rank);
  throw PeerError(str("[", operation, "] ", failure_->rank < 0 ? "" : who + " ", failure_->why, "; this is rank ",
                      rank_, " of ", size()),
                  failure_->rank);
}

void WorldProgress::submit(const std::shared_ptr<WorldOperation>& op, bool waits) {
  {
    std::lock_guard lock(mutex_);
    submitted_.push_back(op);
  }
  if (waits) return;
  if (std::unique_lock mpi(mpi_mutex_, std::try_to_lock); mpi) poll();
  std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void WorldProgress::wait_for(WorldOperation& op) {
  waiting_++;
  Clock::time_point moved_at = Clock::now();
  bool others = false;
  while (!op.complete && !failed_) {
    bool moved = false;
    if (std::unique_lock mpi(mpi_mutex_, std::try_to_lock); mpi) {
      moved = poll();
      others = !active_.empty();
    }
    const Clock::time_point now = Clock::now();
    if (moved) moved_at = now;
    else if (now - moved_at > kBusyWait) std::this_thread::sleep_for(nap_after(now - moved_at));
    else if (crowded_ || now - moved_at > kSpin) sched_yield();
  }
  waiting_--;
  if (others) {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  if (op.complete) return;
  wait_told();
  throw_failure(text_of(op.what));
}

void WorldProgress::wait_told() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, milliseconds(500), [&] { return all_told_.load(); });
}

/// Ends the receive of control messages, with one to ourselves.
void WorldProgress::end_receiving() {
  std::lock_guard mpi(mpi_mutex_);
  send_control({}, rank_);
  while (true) {
    const std::optional<Mpi::Arrived> arrived = mpi_->test(&incoming_request_);
    if (arrived && arrived->source == rank_) break;
    if (arrived) mpi_->receive(&incoming_, sizeof incoming_, Mpi::kAnySource, kControlTag, &incoming_request_);
  }
  while (!mpi_->test(&told_.front().request)) continue;
  told_.clear();
  closed_ = true;
}

void WorldProgress::leave() {
  if (!failed_) {
    {
      std::lock_guard mpi(mpi_mutex_);
      const Control c{Control::kLeaving, rank_, 0, 0, 0, {}};
      for (int r = 0; r < size(); r++)
        if (r != rank_) send_control(c, r);
      left_[static_cast<size_t>(rank_)] = true;
    }
    leaving_ = true;
    const Clock::time_point until =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s_));
    bool all = false;
    while (!all && !failed_ && Clock::now() < until) {
      std::unique_lock mpi(mpi_mutex_);
      poll();
      all = std::all_of(left_.begin(), left_.end(), [](bool l) { return l; }) && told_.empty();
      mpi.unlock();
      if (!all) sched_yield();
    }
    if (all) {
      if (on_leaving) on_leaving();
      end_receiving();
      watch_.reset();
      {
        std::lock_guard lock(mutex_);
        stop_ = true;
        changed_.notify_all();
      }
      thread_.join();
      return mpi_->finalize();
    }
    if (!failed_) fail({-1, "the others did not leave in time"}, true);
  }
  wait_told();
  watch_.reset();
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

}  // namespace tg
