/// \file The world that this process is in.
#include "tinygrad/runtime/world/world.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <numeric>
#include <optional>

#include "tinygrad/base/env.h"
#include "tinygrad/base/output.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/world/algorithm.h"
#include "tinygrad/runtime/world/awaited.h"
#include "tinygrad/runtime/world/combine.h"
#include "tinygrad/runtime/world/device_groups.h"
#include "tinygrad/runtime/world/launcher.h"
#include "tinygrad/runtime/world/this_world.h"
#include "tinygrad/runtime/world/world_progress.h"
#include "tinygrad/runtime/world/world_trace.h"

namespace tg::distributed {
namespace {
std::mutex& world_mutex() {
  static auto* m = new std::mutex;
  return *m;
}
WorldProgress* g_progress = nullptr;  // never destroyed: operations may be under way when the program ends
bool g_initialized = false;
bool g_left = false;
std::terminate_handler g_terminate = nullptr;
std::optional<profile::ClockMatch> g_clock;  // where somebody records a profile: of when the world formed

/// Tells the others which exception ends this process.
[[noreturn]] void tell_and_terminate() {
  std::string why = "std::terminate";
  if (const std::exception_ptr e = std::current_exception()) {
    try {
      std::rethrow_exception(e);
    } catch (const std::exception& x) { why = x.what(); } catch (...) {
      why = "an exception of unknown type";
    }
  }
  if (g_progress && !g_left && !g_progress->failed()) {
    g_progress->fail({rank(), "ended with an exception: " + why}, true);
    g_progress->wait_told();
  }
  if (g_terminate) g_terminate();
  std::abort();
}

void leave_at_exit() {
  try {
    finalize();
  } catch (const std::exception& e) { std::fprintf(stderr, "tinygrad: %s\n", e.what()); }
}

/// Completes what needs no other process.
class Reached final : public Event {
 public:
  bool done() override { return true; }
  void wait() override {}
};
EventRef run_alone(const Collective& c, const void* in, void* out) {
  TG_CHECK(PeerError, c.what != CollectiveKind::kSend && c.what != CollectiveKind::kReceive, "[", name_of(c.what),
           "] got rank ", c.root, " in a world of one process");
  if (in != out && c.piece_bytes()) std::memcpy(out, in, c.piece_bytes());
  return std::make_shared<Reached>();
}
}  // namespace

void check(const Collective& c) {
  const bool pair = c.what == CollectiveKind::kSend || c.what == CollectiveKind::kReceive;
  const char* const name = name_of(c.what);
  TG_CHECK(ValueError, !g_left, "[", name, "] got an operation after finalize()");
  TG_CHECK(ValueError, c.elements >= 0, "[", name, "] got ", c.elements, " elements");
  const int n = size();
  if (c.what == CollectiveKind::kAllReduce || c.what == CollectiveKind::kReduceScatter)
    check_combines(c.op, c.dtype, name);
  for (int r : c.group) TG_CHECK(ValueError, r >= 0 && r < n, "[", name, "] got rank ", r, " in a world of ", n);
  if (pair)
    TG_CHECK(ValueError, c.root >= 0 && c.root < n && c.root != rank(), "[", name, "] got rank ", c.root,
             ", expected another rank than this one, ", rank(), ", in a world of ", n);
  if (c.what == CollectiveKind::kBroadcast)
    TG_CHECK(ValueError, c.root >= 0 && c.root < static_cast<int>(c.group.size()), "[", name, "] got root ", c.root,
             " in a group of ", c.group.size());
}

void init(const InitOptions& options) {
  std::lock_guard lock(world_mutex());
  TG_CHECK(ValueError, !g_left, "[init] got a second init() after finalize(): a world forms once");
  if (g_initialized) return;
  const double limit = options.timeout_s > 0 ? options.timeout_s : static_cast<double>(env::WORLD_TIMEOUT.get());
  const Launcher launcher = find_launcher();
  if (launcher.size > 1) {
    const std::string asked = env::MPI_LIBRARY.get();
    auto* progress =
        new WorldProgress(Mpi::open(asked.empty() ? launcher.library : asked), limit, Device::default_name());
    progress->on_failure = abandon_device_groups;
    progress->on_leaving = leave_device_groups;
    progress->join(launcher.size);
    g_progress = progress;
    set_output_rank(progress->rank());
    g_terminate = std::set_terminate(tell_and_terminate);
    std::atexit(leave_at_exit);
    profile::at_exit_first(leave_at_exit, progress->rank());
    if (std::ranges::any_of(progress->cards(), &PeerCard::profiled)) g_clock = match_clocks();
  }
  g_initialized = true;
}

bool is_initialized() { return g_initialized; }
WorldProgress* progress_of_world() { return g_progress; }
int rank() { return g_progress ? g_progress->rank() : 0; }
int size() { return g_progress ? g_progress->size() : 1; }
std::string library() { return g_progress ? g_progress->version() : ""; }

namespace {
/// Returns the processes on this machine with a rank below `end`.
int count_here(int end) {
  if (!g_progress) return end > 0 ? 1 : 0;
  const std::vector<PeerCard>& cards = g_progress->cards();
  int n = 0;
  for (int r = 0; r < end; r++)
    n += std::strcmp(cards[static_cast<size_t>(r)].machine, cards[static_cast<size_t>(rank())].machine) == 0;
  return n;
}
}  // namespace
int local_rank() { return count_here(rank()); }
int local_size() { return count_here(size()); }

uint64_t shared_seed() { return g_progress ? g_progress->cards()[0].seed : 0; }

std::vector<std::string> devices(const std::string& device) {
  const std::string name = Device::canonical(device);
  if (size() == 1) return {name};
  std::vector<std::string> out;
  for (int r = 0; r < size(); r++) out.push_back(str(name, "@", r));
  return out;
}

namespace {
EventRef begin(const Collective& c, const void* in, void* out, std::shared_ptr<void> keep, bool waits) {
  check(c);
  const bool pair = c.what == CollectiveKind::kSend || c.what == CollectiveKind::kReceive;
  if (!g_progress || (!pair && c.group.size() == 1)) return run_alone(c, in, out);
  if (g_progress->failed()) g_progress->throw_failure(text_of(c));
  Collective full = c;
  if (pair) full.group = {rank()};
  const auto op = std::make_shared<WorldOperation>(*g_progress, std::move(full), in, out, std::move(keep));
  g_progress->submit(op, waits);
  return op;
}
}  // namespace

EventRef start(const Collective& c, const void* in, void* out, std::shared_ptr<void> keep) {
  return begin(c, in, out, std::move(keep), false);
}
EventRef start_awaited(const Collective& c, const void* in, void* out, std::shared_ptr<void> keep) {
  return begin(c, in, out, std::move(keep), true);
}
int64_t sent_bytes(const Collective& c) { return g_progress ? tg::sent_bytes(c, rank(), g_progress->machines()) : 0; }
void run(const Collective& c, const void* in, void* out) { start_awaited(c, in, out)->wait(); }

void barrier() {
  if (size() == 1) return;
  Collective c{.what = CollectiveKind::kAllGather, .dtype = dtypes::uint8, .elements = 1};
  c.group.resize(static_cast<size_t>(size()));
  std::iota(c.group.begin(), c.group.end(), 0);
  const std::byte mine{};
  std::vector<std::byte> all(c.group.size());
  run(c, &mine, all.data());
}

namespace {
/// Writes one trace of all processes where they are all there, else leaves it to each.
void write_profile() {
  if (!g_clock || g_progress->failed()) return;
  try {
    write_world_trace(*g_clock);
  } catch (const Error& e) { note_lines(str("profile: every process writes its own: ", e.what())); }
}
}  // namespace

void finalize() {
  std::lock_guard lock(world_mutex());
  if (!g_progress || g_left) return;
  write_profile();
  settle_device_groups();
  g_left = true;
  g_progress->leave();
}

void fail(const std::string& why) {
  if (!g_progress || g_left) return;
  g_progress->fail({rank(), why}, true);
  g_progress->wait_told();
}

}  // namespace tg::distributed
