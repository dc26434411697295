/// \file Language models that several processes compute together, against what each computes alone.
#include "tinygrad/llm/language_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <future>

#include "helpers/gguf_bytes.h"
#include "tinygrad/io/gguf.h"
#include "tinygrad/llm/engine.h"
#include "tinygrad/llm/world_leader.h"
#include "tinygrad/runtime/world/world.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using llm::LanguageModel;
using ::testing::HasSubstr;
using namespace test;

io::GgufFile file_of(GgufBytes g) {
  const auto bytes = std::make_shared<std::string>(g.randomize(0.4).build());
  return io::GgufFile::from_memory({reinterpret_cast<uint8_t*>(bytes->data()), bytes->size()}, bytes, "tiny");
}

std::vector<float> copy_of(std::span<const float> v) { return {v.begin(), v.end()}; }
void expect_close(const std::vector<float>& got, const std::vector<float>& want, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double most = 0, size = 1e-6;
  for (size_t i = 0; i < got.size(); i++) {
    most = std::max(most, std::abs(static_cast<double>(got[i]) - want[i]));
    size = std::max(size, std::abs(static_cast<double>(want[i])));
  }
  EXPECT_LT(most, 2e-5 * size) << what;
  EXPECT_GT(size, 1e-3) << what << " says nothing";
}

/// What a conversation gives: a prompt, a second sequence that begins like it, steps of one and of both.
std::vector<std::vector<float>> conversation(LanguageModel& m) {
  const std::vector<int32_t> prompt{1, 5, 3, 8, 2, 11, 7, 4, 9};
  std::vector<std::vector<float>> out;
  out.push_back(copy_of(m.prefill(0, prompt)));
  for (int32_t t = 0; t < 4; t++) {  // run, captured, replayed
    const llm::NextToken one{0, t};
    out.push_back(copy_of(m.decode({&one, 1})));
  }
  const int64_t kept = m.rewindable(0, 5);
  m.rewind(0, kept);
  out.push_back(m.prefill_all(1, std::span(prompt).first(4)));
  out.push_back(m.prefill_hidden(0, prompt));
  for (int32_t t = 0; t < 3; t++) {
    const llm::NextToken both[] = {{1, t}, {0, 3}};
    out.push_back(copy_of(m.decode(both)));
  }
  return out;
}
void expect_same(LanguageModel& got, LanguageModel& want) {
  const auto a = conversation(got), b = conversation(want);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); i++) expect_close(a[i], b[i], std::to_string(i).c_str());
}
const llm::ModelOptions kWhole{.max_context = 64, .max_sequences = 2};
const llm::ModelOptions kDivided{.max_context = 64, .max_sequences = 2, .divided = true};
void expect_divides(const GgufBytes& g) {
  const io::GgufFile file = file_of(g);
  const auto divided = LanguageModel::load(file, kDivided), whole = LanguageModel::load(file, kWhole);
  expect_same(*divided, *whole);
  if (distributed::size() == 2 && !whole->config().has_recurrent_layer() && whole->config().latent.kv_rank == 0)
    EXPECT_EQ(divided->cache_bytes() * 2, whole->cache_bytes());
}

/// One matrix for queries, keys and values, and one for gate and hidden layer.
GgufBytes joined_decoder() {
  GgufBytes g = tiny_decoder_start("phi3", 2);
  for (const char* layer : {"blk.0.", "blk.1."}) {
    const std::string p = layer;
    g.tensor(p + "attn_qkv.weight", {(kTinyHeads + 2 * kTinyKvHeads) * kTinyHead, kTinyDim});
    g.tensor(p + "attn_qkv.bias", {(kTinyHeads + 2 * kTinyKvHeads) * kTinyHead});
    g.tensor(p + "attn_output.weight", {kTinyDim, kTinyHeads * kTinyHead}).tensor(p + "attn_output.bias", {kTinyDim});
    g.tensor(p + "attn_norm.weight", {kTinyDim}).tensor(p + "ffn_norm.weight", {kTinyDim});
    g.tensor(p + "ffn_up.weight", {2 * kTinyHidden, kTinyDim}).tensor(p + "ffn_down.weight", {kTinyDim, kTinyHidden});
    g.tensor(p + "ffn_down.bias", {kTinyDim});
  }
  return g;
}
GgufBytes expert_decoder() {
  constexpr int64_t kExperts = 4, kHidden = 8;
  GgufBytes g = tiny_decoder_start("qwen2moe", 2);
  g.integer("qwen2moe.expert_count", kExperts).integer("qwen2moe.expert_used_count", 2);
  for (const char* layer : {"blk.0.", "blk.1."}) {
    const std::string p = layer;
    add_tiny_attention(g, p);
    g.tensor(p + "attn_norm.weight", {kTinyDim}).tensor(p + "ffn_norm.weight", {kTinyDim});
    g.tensor(p + "ffn_gate_inp.weight", {kExperts, kTinyDim});
    for (const char* name : {"ffn_gate_exps", "ffn_up_exps"})
      g.tensor(p + name + ".weight", {kExperts, kHidden, kTinyDim});
    g.tensor(p + "ffn_down_exps.weight", {kExperts, kTinyDim, kHidden});
    for (const char* name : {"ffn_gate_shexp", "ffn_up_shexp"}) g.tensor(p + name + ".weight", {kHidden, kTinyDim});
    g.tensor(p + "ffn_down_shexp.weight", {kTinyDim, kHidden}).tensor(p + "ffn_gate_inp_shexp.weight", {kTinyDim});
  }
  return g;
}

TEST(WorldLanguageModel, GroupsOfHeads) { expect_divides(tiny_decoder("llama")); }
TEST(WorldLanguageModel, JoinedMatricesWithBiases) { expect_divides(joined_decoder()); }
TEST(WorldLanguageModel, ParallelBlocks) { expect_divides(tiny_decoder("command-r")); }
TEST(WorldLanguageModel, NormsOverAllHeads) {
  GgufBytes g = tiny_decoder("olmo2");
  for (const char* layer : {"blk.0.", "blk.1."}) {
    const std::string p = layer;
    g.tensor(p + "attn_q_norm.weight", {kTinyHeads * kTinyHead})
        .tensor(p + "attn_k_norm.weight", {kTinyKvHeads * kTinyHead});
    g.tensor(p + "post_attention_norm.weight", {kTinyDim}).tensor(p + "post_ffw_norm.weight", {kTinyDim});
  }
  expect_divides(g);
}
TEST(WorldLanguageModel, LatentAttention) { expect_divides(tiny_latent_decoder()); }
TEST(WorldLanguageModel, RecurrentLayersAreWhole) { expect_divides(tiny_recurrent_decoder()); }
TEST(WorldLanguageModel, Experts) { expect_divides(expert_decoder()); }

TEST(WorldLanguageModel, PartsOfUnequalSize) {
  constexpr int64_t kHeads = 7, kHead = 4, kDim = 28, kHidden = 10, kVocabulary = 13;
  GgufBytes g;
  g.string("general.architecture", "llama").integer("llama.context_length", 64).integer("llama.block_count", 1);
  g.integer("llama.embedding_length", kDim).integer("llama.feed_forward_length", kHidden);
  g.integer("llama.attention.head_count", kHeads).real("llama.attention.layer_norm_rms_epsilon", 1e-5);
  g.tensor("token_embd.weight", {kVocabulary, kDim}).tensor("output_norm.weight", {kDim});
  for (const char* name : {"attn_q", "attn_k", "attn_v"})
    g.tensor(str("blk.0.", name, ".weight"), {kHeads * kHead, kDim});
  g.tensor("blk.0.attn_output.weight", {kDim, kHeads * kHead});
  for (const char* norm : {"attn_norm", "ffn_norm"}) g.tensor(str("blk.0.", norm, ".weight"), {kDim});
  for (const char* name : {"ffn_gate", "ffn_up"}) g.tensor(str("blk.0.", name, ".weight"), {kHidden, kDim});
  g.tensor("blk.0.ffn_down.weight", {kDim, kHidden});
  const io::GgufFile file = file_of(g);
  expect_same(*LanguageModel::load(file, kDivided), *LanguageModel::load(file, kWhole));
}

TEST(WorldLanguageModel, TwoSumsALayerAndOneGather) {
  const auto m = LanguageModel::load(file_of(tiny_decoder("llama", 3)), kDivided);
  const std::vector<int32_t> prompt{1, 2, 3};
  m->prefill(0, prompt);
  for (int32_t i = 0; i < 3; i++) {
    const int64_t before = GlobalCounters::collectives.load();
    const llm::NextToken next{0, i};
    m->decode({&next, 1});
    EXPECT_EQ(GlobalCounters::collectives.load() - before, distributed::size() == 1 ? 0 : 2 * 3 + 1);
  }
}

TEST(WorldLanguageModel, MoreProcessesThanParts) {
  if (distributed::size() < 4) GTEST_SKIP() << "needs 4 processes: the model has 2 heads";
  GgufBytes g = tiny_decoder_start("llama", 1);
  g.drop("llama.attention.head_count").drop("llama.attention.head_count_kv");
  g.integer("llama.attention.head_count", 2).integer("llama.attention.head_count_kv", 1);
  g.tensor("blk.0.attn_q.weight", {16, kTinyDim}).tensor("blk.0.attn_k.weight", {8, kTinyDim});
  g.tensor("blk.0.attn_v.weight", {8, kTinyDim}).tensor("blk.0.attn_output.weight", {kTinyDim, 16});
  add_tiny_network(g, "blk.0.");
  try {
    LanguageModel::load(file_of(g), kDivided);
    FAIL();
  } catch (const ValueError& e) {
    EXPECT_THAT(e.what(),
                HasSubstr("[llm] got 4 processes for 2 heads of queries and 1 of keys, expected at most 1, or "
                          "a multiple of it up to 2"));
  }
}

TEST(WorldLanguageModel, RankZeroLeads) {
  const io::GgufFile file = file_of(tiny_decoder("llama"));
  if (distributed::rank() != 0) {
    EXPECT_THROW(llm::WorldLeader::begin(), ValueError);
    llm::follow_leader(file);
    distributed::barrier();
    return;
  }
  {
    const auto leader = llm::WorldLeader::begin();
    llm::ModelOptions led = kWhole;
    led.leader = leader;
    const auto whole = LanguageModel::load(file, kWhole);
    {
      const auto first = LanguageModel::load(file, led), second = LanguageModel::load(file, led);
      expect_same(*first, *whole);
      second->prefill(0, std::vector<int32_t>{1, 2});
      EXPECT_EQ(second->position(0), 2);
      EXPECT_EQ(first->position(1), whole->position(1));
      // What is refused is refused by all, and the next call works.
      EXPECT_THROW(second->prefill(0, std::vector<int32_t>{99}), ValueError);
      EXPECT_THROW(second->rewind(0, 9), ValueError);
      second->copy(0, 1, 2);
      EXPECT_EQ(second->position(1), 2);
      std::atomic<bool> stop{true};
      {
        const StopScope scope(stop);
        EXPECT_THROW(second->prefill(0, std::vector<int32_t>{1}), Cancelled);
      }
      EXPECT_EQ(second->position(0), 2);
    }
    led.max_context = -1;
    EXPECT_THROW(LanguageModel::load(file, led), ValueError);
    led.max_context = 64;
    // The engine calls from a thread of its own.
    const auto reply = [&](const std::shared_ptr<LanguageModel>& m) {
      llm::Engine engine(m);
      std::vector<int32_t> tokens;
      std::promise<std::string> end;
      llm::EngineRequest r;
      r.prompt = {1, 5, 3};
      r.max_tokens = 8;
      r.sampling.temperature = 0;
      r.on_token = [&](const llm::ReplyToken& t) {
        tokens.push_back(t.token);
        return true;
      };
      r.on_end = [&](const llm::ReplyEnd& e) { end.set_value(e.error); };
      std::vector<llm::EngineRequest> all;
      all.push_back(std::move(r));
      engine.submit(std::move(all));
      EXPECT_EQ(end.get_future().get(), "");
      return tokens;
    };
    whole->rewind(0, 0);
    whole->rewind(1, 0);
    EXPECT_EQ(reply(LanguageModel::load(file, led)), reply(whole));
  }
  distributed::barrier();
}

TEST(WorldLanguageModel, AFileThatCannotBeLoadedEndsNothing) {
  if (distributed::size() == 1) GTEST_SKIP() << "needs another process";
  const io::GgufFile broken = file_of(tiny_decoder("llama").drop_tensor("blk.1.ffn_down.weight"));
  if (distributed::rank() != 0) {
    llm::follow_leader(broken);
    return distributed::barrier();
  }
  {
    llm::ModelOptions led = kWhole;
    led.leader = llm::WorldLeader::begin();
    for (int i = 0; i < 2; i++) EXPECT_THROW(LanguageModel::load(broken, led), FormatError);
  }
  distributed::barrier();
}

TEST(WorldLanguageModel, FilesMustBeTheSame) {
  if (distributed::size() == 1) GTEST_SKIP() << "needs another process";
  const bool leads = distributed::rank() == 0;
  const io::GgufFile file = file_of(tiny_decoder("llama", leads ? 2 : 3));
  if (!leads) return llm::follow_leader(file);
  llm::ModelOptions led = kWhole;
  led.leader = llm::WorldLeader::begin();
  try {
    LanguageModel::load(file, led);
    FAIL();
  } catch (const PeerError& e) { EXPECT_THAT(e.what(), HasSubstr("is another model than rank 0's")); }
}

}  // namespace
}  // namespace tg
