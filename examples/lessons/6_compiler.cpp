/// \file Lesson 6: from a tensor to machine code, stage by stage, and a rewrite rule of one's own.
#include <cstdio>
#include <iostream>

#include "tinygrad/codegen/codegen.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/tinygrad.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/symbolic.h"

using namespace tg;
using namespace tg::upat;  // the names of patterns: x y z, n0 n1, X Y Z

/// A table of rules, one line each: pattern, result. A body that returns {} declines.
static const PatternMatcher<>& my_rules() {
  static const PatternMatcher<> pm{
      rule(x + x, x * 2),
      rule((x * n0) * n1, [](X x, N0 a, N1 b) { return x * ConstValue(a.const_int() * b.const_int()); }),
      rule(x % n0, [](X x, N0 n) { return vmin(x) >= 0 && vmax(x) < n.const_int() ? UOp(x) : UOp(); }),
  };
  return pm;
}

static size_t count(UOp root, Ops op) {
  size_t n = 0;
  for (const UOp u : root.toposort()) n += u.op() == op;
  return n;
}

int main() {
  // ---- 1. The tensor graph: what the program said. ----
  const Tensor a = Tensor::ones(16, 16).contiguous().realize(), b = Tensor::ones(16, 16).contiguous().realize();
  const Tensor c = (a.matmul(b) + 1).relu();
  {
    const GraphScope scope;
    std::printf("tensor graph: %d reduction, %d permute\n", static_cast<int>(count(c.uop(), Ops::REDUCE)),
                static_cast<int>(count(c.uop(), Ops::PERMUTE)));
  }

  // ---- 2. The schedule: kernels. Movement has become index arithmetic over ranges. ----
  const BoundSchedule bound = c.schedule();
  const ScheduleCall& call = bound.schedule->calls[0];
  std::printf("schedule: %d kernel\n", static_cast<int>(bound.schedule->calls.size()));
  {
    const ArenaScope scope(*call.kernel->arena);
    const UOp kernel = call.kernel->sink;
    std::printf("kernel: %d ranges, %d reduction, %d permute\n", static_cast<int>(count(kernel, Ops::RANGE)),
                static_cast<int>(count(kernel, Ops::REDUCE)), static_cast<int>(count(kernel, Ops::PERMUTE)));
  }

  // ---- 3. Code: optimised, expanded, linearized, rendered. The engine compiles the source, and launches it. ----
  const std::shared_ptr<Program> program = to_program(*call.kernel, *make_renderer(Device::get().target()), {});
  std::printf("program: %d buffers, source with its name: %s\n", program->nbuffers,
              program->source.find(program->name) != std::string::npos ? "yes" : "no");

  // ---- 4. A rule of one's own. A graph of index arithmetic, rewritten until nothing matches. ----
  Arena arena;
  const ArenaScope scope(arena);
  const UOp i = UOp::range(8, 0), j = UOp::range(4, 1);
  const UOp before = ((i + i) * 3) % 100 + j * 2;
  std::cout << "before: " << render_expr(before) << "\n";
  std::cout << "after:  " << render_expr(graph_rewrite(before, my_rules())) << "\n";

  // ---- 5. The third rule has a side condition: bounds decide. ----
  std::cout << "i % 8:  " << render_expr(graph_rewrite(i % 8, my_rules())) << "\n";
  std::cout << "i % 7:  " << render_expr(graph_rewrite(i % 7, my_rules())) << "\n";

  // ---- 6. Tables concatenate: the library's algebra after mine. ----
  std::cout << "and the library's: " << render_expr(graph_rewrite((i * 4 + j) / 4, my_rules() + symbolic())) << "\n";
}
