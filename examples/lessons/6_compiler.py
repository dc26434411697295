"""Lesson 6: from a tensor to machine code, stage by stage, and a rewrite rule of one's own."""
import os
import re
import subprocess
import sys

from tinygrad_cpp import Tensor
from tinygrad_cpp.uop.ops import Ops, PatternMatcher, UOp, UPat, graph_rewrite
from tinygrad_cpp.uop.symbolic import symbolic

a, b = Tensor.ones(16, 16).contiguous().realize(), Tensor.ones(16, 16).contiguous().realize()
c = (a @ b + 1).relu()


def spell(u):
  """The expression in infix, as the C++ lesson prints it."""
  symbols = {Ops.ADD: "+", Ops.MUL: "*", Ops.FLOORMOD: "%"}
  if u.op is Ops.RANGE: return f"r{u.arg[0]}"
  if u.op is Ops.CONST: return str(u.val)
  parts = [f"({spell(s)})" if s.op is Ops.ADD and u.op is not Ops.ADD else spell(s) for s in u.src]
  return f" {symbols[u.op]} ".join(parts)


def count(root, op): return sum(u.op is op for u in root.toposort())


# ---- 1. The tensor graph: what the program said. ----
print(f"tensor graph: {count(c.uop, Ops.REDUCE)} reduction, {count(c.uop, Ops.PERMUTE)} permute")

# ---- 2. The schedule: kernels. Movement has become index arithmetic over ranges. ----
schedule = c.schedule()
print(f"schedule: {len(schedule)} kernel")
ast = schedule[0].ast
print(f"kernel: {count(ast, Ops.RANGE)} ranges, {count(ast, Ops.REDUCE)} reduction, {count(ast, Ops.PERMUTE)} permute")

# ---- 3. Code. The module shows it as text: DEBUG=4 prints the source of each kernel as it is made. ----
child = "from tinygrad_cpp import Tensor; (Tensor.ones(4).contiguous() + 1).realize()"
shown = subprocess.run([sys.executable, "-c", child], env=os.environ | {"DEBUG": "4", "DEV": "CPU", "CCACHE": "0"},
                       capture_output=True, text=True)
named = re.search(r"define void @(\w+)\(|void (\w+)\(", shown.stdout + shown.stderr)
print(f"program: {count(ast, Ops.PARAM)} buffers, source with its name: {'yes' if named else 'no'}")

# ---- 4. A rule of one's own: a pattern, and a function of what it binds; None declines. ----
my_rules = PatternMatcher([
  (UPat.var("x") + UPat.var("x"), lambda x: x * 2),
  ((UPat.var("x") * UPat.cvar("a")) * UPat.cvar("b"), lambda x, a, b: x * (a.val * b.val)),
  (UPat.var("x") % UPat.cvar("n"), lambda x, n: x if x.vmin >= 0 and x.vmax < n.val else None),
])
i, j = UOp.range(8, 0), UOp.range(4, 1)
before = ((i + i) * 3) % 100 + j * 2
print("before:", spell(before))
print("after: ", spell(graph_rewrite(before, my_rules)))

# ---- 5. The third rule has a side condition: bounds decide. ----
print("i % 8: ", spell(graph_rewrite(i % 8, my_rules)))
print("i % 7: ", spell(graph_rewrite(i % 7, my_rules)))

# ---- 6. Tables concatenate: the library's algebra after mine. ----
print("and the library's:", spell(graph_rewrite((i * 4 + j) // 4, my_rules + symbolic)))
