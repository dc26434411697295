/// \file Rows of several processes: as many as the row has threads, each with one, under mpirun. Rank 0 of them takes a
/// sample for each line that it gets.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <numeric>

#include "apps/tg/bench_tables.h"
#include "tinygrad/base/process.h"
#include "tinygrad/runtime/world/world.h"

namespace tg::bench {
namespace {

/// A program whose standard input and output are ours.
class Talker {
 public:
  explicit Talker(const std::vector<std::string>& command) {
    int in[2], out[2];
    TG_CHECK(FileError, ::pipe(in) == 0 && ::pipe(out) == 0, "[bench] no pipe");
    pid_ = ::fork();
    TG_CHECK(FileError, pid_ >= 0, "[bench] no process");
    if (pid_ == 0) {
      ::dup2(in[0], 0);
      ::dup2(out[1], 1);
      for (int fd : {in[0], in[1], out[0], out[1]}) ::close(fd);
      std::vector<char*> argv;
      for (const std::string& a : command) argv.push_back(const_cast<char*>(a.c_str()));
      argv.push_back(nullptr);
      ::execvp(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    to_ = ::fdopen(in[1], "w");
    from_ = ::fdopen(out[0], "r");
    ::signal(SIGPIPE, SIG_IGN);
  }
  ~Talker() {
    std::fclose(to_);  // its end
    std::fclose(from_);
    int status = 0;
    ::waitpid(pid_, &status, 0);
  }
  Talker(const Talker&) = delete;
  Talker& operator=(const Talker&) = delete;

  /// Returns the number it answers to a line.
  double ask() {
    std::fputs("\n", to_);
    std::fflush(to_);
    double seconds = -1;
    BENCH_CHECK(std::fscanf(from_, "%lf", &seconds) == 1 && seconds >= 0,
                "[bench] the processes under mpirun ended without a result");
    return seconds;
  }

 private:
  pid_t pid_ = -1;
  FILE *to_ = nullptr, *from_ = nullptr;
};

/// Returns the command that starts `ranks` processes of a child row.
std::vector<std::string> under_mpirun(const std::string& child, int ranks) {
  std::vector<std::string> out;
  if (has_program("mpirun.openmpi"))
    out = {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"};
  else if (has_program("mpirun.mpich")) out = {"mpirun.mpich"};
  BENCH_CHECK(!out.empty(), "[bench] no mpirun.openmpi or mpirun.mpich: rows of several processes need MPI");
  for (std::string a : {std::string("-n"), std::to_string(ranks), executable_path().string(), std::string("bench"),
                        std::string("--child"), child, std::string("--threads"), std::string("1")})
    out.push_back(std::move(a));
  return out;
}

/// Sums of `elements` floats of all processes, as often as rank 0 is asked to. Checks the first.
double serve_allreduce(int64_t elements) {
  distributed::init();
  const int n = distributed::size(), me = distributed::rank();
  Collective c{.elements = elements};
  c.group.resize(static_cast<size_t>(n));
  std::iota(c.group.begin(), c.group.end(), 0);
  std::vector<float> in(static_cast<size_t>(elements), static_cast<float>(me + 1)), out(in.size());
  distributed::run(c, in.data(), out.data());
  const auto want = static_cast<float>(n * (n + 1) / 2);
  for (float v : out) BENCH_CHECK(v == want, "[bench] allreduce gave ", v, ", expected ", want);
  Collective go{.what = CollectiveKind::kBroadcast, .dtype = dtypes::int32, .elements = 1, .group = c.group};
  for (std::string line;;) {
    int32_t more = me != 0 || std::getline(std::cin, line) ? 1 : 0, told = 0;
    distributed::run(go, &more, &told);
    if (!told) return 0;
    distributed::barrier();
    const auto start = std::chrono::steady_clock::now();
    distributed::run(c, in.data(), out.data());
    if (me == 0) std::printf("%.9g\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    std::fflush(stdout);
  }
}

Samples allreduce_row(Context& c, const char* child, double bytes) {
  Talker world(under_mpirun(child, c.threads()));
  Samples s = c.time_inner({.bytes_read = bytes}, [&] { return world.ask(); });
  s.limited_by_machine = false;
  return s;
}

constexpr Row kRows[] = {
    {"allreduce_64mb", "ms", "the sum of 64 MB of float32 of as many processes as threads",
     [](Context& c) { return allreduce_row(c, "allreduce_64mb", 64e6); }},
    {"allreduce_1mb", "ms", "the sum of 1 MB of float32 of as many processes as threads",
     [](Context& c) { return allreduce_row(c, "allreduce_1mb", 1e6); }},
    {"allreduce_4kb", "us", "the sum of 4 KB of float32 of as many processes as threads",
     [](Context& c) { return allreduce_row(c, "allreduce_4kb", 4e3); }},
};

constexpr ChildRow kChildren[] = {
    {"allreduce_64mb", [] { return serve_allreduce(16'000'000); }},
    {"allreduce_1mb", [] { return serve_allreduce(250'000); }},
    {"allreduce_4kb", [] { return serve_allreduce(1'000); }},
};

}  // namespace

std::span<const Row> collective_rows() { return kRows; }
std::span<const ChildRow> collective_children() { return kChildren; }

}  // namespace tg::bench
