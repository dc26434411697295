"""x[...], x[...] = v and x[...] += v against NumPy, and what is refused."""
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tinygrad_cpp import Tensor, Variable, dtypes


def index_of(draw, n):
    kind = draw(st.sampled_from(["int", "slice", "slice", "all", "list"]))
    if kind == "int":
        return draw(st.integers(-n, n - 1))
    if kind == "all":
        return slice(None)
    if kind == "list":
        return [draw(st.integers(-n, n - 1)) for _ in range(2)]
    bound = st.one_of(st.none(), st.integers(-n - 1, n + 1))
    return slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, 3, -1, -2])))


@st.composite
def shape_and_index(draw):
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    index = [index_of(draw, n) for n in shape]
    # NumPy moves axes for integers beside lists
    if sum(isinstance(i, list) for i in index) and any(isinstance(i, int) for i in index):
        index = [slice(i, i + 1 or None) if isinstance(i, int) else i for i in index]
    for _ in range(draw(st.integers(0, 1))):
        if not any(isinstance(i, list) for i in index): index.insert(draw(st.integers(0, len(index))), None)
        else:
            # NumPy alone moves the axes of lists around an empty ...
            index.insert(draw(st.sampled_from((0, len(index)))), Ellipsis)
    return shape, tuple(index)


@settings(max_examples=40, deadline=None)
@given(shape_and_index())
def test_like_numpy(case):
    shape, index = case
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    want = x[index]
    for t in (Tensor(x), Tensor(x) + 0):
        got = t[index]
        assert got.shape == want.shape
        np.testing.assert_equal(got.numpy(), want)
        del got  # a view of a pending tensor is another use of it
        value = -1 - np.arange(want.size, dtype=np.int32).reshape(want.shape)
        y = x.copy()
        y[index] = value
        t[index] = Tensor(value)
        np.testing.assert_equal(t.numpy(), y)


def test_what_an_index_may_be():
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    t = Tensor(x)
    assert t[()] is t and t[...] is t and t[:] is t
    np.testing.assert_equal(t[np.int64(1), np.int32(-1)].numpy(), x[1, -1])
    np.testing.assert_equal(t[np.array([2, 0])].numpy(), x[[2, 0]])
    np.testing.assert_equal(t[[2, 0]].numpy(), x[[2, 0]])
    np.testing.assert_equal(t[[[0, 2], [1, 3]]].numpy(), x[[0, 2], [1, 3]])
    np.testing.assert_equal(t[(0, 2), :].numpy(), x[[0, 2]])
    np.testing.assert_equal(t[Tensor([[0], [2]]), [1, 3]].numpy(), x[[[0], [2]], [1, 3]])
    np.testing.assert_equal(t[t > 5].numpy(), x[x > 5])
    np.testing.assert_equal(t[[True, False, True]].numpy(), x[[True, False, True]])
    v = Variable("v", 0, 2).bind(1)
    np.testing.assert_equal(t[v].numpy(), x[1])
    np.testing.assert_equal(t[v:v + 2, 0].numpy(), x[1:3, 0])
    np.testing.assert_equal(t[:v + 1].sum().item(), x[:2].sum())


@pytest.mark.parametrize("index, error", [
    (3, IndexError), ((0, 4), IndexError), ((0, 0, 0), IndexError), (1 << 70, IndexError), (1.0, IndexError),
    ([1.5], IndexError), ("a", IndexError),
    (slice(0.0, None), TypeError), (slice("0", "1"), TypeError), ((Ellipsis, Ellipsis), IndexError),
    (slice(None, None, 0), ValueError),
    (([0, 1], [0, 1, 2]), IndexError), ([True, False], IndexError),
])
def test_refused(index, error):
    t = Tensor.zeros(3, 4).contiguous().realize()
    with pytest.raises(error):
        t[index]
    with pytest.raises(error):
        t[index] = 1


def test_updates():
    t = Tensor.arange(6).reshape(2, 3).clone().realize()
    t[0] += 10
    t[:, 1] *= 2
    t[1, [0, 2]] -= 1
    t[1] //= 2
    t[0, 0] **= 2
    t[t == 22] = -1
    assert t.tolist() == [[100, -1, 12], [1, 4, 2]]
    t[1:] = [[7, 8, 9]]
    t[0, :2] = np.array([5, 6], dtype=np.int32)
    t[0, 2] = 3.9
    assert t.tolist() == [[5, 6, 3], [7, 8, 9]]
    with pytest.raises(TypeError):
        del t[0]


def test_writes_that_are_refused():
    t = Tensor([1.0, 2.0]).realize()
    with pytest.raises(RuntimeError, match="dtype mismatch"):
        t[0] = Tensor([1], dtype=dtypes.int32)
    with pytest.raises(RuntimeError, match="dtype mismatch"):
        t.assign(Tensor([1, 2]))
    with pytest.raises(RuntimeError):
        Tensor(5)[...] = 1


def test_pending_tensors_keep_the_elements_they_were_computed_from():
    t = Tensor([1.0, 2.0]).realize()
    pending = t * 2
    t[0] = 5
    assert t.tolist() == [5, 2] and pending.tolist() == [2, 4]
    # as in k-means: distances that were read in part and are still bound to a name
    x, c = Tensor([[0.0, 1], [2, 3], [5, 0]]), Tensor([[1.0, 0], [0, 1]])
    distances = (x.unsqueeze(1) - c.unsqueeze(0)).square().sum(2)
    which = distances.argmin(1)
    assert which.tolist() == [1, 1, 0]
    for k in range(2): c[k] = (which.one_hot(2).float()[:, k:k + 1] * x).sum(0)
    assert c.tolist() == [[5, 0], [2, 4]]
    assert distances.tolist() == [[2, 0], [10, 8], [16, 26]]


def test_views_of_a_pending_tensor_see_the_write():
    y = Tensor([1.0, 2.0, 3.0]) * 2
    tail = y[1:]
    y[1] = 9
    assert y.tolist() == [2, 9, 6] and tail.tolist() == [9, 6]


def test_gradients_of_writes():
    x, v = Tensor([1.0, 2.0, 3.0]), Tensor([4.0, 5.0])
    z = x * 2
    z[:2] = v
    z.sum().backward()
    assert x.grad.tolist() == [0, 0, 2] and v.grad.tolist() == [1, 1]
    z = Tensor([1.0, 2.0, 3.0])
    z[1:] += v
    (z * z).sum().backward()
    assert v.grad.tolist() == [1 + 12, 1 + 16]


@pytest.mark.parametrize("index", [True, False, (True, 0)])
def test_a_bool_is_no_position(index):
    with pytest.raises(IndexError, match="bool"):
        Tensor.ones(4, 3)[index]


@pytest.mark.parametrize("n", range(1, 8))
@pytest.mark.parametrize("step", [1, 2, 3, 9, -1, -2, -3])
def test_update_through_a_step(n, step):
    want = np.arange(n)
    got = Tensor.arange(n).contiguous().realize()
    want[::step] += 10
    got[::step] += 10
    np.testing.assert_array_equal(got.numpy(), want)
    want[::step] *= 2
    got[::step] *= 2
    np.testing.assert_array_equal(got.numpy(), want)


def test_update_through_steps_of_several_axes():
    want = np.arange(15).reshape(3, 5)
    stored, lazy = Tensor(want.copy()).realize(), Tensor.arange(15).reshape(3, 5)
    for x in (want, stored, lazy):
        x[:, ::2] += 1
        x[::-2, 1:4:2] -= 100
    np.testing.assert_array_equal(stored.numpy(), want)
    np.testing.assert_array_equal(lazy.numpy(), want)


def test_integers_that_index_share_a_kernel():
    x, z = Tensor.arange(40).reshape(10, 4).contiguous().realize(), Tensor.zeros(10, 4).contiguous().realize()
    programs = set()
    for i in range(10):
        z[i] = x[i].float() * 2
        programs.add(tuple(call.src[0].key for call in z.schedule_linear().src))
        z.realize()
    assert len(programs) == 1
    np.testing.assert_array_equal(z.numpy(), np.arange(40).reshape(10, 4) * 2)
    np.testing.assert_array_equal(np.stack([row.numpy() for row in x]), np.arange(40).reshape(10, 4))


def test_masks_of_many_elements():
    a = (np.arange(100_000) * 7919 % 1000 - 500).reshape(100, 1000)
    x = Tensor(a)
    np.testing.assert_array_equal(x.masked_select(x > 300).numpy(), a[a > 300])
    np.testing.assert_array_equal((x > 300).nonzero().numpy(), np.argwhere(a > 300))
    np.testing.assert_array_equal(x[x > 300].numpy(), a[a > 300])


@pytest.mark.parametrize("parameter", [False, True])
@pytest.mark.parametrize("copy", [lambda x: x.clone(), lambda x: x * 1, lambda x: x.clone().clone()])
@pytest.mark.parametrize("index",
                         [lambda: 1, lambda: slice(1, 2), lambda: Tensor([1]),
                          lambda: Tensor([False, True, False, False]), lambda: (slice(None), slice(1, None, 2))])
@pytest.mark.parametrize("look",
                         [lambda y: None, lambda y: y.numpy(), lambda y: y.sum().item(), lambda y: (y * 2).tolist(),
                          lambda y: str(y.data())])
def test_gradients_pass_writes_by_index_whether_looked_at_or_not(parameter, copy, index, look):
  n = np.arange(12, dtype=np.float32).reshape(4, 3)
  x, v = Tensor(n).contiguous().realize(), Tensor([2.0]).realize()
  if parameter: x, v = x.is_param_(), v.is_param_()
  y = copy(x)
  y[index()] = v
  look(y)
  weight = np.linspace(1, 2, 12, dtype=np.float32).reshape(4, 3)
  gx, gv = (y * Tensor(weight)).sum().gradient(x, v)
  mask = np.ones_like(n)
  i = index()
  mask[i.numpy() if isinstance(i, Tensor) else i] = 0
  np.testing.assert_allclose(gx.numpy(), weight * mask)
  np.testing.assert_allclose(gv.numpy(), [(weight * (1 - mask)).sum()], rtol=1e-6)


def test_several_writes_by_index_with_looks_between():
  x, a, b = Tensor([1.0, 2.0, 3.0]).realize(), Tensor([4.0]).realize(), Tensor([5.0]).realize()
  y = x.clone()
  y[Tensor([0])] = a * 2
  assert y.tolist() == [8, 2, 3]
  y[1:2] = b * y[0]
  assert y.tolist() == [8, 40, 3]
  gx, ga, gb = (y * y).sum().gradient(x, a, b)
  assert gx.tolist() == [0, 0, 6] and ga.tolist() == [2 * 8 * 2 + 2 * 40 * 5 * 2] and gb.tolist() == [2 * 40 * 8]


def test_a_write_into_storage_of_another_tensor_is_no_silent_zero():
  x, v = Tensor([1.0, 2.0, 3.0]).realize(), Tensor([2.0]).realize()
  x[Tensor([1])] = v
  x.numpy()
  with pytest.raises(RuntimeError, match="history was dropped"):
    x.sum().gradient(v)


def test_what_was_assigned_whole_to_a_clone_is_a_leaf():
  x = Tensor([1.0, 2.0]).realize()
  y = x.clone()
  y.assign(x * 3)
  y.numpy()
  assert (y * y).sum().gradient(y)[0].tolist() == [6, 12]
