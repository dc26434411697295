/// \file A program whose processes fail as its first argument says: faults.py runs it. The second argument is the rank
/// that fails, the third the milliseconds until then.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "tinygrad/tinygrad.h"

namespace {
using tg::Tensor;

/// Steps that exchange values, for ever; `at` is called in each.
template <class F> void work(const tg::Mesh& mesh, F&& at) {
  Tensor w = Tensor::ones({1000, 64}).replicate(mesh).contiguous().realize();
  for (int step = 0;; step++) {
    at(step);
    const Tensor x = Tensor::full({16 * tg::distributed::size(), 1000}, 0.5f).contiguous().shard(mesh, {"data"});
    const Tensor y = x.matmul(w).sum(0);
    w.assign(w * 0.99f + y.reshape({1, 64}) * 1e-6f);
    w.realize();
  }
}

void fail(const std::string& how, int milliseconds, const tg::Mesh& mesh) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  std::printf("fault counted from %.3f\n", now.count());
  std::fflush(stdout);
  const auto start = std::chrono::steady_clock::now();
  const auto due = [&] { return std::chrono::steady_clock::now() - start > std::chrono::milliseconds(milliseconds); };
  bool stopped = false;
  work(mesh, [&](int step) {
    if (how == "shapes" && step == 3)
      tg::distributed::all_reduce(Tensor::ones({7}).contiguous(), mesh, {"data"}).realize();
    if (how == "rows" && step == 3) tg::Tensor::from_local(Tensor::ones({3, 2}).contiguous(), mesh, {"data"});
    if (!due()) return;
    if (how == "kill") raise(SIGKILL);
    if (how == "segfault") raise(SIGSEGV);
    if (how == "stop" && !std::exchange(stopped, true)) raise(SIGSTOP);
    if (how == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
    if (how == "throw") throw std::runtime_error("the data set is damaged");
    if (how == "leave") std::exit(0);
    if (how == "memory") {
      const int64_t rows = tg::Device::default_name() == "CPU" ? 1 << 20 : 1 << 10;  // fake GPUs are small
      const Tensor x =
          Tensor::full({tg::distributed::size() * rows, 1 << 20}, 0.5f).contiguous().shard(mesh, {"data"}).contiguous();
      x.sum(0).realize();
    }
    if (how == "fail") tg::distributed::fail("has seen a NaN");
  });
}
}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "none";
  const int who = argc > 2 ? std::atoi(argv[2]) : 0, milliseconds = argc > 3 ? std::atoi(argv[3]) : 0;
  const char* mine =
      std::getenv("OMPI_COMM_WORLD_RANK") ? std::getenv("OMPI_COMM_WORLD_RANK") : std::getenv("PMI_RANK");
  if (how == "absent" && mine && std::atoi(mine) == who) std::this_thread::sleep_for(std::chrono::seconds(6));
  try {
    if (how != "no_init") tg::distributed::init();
    if (how == "join") {
      std::printf("rank %d of %d: joined\n", tg::distributed::rank(), tg::distributed::size());
      return 0;
    }
    const tg::Mesh mesh({{"data", -1}});
    tg::distributed::barrier();
    if (tg::distributed::rank() == who) fail(how, milliseconds, mesh);
    work(mesh, [](int) {});
  } catch (const tg::PeerError& e) {
    std::printf("rank %d: PeerError of rank %d: %s\n", tg::distributed::rank(), e.rank, e.what());
    std::fflush(stdout);
    return 3;
  } catch (const tg::OutOfMemoryError& e) {
    std::printf("rank %d: OutOfMemoryError: %s\n", tg::distributed::rank(), e.what());
    std::fflush(stdout);
    return 4;
  }
  return 0;
}
