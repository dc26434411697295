/// \file Checkpoints: a run that stops and goes on computes what one that did not stop computes, and a process that is
/// killed while it saves loses nothing.
#include "tinygrad/nn/checkpoint.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <random>
#include <thread>

#include "temp_dir.h"
#include "tinygrad/nn/nn.h"
#include "tinygrad/nn/train.h"

namespace tg {
namespace {

using testing::TempDir;

struct Net {
  nn::Linear first{4, 8}, second{8, 2};
  TG_STATE(first, second)
};

/// A model, its optimizers and the checkpoint of both.
struct TrainingRun {
  Net net;
  nn::AdamW adam{{net.first.weight, net.first.bias}, {.lr = 0.01}};
  nn::SGD sgd{{net.second.bias, net.second.weight}, {.lr = 0.1, .momentum = 0.9}};
  nn::Checkpoint checkpoint{nn::get_state_dict(net), {&adam, &sgd}};

  void steps(int64_t until) {
    for (; checkpoint.step < until; checkpoint.step++) {
      const nn::Training mode;
      const Tensor x = Tensor::randn(16, 4);
      adam.zero_grad();
      sgd.zero_grad();
      net.second(net.first(x).relu().dropout(0.3)).square().mean().backward();
      adam.step();
      sgd.step();
    }
  }
  std::vector<float> values() const {
    std::vector<float> out;
    for (const auto& [name, t] : checkpoint.model)
      for (const float v : t.to_vector<float>()) out.push_back(v);
    return out;
  }
};

TEST(Checkpoint, ResumedRunIsTheSame) {
  const TempDir dir;
  Tensor::manual_seed(7);
  TrainingRun straight;
  straight.steps(4);
  straight.checkpoint.metadata = {{"note", "half"}};
  nn::save_checkpoint(straight.checkpoint, dir / "c.safetensors");
  straight.steps(8);
  Tensor::manual_seed(99);
  TrainingRun resumed;
  nn::load_checkpoint(resumed.checkpoint, dir / "c.safetensors");
  EXPECT_EQ(resumed.checkpoint.step, 4);
  EXPECT_EQ(resumed.checkpoint.metadata, (nn::Metadata{{"note", "half"}}));
  resumed.steps(8);
  EXPECT_EQ(resumed.values(), straight.values());
}

TEST(Checkpoint, StateGoesByName) {
  const TempDir dir;
  TrainingRun run;
  run.steps(2);
  nn::save_checkpoint(run.checkpoint, dir / "c.safetensors");
  const nn::StateDict saved = nn::safe_load(dir / "c.safetensors");
  EXPECT_TRUE(saved.contains("model.first.weight"));
  EXPECT_TRUE(saved.contains("optimizer.0.m.first.weight"));
  EXPECT_TRUE(saved.contains("optimizer.0.b1_t"));
  EXPECT_TRUE(saved.contains("optimizer.1.b.second.bias"));
  Net net;
  nn::AdamW adam({net.first.bias, net.first.weight});  // in another order
  nn::SGD sgd({net.second.weight, net.second.bias}, {.momentum = 0.9});
  nn::Checkpoint other{nn::get_state_dict(net), {&adam, &sgd}};
  nn::load_checkpoint(other, dir / "c.safetensors");
  EXPECT_EQ(adam.state()[3].to_vector<float>(), run.adam.state()[2].to_vector<float>());  // m of the weight
  EXPECT_FLOAT_EQ(adam.lr.item<float>(), 0.01f);
}

TEST(Checkpoint, NothingChangesWhenItDoesNotFit) {
  const TempDir dir;
  TrainingRun run;
  run.steps(1);
  nn::safe_save(run.checkpoint.model, dir / "weights");
  nn::save_checkpoint(run.checkpoint, dir / "c");
  const std::vector<float> before = run.values();
  EXPECT_THROW(nn::load_checkpoint(run.checkpoint, dir / "weights"), FormatError);
  nn::Checkpoint fewer{run.checkpoint.model, {&run.adam}};
  EXPECT_THROW(nn::load_checkpoint(fewer, dir / "c"), ValueError);
  Net stranger;
  nn::SGD sgd(nn::get_parameters(stranger), {.momentum = 0.9});
  EXPECT_THROW(nn::save_checkpoint({run.checkpoint.model, {&sgd}}, dir / "d"), ValueError);
  EXPECT_EQ(run.values(), before);
  EXPECT_EQ(run.checkpoint.step, 1);
  EXPECT_THROW(nn::set_random_state("1;CPU=x,2"), FormatError);
  EXPECT_THROW(nn::set_random_state(""), FormatError);
}

constexpr int64_t kSize = 1 << 16;

/// Saves checkpoints whose tensors all hold the step, until it is killed; CHECKPOINT_PATH: where to. Disabled because
/// it never ends: it is the child of KillWhileSavingLosesNothing, which runs it.
TEST(Checkpoint, DISABLED_SavesForever) {
  const char* path = std::getenv("CHECKPOINT_PATH");
  ASSERT_TRUE(path);
  nn::Checkpoint c;
  for (int64_t step = 1;; step++) {
    const std::vector<float> values(kSize, static_cast<float>(step));
    c.model = {{"a", Tensor(values)}, {"b", Tensor(values)}};
    c.step = step;
    nn::save_checkpoint(c, path);
  }
}

/// Starts this program on DISABLED_SavesForever.
pid_t start_saving(const std::string& path) {
  const pid_t child = fork();
  if (child != 0) return child;
  ::setenv("CHECKPOINT_PATH", path.c_str(), 1);
  const int null = ::open("/dev/null", O_WRONLY);
  ::dup2(null, 1);
  ::execl("/proc/self/exe", "test", "--gtest_also_run_disabled_tests",
          "--gtest_filter=Checkpoint.DISABLED_SavesForever", nullptr);
  _exit(127);
}

TEST(Checkpoint, KillWhileSavingLosesNothing) {
  const char* wanted = std::getenv("CHECKPOINT_KILLS");
  const int kills = wanted ? std::atoi(wanted) : 50;
  const TempDir dir;
  const std::string path = dir / "c.safetensors";
  std::mt19937 random(1);
  int64_t last = 0;
  int saved = 0;
  for (int i = 0; i < kills; i++) {
    const pid_t child = start_saving(path);
    ASSERT_GT(child, 0);
    // Some kills come before the first save, others at any place of one.
    std::this_thread::sleep_for(std::chrono::microseconds(100000 + random() % 60000));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself with " << status;
    if (!std::filesystem::exists(path)) continue;
    saved++;
    const Tensor zeros = Tensor::zeros(kSize);
    nn::Checkpoint c{{{"a", zeros.contiguous()}, {"b", zeros.contiguous()}}};
    ASSERT_NO_THROW(nn::load_checkpoint(c, path));
    for (const auto& [name, t] : c.model)
      ASSERT_EQ(t.to_vector<float>(), std::vector<float>(kSize, static_cast<float>(c.step)));
    last = std::max(last, c.step);
  }
  EXPECT_GT(saved, kills / 2);
  EXPECT_GT(last, 1) << "no child lived long enough to replace a checkpoint";
  // A kill between naming the new file and renaming it can leave one; one in the middle of writing leaves none.
  EXPECT_LE(std::distance(std::filesystem::directory_iterator(dir / ""), {}), 1 + kills / 10);
}

}  // namespace
}  // namespace tg
