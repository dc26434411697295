/// \file Checkpoints that all processes write together: whole, read by any number of processes, never lost.
#include "tinygrad/nn/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "mpi/models.h"
#include "tinygrad/nn/world_file.h"
#include "tinygrad/runtime/world/agree.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
namespace fs = std::filesystem;
using distributed::rank;
using distributed::size;

/// A folder that all processes see, removed at the end.
class SharedDir {
 public:
  SharedDir() {
    std::string name = (fs::temp_directory_path() / "tinygrad-world-XXXXXX").string();
    if (rank() == 0 && !mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
    path = distributed::of_rank_0(name);
  }
  ~SharedDir() {
    std::error_code none;
    if (rank() == 0) fs::remove_all(path, none);
  }
  SharedDir(const SharedDir&) = delete;
  SharedDir& operator=(const SharedDir&) = delete;
  fs::path path;
};

struct Net {
  nn::Linear first{4, 8}, second{8, 4};
  Tensor operator()(const Tensor& x) const { return second(first(x).relu().dropout(0.2)); }
  TG_STATE(first, second)
};

/// A model, weights divided over the world and biases whole in each process, or all in this process alone.
struct TrainingRun {
  Net net;
  nn::AdamW adam;
  nn::Checkpoint checkpoint;
  bool divided;

  static Net placed(bool divided) {
    Net net;
    if (divided) {
      const Mesh mesh({{"data", -1}});
      for (auto& [name, t] : nn::get_state_dict(net))
        t.shard_(mesh, t.ndim() == 2 ? std::vector<std::string>{"data"} : std::vector<std::string>{});
    }
    return net;
  }
  explicit TrainingRun(bool divided_ = true)
      : net(placed(divided_)),
        adam(nn::get_parameters(net), {.lr = 0.01}),
        checkpoint{nn::get_state_dict(net), {&adam}},
        divided(divided_) {}
  std::vector<float> steps(int64_t n) {
    const nn::Training mode;
    std::vector<float> out;
    for (int64_t i = 0; i < n; i++, checkpoint.step++) {
      Tensor x = Tensor::randn(8, 4).realize();
      if (divided) x = x.shard(Mesh({{"data", -1}}), {"data"}).realize();
      adam.zero_grad();
      const Tensor loss = net(x).square().mean().backward();
      adam.step();
      out.push_back(loss.item<float>());
    }
    return out;
  }
};

std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> out;
  for (const auto& e : fs::directory_iterator(folder)) out.push_back(e.path().filename().string());
  return out;
}
fs::path a_part(const fs::path& folder) {
  for (const std::string& f : files_in(folder))
    if (f.ends_with(".safetensors")) return folder / f;
  throw std::runtime_error("no part in " + folder.string());
}
/// Does something in one process while the others wait.
template <class F> void in_rank_0(F&& f) {
  distributed::barrier();
  if (rank() == 0) f();
  distributed::barrier();
}

TEST(WorldCheckpoint, EveryTensorIsWholeInOnePart) {
  const SharedDir dir;
  Tensor::manual_seed(3);
  TrainingRun run;
  run.steps(2);
  nn::save_sharded_checkpoint(run.checkpoint, dir.path / "a");
  const std::vector<std::string> files = files_in(dir.path / "a");
  EXPECT_EQ(files.size(), static_cast<size_t>(size()) + 1) << "a part of each process, and the index";
  size_t in_parts = 0;
  for (const std::string& f : files)
    if (f.ends_with(".safetensors")) in_parts += nn::safe_load(dir.path / "a" / f).size();
  const nn::StateDict saved = nn::safe_load(dir.path / "a");
  EXPECT_EQ(in_parts, saved.size());
  for (const auto& [name, t] : run.checkpoint.model) {
    ASSERT_TRUE(saved.contains("model." + name));
    EXPECT_EQ(saved.at("model." + name).shape(), t.shape());
    EXPECT_EQ(saved.at("model." + name).to_vector<float>(), t.to_vector<float>()) << name;
  }
}

TEST(WorldCheckpoint, AResumedRunHasTheSameLosses) {
  const SharedDir dir;
  Tensor::manual_seed(3);
  TrainingRun run;
  run.steps(3);
  run.checkpoint.metadata = {{"note", "007"}};
  nn::save_sharded_checkpoint(run.checkpoint, dir.path);
  const std::vector<float> want = run.steps(4);
  Tensor::manual_seed(99);
  TrainingRun again;
  again.steps(1);
  nn::load_checkpoint(again.checkpoint, dir.path);
  EXPECT_EQ(again.checkpoint.step, 3);
  EXPECT_EQ(again.checkpoint.metadata, (nn::Metadata{{"note", "007"}}));
  EXPECT_EQ(again.steps(4), want);
  TrainingRun alone(false);  // all of it in this process
  nn::load_checkpoint(alone.checkpoint, dir.path);
  const std::vector<float> got = alone.steps(4);
  for (size_t i = 0; i < want.size(); i++) EXPECT_NEAR(got[i], want[i], 1e-5 * want[i]) << "step " << i;
}

TEST(WorldCheckpoint, MatricesOfQueriesKeysAndValuesAreWholeInTheirNaturalOrder) {
  const SharedDir dir;
  const Mesh mesh({{"tensor", -1}});
  Tensor::manual_seed(3);
  const FusedGpt model;
  const Tensors before = nn::get_parameters(model);
  std::vector<std::vector<float>> whole;
  for (const Tensor& t : before) whole.push_back(t.to_vector<float>());
  auto parallel = nn::parallelize(model, mesh, {.heads = 4});
  nn::AdamW adam(nn::get_parameters(model));
  nn::Checkpoint saved{nn::get_state_dict(model), {&adam}};
  nn::save_sharded_checkpoint(saved, dir.path);
  const nn::StateDict read = nn::safe_load(dir.path);
  size_t i = 0;
  for (const auto& [name, t] : saved.model) EXPECT_EQ(read.at("model." + name).to_vector<float>(), whole[i++]) << name;
  // By one process, and by a world that divides them again.
  const FusedGpt alone, again;
  nn::AdamW adam_alone(nn::get_parameters(alone)), adam_again(nn::get_parameters(again));
  auto parallel_again = nn::parallelize(again, mesh, {.heads = 4});
  nn::Checkpoint to_alone{nn::get_state_dict(alone), {&adam_alone}};
  nn::load_checkpoint(to_alone, dir.path);
  nn::load_state_dict(again, nn::get_state_dict(alone));
  EXPECT_EQ(again.block.c_attn.weight.to_local().shape(0), 3 * FusedBlock::kWidth / size());
  i = 0;
  for (const Tensor& t : nn::get_parameters(alone)) EXPECT_EQ(t.to_vector<float>(), whole[i++]);
  i = 0;
  for (const Tensor& t : nn::get_parameters(again)) EXPECT_EQ(t.to_vector<float>(), whole[i++]);
}

TEST(WorldCheckpoint, StagesSaveWhatTheyHave) {
  const SharedDir dir;
  Tensor::manual_seed(3);
  std::vector<nn::Linear> layers;
  for (int i = 0; i < 5; i++) layers.emplace_back(4, 4);
  const auto [first, last] = nn::stage_layers(5, Mesh({{"pipe", -1}}));
  nn::Checkpoint own;
  Tensors trained;
  for (auto i = first; i < last; i++)
    for (const auto& [name, t] : nn::get_state_dict(layers[static_cast<size_t>(i)])) {
      t.assign(Tensor::full(t.shape(), static_cast<float>(i)).contiguous()).realize();
      own.model.emplace_back(str("layers.", i, ".", name), t);
      trained.push_back(t);
    }
  nn::Adam adam(trained);
  own.optimizers = {&adam};
  nn::save_sharded_checkpoint(own, dir.path);
  const nn::StateDict all = nn::safe_load(dir.path);
  for (int i = 0; i < 5; i++)
    for (const char* name : {"weight", "bias"}) {
      ASSERT_TRUE(all.contains(str("model.layers.", i, ".", name)));
      for (float v : all.at(str("model.layers.", i, ".", name)).to_vector<float>()) ASSERT_EQ(v, i) << name;
    }
  for (const Tensor& t : trained) t.assign(t.zeros_like()).realize();
  nn::load_checkpoint(own, dir.path);
  for (auto i = first; i < last; i++)
    for (float v : layers[static_cast<size_t>(i)].bias.to_vector<float>()) ASSERT_EQ(v, i);
}

TEST(WorldCheckpoint, OneNameOfDifferentTensorsIsAnErrorInAll) {
  if (size() == 1) GTEST_SKIP() << "needs two processes";
  const SharedDir dir;
  const Tensor same = Tensor::ones(3).contiguous(), other = Tensor::ones(rank() == 1 ? 4 : 3).contiguous();
  nn::safe_save_together({{"same", same}}, dir.path);
  try {
    nn::safe_save_together({{"same", same}, {"other", other}}, dir.path);
    ADD_FAILURE() << "no error";
  } catch (const ValueError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("got other as float32 of shape (4,) in rank 1, expected float32 of shape (3,), as in rank 0"),
              text.npos)
        << text;
  }
  const Tensor divided = Tensor::from_local(same, Mesh({{"data", -1}}), {"data"});
  nn::StateDict some{{"same", same}};
  if (rank() == 0) some.emplace_back("divided", divided);
  EXPECT_THROW(nn::safe_save_together(some, dir.path), ValueError);
  EXPECT_EQ(nn::safe_load(dir.path).size(), 1u) << "what was saved before";
  distributed::barrier();  // before the folder is removed
}

TEST(WorldCheckpoint, FoldersThatNobodyElseSeesAreErrorsBeforeAnythingIsReplaced) {
  if (size() == 1) GTEST_SKIP() << "needs two processes";
  const SharedDir dir;
  const nn::StateDict two{{"a", Tensor::ones(3).contiguous()}, {"b", Tensor::ones(2).contiguous()}};
  nn::safe_save_together(two, dir.path);
  const fs::path own = rank() == 1 ? dir.path / "elsewhere" : dir.path;
  if (rank() == 0) EXPECT_THROW(nn::safe_save_together(two, own), FileError);
  else EXPECT_THROW(nn::safe_save_together(two, own), PeerError);
  EXPECT_EQ(nn::safe_load(dir.path).size(), 2u) << "what was saved before";
  distributed::barrier();
}

TEST(WorldCheckpoint, ANewOneReplacesTheOld) {
  const SharedDir dir;
  TrainingRun run;
  nn::save_sharded_checkpoint(run.checkpoint, dir.path);
  const std::vector<std::string> before = files_in(dir.path);
  // What an interrupted save left, and a file that is not ours.
  in_rank_0([&] {
    std::ofstream(dir.path / "model-0123456789abcdef-00001-of-00002.safetensors") << "part";
    std::ofstream(dir.path / "model-notes.safetensors") << "mine";
  });
  run.steps(1);
  nn::save_sharded_checkpoint(run.checkpoint, dir.path);
  const std::vector<std::string> after = files_in(dir.path);
  EXPECT_EQ(after.size(), before.size() + 1);
  EXPECT_TRUE(fs::exists(dir.path / "model-notes.safetensors"));
  TrainingRun other;
  nn::load_checkpoint(other.checkpoint, dir.path);
  EXPECT_EQ(other.checkpoint.step, 1);
}

TEST(WorldCheckpoint, DamagedPartsAreErrorsInAllProcesses) {
  const SharedDir dir;
  Tensor::manual_seed(5);
  TrainingRun run;
  nn::save_sharded_checkpoint(run.checkpoint, dir.path);
  const auto values = run.net.first.bias.to_vector<float>();
  const fs::path part = a_part(dir.path), kept = dir.path / "kept";
  in_rank_0([&] { fs::rename(part, kept); });
  EXPECT_THROW(nn::load_checkpoint(run.checkpoint, dir.path), FileError);
  in_rank_0([&] {
    fs::copy_file(kept, part);
    fs::resize_file(part, fs::file_size(part) - 1);
  });
  EXPECT_THROW(nn::load_checkpoint(run.checkpoint, dir.path), FormatError);
  in_rank_0([&] {
    fs::remove(part);
    nn::safe_save(nn::safe_load(kept), part, {{nn::kSaveKey, "0123456789abcdef"}});
  });
  EXPECT_THROW(nn::load_checkpoint(run.checkpoint, dir.path), FormatError);
  in_rank_0([&] { std::ofstream(dir.path / "model.safetensors.index.json") << "{\"weight_map\": {\"a\": \"../b\"}}"; });
  EXPECT_THROW(nn::load_checkpoint(run.checkpoint, dir.path), FormatError);
  EXPECT_EQ(run.net.first.bias.to_vector<float>(), values);
  EXPECT_THROW(nn::load_checkpoint(run.checkpoint, dir.path / "absent"), FileError);
  distributed::barrier();
}

TEST(WorldCheckpoint, AProcessThatCannotWriteLeavesTheOldOne) {
  const SharedDir dir;
  TrainingRun run;
  nn::save_sharded_checkpoint(run.checkpoint, dir.path);
  run.steps(1);
  const int last = size() - 1;
  in_rank_0([&] { std::ofstream(dir.path / "file") << "no folder"; });
  try {
    nn::save_sharded_checkpoint(run.checkpoint, rank() == last ? dir.path / "file" : dir.path);
    ADD_FAILURE() << "no error";
  } catch (const FileError&) { EXPECT_EQ(rank(), last); } catch (const PeerError& e) {
    EXPECT_NE(rank(), last);
    EXPECT_EQ(e.rank, last);
    EXPECT_NE(std::string(e.what()).find("[safe_save_together] rank "), std::string::npos) << e.what();
  }
  nn::load_checkpoint(run.checkpoint, dir.path);  // the world goes on
  EXPECT_EQ(run.checkpoint.step, 0);
  const nn::StateDict undefined{{"x", Tensor()}};
  EXPECT_THROW(nn::safe_save_together(undefined, dir.path), ValueError);
}

TEST(WorldCheckpoint, AProcessThatCannotReadStopsAll) {
  if (size() == 1) return;  // without others there is nobody to stop
  const SharedDir dir;
  TrainingRun run;
  nn::save_sharded_checkpoint(run.checkpoint, dir.path);
  run.steps(1);
  if (rank() == 1) EXPECT_THROW(nn::load_checkpoint(run.checkpoint, dir.path / "absent"), FileError);
  else EXPECT_THROW(nn::load_checkpoint(run.checkpoint, dir.path), PeerError);
  EXPECT_EQ(run.checkpoint.step, 1);
  distributed::barrier();
}
}  // namespace
}  // namespace tg
