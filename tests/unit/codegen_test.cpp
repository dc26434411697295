/// \file Codegen: linear programs compute what their kernel ASTs mean.
#include "tinygrad/codegen/codegen.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernel_eval.h"
#include "kernels.h"

namespace tg {
namespace {
using namespace testing;

TEST(Codegen, NooptEqualsAst) {
  for (auto& [name, make] : all_kernels()) {
    SCOPED_TRACE(name);
    CodegenOptions o;
    o.noopt = true;
    check_kernel(make(), TestRenderer(), o);
  }
}

TEST(Codegen, HeuristicEqualsAst) {
  for (int bytes : {16, 32, 64})
    for (auto& [name, make] : all_kernels()) {
      SCOPED_TRACE(name + " with vectors of " + std::to_string(bytes));
      check_kernel(make(), TestRenderer(bytes), CodegenOptions());
    }
}

}  // namespace
}  // namespace tg
