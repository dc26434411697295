"""The graph from Python: reading, building, patterns, rewriting."""
import gc, math, pickle, threading, weakref
import pytest
from tinygrad_cpp import Tensor, Variable, dtypes
from tinygrad_cpp.uop import GroupOp, Ops
from tinygrad_cpp.uop.ops import (AddrSpace, AxisType, BottomUpGate, Invalid, KernelInfo, ParamArg, PatternMatcher, UOp,
                                  UPat, exec_alu, graph_rewrite,
                                  resolve, smax, smin, sym_infer)
from tinygrad_cpp.uop.symbolic import commutative, sym, symbolic, symbolic_simple


def var(name="a", lo=0, hi=10): return UOp.variable(name, lo, hi)


# *** objects ***

def test_equal_nodes_are_one_object():
  a = var()
  assert a + 1 is a + 1 and a + 1 is not a + 2 and UOp.const(3) is UOp.const(3) and UOp.const(1) is not UOp.const(True)
  assert (a + 1).src[0] is a and a == a and not a == None and len({a, var(), a + 0}) == 2  # noqa: E711
  node = a * 12345
  r, key = weakref.ref(node), node.key
  del node
  gc.collect()
  assert r() is None and (a * 12345).key == key


def test_reading():
  a = var("a", 1, 5)
  u = (a + 2) * 3
  assert u.op is Ops.MUL and u.dtype is dtypes.weakint and u.arg is None and u.tag is None and u.src[1].val == 3
  assert [x.op for x in u.toposort()] == [Ops.PARAM, Ops.CONST, Ops.ADD, Ops.CONST,
                                          Ops.MUL] and u not in u.backward_slice
  assert u.op_in_backward_slice_with_self(Ops.ADD) and not u.op_in_backward_slice_with_self(Ops.LOAD, Ops.SIN)
  assert (u.vmin, u.vmax) == (9, 21) and u.shape == () and u.device is None and u.variables() == [a]
  assert a.arg == ParamArg(-1, dtypes.weakint, (1, 5), name="a", addrspace=AddrSpace.ALU) and a.expr == "a"
  assert UOp.const(2.5).val == 2.5 and UOp.const(True).val is True and UOp.invalid().val is Invalid and UOp.const(
      1 << 100).val == 1 << 100
  assert (UOp.const(2.5).vmin, UOp.variable("f", 0, 1, dtypes.float).vmax) == (2.5, math.inf)
  with pytest.raises(ValueError): u.val


def test_tags_may_be_anything():
  a = var()
  assert a.rtag().tag is True and a.rtag(1).tag == 1 and a.rtag(1) is not a.rtag(True) and a.rtag(
      "x").tag == "x" and a.rtag((1, 2)).tag == (1, 2)
  assert a.rtag("x") is a.rtag("x") and a.rtag("x").replace(tag=None) is a and a.rtag().key == a.key


def test_rendering():
  a, b = var("a", 0, 100), var("b")
  assert (a * 3 + 4).render() == "(a*3+4)" and ((a + 5) // 6).render() == "((a+5)//6)" and (a < 3).render() == "(a<3)"
  assert (a % 7).render() == "(a%7)" and a.maximum(b).render() in ("max(a, b)",
                                                                   "max(b, a)") and UOp.const(1.5).render() == "1.5"
  assert (a + 3 + 4).render(simplify=False) == "(a+3+4)"
  assert (a + (b * 2)).render(simplify=False) == "(a+b*2)"
  assert UOp.const(1e20).render() == "1e+20"
  assert eval((a * 3 + b % 4 - 2).render(), {"a": 7, "b": 9}) == 7 * 3 + 9 % 4 - 2
  spelled = PatternMatcher([(UPat(Ops.PARAM, name="x"), lambda x: x.expr.upper()),
                            (UPat(Ops.CONST, name="x"), lambda x: str(x.val)),
                            (UPat(Ops.ADD, name="x"), lambda ctx, x: f"[{ctx[x.src[0]]} {ctx[x.src[1]]}]")])
  assert (a + 1).render(pm=spelled) == "[A 1]"
  assert "ADD" in repr(a + 1) and "digraph" in (a + 1).to_dot()


def test_pickle():
  a = var("a", 1, 5)
  r = UOp.range(10, 3, AxisType.REDUCE)
  for u in (a * 2 + r, UOp.const(math.inf), UOp.invalid(), a.rtag("x"), (a + r).reduce(r, arg=Ops.MAX),
            UOp.param(0, dtypes.float, (3, 4))):
    assert pickle.loads(pickle.dumps(u)) is u
  deep = a
  for i in range(20000): deep = deep + i
  assert pickle.loads(pickle.dumps(deep)) is deep
  assert Tensor(pickle.loads(pickle.dumps(Tensor([1, 2]).realize().uop))).tolist() == [1, 2]


# *** numbers ***

def test_simplify_and_bounds():
  a, b = var("a", 0, 9), var("b", 0, 9)
  assert (a * 0 + b).simplify() is b and ((a * 4
                                           + b * 8) // 4).simplify().vmax == 27 and (a < 20).simplify() is UOp.const(
                                               True)
  assert (a - a).ssimplify() == 0 and (a
                                       + 1).divides(2) is None and (a * 6).divides(3).simplify() is (a * 2).simplify(
                                           ) and (a * 6).const_factor() == 6
  assert (a * b * 6).divide_exact(a * 2).simplify() is (b * 3).simplify() and UOp.gcd(a * 4,
      a * 6).simplify() is (a * 2).simplify()
  assert (a + 5).pop_const() == (a, 5) and (a * 5).pop_const(Ops.MUL) == (a,
      5) and [x.render() for x in (a + b + 3).split_uop(Ops.ADD)] == ["a", "b", "3"]


def test_numbers_of_expressions():
  a = var("a", 3, 3)
  assert int(a + 2) == 5 and bool(a < 4) and float(UOp.const(1.5)) == 1.5 and [10, 20, 30, 40][UOp.const(2)] == 30
  with pytest.raises(ValueError, match="range is 0 to 10"): int(var())
  with pytest.raises(ValueError): bool(var() < 5)
  assert resolve(var() < 5) and not resolve(var() < 5, False) and resolve(var() < 50, False) and resolve(True)
  assert smax(1, 2) == 2 and smin(var("a", 5, 9), 4) == 4 and smax(4, var("a", 5, 9)).expr == "a"


def test_variables():
  v = Variable("n", 1, 8)
  b = v.bind(3)
  assert b.is_bound_var and b.unbind() == (v,
                                           3) and v.is_variable and (b * 2
                                                                     + 1).unbind_all()[1] == {v: 3} and (
                                                                         b * 2).unbind_all()[0] is v * 2
  with pytest.raises(ValueError): v.bind(9)
  with pytest.raises(ValueError): Variable("n", 2, 1)
  assert sym_infer(v * 2 + Variable("m", 0, 5), {"n": 3, "m": 4}) == 10 and sym_infer(b + 1, {}) == 4 and sym_infer(7,
      {}) == 7
  assert sym_infer((v + 1) // 2 < 3, {"n": 5}) == 0 and sym_infer((v + 1) // 2 < 4, {"n": 5}) == 1
  with pytest.raises(ValueError): sym_infer(v, {"m": 1})


def test_exec_alu():
  assert exec_alu(Ops.ADD, dtypes.uint8, (250, 250)) == 244 and exec_alu(Ops.CDIV, dtypes.int8,
      (-50, 6)) == -8 and exec_alu(Ops.FLOORDIV, dtypes.int8, (-50, 6)) == -9
  assert exec_alu(Ops.CMPLT, dtypes.bool, (1, 2)) is True and exec_alu(Ops.WHERE, dtypes.int,
      (False, 2, 4)) == 4 and exec_alu(Ops.SQRT, dtypes.float, (4.0,)) == 2.0
  assert exec_alu(Ops.ADD, dtypes.int, (Invalid, 1)) is Invalid and exec_alu(Ops.ADD, dtypes.uint8, (250, 250),
      truncate_output=False) == 500


# *** building ***

def test_operators_promote():
  i, f = UOp.variable("i", 0, 5, dtypes.int), UOp.variable("f", 0, 5, dtypes.float)
  assert (i + f).dtype is dtypes.float and (i
                                            + 1).dtype is dtypes.int and (f * 2).dtype is dtypes.float and (
                                                i / i).dtype is dtypes.float
  assert (i < f).dtype is dtypes.bool and (1 - i).render() == "(i*-1+1)" and (i ^ 3).op is Ops.XOR and (
      i << 2).op is Ops.SHL and (~i).op is Ops.XOR
  assert (i != 3).op is Ops.CMPNE and i.eq(3).op is Ops.CMPNE and (i > 3).src[0].val == 3 and (i >= 3).src[
      1].val is True
  assert (i < 3).where(1, 2).dtype is dtypes.weakint
  assert (i < 3).where(i, 7).op is Ops.WHERE and i.valid(i < 3).get_idx() is i and i.valid(i < 3).get_valid() is (i < 3)
  assert i.cast(dtypes.float).op is Ops.CAST and i.cast(dtypes.int) is i and f.exp2().op is Ops.EXP2 and i.alu(Ops.MAX,
      i).op is Ops.MAX
  with pytest.raises(TypeError): i + "x"


def test_a_kernel():
  r, k = UOp.range(10, 0), UOp.range(4, 1, AxisType.REDUCE)
  out, x = UOp.placeholder((10,), dtypes.float, 0), UOp.placeholder((40,), dtypes.float, 1)
  total = x.index(r * 4 + k).load().reduce(k, arg=Ops.ADD)
  assert total.ranges == {r: None} and k.arg == (1, AxisType.REDUCE) and total.arg == (Ops.ADD, ())
  sink = out.index(r).store(total).end(r).sink(arg=KernelInfo(name="row_sums"))
  assert sink.op is Ops.SINK and sink.arg.name == "row_sums" and not sink.ranges and sink.dtype is dtypes.void
  assert {u for u in sink.toposort() if u.op is Ops.PARAM and u.arg.addrspace is AddrSpace.GLOBAL} == {out, x}
  assert UOp.group(total) is total and UOp.sink(total, sink).src == (total, sink)
  assert UOp(Ops.RANGE, src=(UOp.const(4),), arg=(1, AxisType.REDUCE)) is k
  assert UOp(Ops.ADD, src=(UOp.const(1.0), UOp.const(2))).dtype is dtypes.weakfloat
  with pytest.raises(TypeError): UOp("ADD")
  with pytest.raises(TypeError): UOp(Ops.ADD, src=(1, 2))


def test_tensor_graphs():
  t = Tensor([[1.0, 2.0], [3.0, 4.0]])
  u = (t.reshape(4) + 1).sum().uop
  assert u.shape == () and u.dtype is dtypes.float and u.device == t.device and any(x.op is Ops.REDUCE
      for x in u.toposort())
  assert Tensor(u).item() == 14 and t.uop.sum(axis=0).shape == (2,) and t.uop.reshape(4).op is Ops.RESHAPE
  b = t.realize().uop
  assert b.base.op is Ops.BUFFER and b.is_realized and b.buffer.numpy().tolist() == [1, 2, 3,
      4] and (t + 1).uop.realized is None
  with pytest.raises(RuntimeError): (t + 1).uop.buffer
  with pytest.raises(AttributeError): b.no_such_method


# *** patterns ***

def test_patterns():
  a, b = var("a"), var("b")
  hit = lambda p, u: PatternMatcher([(p, lambda **names: tuple(sorted(names)))]).rewrite(u)
  assert hit(UPat.var("x") + UPat.cvar("c"), 3 + a) == ("c", "x") and hit(UPat.var("x") * 2, a * 2) == ("x",
      ) and hit(UPat.var("x") * 2, a * 3) is None
  assert hit(UPat.var("x") + UPat.var("x"), a + a) == ("x",) and hit(UPat.var("x") + UPat.var("x"), a + b) is None
  assert hit(UPat(GroupOp.ALU, name="x"), a // 2) == ("x",) and hit(UPat((Ops.ADD, Ops.MUL)), a // 2) is None
  assert hit(UPat(Ops.CONST, dtypes.weakint, name="x"), UOp.const(1)) == ("x",) and hit(UPat(Ops.CONST, dtypes.weakint),
      UOp.const(1.0)) is None
  assert hit(UPat(Ops.CONST, (dtypes.int, dtypes.long), name="x"), UOp.const(1, dtypes.int)) == ("x",)
  assert hit(UPat(Ops.SINK, src=(UPat(),), allow_any_len=True),
             UOp.sink(a, b)) == () and hit(UPat(Ops.SINK, src=(UPat(),)), UOp.sink(a, b)) is None
  assert hit(UPat(Ops.SINK, src=UPat(Ops.PARAM, name="p")), UOp.sink(a, a)) == ("p",
      ) and hit(UPat(Ops.SINK, src=UPat(Ops.PARAM)), UOp.sink(a, a + 1)) is None
  assert hit(UPat.any(UPat(Ops.MUL), UPat.var("x") + 1), a + 1) == ("x",) and hit(UPat.var("x", dtypes.bool),
      a < 3) == ("x",)
  assert hit(UPat.var("x").or_casted("y"), a.cast(dtypes.int)) in (("y",),
                                                                   ("x", "y")) and hit(UPat(Ops.CONST, arg=math.nan),
                                                                       UOp.const(math.nan)) == ()
  assert hit((UPat.var("x") < 3).where(UPat.var("x"), UPat.cvar("c")), (a < 3).where(a, 7)) == ("c",
      "x") and hit(~(UPat.var("x") < 3), a >= 3) == ("x",)
  assert hit(UPat(Ops.PARAM, tag="t"), a.rtag("t")) == () and hit(UPat(Ops.PARAM, tag="t"), a) is None
  assert len((UPat.var("x") + UPat.var("y")).match(a + b, {})) == 2
  with pytest.raises(ValueError): UPat(name="ctx")
  with pytest.raises(TypeError): UPat(Ops.ADD, src=(1,))


def test_rules():
  a = var()
  log = []
  pm = PatternMatcher([(UPat(Ops.ADD, name="u"), lambda ctx, u: ctx.append(u)), (UPat(Ops.ADD, name="u"), lambda u: u),
                       (UPat(Ops.ADD), lambda: "third")])
  assert pm.rewrite(a + 1, log) == "third" and log == [a + 1] and pm.rewrite(a * 2,
      log) is None and len((pm + pm).patterns) == 6
  with pytest.raises(TypeError): PatternMatcher([(UPat(Ops.ADD, name="u"), lambda v: None)]).rewrite(a + 1)
  with pytest.raises(ZeroDivisionError): PatternMatcher([(UPat(Ops.ADD), lambda: 1 // 0)]).rewrite(a + 1)
  with pytest.raises(TypeError): graph_rewrite(a + 1, PatternMatcher([(UPat(Ops.ADD), lambda: "text")]))


# *** rewriting ***

def test_rewrite_to_a_fixed_point():
  a, b = var("a"), var("b")
  double = PatternMatcher([(UPat.var("x") * UPat.cvar("c"), lambda x, c: x + x * (c.val - 1) if c.val > 1 else x)])
  assert graph_rewrite(a * 3, double) is a + (a + a) and graph_rewrite((a * 2) * 2, double) is (a + a) + (a + a)
  assert graph_rewrite(a * 3 + b, double).simplify() is (a * 3 + b).simplify()
  # one takes apart what the other joins
  with pytest.raises(RuntimeError, match="terminate"): graph_rewrite(a * 3 + b, double + symbolic)
  assert graph_rewrite((a + 0) * 1, symbolic_simple) is a and graph_rewrite(a - a + b,
      sym) is b and graph_rewrite(b + a, commutative) is graph_rewrite(a + b, commutative)
  mixed = symbolic_simple + PatternMatcher([(UPat(Ops.PARAM, name="x"), lambda x: b if x is a else None)])
  assert graph_rewrite((a + 0) * 1, mixed) is b
  deep = a
  for i in range(5000): deep = deep + b
  assert graph_rewrite(deep, mixed).backward_slice_with_self.keys().isdisjoint({a})


def test_rewrite_orders():
  one, two = UOp.const(1), UOp.const(2)
  seen = lambda mark: PatternMatcher([(UPat(GroupOp.All, name="x"),
                                       lambda ctx, x: ctx.append((mark, x.arg if x.op is Ops.CONST else "+")))])
  def order(**kwargs):
    log = []
    graph_rewrite(one + two, seen("after"), ctx=log, **kwargs)
    return log
  after = [("after", 1), ("after", 2), ("after", "+")]
  assert order() == after and order(walk=True) == after
  assert order(bottom_up=True) == order(bottom_up=True, walk=True) == [("after", "+"), ("after", 1), ("after", 2)]
  both = [("before", "+"), ("before", 1), ("after", 1), ("before", 2), ("after", 2), ("after", "+")]
  assert order(bpm=seen("before")) == both and order(bpm=seen("before"), walk=True) == both


def test_circles_are_reported():
  pm = PatternMatcher([(UPat(Ops.CONST, arg=3), lambda: UOp.const(4)), (UPat(Ops.CONST, arg=4), lambda: UOp.const(3))])
  for kwargs in ({}, {"bottom_up": True}):
    with pytest.raises(RuntimeError, match="terminate"): graph_rewrite(var() + 3, pm, **kwargs)
  assert graph_rewrite(UOp.const(3), pm, walk=True) is UOp.const(4)
  with pytest.raises(RuntimeError, match="terminate"):
    graph_rewrite(var(), PatternMatcher([(UPat(Ops.PARAM, name="x"), lambda x: x + 1)]))


def test_gate_stops_the_descent():
  a = var()
  def gate(u): raise BottomUpGate
  pm = PatternMatcher([(UPat(Ops.MUL, name="u"), gate), (UPat(Ops.PARAM), lambda: UOp.const(1))])
  assert graph_rewrite(a * 2 + a, pm, bottom_up=True) is a * 2 + 1


def test_substitute():
  a, b, c = var("a"), var("b"), var("c")
  assert (a + 4 + a * 2).substitute({a: b}) is b + 4 + b * 2 and (a + 4).substitute({a: b + c, b: c}) is (c + c) + 4
  assert (a + 4).substitute({a: b + c, b: c},
                            walk=True) is (b + c) + 4 and (a + 4).rtag(1).substitute({a: b}) is (b
                                + 4).rtag(1) and a.substitute({}) is a


def test_threads():
  """Rules run Python while other threads build graphs: nobody waits for the other forever."""
  a, errors = var(), []
  pm = PatternMatcher([(UPat(Ops.ADD, src=[UPat.var("x"), UPat.cvar("c")]),
                        lambda x, c: x * (c.val + 1) if c.val else None)])
  def work(n):
    try:
      for i in range(60): assert graph_rewrite(sum((a + j for j in range(1, 12)), a + n), pm).op is not None
      assert (Tensor([1.0, float(n)]) + 1).tolist() == [2.0, n + 1.0]
    except Exception as e: errors.append(e)
  threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
  for t in threads: t.start()
  for t in threads: t.join(60)
  assert not errors and not any(t.is_alive() for t in threads)


def test_repr_can_be_evaluated():
  from tinygrad_cpp.uop import ops
  a = var()
  u = a + 2
  for _ in range(20): u = u + u
  assert len(repr(u)) < 10_000 and eval(repr(u), {**vars(ops), "dtypes": dtypes}) is u
  assert eval(repr((a * 2).rtag("x")), {**vars(ops), "dtypes": dtypes}) is (a * 2).rtag("x")


def test_a_kernel_of_ones_own():
  def scale(out, x):
    i = UOp.range(x.shape[0], 0)
    return out[i].store(x[i] * 2).end(i).sink(arg=KernelInfo(name="scale"))
  x = Tensor([1.0, 2.0, 3.0, 4.0])
  assert Tensor.empty(4).custom_kernel(x, fxn=scale)[0].tolist() == [2, 4, 6, 8]
  x = Tensor([1.0, 2.0, 3.0, 4.0])
  y = Tensor.empty(4).custom_kernel(x, fxn=scale, grad_fxn=lambda g, call: (None, (Tensor(g) * 2).uop))[0]
  (y * Tensor([1.0, 10.0, 100.0, 1000.0])).sum().backward()
  assert x.grad.tolist() == [2, 20, 200, 2000]
  with pytest.raises(ValueError, match="got nothing from the kernel function"):
    Tensor.empty(4).custom_kernel(x, fxn=lambda out, x: None)


def test_functions():
  from tinygrad_cpp import function
  traced = []
  @function
  def f(a, b):
    traced.append(1)
    return a * b, a + b
  a, b = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
  product, total = f(a, b)
  assert len(traced) == 1 and product.uop.op is Ops.GETTUPLE and product.uop.src[0] is total.uop.src[
      0] and product.uop.src[0].op is Ops.FUNCTION
  assert product.uop.src[0].arg.name.endswith("f")
  assert product.tolist() == [3, 8] and total.tolist() == [4, 6]
  product, total = f(a, b)
  (product.sum() + total.sum()).backward()
  assert a.grad.tolist() == [4, 5] and b.grad.tolist() == [2, 3]
  a, b = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
  function(lambda x, unused: x * 2)(a, b).sum().backward()
  assert a.grad.tolist() == [2, 2] and b.grad.tolist() == [0, 0]
  inner = Tensor([5.0, 5.0]).realize()
  with pytest.raises(RuntimeError, match="implicit"): function(lambda x: x + inner)(a)
  assert function(lambda x: x + inner, allow_implicit=True)(a).tolist() == [6, 7]
  with pytest.raises(RuntimeError, match="not supported"): function(lambda x: 3)(a)
  assert Tensor.call(a, b, fxn=a.as_param(0) - b.as_param(1)).tolist() == [-2, -2]


def test_gradients_of_ones_own():
  a, b = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
  p = UOp.param(0, dtypes.float, (2,)) * UOp.param(1, dtypes.float, (2,))
  Tensor.call(a, b, fxn=p, grad_fxn=lambda g, call: (g * 10, None)).sum().backward()
  assert a.grad.tolist() == [10, 10]
  errors = []
  def work():
    try:
      for _ in range(30):
        x, y = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
        Tensor.call(x, y, fxn=p, grad_fxn=lambda g, call: (g * 10, g)).sum().backward()
        assert x.grad.tolist() == [10, 10]
    except Exception as e: errors.append(e)
  threads = [threading.Thread(target=work) for _ in range(4)]
  for t in threads: t.start()
  for t in threads: t.join(100)
  assert not errors and not any(t.is_alive() for t in threads)


def test_a_kernel_with_optimisations_of_its_own():
  from tinygrad_cpp.codegen.opt import Opt, OptOps

  def double(opts):
    def kernel(out, x):
      i = UOp.range(x.shape[0], 0)
      return out[i].store(x[i] * 2).end(i).sink(arg=KernelInfo(name="double", opts_to_apply=opts))
    return Tensor.empty(8).custom_kernel(Tensor([float(i) for i in range(8)]), fxn=kernel)[0]
  assert double((Opt(OptOps.UPCAST, 0, 4),)).tolist() == [2.0 * i for i in range(8)]
  with pytest.raises(Exception, match="UPCAST"):
    double((Opt(OptOps.UPCAST, 0, 3),)).realize()  # 3 does not divide 8
