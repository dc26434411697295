/// \file What vendors' compilers make of the largest products: registers, spills, the mix of instructions in the main
/// loop, and what the model of docs/gpu_codegen.md predicts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>

#include "offline/disassembly.h"
#include "tinygrad/codegen/plan/matrix_plan.h"
#include "tinygrad/render/program_view.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/amdgpu_compiler.h"
#include "tinygrad/runtime/host_compilers.h"
#include "tinygrad/runtime/nvrtc_compiler.h"
#include "tinygrad/runtime/ptxas.h"
#include "unit/kernels.h"

namespace tg {
namespace {
using namespace testing;
namespace fs = std::filesystem;
constexpr int64_t kSize = 8192;

std::shared_ptr<Program> gemm(const Target& target, bool tb) {
  return to_program(*narrow_matmul(kSize, kSize, kSize, dtypes::bfloat16, dtypes::bfloat16, dtypes::float32, false, tb,
                                   dtypes::bfloat16),
                    *make_renderer(target), {});
}

/// An instruction of a listing, and where it jumps to: the number of an instruction, -1 where it does not.
struct Line {
  std::string op, text;
  int target = -1;
};

/// Returns the instructions of the innermost loop with most of those whose names begin with `matrix`.
std::vector<Line> main_loop(const std::vector<Line>& all, const std::string& matrix) {
  std::pair<int, int> best{0, 0}, range{0, 0};
  for (int i = 0; i < static_cast<int>(all.size()); i++) {
    const int from = all[static_cast<size_t>(i)].target;
    if (from < 0 || from > i) continue;
    // What is written behind the end of the kernel, such as waiting once more, jumps back to a loop, too.
    if (std::any_of(all.begin() + from, all.begin() + i, [](const Line& l) { return l.op == "EXIT"; })) continue;
    const auto n = static_cast<int>(
        std::count_if(all.begin() + from, all.begin() + i, [&](const Line& l) { return l.op.starts_with(matrix); }));
    if (std::pair(n, from - i) > best) {
      best = {n, from - i};
      range = {from, i + 1};
    }
  }
  return {all.begin() + range.first, all.begin() + range.second};
}

/// Reads SASS as nvdisasm prints it.
std::vector<Line> sass_lines(const std::string& listing) {
  std::vector<Line> out;
  std::map<std::string, int> labels;
  std::istringstream in(listing);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(".L_") && line.ends_with(":")) {
      labels[line.substr(0, line.size() - 1)] = static_cast<int>(out.size());
      continue;
    }
    const size_t at = line.find("*/"), end = line.find(';');
    if (line.find("/*") == std::string::npos || at == std::string::npos || end == std::string::npos || end < at)
      continue;
    std::istringstream words(line.substr(at + 2, end - at - 2));
    Line l;
    l.text = words.str();
    words >> l.op;
    if (l.op.starts_with("@")) words >> l.op;
    out.push_back(l);
  }
  for (Line& l : out)
    if (const size_t at = l.text.find("(.L_"); l.op.starts_with("BRA") && at != std::string::npos) {
      const auto it = labels.find(l.text.substr(at + 1, l.text.find(')', at) - at - 1));
      if (it != labels.end()) l.target = it->second;
    }
  return out;
}
/// True for instructions that compute: all that are no access to memory, no control and no barrier.
bool computes_sass(const std::string& op) {
  for (const char* other : {"LD",   "ST",    "BRA",  "BAR",   "EXIT",    "DEPBAR", "NOP",       "WARPSYNC",
                            "BSSY", "BSYNC", "S2",   "CS2R",  "ARRIVES", "ERRBAR", "MEMBAR",    "CCTL",
                            "RED",  "ATOM",  "R2UR", "SYNCS", "UTMALDG", "ULDC",   "WARPGROUP", "YIELD"})
    if (op.starts_with(other)) return false;
  return true;
}

/// Reads AMDGPU assembly.
std::vector<Line> amdgpu_lines(const std::string& assembly) {
  std::vector<Line> out;
  std::map<std::string, int> labels;
  std::istringstream in(assembly);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(".L") && line.find(':') != std::string::npos)
      labels[line.substr(0, line.find(':'))] = static_cast<int>(out.size());
    if (!line.starts_with("\t") || line.size() < 3 || line[1] == '.' || line[1] == ';') continue;
    Line l;
    l.text = line.substr(1);
    std::istringstream(l.text) >> l.op;
    out.push_back(l);
  }
  for (Line& l : out)
    if (l.op.starts_with("s_cbranch") || l.op == "s_branch") {
      std::istringstream words(l.text);
      std::string op, label;
      words >> op >> label;
      if (const auto it = labels.find(label); it != labels.end()) l.target = it->second;
    }
  return out;
}
int64_t number_behind(const std::string& text, const std::string& name) {
  const size_t at = text.find(name);
  return at == std::string::npos ? -1 : std::stoll(text.substr(at + name.size()));
}

int64_t count(const std::vector<Line>& lines, const std::string& prefix) {
  return std::count_if(lines.begin(), lines.end(), [&](const Line& l) { return l.op.starts_with(prefix); });
}
std::string listed(const std::vector<Line>& lines) {
  std::string s;
  for (const Line& l : lines) s += l.text + "\n";
  return s;
}

/// The tile of a program, as its opts say it.
MatrixTile tile_of(const Program& p, const TensorCore** core) {
  MatrixTile t;
  for (const Opt& o : p.applied_opts) {
    if (o.op == OptOp::kTc) *core = &tensor_core_table()[static_cast<size_t>(o.arg)];
    if (o.op == OptOp::kUpcast) t.tiles[o.axis] = o.arg;
    if (o.op == OptOp::kLocal) t.warps[o.axis] = o.arg;
    if (o.op == OptOp::kUnroll) t.steps = o.arg;
    if (o.op == OptOp::kSplit) t.cluster[o.axis] = o.arg;
  }
  t.boxes = !tensor_maps(p.insts).empty();
  return t;
}
MatrixCost cost_of(const Program& p, const Target& target) {
  const TensorCore* core = nullptr;
  const MatrixTile tile = tile_of(p, &core);
  TG_ASSERT(core, "no matrix instruction: ", to_text(p.applied_opts));
  const MatrixShape shape{kSize / core->m, kSize / core->n, kSize / core->pack, 1};
  return matrix_cost(*core, tile, shape, gpu_figures(target), 3.0 * kSize * kSize * 2);
}
void expect_modelled(const Program& p, const Target& target, double most = 1.3) {
  const MatrixCost c = cost_of(p, target);
  std::cout << target.arch << " " << to_text(p.applied_opts) << "\n  clocks " << c.clocks << ", roofline " << c.bound
            << ": " << c.clocks / c.bound << "; matrix " << c.matrix << " shared " << c.shared << " l2 " << c.l2
            << " issue " << c.issue << " wait " << c.wait << " memory " << c.memory << "; registers " << c.registers
            << ", shared bytes " << c.shared_bytes << ", groups of a unit " << c.groups_at_once << "\n";
  EXPECT_LE(c.clocks, most * c.bound);
  EXPECT_LE(p.shared_bytes, target.shared_bytes);
  EXPECT_GE(c.groups_at_once, 1);
}

class AmdQuality : public ::testing::TestWithParam<bool> {};

class NvidiaQuality : public ::testing::TestWithParam<std::tuple<const char*, bool>> {};

/// Returns major and minor version, as the key of cached code has them.
std::pair<int, int> nvrtc_version(const Target& target) {
  std::pair<int, int> version;
  std::sscanf(make_nvrtc_compiler(target)->cache_key().c_str(), "nvrtc %d.%d", &version.first, &version.second);
  return version;
}

TEST_P(NvidiaQuality, LargeProduct) {
  if (const std::string missing = nvrtc_missing(); !missing.empty()) GTEST_SKIP() << missing;
  const std::string tool = find_nvdisasm();
  if (tool.empty()) GTEST_SKIP() << "no nvdisasm in PATH, in /usr/local/cuda/bin or next to NVRTC: SASS is not read";
  const auto& [arch, columns_along_sum] = GetParam();
  const Target target = cuda_target(arch);
  if (nvrtc_version(target) < std::pair(13, 2))
    GTEST_SKIP() << "NVRTC before 13.2 computes every address of shared memory, and spills: figures are of newer ones";
  const auto p = gemm(target, columns_along_sum);
  const auto cubin = make_nvrtc_compiler(target)->compile_cached(p->source);
  const std::vector<Line> all = sass_lines(disassembled(tool, cubin)), loop = main_loop(all, "HMMA");
  EXPECT_EQ(count(all, "LDL") + count(all, "STL"), 0) << "spills";
  const int64_t matrix = count(loop, "HMMA"),
                math = std::count_if(loop.begin(), loop.end(), [](const Line& l) { return computes_sass(l.op); });
  EXPECT_GE(matrix, 16);
  // Pointers of asynchronous copies move on once in all iterations that are written out.
  EXPECT_GE(static_cast<double>(matrix), 0.9 * static_cast<double>(math)) << listed(loop);
  std::cout << arch << ": " << matrix << " of " << math << " that compute, of " << loop.size() << "\n";
  EXPECT_GT(count(loop, "LDGSTS"), 0) << "no asynchronous copies";
  expect_modelled(*p, target);
}

class PtxProducts : public ::testing::TestWithParam<std::tuple<const char*, bool>> {};

/// LLVM's PTX: the instructions, loads and copies of CUDA C++, and nothing spilled.
TEST_P(PtxProducts, LargeProduct) {
  if (const std::string missing = llvm_plugin_missing(); !missing.empty()) GTEST_SKIP() << missing;
  const auto& [arch, columns_along_sum] = GetParam();
  Target target = cuda_target(arch);
  target.renderer = "PTX";
  const auto p = gemm(target, columns_along_sum);
  const std::string ptx = make_ptx_compiler(target)->assembly(p->source);
  for (const char* text :
       {"mma.sync.aligned.m16n8k16", "ldmatrix.sync.aligned.m8n8.x4", "cp.async.cg.shared.global", "cp.async.wait_all"})
    EXPECT_NE(ptx.find(text), std::string::npos) << text;
  EXPECT_EQ(ptx.find(".local"), std::string::npos) << "memory of a thread";
  expect_modelled(*p, target);
  if (ptxas_path().empty()) GTEST_SKIP() << "no ptxas: PTX is all that was read";
  const std::string tool = find_nvdisasm();
  if (tool.empty()) GTEST_SKIP() << "no nvdisasm in PATH, in /usr/local/cuda/bin or next to NVRTC: SASS is not read";
  const std::vector<Line> all = sass_lines(disassembled(tool, make_ptxas_compiler(target)->compile_cached(p->source))),
                          loop = main_loop(all, "HMMA");
  EXPECT_EQ(count(all, "LDL") + count(all, "STL"), 0) << "spills";
  const int64_t matrix = count(loop, "HMMA"),
                math = std::count_if(loop.begin(), loop.end(), [](const Line& l) { return computes_sass(l.op); });
  EXPECT_GE(matrix, 16);
  std::cout << arch << " PTX: " << matrix << " of " << math << " that compute, of " << loop.size() << "\n";
  EXPECT_GE(static_cast<double>(matrix), 0.9 * static_cast<double>(math)) << listed(loop);
}

/// What is converted to float16 in registers leaves room for the sums.
TEST(PtxQuality, Fp8OfHopper) {
  if (const std::string missing = llvm_plugin_missing(); !missing.empty()) GTEST_SKIP() << missing;
  if (ptxas_path().empty()) GTEST_SKIP() << "no ptxas: PTX is not compiled";
  const std::string tool = find_nvdisasm();
  if (tool.empty()) GTEST_SKIP() << "no nvdisasm in PATH, in /usr/local/cuda/bin or next to NVRTC: SASS is not read";
  Target target = cuda_target("sm_90");
  target.renderer = "PTX";
  const auto p = to_program(*narrow_matmul(kSize, kSize, kSize, dtypes::fp8e4m3, dtypes::fp8e4m3, dtypes::float32,
                                           false, true, dtypes::float32),
                            *make_renderer(target), {});
  const std::vector<Line> all = sass_lines(disassembled(tool, make_ptxas_compiler(target)->compile_cached(p->source)));
  EXPECT_EQ(count(all, "LDL") + count(all, "STL"), 0) << "spills";
  EXPECT_GE(count(main_loop(all, "HMMA"), "HMMA"), 16);
}

TEST_P(AmdQuality, Gfx942) {
  const Target target = amdgpu_target("gfx942");
  const auto p = gemm(target, GetParam());
  if (const std::string missing = amdgpu_missing(); !missing.empty()) GTEST_SKIP() << missing;
  const std::string assembly = make_amdgpu_compiler(target)->assembly(p->source);
  const std::vector<Line> all = amdgpu_lines(assembly), loop = main_loop(all, "v_mfma");
  EXPECT_EQ(number_behind(assembly, ".vgpr_spill_count:"), 0);
  EXPECT_EQ(number_behind(assembly, ".sgpr_spill_count:"), 0);
  const int64_t matrix = count(loop, "v_mfma"), math = count(loop, "v_");
  EXPECT_GE(matrix, 8);
  EXPECT_GE(static_cast<double>(matrix), 0.9 * static_cast<double>(math)) << listed(loop);
  std::cout << "gfx942: " << matrix << " of " << math << " that compute, of " << loop.size() << ", registers "
            << number_behind(assembly, ".vgpr_count:") << "\n";
  expect_modelled(*p, target);
}
/// Products of float32 by multiply-adds: factors are read 16 bytes at a time, step by step, so that registers hold
/// those of one step beside the sums.
class Float32Quality : public ::testing::TestWithParam<std::tuple<const char*, bool>> {};

TEST_P(Float32Quality, MultiplyAdds) {
  if (const std::string missing = nvrtc_missing(); !missing.empty()) GTEST_SKIP() << missing;
  const std::string tool = find_nvdisasm();
  if (tool.empty()) GTEST_SKIP() << "no nvdisasm in PATH, in /usr/local/cuda/bin or next to NVRTC: SASS is not read";
  const auto [arch, tb] = GetParam();
  const Target target = cuda_target(arch);
  const auto p = to_program(*matmul(kSize, kSize, kSize, false, tb), *make_renderer(target), {});
  const TensorCore* core = nullptr;
  tile_of(*p, &core);
  ASSERT_TRUE(core && core->multiply_adds()) << to_text(p->applied_opts);
  const auto cubin = make_nvrtc_compiler(target)->compile_cached(p->source);
  const std::vector<Line> all = sass_lines(disassembled(tool, cubin)), loop = main_loop(all, "FFMA");
  EXPECT_EQ(count(all, "LDL") + count(all, "STL"), 0) << "spills";
  const int64_t adds = count(loop, "FFMA"), reads = count(loop, "LDS");
  const int64_t math = std::count_if(loop.begin(), loop.end(), [](const Line& l) { return computes_sass(l.op); });
  EXPECT_GE(static_cast<double>(adds), 0.9 * static_cast<double>(math)) << listed(loop);
  EXPECT_GE(adds, 14 * reads) << "reads of fewer than 16 bytes";
  std::cout << arch << ": " << adds << " of " << math << " that compute, " << reads << " reads, of " << loop.size()
            << "\n";
}
INSTANTIATE_TEST_SUITE_P(Offline, Float32Quality,
                         ::testing::Combine(::testing::Values("sm_80", "sm_90"), ::testing::Bool()),
                         [](const auto& info) {
                           return str(std::get<0>(info.param),
                                      std::get<1>(info.param) ? "ColumnsAlongTheSum" : "RowsAlongTheSum");
                         });

/// By instructions of whole warpgroups, which read their factors from the memory of the group.
class HopperQuality : public ::testing::TestWithParam<bool> {};

TEST_P(HopperQuality, LargeProduct) {
  if (const std::string missing = nvrtc_missing(); !missing.empty()) GTEST_SKIP() << missing;
  const std::string tool = find_nvdisasm();
  if (tool.empty()) GTEST_SKIP() << "no nvdisasm in PATH, in /usr/local/cuda/bin or next to NVRTC: SASS is not read";
  const Target target = cuda_target("sm_90a");
  const auto p = gemm(target, GetParam());
  const TensorCore* core = nullptr;
  tile_of(*p, &core);
  ASSERT_NE(core, nullptr) << to_text(p->applied_opts);
  EXPECT_TRUE(core->reads_memory()) << core->name;
  const auto cubin = make_nvrtc_compiler(target)->compile_cached(p->source);
  const std::vector<Line> all = sass_lines(disassembled(tool, cubin)), loop = main_loop(all, "HGMMA");
  EXPECT_EQ(count(all, "LDL") + count(all, "STL"), 0) << "spills";
  EXPECT_GT(count(loop, "UTMALDG"), 0) << "no copies in boxes";
  EXPECT_GT(count(loop, "UTMALDG.2D.MULTICAST"), 0) << "no copies to all groups of a cluster";
  EXPECT_EQ(count(loop, "LDGSTS") + count(loop, "STS"), 0) << "threads copy";
  EXPECT_EQ(count(loop, "LDSM"), 0) << "factors in registers";
  // An instruction keeps the matrix unit of its warp for many clocks, any other takes one to be issued.
  const int64_t matrix = count(loop, "HGMMA"), other = std::count_if(loop.begin(), loop.end(), [](const Line& l) {
                                                 return computes_sass(l.op) && !l.op.starts_with("HGMMA");
                                               });
  const double clocks = static_cast<double>(matrix) * gpu_figures(target).clocks(*core);
  EXPECT_GE(matrix, 4);
  EXPECT_GE(clocks, 0.9 * (clocks + static_cast<double>(other))) << listed(loop);
  std::cout << "sm_90a: " << matrix << " HGMMA of " << clocks << " clocks, " << other << " others that compute, of "
            << loop.size() << "\n";
  expect_modelled(*p, target);
}
INSTANTIATE_TEST_SUITE_P(Offline, HopperQuality, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "ColumnsAlongTheSum" : "RowsAlongTheSum"; });
INSTANTIATE_TEST_SUITE_P(Offline, NvidiaQuality,
                         ::testing::Values(std::tuple("sm_80", true), std::tuple("sm_90", true),
                                           std::tuple("sm_90", false)),
                         [](const auto& info) {
                           return str(std::get<0>(info.param),
                                      std::get<1>(info.param) ? "ColumnsAlongTheSum" : "RowsAlongTheSum");
                         });
INSTANTIATE_TEST_SUITE_P(Offline, PtxProducts,
                         ::testing::Combine(::testing::Values("sm_80", "sm_90"), ::testing::Bool()),
                         [](const auto& info) {
                           return str(std::get<0>(info.param),
                                      std::get<1>(info.param) ? "ColumnsAlongTheSum" : "RowsAlongTheSum");
                         });
INSTANTIATE_TEST_SUITE_P(Offline, AmdQuality, ::testing::Values(true),
                         [](const auto& info) { return info.param ? "ColumnsAlongTheSum" : "RowsAlongTheSum"; });

}  // namespace
}  // namespace tg
