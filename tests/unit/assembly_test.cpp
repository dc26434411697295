/// \file The inner loops of matrix products and convolutions as the processor gets them, for processors this machine need not be.
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

struct Loop {
  std::vector<std::string> lines;
  int64_t count(const std::string& word) const {
    return std::count_if(lines.begin(), lines.end(), [&](const std::string& l) { return l.find(word) != std::string::npos; });
  }
  /// Instructions that read or write memory.
  int64_t memory() const { return count("(%r") - count("\tlea"); }
  std::string text() const {
    std::string s;
    for (const std::string& l : lines) s += l + "\n";
    return s;
  }
};
/// The innermost loop with the most multiply-adds.
Loop inner_loop(const std::string& assembly) {
  std::vector<std::string> lines;
  std::istringstream in(assembly);
  for (std::string l; std::getline(in, l);) lines.push_back(l);
  std::map<std::string, size_t> labels;
  Loop best;
  for (size_t i = 0; i < lines.size(); i++) {
    const std::string& l = lines[i];
    if (l.rfind(".L", 0) == 0) labels[l.substr(0, l.find(':'))] = i;
    const size_t jump = l.find("\tj"), target = l.find(".L");
    if (jump == std::string::npos || target == std::string::npos) continue;
    auto it = labels.find(l.substr(target));
    if (it == labels.end()) continue;
    Loop loop{{lines.begin() + static_cast<std::ptrdiff_t>(it->second), lines.begin() + static_cast<std::ptrdiff_t>(i)}};
    const bool inner =
        std::none_of(loop.lines.begin() + 1, loop.lines.end(), [](const std::string& x) { return x.find("\tj") != std::string::npos; });
    if (inner && loop.count("vfmadd") > best.count("vfmadd")) best = loop;
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
  Target t = parse_processor("x86_64," + processor);
  t.device = "CPU", t.renderer = "LLVM";
  const auto renderer = make_renderer(t);
  const auto p = to_program(*k, *renderer, CodegenOptions());
  Compiled c{inner_loop(make_llvm_compiler(t)->assembly(p->source))};
  for (const Opt& o : p->applied_opts) {
    if (o.op == OptOp::kUpcast) (o.axis == row_axis ? c.rows : c.vectors) *= o.arg;
    if (o.op == OptOp::kUnroll) c.unrolled *= o.arg;
    c.staged |= o.op == OptOp::kStage;
  }
  return c;
}

class Assembly : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string why = llvm_plugin_missing(); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_P(Assembly, MatmulLoadsTheEdgesOfItsTileAndSpillsNothing) {
  for (int t = 0; t < 4; t++) {
    const Compiled c = compile_for(matmul(1024, 1024, 1024, t & 1, t & 2), GetParam(), 0);
    SCOPED_TRACE(c.loop.text());
    EXPECT_TRUE(c.staged);
    EXPECT_GE(c.rows * c.vectors, 8) << "fewer chains than hide the latency";
    EXPECT_EQ(c.loop.count("vfmadd"), c.rows * c.vectors * c.unrolled);
    EXPECT_EQ(c.loop.memory(), (c.rows + c.vectors) * c.unrolled);
    EXPECT_EQ(c.loop.count("%rsp"), 0);
  }
}

TEST_P(Assembly, ConvolutionSpillsNothing) {
  const Compiled c = compile_for(conv(8, 64, 64, 64, 64, 3, 1), GetParam(), 1);
  SCOPED_TRACE(c.loop.text());
  EXPECT_EQ(c.loop.count("vfmadd"), c.rows * c.vectors * c.unrolled);
  EXPECT_EQ(c.loop.memory(), (c.rows + c.vectors) * c.unrolled);
  EXPECT_EQ(c.loop.count("%rsp"), 0);
}

INSTANTIATE_TEST_SUITE_P(Processors, Assembly, ::testing::Values("znver4", "haswell"), [](const auto& i) { return std::string(i.param); });

}  // namespace
}  // namespace tg
