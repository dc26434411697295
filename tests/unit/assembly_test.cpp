/// \file The inner loops of matrix products and convolutions as the processor gets them, for processors this machine
/// need not be.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "kernels.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/cpu_detect.h"
#include "tinygrad/runtime/host_compilers.h"

namespace tg {
namespace {
using namespace testing;

/// How the assembly of an architecture is read.
struct Dialect {
  std::vector<std::string> multiply_add;  ///< beginnings of the instruction
  std::string jump;                       ///< beginning of one
  std::string stack;                      ///< what spilled registers are addressed by
};
const Dialect& dialect(const std::string& arch) {
  static const std::map<std::string, Dialect> all{
      {"x86_64", {{"vfmadd"}, "\tj", "%rsp"}},
      {"arm64", {{"fmla", "fmadd"}, "\tb", "[sp"}},
      {"riscv64", {{"vfmacc", "vfmadd", "fmadd"}, "\tb", "(sp)"}},
  };
  return all.at(arch);
}

struct Loop {
  std::string arch;
  std::vector<std::string> lines;
  int64_t count(const std::string& word) const {
    return std::count_if(lines.begin(), lines.end(),
                         [&](const std::string& l) { return l.find(word) != std::string::npos; });
  }
  int64_t multiply_adds() const {
    int64_t n = 0;
    for (const std::string& word : dialect(arch).multiply_add) n += count("\t" + word);
    return n;
  }
  int64_t spills() const { return count(dialect(arch).stack); }
  /// Reads and writes of memory; an instruction that loads a pair counts as two.
  int64_t memory() const {
    if (arch == "x86_64") return count("(%r") - count("\tlea");
    if (arch == "arm64") return count("\tldr") + count("\tldur") + 2 * count("\tldp") + count("\tld1") + count("\tst");
    return count("\tvle") + count("\tflw") + count("\tvse") + count("\tfsw") + count("\tvl") - count("\tvle") +
           count("\tvs") - count("\tvse") - count("\tvset") - count("\tvsl");
  }
  std::string text() const {
    std::string s;
    for (const std::string& l : lines) s += l + "\n";
    return s;
  }
};
/// The innermost loop with the most multiply-adds.
Loop inner_loop(const std::string& arch, const std::string& assembly) {
  std::vector<std::string> lines;
  std::istringstream in(assembly);
  for (std::string l; std::getline(in, l);) lines.push_back(l);
  std::map<std::string, size_t> labels;
  const std::string& jumps = dialect(arch).jump;
  Loop best{arch, {}};
  for (size_t i = 0; i < lines.size(); i++) {
    const std::string& l = lines[i];
    if (l.rfind(".L", 0) == 0) labels[l.substr(0, l.find(':'))] = i;
    const size_t jump = l.find(jumps), target = l.find(".L");
    if (jump == std::string::npos || target == std::string::npos) continue;
    auto it = labels.find(l.substr(target));
    if (it == labels.end()) continue;
    Loop loop{
        arch,
        {lines.begin() + static_cast<std::ptrdiff_t>(it->second), lines.begin() + static_cast<std::ptrdiff_t>(i)}};
    const bool inner = std::none_of(loop.lines.begin() + 1, loop.lines.end(), [&](const std::string& x) {
      return x.find(jumps) != std::string::npos && x.find(".L") != std::string::npos;
    });
    if (inner && loop.multiply_adds() > best.multiply_adds()) best = loop;
  }
  return best;
}

struct Compiled {
  Loop loop;
  int64_t rows = 1, vectors = 1, unrolled = 1;
  bool staged = false;
};
/// A kernel for another processor; one operand depends on the output axis `row_axis`, the other on all others.
Compiled compile_for(const KernelPtr& k, const std::string& processor, int row_axis) {
  Target t = parse_processor(processor);
  t.device = "CPU";
  t.renderer = "LLVM";
  const auto renderer = make_renderer(t);
  const auto p = to_program(*k, *renderer, CodegenOptions());
  const std::string text = make_llvm_compiler(t)->assembly(p->source);
  Compiled c{inner_loop(t.arch, text)};
  for (const Opt& o : p->applied_opts) {
    if (o.op == OptOp::kUpcast) (o.axis == row_axis ? c.rows : c.vectors) *= o.arg;
    if (o.op == OptOp::kUnroll) c.unrolled *= o.arg;
    c.staged |= o.op == OptOp::kStage;
  }
  return c;
}

/// Why nothing can be compiled for a processor; empty where it can.
std::string cannot_compile(const std::string& processor) {
  if (std::string why = llvm_plugin_missing(); !why.empty()) return why;
  Target t = parse_processor(processor);
  t.device = "CPU";
  t.renderer = "LLVM";
  try {
    make_llvm_compiler(t)->assembly("define void @f() { ret void }");
  } catch (const CompileError& e) {
    if (std::string(e.what()).find("No available targets") != std::string::npos)
      return "this LLVM was built without " + t.arch;
    throw;
  }
  return {};
}

class Assembly : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string why = cannot_compile(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_P(Assembly, MatmulLoadsTheEdgesOfItsTileAndSpillsNothing) {
  for (int t = 0; t < 4; t++) {
    const Compiled c = compile_for(matmul(1024, 1024, 1024, t & 1, t & 2), GetParam(), 0);
    SCOPED_TRACE(c.loop.text());
    if (parse_processor(GetParam()).l2_bytes <= 1 << 20)
      EXPECT_TRUE(c.staged) << "a matrix is larger than the second level cache";
    EXPECT_GE(c.rows * c.vectors, 8) << "fewer chains than hide the latency";
    EXPECT_EQ(c.loop.multiply_adds(), c.rows * c.vectors * c.unrolled);
    EXPECT_EQ(c.loop.memory(), (c.rows + c.vectors) * c.unrolled);
    EXPECT_EQ(c.loop.spills(), 0);
  }
}

/// Whole kernels whose lanes stride over memory: vectors are transposed, no element moves alone.
TEST_P(Assembly, TransposingMovesVectors) {
  Target t = parse_processor(GetParam());
  t.device = "CPU";
  t.renderer = "LLVM";
  const auto renderer = make_renderer(t);
  const auto compiler = make_llvm_compiler(t);
  const int64_t lanes = t.vector_bytes / 4;
  const std::vector<Opt> loads{{OptOp::kVector, 1, lanes}, {OptOp::kUpcast, 0, lanes}},
      stores{{OptOp::kVector, 0, lanes}, {OptOp::kUpcast, 1, lanes}},
      panel{{OptOp::kVector, 1, lanes},
            {OptOp::kUpcast, 1, 2},
            {OptOp::kUpcast, 0, 4},
            {OptOp::kSwap, 0, 1},
            {OptOp::kStage, 1, 1}};
  for (const auto& [k, opts] : {std::pair{transpose(1024, 512), loads},
                                {transpose(512, 1024), stores},
                                {matmul(128, 512, 1000, false, true), panel}}) {
    CodegenOptions o;
    o.opts = opts;
    const auto p = to_program(*k, *renderer, o);
    for (const char* word : {"gather", "scatter"}) EXPECT_EQ(p->source.find(word), std::string::npos) << p->source;
    EXPECT_NE(p->source.find("shufflevector"), std::string::npos);
    if (t.arch != "x86_64") continue;
    Loop all;
    all.lines = {compiler->assembly(p->source)};
    SCOPED_TRACE(all.text());
    for (const char* word : {"vextractps", "vmovss", "vpextr"}) EXPECT_EQ(all.count(word), 0) << word;
    EXPECT_GT(all.count("vunpck"), 0);
  }
}

TEST_P(Assembly, ConvolutionSpillsNothing) {
  const Compiled c = compile_for(conv(8, 64, 64, 64, 64, 3, 1), GetParam(), 1);
  SCOPED_TRACE(c.loop.text());
  EXPECT_EQ(c.loop.multiply_adds(), c.rows * c.vectors * c.unrolled);
  EXPECT_EQ(c.loop.memory(), (c.rows + c.vectors) * c.unrolled);
  EXPECT_EQ(c.loop.spills(), 0);
}

TEST(AssemblyForms, ScalarsAreFactorsOfVectors) {
  for (auto [processor, form] : {std::pair{"arm64,neoverse-n1", ".s["}, {"riscv64,v", "vfmacc.vf"}}) {
    if (const std::string why = cannot_compile(processor); !why.empty()) GTEST_SKIP() << why;
    const Compiled c = compile_for(matmul(256, 256, 256), processor, 0);
    EXPECT_GE(c.loop.count(form), c.loop.multiply_adds() / 2) << c.loop.text();  // others are loaded into all lanes
  }
}

TEST(AssemblyForms, WithoutVectorsTheTileIsOfScalars) {
  if (const std::string why = cannot_compile("riscv64"); !why.empty()) GTEST_SKIP() << why;
  for (const KernelPtr& k : {matmul(256, 256, 256), matmul(256, 256, 256, true, true), conv(2, 16, 16, 32, 32, 3, 0)}) {
    const Compiled c = compile_for(k, "riscv64", 0);
    SCOPED_TRACE(c.loop.text());
    EXPECT_GE(c.rows * c.vectors * c.unrolled, 8);
    EXPECT_EQ(c.loop.count("\tfmadd.s"), c.rows * c.vectors * c.unrolled);
    EXPECT_EQ(c.loop.spills(), 0);
  }
}

/// max(x, 0), sqrt(x) where x < y, of halves or of halves that are widened first.
KernelPtr of_halves(int64_t n, DType computed) {
  KernelMaker k;
  UOp a = k.param(1, n, dtypes::float16), b = k.param(2, n, dtypes::float16), o = k.param(0, n, dtypes::float16),
      i = k.loop(n);
  UOp x = a.index({i}).load().cast(computed), y = b.index({i}).load().cast(computed);
  UOp v = (x < y).where(UOp::alu(Ops::SQRT, {x}), UOp::alu(Ops::MAX, {x, UOp::constant(0.0, computed)}));
  return k.finish(o.index({i}).store(v.cast(dtypes::float16)).end(UOps{i}));
}

/// Processors that convert vectors of halves compare them as vectors of floats, not one by one.
TEST(AssemblyForms, HalvesAreComparedAsVectors) {
  for (const char* processor : {"x86_64,znver4", "x86_64,haswell"})
    for (DType computed : {dtypes::float16, dtypes::float32}) {
      SCOPED_TRACE(std::string(processor) + (computed == dtypes::float16 ? "" : " widened"));
      if (const std::string why = cannot_compile(processor); !why.empty()) GTEST_SKIP() << why;
      Target t = parse_processor(processor);
      t.device = "CPU";
      t.renderer = "LLVM";
      const std::string text =
          make_llvm_compiler(t)->assembly(to_program(*of_halves(4096, computed), *make_renderer(t), {})->source);
      for (const char* scalar : {"comiss", "cmpltss", "cmpss", "sqrtss", "cmpltsh"})
        EXPECT_EQ(text.find(scalar), std::string::npos) << scalar << '\n' << text;
      for (const char* vector : {"vcvtph2ps", "vsqrtps", "vcvtps2ph"})
        EXPECT_NE(text.find(vector), std::string::npos) << vector << '\n' << text;
    }
}

/// Powers of two of masked values underflow, which takes a hundred times as long: their lanes are left out.
TEST(AssemblyForms, PowersOfTwoLeaveOutWhatUnderflows) {
  const char* processor = "x86_64,znver4";
  if (const std::string why = cannot_compile(processor); !why.empty()) GTEST_SKIP() << why;
  KernelMaker k;
  UOp a = k.param(1, 4096, dtypes::float32), o = k.param(0, 4096, dtypes::float32), i = k.loop(4096);
  const KernelPtr powers = k.finish(o.index({i}).store(UOp::alu(Ops::EXP2, {a.index({i}).load()})).end(UOps{i}));
  Target t = parse_processor(processor);
  t.device = "CPU";
  t.renderer = "LLVM";
  const std::string text = make_llvm_compiler(t)->assembly(to_program(*powers, *make_renderer(t), {})->source);
  std::istringstream lines(text);
  int scales = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("vscalefps") == std::string::npos) continue;
    scales++;
    EXPECT_NE(line.find("{%k"), std::string::npos) << line;
  }
  EXPECT_GT(scales, 0) << text;
}

INSTANTIATE_TEST_SUITE_P(Processors, Assembly,
                         ::testing::Values("x86_64,znver4", "x86_64,haswell", "arm64,apple-m1", "arm64,neoverse-n1",
                                           "riscv64,v", "riscv64,sifive-x280"),
                         [](const auto& i) {
                           std::string name = i.param;
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
                           return name;
                         });

}  // namespace
}  // namespace tg
