/// \file Starting processes under mpirun, and asking them for samples.
#include "apps/tg/bench_world.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <numeric>

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

}  // namespace

double serve_world(int repeats, const std::function<void()>& body) {
  const int me = distributed::rank();
  Collective go{.what = CollectiveKind::kBroadcast, .dtype = dtypes::int32, .elements = 1};
  go.group.resize(static_cast<size_t>(distributed::size()));
  std::iota(go.group.begin(), go.group.end(), 0);
  for (std::string line;;) {
    int32_t more = me != 0 || std::getline(std::cin, line) ? 1 : 0, told = 0;
    distributed::run(go, &more, &told);
    if (!told) return 0;
    distributed::barrier();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; i++) body();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (me == 0) std::printf("%.9g\n", seconds.count() / repeats);
    std::fflush(stdout);
  }
}

Samples ask_world(Context& c, const char* child, const Work& work) {
  Talker world(under_mpirun(child, c.threads()));
  Samples s = c.time_inner(work, [&] { return world.ask(); });
  s.limited_by_machine = false;
  return s;
}

}  // namespace tg::bench
