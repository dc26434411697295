/// \file A training run that goes on from its checkpoint: resume.py runs it. Arguments: the folder, the step to stop
/// at, and, for a run that fails, which rank kills itself after how many milliseconds, or before which step it does,
/// unless the run begins there.
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "tinygrad/nn/checkpoint.h"
#include "tinygrad/tinygrad.h"

namespace {
using tg::Tensor;

struct Net {
  tg::nn::Linear first{16, 64}, second{64, 8};
  Tensor operator()(const Tensor& x) const { return second(first(x).relu().dropout(0.1)); }
  TG_STATE(first, second)
};

void train(const std::filesystem::path& folder, int64_t until, int kill_before) {
  const tg::Mesh mesh({{"data", -1}});
  Tensor::manual_seed(11);
  const tg::nn::Training mode;
  Net net;
  for (auto& [name, t] : tg::nn::get_state_dict(net))
    t.shard_(mesh, t.ndim() == 2 ? std::vector<std::string>{"data"} : std::vector<std::string>{});
  tg::nn::AdamW adam(tg::nn::get_parameters(net), {.lr = 0.01});
  tg::nn::Checkpoint c{tg::nn::get_state_dict(net), {&adam}};
  if (std::filesystem::exists(folder / "model.safetensors.index.json")) tg::nn::load_checkpoint(c, folder);
  if (tg::distributed::rank() == 0) std::printf("begins at step %ld\n", static_cast<long>(c.step));
  const int64_t began = c.step;
  while (c.step < until) {
    if (c.step == kill_before && c.step > began) raise(SIGKILL);
    const Tensor x = Tensor::randn(16, 16).realize().shard(mesh, {"data"});
    adam.zero_grad();
    const Tensor loss = net(x).square().mean().backward();
    adam.step();
    c.step++;
    const auto value = static_cast<double>(loss.item<float>());
    tg::nn::save_sharded_checkpoint(c, folder);
    if (tg::distributed::rank() == 0) {
      std::printf("step %ld loss %.9g\n", static_cast<long>(c.step), value);
      std::fflush(stdout);
    }
  }
}
}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const int who = argc > 3 ? std::atoi(argv[3]) : -1, milliseconds = argc > 4 ? std::atoi(argv[4]) : 0;
  const int before = argc > 5 ? std::atoi(argv[5]) : -1;
  try {
    tg::distributed::init();
    const bool mine = tg::distributed::rank() == who;
    if (mine && before < 0)
      std::thread([milliseconds] {
        std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
        raise(SIGKILL);
      }).detach();
    train(argv[1], std::atoi(argv[2]), mine ? before : -1);
  } catch (const tg::PeerError& e) {
    std::printf("rank %d: PeerError of rank %d: %s\n", tg::distributed::rank(), e.rank, e.what());
    std::fflush(stdout);
    return 3;
  }
  return 0;
}
