/// \file Kernels of the kinds that programs have, compiled for GPUs that are not here: by NVRTC for NVIDIA's, by clang
/// for AMD's.
#include <gtest/gtest.h>

#include <thread>

#include "apps/tg/models.h"
#include "models/resnet.h"
#include "offline/zero_model.h"
#include "tinygrad/base/context.h"
#include "tinygrad/base/error.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/llm/language_model.h"
#include "tinygrad/nn/nn.h"
#include "tinygrad/nn/optim.h"
#include "tinygrad/nn/state.h"
#include "tinygrad/runtime/amdgpu_compiler.h"
#include "tinygrad/runtime/host_compilers.h"
#include "tinygrad/runtime/nvrtc_compiler.h"
#include "tinygrad/runtime/nvrtc_library.h"
#include "tinygrad/tensor/tensor.h"

namespace tg {
namespace {

struct Graph {
  const char* name;
  void (*run)();
};

Tensor values(const Shape& shape, DType d = dtypes::float32) { return Tensor::empty(shape, {.dtype = d}); }

void elementwise() {
  const Tensor x = values({1000, 70});
  realize(Tensors{x.exp(), x.log(), x.sin(), x.sqrt(), x.tanh(), x.gelu(), x.sigmoid(), x.pow(2.5), x.trunc()});
  (values({64, 33}).transpose(0, 1).contiguous() + 1).realize();
}
void types() {
  for (DType d : {dtypes::int8, dtypes::uint8, dtypes::int16, dtypes::uint16, dtypes::int32, dtypes::uint32,
                  dtypes::int64, dtypes::uint64, dtypes::float16, dtypes::bfloat16, dtypes::float32, dtypes::float64}) {
    const Tensor x = values({300}, d), y = values({300}, d);
    realize(Tensors{x + y * x, x.maximum(y), x.cast(dtypes::float32), x.cast(dtypes::int32), x.cast(dtypes::bool_),
                    x.sum(), (x < y).where(x, y)});
    if (d.is_int()) realize(Tensors{x.trunc_div(y), x % y, x ^ y});
    else realize(Tensors{x % y, x.fmod(y)});
  }
}
void products() {
  for (DType d : {dtypes::float32, dtypes::float16, dtypes::bfloat16, dtypes::int8}) {
    values({256, 128}, d).matmul(values({128, 192}, d)).realize();
    values({65, 77}, d).matmul(values({77, 9}, d)).realize();
  }
  values({4, 64, 32}).matmul(values({4, 32, 64})).realize();
}
void reduces() {
  const Tensor x = values({512, 700});
  realize(Tensors{x.sum(), x.sum(0), x.sum(1), x.max(1), x.argmax(1), x.softmax(1), x.var(0), x.cumsum(1)});
  realize(Tensors{x.sort(1).first, Tensor::rand({300, 30})});
}
void images() {
  const Tensor x = values({2, 8, 30, 30});
  x.conv2d(values({16, 8, 3, 3}), {}, {.padding = 1}).relu().max_pool2d().realize();
  x.conv2d(values({8, 1, 3, 3}), {}, {.groups = 8, .stride = 2}).realize();
}
void resnet() {
  models::ResNet net = models::resnet18(10);
  net(values({2, 3, 64, 64})).realize();
}
/// A prompt, then tokens one by one.
void run_decoder(const DecoderSizes& sizes) {
  const auto model = llm::LanguageModel::load(ZeroModel(sizes).file(), {.max_context = 128});
  const std::vector<int32_t> prompt(40, 1);
  model->prefill(0, prompt);
  for (int i = 0; i < 2; i++) model->decode(std::vector<llm::NextToken>{{0, 1}});
}
/// SmolLM2-135M.
void smol_lm() { run_decoder({576, 9, 3, 1536, 49152, io::GgmlType::kF16}); }
/// Llama 3.2 1B, its weights in 4 bits.
void llama() { run_decoder({2048, 32, 8, 8192, 128256, io::GgmlType::kQ4_K}); }
/// SmolLM2-360M, its weights in 8 bits.
void smol_lm_packed() { run_decoder({960, 15, 5, 2560, 49152, io::GgmlType::kQ8_0, /*tied=*/false}); }
void gpt_block() { models::GptBlock(128, 4)(values({2, 32, 128})).realize(); }
void training() {
  models::ConvNet net;
  nn::Adam optimizer(nn::get_parameters(net));
  const nn::Training mode;
  net(values({16, 1, 28, 28})).sparse_categorical_crossentropy(values({16}, dtypes::int32)).backward();
  optimizer.step();
}

constexpr Graph kGraphs[] = {{"Elementwise", elementwise}, {"Types", types},      {"Products", products},
                             {"Reduces", reduces},         {"Images", images},    {"ResNet18", resnet},
                             {"GptBlock", gpt_block},      {"Training", training}};
constexpr Graph kModels[] = {{"SmolLM2", smol_lm}, {"Llama", llama}, {"SmolLM2Packed", smol_lm_packed}};

/// A compiler, and what is missing for it; empty: nothing.
struct Language {
  const char* name;
  std::string (*missing)();
};
constexpr Language kCuda{"CUDA", nvrtc_missing}, kPtx{"PTX", llvm_plugin_missing}, kHip{"HIP", amdgpu_missing};
struct Processor {
  Language language;
  const char* arch;
};

class GpuCompile : public testing::TestWithParam<std::tuple<Graph, Processor>> {};

TEST_P(GpuCompile, AllKernels) {
  const auto& [graph, processor] = GetParam();
  if (const std::string missing = processor.language.missing(); !missing.empty()) GTEST_SKIP() << missing;
  Context ctx{{"DEV", str("NULL:", processor.language.name, ":", processor.arch)}};
  const int64_t before = GlobalCounters::compiled + GlobalCounters::disk_hits;
  graph.run();
  EXPECT_GT(GlobalCounters::compiled + GlobalCounters::disk_hits, before);
}
std::string name_of(const testing::TestParamInfo<std::tuple<Graph, Processor>>& info) {
  const auto& [graph, processor] = info.param;
  return str(graph.name, "_", processor.language.name, "_", processor.arch);
}
constexpr Processor kProcessors[] = {{kCuda, "sm_75"}, {kCuda, "sm_90"},  {kCuda, "sm_120"},
                                     {kPtx, "sm_75"},  {kPtx, "sm_90"},   {kHip, "gfx90a"},
                                     {kHip, "gfx942"}, {kHip, "gfx1100"}, {kHip, "gfx1201"}};
INSTANTIATE_TEST_SUITE_P(Offline, GpuCompile,
                         testing::Combine(testing::ValuesIn(kGraphs), testing::ValuesIn(kProcessors)), name_of);
INSTANTIATE_TEST_SUITE_P(Models, GpuCompile,
                         testing::Combine(testing::ValuesIn(kModels), testing::ValuesIn(kProcessors)), name_of);
constexpr Processor kOthers[] = {{kCuda, "sm_80"},  {kCuda, "sm_86"}, {kCuda, "sm_89"},
                                 {kCuda, "sm_100"}, {kPtx, "sm_80"},  {kPtx, "sm_89"},
                                 {kPtx, "sm_90a"},  {kPtx, "sm_120"}, {kHip, "gfx1030"}};
INSTANTIATE_TEST_SUITE_P(Others, GpuCompile, testing::Combine(testing::ValuesIn(kGraphs), testing::ValuesIn(kOthers)),
                         name_of);

TEST(GpuCompile, SaysWhatIsNoArchitecture) {
  EXPECT_THROW(cuda_target("gfx942"), ValueError);
  EXPECT_THROW(cuda_target("sm_"), ValueError);
  EXPECT_THROW(amdgpu_target("sm_90"), ValueError);
  EXPECT_EQ(cuda_target("sm_90a").arch, "sm_90a");
  EXPECT_EQ(amdgpu_target("").arch, "gfx942");
}

/// The front end of NVRTC is for one thread at a time: threads that meet there compile in copies of the library.
TEST(GpuCompile, CopiesOfNvrtcCompileTheSame) {
  if (const std::string missing = nvrtc_missing(); !missing.empty()) GTEST_SKIP() << missing;
  const std::unique_ptr<Compiler> compiler = make_nvrtc_compiler(cuda_target("sm_90"));
  const auto source = [](size_t i) {
    return str("extern \"C\" __global__ void k", i,
               "(float* x) {\n  for (int i = 0; i < 64; i++) x[i] = x[i] * x[63 - i] + ", i, ".0f;\n}\n");
  };
  constexpr size_t kKernels = 24, kThreads = 8;
  std::vector<std::vector<uint8_t>> alone(kKernels), together(kKernels);
  for (size_t i = 0; i < kKernels; i++) alone[i] = compiler->compile(source(i));
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; t++)
    threads.emplace_back([&, t] {
      for (size_t i = t; i < kKernels; i += kThreads) together[i] = compiler->compile(source(i));
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(together, alone);
  EXPECT_GT(nvrtc_copies(), 1u);
  EXPECT_LE(nvrtc_copies(), NvrtcTurn::kMostCopies);
}
/// What its front end leaves out for the sake of time is there for a kernel that uses it.
TEST(GpuCompile, KernelsReadTextures) {
  if (const std::string missing = nvrtc_missing(); !missing.empty()) GTEST_SKIP() << missing;
  const auto cubin =
      make_nvrtc_compiler(cuda_target("sm_90"))
          ->compile(
              "extern \"C\" __global__ void k(float* x, cudaTextureObject_t t) { x[0] = tex1Dfetch<float>(t, 0); }\n");
  EXPECT_GT(cubin.size(), 100u);
}

TEST(GpuCompile, ErrorsOfTheCompilersHaveATypeAndAMessage) {
  if (nvrtc_missing().empty()) EXPECT_THROW(make_nvrtc_compiler(cuda_target(""))->compile("nonsense"), CompileError);
  else EXPECT_THROW(make_nvrtc_compiler(cuda_target(""))->compile(""), CompileError);
  EXPECT_THROW(make_amdgpu_compiler(amdgpu_target(""))->compile("nonsense"), CompileError);
}

}  // namespace
}  // namespace tg
