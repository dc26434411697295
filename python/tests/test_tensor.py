"""The class Tensor from Python: values in and out, arguments in all their forms, errors, gradients."""
import copy
import gc
import operator
import pickle
import threading
import weakref

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tinygrad_cpp as tg
from tinygrad_cpp import Tensor, dtypes


def test_from_python_values():
    assert Tensor(3).shape == () and Tensor(3).item() == 3
    assert Tensor([[1, 2], [3, 4]]).dtype is dtypes.int32
    assert Tensor([1, 2.5]).dtype is dtypes.float32
    assert Tensor([True, False]).dtype is dtypes.bool
    assert Tensor([2**40]).tolist() == [2**40]
    assert Tensor(b"\x01\x02").dtype is dtypes.uint8
    assert Tensor([]).shape == (0,)
    assert Tensor([[], []]).shape == (2, 0)
    assert Tensor([1, 2], dtype="float16").dtype is dtypes.float16


@pytest.mark.parametrize("bad", [[[1, 2], [3]], [1, [2]], [[1], 2], ["a"], [None], object()])
def test_refused_values(bad):
    with pytest.raises((ValueError, TypeError, RuntimeError)):
        Tensor(bad)


@pytest.mark.parametrize("name",
                         ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16",
                          "float32", "float64"])
def test_numpy_round_trip(name):
    x = np.arange(-3, 9).reshape(3, 4).astype(name)
    for a in (x, x.T, x[::2, 1:], x[:0], x[1, 1]):
        t = Tensor(a)
        assert t.dtype is getattr(dtypes, name) and t.shape == a.shape
        np.testing.assert_array_equal(t.numpy(), a)
        assert t.numpy().dtype == a.dtype


def test_numpy_is_a_copy():
    t = Tensor([1.0, 2.0]).realize()
    a = t.numpy()
    a[0] = 7
    assert t.tolist() == [1.0, 2.0]


def test_buffer_protocol_shares_memory():
    t = Tensor([[1.0, 2.0], [3.0, 4.0]]).contiguous().realize()
    m = memoryview(t)
    assert m.shape == (2, 2) and m.format == "f" and m.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    del t
    gc.collect()
    assert m.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_data_is_a_copy():
    t = Tensor([[1.0, 2.0], [3.0, 4.0]]).contiguous().realize()
    m = t.data()
    assert m.shape == (2, 2) and m.format == "f"
    t.assign(Tensor.zeros(2, 2)).realize()
    assert m.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    m[0, 0] = 9
    assert t.tolist() == [[0, 0], [0, 0]]
    assert Tensor([]).data().nbytes == 0 and Tensor(3).data()[()] == 3
    with pytest.raises(TypeError, match="cast to float32"):
        Tensor([1.0], dtype=dtypes.bfloat16).data()


def test_dlpack_both_ways():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    t = Tensor.from_dlpack(x)
    x[0, 0] = 5
    assert (t + 1).tolist() == [[6, 2, 3], [4, 5, 6]]
    np.testing.assert_array_equal(np.from_dlpack(Tensor([[1, 2], [3, 4]])), [[1, 2], [3, 4]])
    turned = Tensor.from_dlpack(x.T)
    x[1, 2] = 9
    assert turned.tolist() == [[5, 3], [1, 4], [2, 9]]


@pytest.mark.parametrize("view", [
    lambda x: x[:, ::2], lambda x: x[::-1], lambda x: x[:, :1], lambda x: x.transpose(2, 0, 1),
    lambda x: x.transpose(1, 2, 0)[1:], lambda x: x[0, :, 1],
    lambda x: np.broadcast_to(x[:1], x.shape), lambda x: x[:0], lambda x: x[1:2].swapaxes(0, 2), lambda x: x[..., 2:3]])
def test_dlpack_of_strided_memory(view):
    x = view(np.arange(24, dtype=np.int32).reshape(2, 3, 4))
    t = Tensor.from_dlpack(x)
    assert t.shape == x.shape
    np.testing.assert_array_equal(t.numpy(), x)
    np.testing.assert_array_equal((t * 2).numpy(), x * 2)


def test_integers_are_never_another_number():
    big = 2**40
    assert Tensor(big).item() == big and Tensor.full((2,), -big).tolist() == [-big,
            -big] and Tensor([big, 1]).dtype == dtypes.int64
    assert Tensor(2**63, dtype=dtypes.uint64).item() == 2**63
    x = Tensor([1, 2])
    assert (x < big).tolist() == [True, True] and (x == -big).tolist() == [False, False] and x.clip(-big,
            big).tolist() == [1, 2]
    for wrong in (lambda: x + big, lambda: big - x, lambda: x.full_like(big), lambda: (x > 1).where(big, x),
                  lambda: x.scatter(0, Tensor([0]), big),
                  lambda: Tensor(2**63).item(), lambda: Tensor([2**64])):
        with pytest.raises(OverflowError):
            wrong()
    with pytest.raises(OverflowError):
        x.contiguous().realize()[0] = big
    # A type that is asked for wraps, as it does in tinygrad.
    assert Tensor([300, -1], dtype=dtypes.uint8).tolist() == [44, 255] and Tensor(300, dtype=dtypes.uint8).item() == 44
    assert Tensor([2**33, 1], dtype=dtypes.uint32).tolist() == [0, 1] and Tensor([2**70],
            dtype=dtypes.int64).tolist() == [0]


def test_labels_that_are_ignored_do_not_count():
    logp = Tensor([[0.0, 1.0], [2.0, 0.0], [1.0, 1.0]])
    two = logp[:2].sparse_categorical_crossentropy(Tensor([0, 1])).item()
    for ignored in (-1, -100):
        assert logp.sparse_categorical_crossentropy(Tensor([0, 1, ignored]),
                                                    ignore_index=ignored).item() == pytest.approx(two)


def test_dlpack_owner_lives_as_long_as_the_tensor():
    class Owner(np.ndarray):
        pass
    x = np.zeros(4, dtype=np.float32).view(Owner)
    alive = weakref.ref(x)
    t = Tensor.from_dlpack(x)
    del x
    gc.collect()
    assert alive() is not None and t.tolist() == [0, 0, 0, 0]
    del t
    for _ in range(1000):  # the interpreter's loop lets go of it
        gc.collect()
        if alive() is None:
            break
    assert alive() is None


def test_identity():
    t = Tensor([1.0])
    assert t.realize() is t and t.assign(Tensor([2.0])) is t and t.item() == 2
    assert len({t, t}) == 1
    with pytest.raises(TypeError):
        bool(t)
    with pytest.raises(TypeError):
        len(Tensor(1))
    u = t
    u += 1
    assert u is t and t.item() == 3


def test_pickle_and_copy():
    t = Tensor([[1.0, 2.0]])
    (t * t).sum().backward()
    for c in (pickle.loads(pickle.dumps(t)), copy.deepcopy(t)):
        assert c.tolist() == [[1.0, 2.0]] and c.grad.tolist() == [[2.0, 4.0]]
    assert pickle.loads(pickle.dumps(dtypes.float32)) is dtypes.float32


def test_forms_of_shape_arguments():
    t = Tensor.arange(6)
    assert t.reshape(2, 3).shape == t.reshape((2, 3)).shape == t.reshape([2, -1]).shape == (2, 3)
    assert t.reshape(2, 3).permute(1, 0).shape == t.reshape(2, 3).permute((1, 0)).shape == (3, 2)
    assert t.reshape(1, 6).expand(4, None).shape == (4, 6)
    assert t.reshape(2, 3).shrink((None, (0, 2))).shape == (2, 2)
    assert t.reshape(2, 3).pad((None, (1, 1))).shape == (2, 5)
    assert t.reshape(2, 3).pad((1, 1, 0, 2)).shape == (4, 5)
    assert Tensor.zeros(2, 3).shape == Tensor.zeros((2, 3)).shape == (2, 3)
    assert Tensor.cat(t, t, dim=0).shape == (12,)
    assert Tensor.stack([t, t]).shape == Tensor.stack(t, t).shape == (2, 6)
    a, b = t.split(4)
    assert a.shape == (4,) and b.shape == (2,)


def test_a_kernel_has_as_many_axes_as_its_tuple():
    t = Tensor.arange(12).reshape(1, 2, 6).float()
    assert t.max_pool2d((2,)).tolist() == [[[1, 3, 5], [7, 9, 11]]] and t.avg_pool2d((3,)).tolist() == [[[1, 4],
            [7, 10]]]
    assert t.max_pool2d(2).tolist() == t.max_pool2d((2, 2)).tolist() == [[[7, 9, 11]]]
    u = Tensor.arange(16).reshape(1, 1, 4, 4).float()
    for kernel in (2, (2, 2)):
        v, i = u.max_pool2d(kernel, return_indices=True)
        assert v.max_unpool2d(i, kernel, output_size=(1, 1, 4, 4)).sum().item() == v.sum().item() == 5 + 7 + 13 + 15


@pytest.mark.parametrize("call, kind", [
    (lambda t: t.reshape(4), ValueError),
    (lambda t: t.expand(3, 7), ValueError),
    (lambda t: t + Tensor([1, 2]), ValueError),
    (lambda t: t + "a", TypeError),
    (lambda t: t[9], IndexError),
    (lambda t: t.sum(axis=3), IndexError),
    (lambda t: t.cast("nothing"), AttributeError),
    (lambda t: Tensor.zeros(2, color=3), TypeError),
    (lambda t: Tensor.empty(2, device="TOASTER"), (ValueError, RuntimeError)),
    (lambda t: Tensor.ones(3, 3).backward(), RuntimeError),
    (lambda t: t.dot(lambda x: x), TypeError),
])
def test_errors(call, kind):
    with pytest.raises(kind):
        call(Tensor.ones(3, dtype="float32"))


def test_a_layer_is_no_operand():
    for call in (lambda t: t.dot(lambda x: x), lambda t: t * (lambda x: x)):
        with pytest.raises(TypeError, match="call a layer"):
            call(Tensor.ones(3))


def test_errors_are_ours_and_builtin():
    with pytest.raises(tg.ShapeError) as e:
        Tensor.zeros(2).reshape(3)
    assert isinstance(e.value, (ValueError, RuntimeError)) and isinstance(e.value, tg.Error)
    assert "[reshape]" in str(e.value)


def test_gradients():
    w, x = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    (w * x).sum().backward()
    assert w.grad.tolist() == [3, 4] and x.grad.tolist() == [1, 2]
    w.grad = None
    assert w.grad is None
    (dw,) = (w * w).sum().gradient(w)
    assert dw.tolist() == [2, 4]


def test_requires_grad_of_older_versions():
    w, x = Tensor([1.0, 2.0], requires_grad=True), Tensor([3.0, 4.0])
    (w * x).sum().backward()
    assert w.grad.tolist() == [3, 4] and x.grad is None
    assert not Tensor([1.0]).is_param_(False).is_param

def test_training_mode_of_older_versions():
    @Tensor.train()
    def inside():
        return Tensor.training
    assert inside() and not Tensor.training
    with Tensor.train():
        assert Tensor.training
        with Tensor.train(False):
            assert not Tensor.training
    Tensor.training = True
    assert Tensor.training
    Tensor.training = False
    with Tensor.no_grad():
        assert not Tensor.training


def test_schedule_lists_what_realize_runs():
    a, b = Tensor.rand(4, 4).realize(), Tensor.rand(4, 4).realize()
    assert len((a + b).schedule()) == 1
    x = (a @ b).relu().sum()
    steps, linear = x.schedule(), x.schedule_linear()
    assert len(steps) == len(linear.src) >= 1 and steps[-1].bufs
    assert a.schedule() == []


def test_threads_compute_side_by_side():
    results = [None] * 4

    def work(i):
        t = Tensor.full((64, 64), float(i)).contiguous()
        for _ in range(5):
            t = (t @ Tensor.eye(64)).realize()
        results[i] = t.numpy()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i, r in enumerate(results):
        np.testing.assert_array_equal(r, np.full((64, 64), i, np.float32))


SHAPES = st.lists(st.integers(0, 4), min_size=0, max_size=3).map(tuple)


@settings(max_examples=40, deadline=None)
@given(SHAPES, st.sampled_from(["add", "mul", "sub", "maximum", "eq", "lt"]), st.integers(0, 2**31))
def test_binary_operators_agree_with_numpy(shape, op, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-5, 5, shape).astype(np.float32), rng.integers(-5, 5, shape[-1:]).astype(np.float32)
    numpy = {"add": np.add, "mul": np.multiply, "sub": np.subtract, "maximum": np.maximum, "eq": np.equal,
             "lt": np.less}[op]
    ours = {"lt": lambda x, y: x < y}.get(op, lambda x, y: getattr(x, op)(y))
    np.testing.assert_array_equal(ours(Tensor(a), Tensor(b)).numpy(), numpy(a, b))


@settings(max_examples=40, deadline=None)
@given(SHAPES.filter(lambda s: 0 not in s), st.sampled_from(["sum", "max", "min", "prod"]), st.booleans(), st.data())
def test_reduces_agree_with_numpy(shape, op, keepdim, data):
    axes = tuple(sorted(data.draw(st.sets(st.integers(0, len(shape) - 1))))) if shape else ()
    a = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape) % 4 - 1
    axis = axes or None
    np.testing.assert_array_equal(getattr(Tensor(a), op)(axis=axis, keepdim=keepdim).numpy(),
                                  getattr(a, op)(axis=axis, keepdims=keepdim))


def test_symbolic_ranges_and_fills():
    v = tg.Variable("a", 1, 10)
    assert Tensor.arange(0, v.bind(4))[:4].tolist() == [0, 1, 2, 3]
    assert Tensor.arange(10, v.bind(3), -2)[:4].tolist() == [10, 8, 6, 4]
    assert Tensor.arange(0, 10, tg.Variable("step", 1, 3).bind(2))[:5].tolist() == [0, 2, 4, 6, 8]
    assert Tensor.full((3,), v.bind(5)).tolist() == [5, 5, 5]
    with pytest.raises(ValueError, match="step"):
        Tensor.arange(0, 10, tg.Variable("step", -1, 3).bind(2))
    with pytest.raises(RuntimeError, match="unbound"):
        Tensor(v).item()


def test_symbolic_sizes_in_any_order():
    t, v = tg.Variable("t", 1, 10).bind(4), tg.Variable("u", 1, 5).bind(1)
    stored = (Tensor.full((1, t, v + t), 1) + 1).contiguous()
    assert stored.shrink(((0, 1), (0, 4), (0, 5))).tolist() == [[[2] * 5] * 4]
    mask = Tensor.full((t, v + t), 1.0).triu(v + 1)
    np.testing.assert_array_equal(mask.shrink(((0, 4), (0, 5))).numpy(), np.triu(np.ones((4, 5)), 2))
    p = tg.Variable("a", 1, 10).bind(2)
    assert Tensor.ones(2, 2).contiguous().pad([p, p, p, p]).sum().item() == 4


def test_keywords_of_views():
    x = Tensor.arange(6).reshape(2, 3)
    assert x.flip(axis=0).tolist() == x.flip(axis=(0,)).tolist() == x.flip(0).tolist()
    assert x.flip(axis=(0, 1)).tolist() == [[5, 4, 3], [2, 1, 0]]
    assert x.shrink_to(shape=(1, 2)).tolist() == x.shrink_to(shape=[1, 2]).tolist() == [[0, 1]]
    assert x.reshape(1, 1, 2, 3)._pool((2, 2)).shape == (1, 1, 1, 2, 2, 2)
    assert x._pool((2,), stride=2, dilation=1).tolist() == [[[0, 1]], [[3, 4]]]


def test_powers_of_integers():
    assert (Tensor(6) ** Tensor(-8)).item() == 0
    assert (6 ** Tensor(-8)).item() == 0
    assert (Tensor([6, 1]) ** Tensor([-8, -2])).tolist() == [0, 1]
    assert Tensor([6, 1]).pow(Tensor(-8)).tolist() == [0, 1]
    assert Tensor(-8).pow(6, reverse=True).item() == 0
    with pytest.raises(tg.DTypeError):
        Tensor([6]) ** -8
    x = Tensor([2, 3])
    x **= 2
    assert x.tolist() == [4, 9]
    assert (2 ** Tensor([1.0, 3.0])).tolist() == [2, 8]
    with pytest.raises(TypeError):
        Tensor([2]) ** "x"


def test_correction_that_is_no_integer():
    x = Tensor([1.0, 2.0, 4.0])
    assert abs(x.std(correction=0.5).item() - 1.3662601) < 1e-6
    assert abs(x.var(correction=1.5).item() - 14 / 3 / 1.5) < 1e-6
    assert abs(x.std_mean(correction=0.5)[0].item() - 1.3662601) < 1e-6
    assert abs(x.var(correction=0).item() - 14 / 9) < 1e-6


def test_numpy_numbers_and_arrays_beside_a_tensor():
    for scalar in (np.float32(2), np.float64(2), np.int64(2)):
        x = Tensor([1.0, 2.0])
        y = (scalar * x + scalar / x - (scalar - x)).sum()
        assert isinstance(y, Tensor) and y.dtype == dtypes.float32
        y.backward()
        np.testing.assert_allclose(x.grad.numpy(), [2 - 2 / 1 + 1, 2 - 2 / 4 + 1])
        assert isinstance(scalar > x, Tensor) and (scalar == x).tolist() == [False, True]
    x, array = Tensor([1.0, 2.0]), np.ones(2, np.float32)
    for f in (lambda: x + array, lambda: array + x, lambda: array @ x, lambda: x @ array, lambda: array == x,
              lambda: x == array,
              lambda: x != array, lambda: array < x, lambda: operator.iadd(x, array), lambda: operator.iadd(array, x)):
        with pytest.raises(TypeError, match=r"got a NumPy array: write Tensor\(array\)"):
            f()
    np.testing.assert_array_equal(np.exp(x), np.exp(x.numpy()))
