/// \file libnccl.so.2, faked: operations are commands of the fake GPUs' streams, messages between processes are files.
///
/// What is checked: communicators that are none, or no more; calls while one goes on by itself, or for another device
/// than the current one; streams that got other commands before an operation was launched; groups that do not end.
/// Memory is checked by the fake driver. A process that used the library wrongly ends with an error.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fake_driver/fake_control.h"
#include "fake_driver/fake_nccl_control.h"
#include "tinygrad/base/error.h"
#include "tinygrad/runtime/nccl_abi.h"
#include "tinygrad/runtime/world/combine.h"

namespace tg::fake {
namespace {
namespace fs = std::filesystem;
constexpr int kSystemError = 2, kInvalidArgument = 4, kInvalidUsage = 5;
constexpr int kLooks = 3;  // questions that are answered with "in progress"
constexpr auto kNap = std::chrono::microseconds(50);

enum class Kind : int { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kPair };

/// What both ends of a message have to agree on.
struct Header {
  Kind kind = Kind::kPair;
  int type = 0, op = 0, root = 0;
  size_t count = 0;
  bool operator==(const Header&) const = default;
};
struct Message {
  int peer = 0;
  uint64_t number = 0;
  const char* from = nullptr;
  size_t bytes = 0;
};
struct Operation {
  Header header;
  const char* in = nullptr;
  char* out = nullptr;
  bool receives = false;  // of kPair,
  int peer = 0;           // from or to which
  void* stream = nullptr;
  std::vector<Message> sent, received;
};

struct Comm {
  fs::path folder;
  int ranks = 0, rank = 0, device = -1;
  std::vector<uint64_t> sent, received;  // messages so far, by the other process
  std::vector<Operation> launching;
  uint64_t commands = 0;  // that its stream had when they were begun
  int looks = kLooks;     // until it has done what it does by itself
  bool joined = false, finalizing = false, finalized = false, ended = false;
  std::atomic<int> async_error{0}, running{0};
  std::atomic<bool> aborted{false};
};

/// Everything. Commands run without the lock.
struct Library {
  std::mutex mutex;
  std::map<void*, std::unique_ptr<Comm>> comms;
  std::vector<std::string> calls;
  std::string fail_symbol, violations, taken;
  int fail_in = 0, fail_with = 0, stop_in = 0, stop_with = 0, ids = 0;
};
Library& library() {
  static auto* l = [] {
    std::atexit([] {
      if (library().violations.empty()) return;
      std::fprintf(stderr, "fake NCCL: it was used wrongly:\n%s", library().violations.c_str());
      std::fflush(nullptr);
      _exit(97);
    });
    return new Library;
  }();
  return *l;
}
int violation(const std::string& what) {
  library().violations += what + "\n";
  return kInvalidUsage;
}

const Control& gpu() {
  static const Control* control = [] {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    return driver ? static_cast<const Control*>(dlsym(driver, "fake_gpu_control")) : nullptr;
  }();
  TG_ASSERT(control, "the fake NCCL needs the fake driver");
  return *control;
}

thread_local int group_depth = 0;
thread_local std::vector<std::pair<Comm*, Operation>> group;

size_t size_of(int type) {
  constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kSizes[type];
}
DType type_of(int type) {
  const DType kTypes[] = {dtypes::int8,   dtypes::uint8,   dtypes::int32,   dtypes::uint32,  dtypes::int64,
                          dtypes::uint64, dtypes::float16, dtypes::float32, dtypes::float64, dtypes::bfloat16};
  return kTypes[type];
}

// ---- messages ----

fs::path file_of(const Comm& c, int from, int to, uint64_t number) {
  return c.folder / str("m_", from, "_", to, "_", number);
}
void put(const Comm& c, const Header& h, const Message& m) {
  const fs::path file = file_of(c, c.rank, m.peer, m.number), part = str(file.string(), ".part");
  {
    std::ofstream out(part, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&h), sizeof h);
    out.write(m.from, static_cast<std::streamsize>(m.bytes));
  }
  fs::rename(part, file);
}
bool wait_for_abort(const Comm& c) {
  while (!c.aborted) std::this_thread::sleep_for(kNap);
  return false;
}
/// Waits for a message; false when the communicator was aborted before.
bool get(const Comm& c, const Header& h, const Message& m, std::vector<char>* data) {
  const fs::path file = file_of(c, m.peer, c.rank, m.number);
  while (!fs::exists(file)) {
    if (c.aborted) return false;
    std::this_thread::sleep_for(kNap);
  }
  std::ifstream in(file, std::ios::binary);
  Header theirs;
  in.read(reinterpret_cast<char*>(&theirs), sizeof theirs);
  data->resize(m.bytes);
  in.read(data->data(), static_cast<std::streamsize>(m.bytes));
  // Real ones do anything with operations that differ; this waits, as the kinder of them do.
  if (theirs != h || in.gcount() != static_cast<std::streamsize>(m.bytes)) return wait_for_abort(c);
  fs::remove(file);
  return true;
}

// ---- what commands do ----

void finish(const Comm& c, const Operation& o, std::vector<std::vector<char>>& got) {
  const Header& h = o.header;
  const size_t bytes = h.count * size_of(h.type);
  if (h.kind == Kind::kPair || h.kind == Kind::kBroadcast) {
    if (!got.empty()) std::memcpy(o.out, got[0].data(), bytes);
    else if (h.kind == Kind::kBroadcast && o.in != o.out) std::memcpy(o.out, o.in, bytes);
    return;
  }
  const size_t own = h.kind == Kind::kReduceScatter ? bytes * static_cast<size_t>(c.rank) : 0;
  std::vector<const char*> parts;  // by rank
  for (int r = 0, k = 0; r < c.ranks; r++)
    parts.push_back(r == c.rank ? o.in + own : got[static_cast<size_t>(k++)].data());
  if (h.kind == Kind::kAllGather) {
    for (size_t r = 0; r < parts.size(); r++) std::memmove(o.out + r * bytes, parts[r], bytes);
    return;
  }
  std::vector<const std::byte*> values;
  for (const char* p : parts) values.push_back(reinterpret_cast<const std::byte*>(p));
  constexpr Ops kOps[] = {Ops::ADD, Ops::MUL, Ops::MAX};
  combine(kOps[h.op], type_of(h.type), values, reinterpret_cast<std::byte*>(o.out), h.count);
}
bool perform(Comm& c, const std::vector<Operation>& operations) {
  int stop = -1;
  {
    std::lock_guard lock(library().mutex);
    // "1:20:2": the twentieth command of rank 1 stops, with the error 2.
    static const char* const told = std::getenv("FAKE_NCCL_STOP");
    static int countdown = 0, error = 0, who = -1;
    if (told && who < 0) std::sscanf(told, "%d:%d:%d", &who, &countdown, &error);
    if (told && who == c.rank && --countdown == 0) stop = error;
    if (library().stop_in > 0 && --library().stop_in == 0) stop = library().stop_with;
  }
  if (stop >= 0) {
    c.async_error = stop;
    return wait_for_abort(c);
  }
  for (const Operation& o : operations)
    for (const Message& m : o.sent) put(c, o.header, m);
  for (const Operation& o : operations) {
    std::vector<std::vector<char>> got;
    for (const Message& m : o.received)
      if (!get(c, o.header, m, &got.emplace_back())) return false;
    finish(c, o, got);
  }
  return true;
}
struct Command {
  Comm* comm;
  std::vector<Operation> operations;
};
int run_command(void* argument) {
  const std::unique_ptr<Command> command(static_cast<Command*>(argument));
  perform(*command->comm, command->operations);
  command->comm->running--;
  return 0;
}

// ---- launching ----

/// Gives messages their numbers, in the order of calls.
void number_messages(Comm& c, Operation& o) {
  const Header& h = o.header;
  const size_t bytes = h.count * size_of(h.type);
  const auto send = [&](int peer, const char* from) {
    o.sent.push_back({peer, c.sent[static_cast<size_t>(peer)]++, from, bytes});
  };
  const auto receive = [&](int peer) {
    o.received.push_back({peer, c.received[static_cast<size_t>(peer)]++, nullptr, bytes});
  };
  if (h.kind == Kind::kPair) return o.receives ? receive(o.peer) : send(o.peer, o.in);
  for (int p = 0; p < c.ranks; p++) {
    if (p == c.rank) continue;
    const bool from_me = h.kind != Kind::kBroadcast || h.root == c.rank,
               to_me = h.kind != Kind::kBroadcast || h.root == p;
    if (from_me) send(p, o.in + (h.kind == Kind::kReduceScatter ? bytes * static_cast<size_t>(p) : 0));
    if (to_me) receive(p);
  }
}
void add_accesses(const Comm& c, const Operation& o, std::vector<Access>* to) {
  const size_t bytes = o.header.count * size_of(o.header.type), n = static_cast<size_t>(c.ranks);
  if (bytes == 0) return;
  const bool root = o.header.kind != Kind::kBroadcast || o.header.root == c.rank;
  if (o.in && root) to->push_back({o.in, bytes * (o.header.kind == Kind::kReduceScatter ? n : 1), false});
  if (o.out) to->push_back({o.out, bytes * (o.header.kind == Kind::kAllGather ? n : 1), true});
}
/// Gives the device what was begun, as one command.
int launch(Comm& c) {
  if (c.launching.empty()) return 0;
  void* const stream = c.launching[0].stream;
  if (gpu().commands(stream) != c.commands) violation("a stream got a command before NCCL's was launched");
  auto* command = new Command{&c, std::move(c.launching)};
  c.launching.clear();
  std::vector<Access> accesses;
  for (Operation& o : command->operations) {
    if (o.stream != stream) violation("operations of one group on two streams");
    number_messages(c, o);
    add_accesses(c, o, &accesses);
  }
  c.running++;
  return gpu().enqueue(stream, accesses.data(), accesses.size(), run_command, command) ? 1 : 0;
}
int end_group() {
  std::vector<Comm*> touched;
  for (auto& [comm, o] : group) {
    if (std::find(touched.begin(), touched.end(), comm) == touched.end()) touched.push_back(comm);
    comm->launching.push_back(std::move(o));
  }
  group.clear();
  for (Comm* c : touched) {
    c->looks = kLooks;
    c->commands = gpu().commands(c->launching[0].stream);
  }
  return touched.empty() ? nccl::kSuccess : nccl::kInProgress;
}

Comm* find(void* comm, bool here = true) {
  const auto it = library().comms.find(comm);
  if (it == library().comms.end()) {
    violation("a communicator that is none");
    return nullptr;
  }
  Comm* c = it->second.get();
  if (c->ended) {
    violation("a communicator that was destroyed");
    return nullptr;
  }
  if (here && gpu().device() != c->device)
    violation(str("a communicator of device ", c->device, " while ", gpu().device(), " is current"));
  return c;
}
/// Returns a communicator that goes on by itself no more; null, with a violation, where it does.
Comm* find_idle(void* comm) {
  Comm* c = find(comm);
  if (c && (!c->joined || !c->launching.empty() || c->looks > 0 || c->finalizing)) {
    violation("a call while a communicator goes on by itself");
    return nullptr;
  }
  return c;
}
int begin(void* comm, Operation o) {
  Comm* c = find_idle(comm);
  if (!c) return kInvalidUsage;
  if (o.header.type < 0 || o.header.type > nccl::kBfloat16 || o.header.op < 0 || o.header.op > nccl::kMax ||
      std::max(o.header.root, o.peer) >= c->ranks || std::min(o.header.root, o.peer) < 0)
    return kInvalidArgument;
  group.emplace_back(c, std::move(o));
  return group_depth ? nccl::kSuccess : end_group();
}

// ---- the functions ----

int GetVersion(int* version) {
  const char* told = std::getenv("FAKE_NCCL_VERSION");
  *version = told ? std::atoi(told) : 22809;
  return 0;
}
int GetUniqueId(NcclId* id) {
  const char* base = std::getenv("FAKE_NCCL_FOLDER");
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  const fs::path folder = (base ? fs::path(base) : fs::temp_directory_path()) /
                          str("fake_nccl_", getpid(), "_", library().ids++, "_", now % 1000000007);
  TG_ASSERT(folder.string().size() < sizeof id->bytes, "a long name of a folder");
  fs::create_directory(folder);
  std::memcpy(id->bytes, folder.c_str(), folder.string().size() + 1);
  return 0;
}
int CommInitRankConfig(void** comm, int ranks, NcclId id, int rank, NcclConfig* config) {
  if (config->size != sizeof(NcclConfig) || config->magic != NcclConfig{}.magic || config->version != 21400 ||
      config->blocking != 0)
    return violation("a communicator of another configuration than the library has");
  if (rank < 0 || rank >= ranks || !fs::is_directory(id.bytes)) return kInvalidArgument;
  auto c = std::make_unique<Comm>();
  c->folder = id.bytes;
  c->ranks = ranks;
  c->rank = rank;
  c->device = gpu().device();
  c->sent.resize(static_cast<size_t>(ranks));
  c->received.resize(static_cast<size_t>(ranks));
  *comm = c.get();
  const fs::path file = c->folder / str("joined_", rank);
  {
    std::ofstream out(file.string() + ".part");
    const char* const host = std::getenv("NCCL_HOSTID");
    out << gpu().place() << '@' << (host ? host : "");
  }
  fs::rename(file.string() + ".part", file);
  library().comms[*comm] = std::move(c);
  return nccl::kInProgress;
}
/// Whether every process has left a file of this name; where the folder is gone, all had.
bool all_have(const Comm& c, const char* name) {
  if (!fs::exists(c.folder)) return true;
  for (int r = 0; r < c.ranks; r++)
    if (!fs::exists(c.folder / str(name, r))) return false;
  return true;
}
/// Returns what has become of joining: two processes of a machine may not have one device.
int join(Comm& c) {
  if (!all_have(c, "joined_")) return nccl::kInProgress;
  std::vector<std::string> places;
  for (int r = 0; r < c.ranks; r++) {
    std::string place;
    std::ifstream(c.folder / str("joined_", r)) >> place;
    if (std::find(places.begin(), places.end(), place) != places.end()) return kInvalidUsage;
    places.push_back(place);
  }
  c.joined = true;
  return 0;
}
int CommGetAsyncError(void* comm, int* error) {
  Comm* c = find(comm, false);
  if (!c) return kInvalidArgument;
  *error = c->async_error;
  if (*error) return 0;
  *error = nccl::kInProgress;
  if (c->looks > 0 && --c->looks > 0) return 0;
  if (!c->joined) *error = join(*c);
  else if (c->finalizing && !all_have(*c, "left_")) return 0;
  else *error = launch(*c) ? 1 : 0;
  c->finalized = c->finalizing && *error == 0;
  return 0;
}
int CommFinalize(void* comm) {
  Comm* c = find_idle(comm);
  if (!c) return kInvalidUsage;
  if (c->running) violation("a communicator is left while operations run");
  std::ofstream(c->folder / str("left_", c->rank)) << 1;
  c->finalizing = true;
  c->looks = kLooks;
  return nccl::kInProgress;
}
int CommDestroy(void* comm) {
  Comm* c = find(comm);
  if (!c) return kInvalidArgument;
  if (!c->finalized) violation("a communicator is destroyed before it was left");
  c->ended = true;
  std::error_code ignored;
  if (c->rank == 0) fs::remove_all(c->folder, ignored);
  return 0;
}
int CommAbort(void* comm) {
  Comm* c = find(comm);
  if (!c) return kInvalidArgument;
  c->ended = true;
  c->aborted = true;
  return 0;
}
Operation operation(const Header& h, const void* in, void* out, void* stream) {
  Operation o;
  o.header = h;
  o.in = static_cast<const char*>(in);
  o.out = static_cast<char*>(out);
  o.stream = stream;
  return o;
}
Operation pair(const void* in, void* out, size_t count, int type, int peer, void* stream) {
  Operation o = operation({Kind::kPair, type, 0, 0, count}, in, out, stream);
  o.receives = out != nullptr;
  o.peer = peer;
  return o;
}
int AllReduce(const void* in, void* out, size_t count, int type, int op, void* comm, void* stream) {
  return begin(comm, operation({Kind::kAllReduce, type, op, 0, count}, in, out, stream));
}
int ReduceScatter(const void* in, void* out, size_t count, int type, int op, void* comm, void* stream) {
  return begin(comm, operation({Kind::kReduceScatter, type, op, 0, count}, in, out, stream));
}
int AllGather(const void* in, void* out, size_t count, int type, void* comm, void* stream) {
  return begin(comm, operation({Kind::kAllGather, type, 0, 0, count}, in, out, stream));
}
int Broadcast(const void* in, void* out, size_t count, int type, int root, void* comm, void* stream) {
  return begin(comm, operation({Kind::kBroadcast, type, 0, root, count}, in, out, stream));
}
int Send(const void* in, size_t count, int type, int peer, void* comm, void* stream) {
  return begin(comm, pair(in, nullptr, count, type, peer, stream));
}
int Recv(void* out, size_t count, int type, int peer, void* comm, void* stream) {
  return begin(comm, pair(nullptr, out, count, type, peer, stream));
}
int GroupStart() {
  group_depth++;
  return 0;
}
int GroupEnd() {
  if (group_depth == 0) return violation("a group ends that did not begin");
  return --group_depth ? nccl::kSuccess : end_group();
}

/// Runs one call: counts it, fails it where a test wants that.
template <class F> int call(const char* symbol, F&& f) {
  Library& l = library();
  std::lock_guard lock(l.mutex);
  l.calls.push_back(symbol);
  if (l.fail_symbol == symbol && l.fail_in > 0 && --l.fail_in == 0) return l.fail_with;
  return f();
}
}  // namespace

extern "C" {
extern __attribute__((visibility("default"))) const NcclControl fake_nccl_control;
}
const NcclControl fake_nccl_control = {
    .fail_call =
        [](const char* symbol, int nth, int error) {
          std::lock_guard lock(library().mutex);
          library().fail_symbol = symbol;
          library().fail_in = nth;
          library().fail_with = error;
        },
    .stop_command =
        [](int nth, int error) {
          std::lock_guard lock(library().mutex);
          library().stop_in = nth;
          library().stop_with = error;
        },
    .count_calls =
        [](const char* symbol) {
          std::lock_guard lock(library().mutex);
          return static_cast<size_t>(std::count(library().calls.begin(), library().calls.end(), symbol));
        },
    .take_violations =
        [] {
          std::lock_guard lock(library().mutex);
          library().taken = std::exchange(library().violations, {});
          return library().taken.c_str();
        },
    .living =
        [] {
          std::lock_guard lock(library().mutex);
          return static_cast<int>(
              std::ranges::count_if(library().comms, [](const auto& c) { return !c.second->ended; }));
        },
};

}  // namespace tg::fake

// NOLINTBEGIN: names of the vendor
extern "C" {
using namespace tg;
#define FUNCTION(name, parameters, names)                              \
  __attribute__((visibility("default"))) int nccl##name parameters {   \
    return fake::call("nccl" #name, [&] { return fake::name names; }); \
  }
#include "tinygrad/runtime/nccl_functions.inc"
#undef FUNCTION
__attribute__((visibility("default"))) const char* ncclGetErrorString(int error) {
  return error == 2   ? "unhandled system error"
         : error == 6 ? "remote process exited or there was a network error"
                      : "invalid usage";
}
__attribute__((visibility("default"))) const char* ncclGetLastError(const void*) { return "fake"; }
}
// NOLINTEND
