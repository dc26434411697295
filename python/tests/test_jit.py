"""TinyJit and function: what replays give, where they refuse, and what traced functions are."""
import functools
import gc
import pickle
import types

import numpy as np
import pytest

from tinygrad_cpp import Context, Device, GradientError, JitError, Tensor, TinyJit, UOp, Variable, dtypes, function, nn
from tinygrad_cpp.engine.jit import MultiGraphRunner, graph_class
from tinygrad_cpp.uop.ops import KernelInfo, Ops


def test_replays_with_other_inputs():
    runs = []

    @TinyJit
    def f(a, b):
        runs.append(1)
        return a + b * 2

    for i in range(5):
        np.testing.assert_allclose(f(Tensor([1.0, i]), Tensor([i, 2.0])).numpy(), [1 + 2 * i, i + 4])
    assert len(runs) == 2 and len(f.captured.linear.src) == 1


def test_earlier_results_stay():
    f = TinyJit(lambda x: x.sum())
    results = [f(Tensor([i, i])) for i in range(5)]
    assert [r.item() for r in results] == [0, 2, 4, 6, 8]


def test_results_in_containers():
    f = TinyJit(lambda x: {"a": x + 1, "b": [x * 2, (x * 3,)]})
    for i in range(4):
        r = f(Tensor([i, 1]))
        assert r["a"].tolist() == [i + 1, 2] and r["b"][1][0].tolist() == [3 * i, 3]


def test_methods_have_a_record_per_instance():
    class Scale:
        def __init__(self, s): self.s = Tensor([s]).realize()

        @TinyJit
        def __call__(self, x): return x * self.s

    a, b = Scale(2), Scale(3)
    for i in range(4):
        assert a(Tensor([i])).item() == 2 * i and b(Tensor([i])).item() == 3 * i
    del a
    gc.collect()


def test_state_is_updated():
    count = Tensor.zeros(2).contiguous().realize()

    @TinyJit
    def f(x): count.assign(count + x)

    for _ in range(5):
        try:
            f(Tensor([1.0, 2.0]))
        except JitError:
            pytest.fail("an assign inside is part of the step")
    assert count.tolist() == [5, 10]


@pytest.mark.parametrize("bad", [
    lambda f, x: f(x, x),
    lambda f, x: f(x, Tensor(2)),
    lambda f, x: f(x, Tensor([1.0, 2.0, 3.0])),
    lambda f, x: f(x, Tensor([1, 2])),
    lambda f, x: f(a=x, b=Tensor([1.0, 2.0])),
])
def test_refused_inputs(bad):
    f = TinyJit(lambda a, b: a + b)
    for _ in range(2):
        f(Tensor([1.0, 2.0]), Tensor([3.0, 4.0]))
    with pytest.raises(JitError):
        bad(f, Tensor([1.0, 2.0]))


def test_changed_constants_are_captures_of_their_own():
    ran = []
    def step(x, k):
        ran.append(k)
        return x * k
    f = TinyJit(step)
    for i in range(20):
        k = i % 3
        assert f(Tensor([1.0, 2.0]), k).tolist() == [k, 2 * k]
    assert ran == [0, 1, 2, 0]  # one uncaptured call, then one for each value


def test_constants_that_do_not_matter_are_found_out():
    ran = []
    def step(x, i, name):
        ran.append(i)
        return x + 1
    f = TinyJit(step)
    for i in range(20):
        assert f(Tensor([i]), i, name=f"call {i}").tolist() == [i + 1]
    assert ran == [0, 1, 2, 3]


def test_an_object_made_of_the_same_tensors_is_the_same_argument():
    class Group:
        def __init__(self, *params): self.params, self.rate = list(params), 0.5
    a, b, ran = Tensor([1.0]).realize(), Tensor([2.0]).realize(), []
    def step(x, group):
        ran.append(group)
        return x * group.params[0] + group.params[1] * group.rate
    f = TinyJit(step)
    for i in range(6):
        assert f(Tensor([i]), Group(a, b)).item() == i + 1
    assert len(ran) == 2
    for i in range(3):
        assert f(Tensor([i]), Group(b, a)).item() == 2 * i + 0.5
    assert len(ran) == 3


@pytest.mark.parametrize("clear", [False, True])
@pytest.mark.parametrize("fresh", [False, True])
def test_gradients_of_arguments(fresh, clear):
    def step(x):
        loss = (x * x).sum()
        loss.backward()
        return loss.realize()
    f = TinyJit(step)
    x, total = Tensor([1.0, 2.0]).realize(), np.zeros(2)
    for i in range(6):
        if fresh: x = Tensor([1.0 + i, 2.0]).realize()
        if clear: x.grad = None
        now = 2 * x.numpy()
        total = now if fresh or clear else total + now
        assert f(x).item() == (x.numpy() ** 2).sum()
        np.testing.assert_allclose(x.grad.numpy(), total)


def test_gradients_of_arguments_that_nobody_looked_at():
    f = TinyJit(lambda x: (x * x).sum().backward())
    for i in range(4):
        x = Tensor([1.0, 2.0]).realize()
        f(x)
    with pytest.raises(GradientError, match="captured function"):
        x.grad
    g = TinyJit(lambda x: (x * x).sum().backward())
    for i in range(4):
        x = Tensor([1.0 + i, 2.0]).requires_grad_()
        g(x)
    assert x.grad.tolist() == [8, 4]


def test_the_result_of_a_captured_function_has_no_history():
    w = Tensor([1.0, 2.0]).realize()
    f = TinyJit(lambda x: x * w)
    for i in range(4):
        y = f(Tensor([3.0, 4.0]))
        with pytest.raises(GradientError, match="captured function"):
            y.sum().gradient(w)


def test_tensors_kept_as_attributes():
    class M: pass
    for realized in (True, False):
        m = M()
        def step(x):
            m.attention = (x * 2).realize() if realized else x * 2
            return x + 1
        f = TinyJit(step)
        for i in range(6):
            assert f(Tensor([i, 1.0])).tolist() == [i + 1, 2]
            assert m.attention.tolist() == [2 * i, 2]
        assert f.captured is not None


def test_two_states_of_one_shape():
    m = types.SimpleNamespace(h=Tensor.zeros(2), c=Tensor.ones(2))
    def cell(x):
        m.c, m.h = m.c + x * 10, m.h + m.c
        return m.h
    f = TinyJit(cell)
    h, c, results = np.zeros(2), np.ones(2), []
    for i in range(7):
        results.append((f(Tensor([1.0, i]).realize()), h := h + c))
        c = c + np.array([10.0, 10 * i])
    for got, want in results: np.testing.assert_allclose(got.numpy(), want)
    np.testing.assert_allclose(m.c.numpy(), c)
    assert f.captured is not None


def test_counters_without_storage():
    for make in (lambda: Tensor(0), lambda: Tensor(np.zeros((), np.int64)), lambda: Tensor.zeros(dtype="long"),
                 lambda: Tensor([0])):
        box = types.SimpleNamespace(n=make(), m=make())
        def step(x):
            box.n += 1
            box.m = box.m + 2
            return x.sum()
        f = TinyJit(step)
        for i in range(1, 7):
            assert f(Tensor.ones(3).contiguous().realize()).item() == 3
        assert (box.n.item(), box.m.item()) == (6, 12)


def test_values_pending_outside_are_no_part_of_the_function():
    w, x = Tensor([1.0, 2.0]).realize(), Tensor([1.0, 1.0]).realize()
    f = TinyJit(lambda x: w.assign(w + x).sum().realize())
    for i in range(6):
        pred = (w * 10).sum()  # reads what the function overwrites
        assert f(x).item() == 3 + 2 * (i + 1)
        assert pred.item() == 10 * (3 + 2 * i)
    assert len(f.captured.linear.src) <= 2


def test_item_inside_is_refused():
    f = TinyJit(lambda x: x * x.sum().item())
    f(Tensor([1, 2]))
    with pytest.raises(JitError):
        f(Tensor([1, 2]))


def test_variables():
    table = Tensor.arange(10).contiguous().realize()
    f = TinyJit(lambda i: table[i:i + 2] * 10)
    for i in range(6):
        assert f(Variable("i", 0, 8).bind(i)).tolist() == [10 * i, 10 * i + 10]


def test_random_numbers_are_those_without_jit():
    def draw(x): return x + Tensor.rand(3)
    x = Tensor.zeros(3).contiguous().realize()
    Tensor.manual_seed(1)
    plain = [draw(x).tolist() for _ in range(4)]
    Tensor.manual_seed(1)
    f = TinyJit(draw)
    assert [f(x).tolist() for _ in range(4)] == plain


def _row(*values): return Tensor(list(values)).realize()


def test_a_weight_in_anothers_place_is_seen():
    class Model: pass
    m = Model()
    m.w = _row(1.0, 1.0)
    kept = [m.w]  # as an optimizer does
    f = TinyJit(lambda x: (x * m.w).sum().realize())
    runs_of = lambda: [f(_row(1.0, 2.0)).item() for _ in range(3)]
    assert runs_of() == [3, 3, 3]
    m.w = _row(10.0, 10.0)
    assert runs_of() == [30, 30, 30]
    average, m.w = m.w, kept[0]
    assert runs_of() == [3, 3, 3] and f.cnt == 9
    m.w = average
    assert runs_of() == [30, 30, 30]
    m.w = _row(2.0, 2.0)
    assert runs_of() == [6, 6, 6]
    del kept, average
    m.w = _row(3.0, 3.0)  # maybe at the address of one that is gone
    assert runs_of() == [9, 9, 9]
    m.w.replace(_row(4.0, 4.0))
    with pytest.raises(JitError, match=r"another tensor in the place of a float32 tensor of shape \(2,\)"): runs_of()
    f.reset()
    assert runs_of() == [12, 12, 12]


def test_state_that_is_reset_between_calls():
    class Recurrent:
        def __init__(self): self.h, self.w = _row(0.0, 0.0), [_row(1.0, 2.0)]
        @TinyJit
        def step(self, x):
            self.h = self.h + x * self.w[0]
            return (self.h * 1).realize()
    r = Recurrent()
    for _ in range(2):
        for i in range(1, 6): assert r.step(_row(1.0, 1.0)).tolist() == [i, 2 * i]
        r.h = _row(0.0, 0.0)
    r.w[0] = _row(3.0, 3.0)
    for i in range(1, 6): assert r.step(_row(1.0, 1.0)).tolist() == [3 * i, 3 * i]


def test_jit_off():
    runs = []
    f = TinyJit(lambda x: (runs.append(1), x + 1)[1])
    with Context(JIT=0):
        for i in range(4):
            assert f(Tensor([i])).item() == i + 1
    assert len(runs) == 4 and f.captured is None


def test_function_is_one_node():
    @function
    def f(a, b): return a + b, a * b

    x, y = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    s, p = f(x, y)
    call = s.uop.src[0]
    assert call.op is Ops.FUNCTION and call.arg.name.endswith("f") and len(call.src[0].src) == 2
    np.testing.assert_allclose((s * p).sum().gradient(x)[0].numpy(), [3 + 3 * 4, 8 + 4 * 6])
def test_function_forbids_implicit_tensors():
    w = Tensor([1.0, 2.0]).realize()
    with pytest.raises(RuntimeError, match="implicit"):
        function(lambda x: x * w)(Tensor([1.0, 2.0]))
    assert function(lambda x: x * w, allow_implicit=True)(Tensor([1.0, 2.0])).tolist() == [1, 4]


def test_gradient_of_a_function():
    @function(grad_fxn=lambda g, call: (g * 10,))
    def f(a): return a * 2

    x = Tensor([1.0, 2.0])
    f(x).sum().backward()
    assert x.grad.tolist() == [10, 10]


def test_call():
    a, b = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    c = Tensor.call(a, b, fxn=a.as_param(0) * b.as_param(1))
    c.sum().backward()
    assert a.grad.tolist() == [3, 4]


def test_custom_kernel():
    def add_one(dst, src):
        i = UOp.range(src.shape[0], 0)
        return dst[i].store(src[i] + 1).end(i).sink(arg=KernelInfo(name="add_one"))

    x = Tensor([1.0, 2.0, 3.0])
    y = Tensor.custom_kernel(Tensor.empty(3), x, fxn=add_one, grad_fxn=lambda g, call: (None, g * 5))[0]
    y.sum().backward()
    assert y.tolist() == [2, 3, 4] and x.grad.tolist() == [5, 5, 5]


def test_tensors_in_nested_containers_are_inputs():
    calls = [lambda t: [[t]], lambda t: {"a": [t]}, lambda t: ((t,),), lambda t: [{"k": ({"d": t}, 1)}]]
    def leaf(x):
        while not isinstance(x, Tensor):
            x = next(iter(x.values())) if isinstance(x, dict) else x[0]
        return x
    for wrap in calls:
        f = TinyJit(lambda x: leaf(x) * 2)
        assert [f(wrap(Tensor([i]))).item() for i in range(4)] == [0, 2, 4, 6]
    g = TinyJit(lambda x, v: x[:v[0][0]].sum())
    assert [g(Tensor([1, 2, 3, 4]), [[Variable("n", 1, 4).bind(i)]]).item() for i in (2, 2, 3, 4)] == [3, 3, 6, 10]


def test_other_arguments_are_compared_by_value():
    class Plain: pass

    class Slots:
        __slots__ = ()

    one, other, slots = Plain(), Plain(), Slots()
    x, v = Tensor([1.0, 2.0]), Variable("n", 1, 4).bind(2)
    w = Variable("m", 1, 4).bind(2)
    cases = [(np.array([1, 2]), np.array([1, 3])), (np.array([1, 2]), np.array([1.0, 2.0])),
             (np.float32(1), np.float32(2)),
                      (memoryview(b"ab"), memoryview(b"ac")), (bytearray(b"ab"), bytearray(b"ac")),
                      (slice(1, 2), slice(1, 3)), ({1, 2}, {1, 3}), ([[1]], [[2]]),
                      (one, other), ([one], [other]), (slots, Slots()), ((1,), [1]), ([v, w], [w, v])]
    for k, (a, b) in enumerate(cases):
        f = TinyJit(lambda x, _: x + 1)
        for _ in range(3):
            assert f(x, a).tolist() == [2, 3], k
        for _ in range(3):
            assert f(x, b).tolist() == [2, 3], k
            assert f(x, a).tolist() == [2, 3], k
    f = TinyJit(lambda x, a: x * Tensor(a))
    for i in range(12):  # more values than captures are kept for
        for _ in range(2):
            assert f(x, np.array([2.0, i], dtype=np.float32)).tolist() == [2, 2 * i]


def test_a_new_object_is_never_taken_for_one_that_is_gone():
    class Scale:
        def __init__(self, s): self.s = s

    f = TinyJit(lambda x, s: x * s.s)
    x, s = Tensor([1.0]), Scale(2)
    for _ in range(3):
        assert f(x, s).item() == 2
    del s
    gc.collect()
    for i in range(12):
        for _ in range(3):
            assert f(x, Scale(i)).item() == i


def test_sets_of_tensors_are_refused():
    f = TinyJit(lambda s: sum(s))
    with pytest.raises(JitError, match="set of tensors"):
        f({Tensor([1.0])})


def test_results_of_symbolic_size():
    t = Tensor.arange(10).contiguous().realize()
    f = TinyJit(lambda n: t[:n] * 2)
    results = [f(Variable("n", 1, 10).bind(k)) for k in (7, 7, 3, 5, 9)]
    assert [r.tolist() for r in results] == [[2 * i for i in range(k)] for k in (7, 7, 3, 5, 9)]


@pytest.mark.parametrize("zero", ["outside", "inside", "asis"])
def test_gradients_left_behind(zero):
    w = Tensor([1.0, 2.0]).requires_grad_()
    def step(x):
        if zero == "inside":
            w.grad = None
        loss = (w * x).sum()
        loss.backward()
        return loss
    f = TinyJit(step)
    total = np.zeros(2)
    for i in range(5):
        if zero == "outside":
            w.grad = None
        x = np.array([i, i + 1], dtype=np.float32)
        total = x if zero != "asis" else total + x
        f(Tensor(x))
        np.testing.assert_allclose(w.grad.numpy(), total)


@pytest.mark.parametrize("realized,result", [(True, lambda h: None), (True, lambda h: h), (False, lambda h: h*2)])
def test_state_that_is_replaced_goes_on(realized, result):
    class M: pass
    m = M()
    m.h = Tensor([0.0, 0.0]).contiguous().realize()
    def step(x):
        m.h = (m.h + x).realize() if realized else m.h + x
        return result(m.h)
    f = TinyJit(step)
    results = []
    for i in range(1, 8):
        results.append(f(Tensor([1.0, 1.0])))
        assert m.h.tolist() == [i, i]
    if result(m.h) is not None:
        assert [r.tolist()[0] for r in results] == [result(Tensor([i])).item() for i in range(1, 8)]
    assert f.captured is not None


def test_variables_that_no_argument_binds_are_refused():
    t = Tensor.arange(10).contiguous().realize()
    box = [3]
    f = TinyJit(lambda x: x + t[:Variable("k", 1, 10).bind(box[0])].sum())
    with pytest.raises(JitError, match="variable k"):
        for i in range(3):
            box[0] = 3 + i
            assert f(Tensor([0])).item() == sum(range(3 + i))
    f = TinyJit(lambda x: t[:Variable("k", 1, 10).bind(box[0])])
    with pytest.raises(JitError):
        for i in range(3):
            box[0] = 3 + i
            assert f(Tensor([0])).tolist() == list(range(3 + i))


def test_flags_of_the_capture():
    f = TinyJit(lambda x: x.dropout(0.5) + 1)
    x = Tensor.ones(100).contiguous().realize()
    for i in range(3):
        f(x)
    for _ in range(3):
        with Tensor.train():
            assert 0 < (f(x).numpy() == 1).sum() < 100
        assert f(x).tolist() == [2.0] * 100
    g = TinyJit(lambda x: x + 1)
    for i in range(3):
        g(x)
    with Tensor.train():
        g(x)
    with Context(DEFAULT_FLOAT="float16"):
        g(x)


def test_results_that_are_views_of_inputs():
    f = TinyJit(lambda x: x[1:])
    for i in range(4):
        assert f(Tensor([i, i + 1])).tolist() == [i + 1]
    f = TinyJit(lambda x: x[:0])
    for i in range(4):
        assert f(Tensor([i, i + 1])).tolist() == []
    f = TinyJit(lambda x: (x+1, x[1:1]))
    for i in range(4):
        assert f(Tensor([i, i + 1]))[1].tolist() == []


def test_training_steps():
    l = nn.Linear(3, 2)
    bn = nn.BatchNorm(2)
    for cls in (nn.optim.Adam, nn.optim.SGD):
        opt = cls(nn.state.get_parameters(l) + nn.state.get_parameters(bn), lr=0.1)
        @TinyJit
        @Tensor.train()
        def step(x):
            opt.zero_grad()
            loss = bn(l(x).reshape(-1, 2, 1, 1)).square().mean().backward()
            opt.step()
            return loss
        @TinyJit
        @Tensor.train()
        def step2(x):
            opt.zero_grad()
            loss = bn(l(x).reshape(-1, 2, 1, 1)).square().mean().backward()
            return loss.realize(*opt.schedule_step())
        for i in range(5):
            step(Tensor.rand(4, 3))
        for i in range(5):
            step2(Tensor.rand(4, 3))


def test_tensors_left_outside():
    out = []
    def f(x):
        out.append(x * 2)
        return x + 1
    f = TinyJit(f)
    with pytest.raises(JitError, match="leaves"):
        for i in range(5):
            f(Tensor([i]))
    keep = {}
    def g(x):
        if "c" not in keep:
            keep["c"] = Tensor.zeros(2).contiguous().realize()
        keep["c"].assign(keep["c"] + x)
        return keep["c"] + 0
    f = TinyJit(g)
    for i in range(1, 7):
        assert f(Tensor([1.0, 1.0])).tolist() == [i, i]


def test_pruned_kernels_follow_what_they_read():
    w = Tensor([1.0, 2.0]).contiguous().realize()
    f = TinyJit(lambda x: (w * 2).contiguous() + x, prune=True)
    x = Tensor([1.0, 1.0]).realize()
    for _ in range(3):
        assert f(x).tolist() == [3, 5]
    assert len(f.captured.linear.src) == 1
    w.assign(Tensor([10.0, 20.0]))
    assert f(x).tolist() == [21, 41] and f(x).tolist() == [21, 41]
    w += 1
    assert f(x).tolist() == [23, 43]
    step = TinyJit(lambda y: w.assign(w + y).realize())
    for i in range(1, 5):
        step(Tensor([1.0, 1.0]))
        assert f(x).tolist() == [23 + 2 * i, 43 + 2 * i]


def test_gradients_grow_after_they_were_taken_away():
    p = Tensor([1.0]).realize().requires_grad_()
    f = TinyJit(lambda x: (p * x).sum().backward())
    want = 0.0
    for i in range(1, 12):
        if i in (3, 6, 10):
            p.grad, want = None, 0.0
        f(Tensor([float(i)]).realize())
        want += i
        assert p.grad.item() == want, i


@pytest.mark.parametrize("modes", ["aaabbaaa", "aaabaaabbb", "aababab"])
def test_attributes_follow_the_capture_that_is_replayed(modes):
    state = types.SimpleNamespace()

    @TinyJit
    def f(x, mode):
        state.log = x * (1 if mode == "a" else 2)
        return x + 0

    for i, mode in enumerate(modes, 1):
        f(Tensor([float(i)]), mode)
        assert state.log.item() == (i if mode == "a" else 2 * i)


def test_objects_in_the_place_of_others_are_seen():
    class Layer:
        def __init__(self, v): self.weight = Tensor([[v]]).realize()
        def __call__(self, x): return x @ self.weight

    class Model:
        def __init__(self): self.first, self.rest, self.named = Layer(1.0), [Layer(2.0)], {"a": Layer(3.0)}
        def __call__(self, x): return self.first(x) + self.rest[0](x) + self.named["a"](x)

    model = Model()
    f = TinyJit(lambda x: model(x).realize())
    def expect(want):
        for _ in range(3):
            assert f(Tensor([[1.0]]).realize()).item() == want

    expect(6)
    model.first = Layer(5.0)
    expect(10)
    model.rest[0] = Layer(7.0)
    expect(15)
    model.named["a"] = Layer(9.0)
    expect(21)
    model.rest = [Layer(1.0)]
    expect(15)
    model = Model()
    expect(6)


def test_decorator_with_options():
    w = Tensor([1.0, 2.0]).contiguous().realize()

    @TinyJit(prune=True)
    def f(x):
        return (w * 2).contiguous() + x
    for i in range(3):
        assert f(Tensor([i, i])).tolist() == [2 + i, 4 + i]
    assert len(f.captured.linear.src) == 1 and f.prune


def test_first_call_inside_is_a_part_of_the_capture():
    def step(x):
        inner = TinyJit(lambda y: (y * 2).realize())
        return inner(x) + 1
    outer = TinyJit(step)
    for i in range(4):
        assert outer(Tensor([i])).tolist() == [2 * i + 1]

    def twice(x):
        inner = TinyJit(lambda y: (y * 2).realize())
        return inner(inner(x))
    outer = TinyJit(twice)
    assert outer(Tensor([1])).tolist() == [4]
    with pytest.raises(JitError, match="having TinyJit inside another TinyJit is not supported"):
        outer(Tensor([1]))


def test_what_a_capture_says_of_its_arguments():
    f = TinyJit(lambda a, *more, scale: (a * scale + more[0]).realize())
    for i in range(3):
        f(Tensor([[i, 1.0]]).realize(), Tensor([2, 3]).realize(), scale=Tensor([2.0]).realize())
    for captured in (f.captured, pickle.loads(pickle.dumps(f)).captured):
        assert captured.expected_names == [0, 1, "scale"]
        assert [(v.shape, names, d, device) for v, names, d, device in captured.expected_input_info] == [
            ((1, 2), (), dtypes.float32, "CPU"), ((2,), (), dtypes.int32, "CPU"), ((1,), (), dtypes.float32, "CPU")]


def test_what_a_capture_launches():
    f = TinyJit(lambda x: ((x + 1).contiguous().sum() * 2).realize())
    for i in range(3):
        f(Tensor([i, 1.0]).realize())
    linear = f.captured.linear
    programs = [u for u in linear.toposort(gate=lambda u: u.op is not Ops.PROGRAM) if u.op is Ops.PROGRAM]
    calls = [u for u in linear.toposort() if u.op is Ops.CALL]
    assert [c.src[0] for c in calls] == programs and tuple(calls) == linear.src
    _, _, source, _ = programs[0].src
    assert programs[0].arg.name and source.op is Ops.SOURCE and source in linear.toposort()
    assert source not in linear.toposort(gate=lambda u: u.op is not Ops.PROGRAM)


@pytest.mark.parametrize("move", [lambda x: x.to_("CPU:1"), lambda x: x.shard_(("CPU:0", "CPU:1"), axis=0)],
                         ids=["to_", "shard_"])
def test_arguments_that_are_moved_inside(move):
    weight = Tensor([[1.0, 2.0]])
    move_weight = weight.to("CPU:1") if move.__code__.co_names == ("to_",) else weight.to(("CPU:0", "CPU:1"))
    move_weight = move_weight.contiguous().realize()

    def step(x):
        move(x)
        return (x * move_weight).sum().realize()
    f = TinyJit(step)
    for i in range(5):
        x = Tensor([[i, 1.0], [2.0, 3.0]]).realize()
        assert f(x).item() == i + 2 + 2 + 6
        assert x.tolist() == [[i, 1.0], [2.0, 3.0]]
        assert i == 0 or x.device == "CPU"  # a replay moves the values, not the argument


def test_no_device_has_graphs():
    assert graph_class(Device["CPU"]) is None
    runner = types.SimpleNamespace(graph=functools.partial(MultiGraphRunner, 1))
    assert issubclass(graph_class(runner), MultiGraphRunner)


@pytest.mark.parametrize("fresh", [lambda: Tensor.zeros(2), lambda: Tensor([1.0, 2.0]) * 0,
                                   lambda: Tensor.zeros(2).contiguous(),
                                   lambda: Tensor.zeros(2).contiguous().realize()],
                         ids=["constant", "pending", "contiguous", "realized"])
@pytest.mark.parametrize("at", [(1,), (2,), (3,), (4,), (2, 5), (2, 3, 4)])
def test_state_that_is_begun_anew(at, fresh):
    class Recurrent:
        def __init__(self): self.h = Tensor.zeros(2).contiguous().realize()
        @TinyJit
        def step(self, x):
            self.h = self.h * 0.5 + x
            return (self.h + 0).realize()

    model, h = Recurrent(), 0.0
    for i in range(9):
        if i in at: model.h, h = fresh(), 0.0
        h = h * 0.5 + i
        assert model.step(Tensor([float(i)] * 2).realize()).tolist() == [h, h]
        if i >= 7: assert model.h.tolist() == [h, h]
