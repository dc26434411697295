/// \file Packed matrices times few vectors on GPUs: one kernel, whose warps share rows and unpack in registers.
#include <gtest/gtest.h>

#include "offline/disassembly.h"
#include "tinygrad/base/context.h"
#include "tinygrad/codegen/codegen.h"
#include "tinygrad/io/ggml_dequantize.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/amdgpu_compiler.h"
#include "tinygrad/runtime/nvrtc_compiler.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using namespace testing;
constexpr int64_t kRows = 4096, kColumns = 2048;

struct Case {
  const char* name;
  io::GgmlType type;
};
constexpr Case kCases[] = {{"Q4_0", io::GgmlType::kQ4_0},
                           {"Q8_0", io::GgmlType::kQ8_0},
                           {"Q4_K", io::GgmlType::kQ4_K},
                           {"Q6_K", io::GgmlType::kQ6_K}};

class PackedRows : public ::testing::TestWithParam<Case> {};

/// Returns the kernel that reads the matrix; there is one.
std::shared_ptr<Program> product(const Target& target, io::GgmlType type, int64_t vectors) {
  const Context ctx{{"DEV", str("NULL:", target.renderer, ":", target.arch)}};
  const io::GgmlTypeInfo& info = io::ggml_type_info(type);
  const Tensor w = Tensor::empty({kRows, kColumns / info.elements, info.bytes}, {.dtype = dtypes::uint8}),
               x = Tensor::empty({vectors, kColumns});
  const Tensor y = x.matmul(io::ggml_dequantize(w, type).reshape({kRows, kColumns}).transpose(0, 1));
  const BoundSchedule s = schedule({y});
  std::shared_ptr<Program> found;
  int products = 0;
  for (const ScheduleCall& call : s.schedule->calls) {
    if (!call.kernel) continue;
    const auto p = to_program(*call.kernel, *make_renderer(target), {});
    const ArenaScope scope(*p->arena);
    if (std::none_of(p->insts.begin(), p->insts.end(), [](UOp u) { return u.is(Ops::CUSTOMI); })) continue;
    found = p;
    products++;
  }
  EXPECT_EQ(products, 1);
  return found;
}

TEST_P(PackedRows, AWarpHasARow) {
  for (const Target& target : {cuda_target("sm_80"), cuda_target("sm_90"), amdgpu_target("gfx942")})
    for (int64_t vectors : {1, 4}) {
      SCOPED_TRACE(str(target.arch, ' ', vectors));
      const auto p = product(target, GetParam().type, vectors);
      ASSERT_TRUE(p);
      const ArenaScope scope(*p->arena);
      int64_t threads = 1, groups = 1, stores = 0;
      for (int i = 0; i < 3; i++) {
        if (p->local_size[i]) threads *= static_cast<int64_t>(p->local_size[i].const_int());
        if (p->global_size[i]) groups *= static_cast<int64_t>(p->global_size[i].const_int());
      }
      for (UOp u : p->insts) stores += u.is(Ops::STORE) && u.src(0).src(0).is(Ops::PARAM);
      EXPECT_EQ(stores, vectors) << "a thread has its row of all vectors";
      EXPECT_EQ(p->shared_bytes, 0) << "sums of one warp";
      const int64_t of_row = groups * threads / kRows;
      EXPECT_GE(of_row, 32);
      EXPECT_LE(of_row, 64);
    }
}

TEST_P(PackedRows, NothingIsSpilled) {
  const bool nvidia = nvrtc_missing().empty() && !find_nvdisasm().empty(), amd = amdgpu_missing().empty();
  if (!nvidia && !amd) GTEST_SKIP() << "neither NVRTC with nvdisasm nor clang for AMDGPU";
  for (int64_t vectors : {1, 4}) {
    SCOPED_TRACE(vectors);
    for (const char* arch : {"sm_80", "sm_90"}) {
      if (!nvidia) break;
      const Target target = cuda_target(arch);
      const auto p = product(target, GetParam().type, vectors);
      const std::string sass = disassembled(find_nvdisasm(), make_nvrtc_compiler(target)->compile_cached(p->source));
      EXPECT_EQ(sass.find("LDL"), std::string::npos) << arch;
      EXPECT_EQ(sass.find("STL"), std::string::npos) << arch;
    }
    if (!amd) continue;
    const Target target = amdgpu_target("gfx942");
    const std::string code = make_amdgpu_compiler(target)->assembly(product(target, GetParam().type, vectors)->source);
    EXPECT_NE(code.find(".vgpr_spill_count: 0"), std::string::npos);
  }
}
INSTANTIATE_TEST_SUITE_P(Offline, PackedRows, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tg
