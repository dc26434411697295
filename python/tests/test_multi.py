"""Tensors on several devices: what Python sees of them, and that they compute what one device computes."""
import pickle

import numpy as np
import pytest

from tinygrad_cpp import Context, Device, Tensor, TinyJit, UOp, Variable, dtypes, nn
from tinygrad_cpp.uop.ops import KernelInfo

TWO = tuple(f"{Device.DEFAULT}:{i}" for i in (1, 2))
FOUR = tuple(f"{Device.DEFAULT}:{i}" for i in (1, 2, 3, 4))


def numbers(*shape, start=0): return (np.arange(start, start + np.prod(shape), dtype=np.float32).reshape(shape) - 3) / 4


def test_names_and_axes():
    t = Tensor(numbers(4, 6)).shard(TWO, -1)
    assert t.device == TWO and t.uop.device == TWO and t.uop.axis == 1 and t.shape == (4, 6)
    assert t.uop.shard_shape == (4, 3) and t.uop.bounds == ((0, 3), (3, 6))
    assert t.to(Device.DEFAULT).device == Device.DEFAULT and t.sum(1).uop.axis is None and t.sum(1).device == TWO
    assert Tensor(numbers(4)).shard(TWO).uop.axis is None and Tensor(numbers(4)).shard(TWO[:1]).device == TWO[0]
    assert Tensor([1, 2], device=TWO).device == TWO and Tensor.arange(4, device=list(TWO)).device == TWO


def test_in_place():
    t = Tensor(numbers(4, 2))
    assert t.shard_(TWO, 0) is t and t.device == TWO
    u = Tensor(numbers(4, 2)).shard_like(t)
    assert u.device == TWO and u.uop.axis == 0 and u.shard_like(t) is not None
    assert Tensor(numbers(2)).to_(TWO).device == TWO
    np.testing.assert_equal((t + u).numpy(), 2 * numbers(4, 2))


@pytest.mark.parametrize("a", [None, 0, 1])
@pytest.mark.parametrize("b", [None, 0, 1])
def test_matmul(a, b):
    x, w = numbers(8, 4), numbers(4, 12, start=5)
    np.testing.assert_allclose((Tensor(x).shard(FOUR, a) @ Tensor(w).shard(FOUR, b)).numpy(), x @ w, rtol=1e-5)


@pytest.mark.parametrize("settings", [{"RING": 0}, {"RING": 2}, {"ALL2ALL": 2}, {"RING_ALLREDUCE_THRESHOLD": 1}])
def test_allreduce(settings):
    x = numbers(4, 33)
    with Context(**settings):
        got = Tensor(x).shard(FOUR, 0).sum(0).realize()
        for d in FOUR: np.testing.assert_allclose(got.to(d).numpy(), x.sum(0), rtol=1e-6)


def test_like():
    t = Tensor.empty(4, 4, dtype=dtypes.int32).shard(TWO, 0)
    for other in (t.full_like(2), t.zeros_like(), t.empty_like(), t.rand_like(dtype=dtypes.float32), t.clone()):
        assert other.device == TWO and other.uop.axis == 0 and other.shape == (4, 4)
    for made in (t.rand_like, t.ones_like):
        with pytest.raises(RuntimeError, match="cannot specify"): made(device=FOUR)
    with pytest.raises(ValueError, match="expected one"): Tensor.rand(4, device=TWO)


def test_clones_are_apart():
    t = Tensor(numbers(4)).shard(TWO, 0).realize()
    c = t.clone().realize()
    c += 1
    np.testing.assert_equal(t.numpy(), numbers(4))
    np.testing.assert_equal(c.numpy(), numbers(4) + 1)
    source = Tensor(numbers(4)).realize()
    same = source.shard((source.device, TWO[1])).realize()
    same.assign(same * 2).realize()
    np.testing.assert_equal(source.numpy(), numbers(4))


def test_errors():
    with pytest.raises(RuntimeError, match="uneven"): Tensor.ones(5).shard(TWO, 0)
    t = Tensor(numbers(4, 6)).shard(TWO, 0)
    with pytest.raises(RuntimeError, match="multi-device"): t.shard(TWO, 1)
    with pytest.raises(RuntimeError, match="between shards"): t.reshape(3, 8)
    with pytest.raises(RuntimeError, match="not supported"): t[0:3]
    with pytest.raises(RuntimeError, match="axis mismatch"): t.realize().assign(Tensor(numbers(4, 6)).shard(TWO, 1))
    with pytest.raises(RuntimeError, match="expected one device"): t + Tensor(numbers(4, 6))


def train(data, hidden):
    rng = np.random.default_rng(0)
    layers = nn.Linear(6, 8), nn.Linear(8, 2)
    for p in nn.state.get_parameters(layers): p.assign(Tensor(rng.standard_normal(p.shape, dtype=np.float32))).realize()
    if data != "one":
        layers[0].weight.shard_(TWO, hidden), layers[0].bias.shard_(TWO, hidden), layers[1].weight.shard_(TWO,
                None if hidden is None else 1)
        layers[1].bias.shard_(TWO)
    opt = nn.optim.Adam(nn.state.get_parameters(layers), lr=0.05)
    losses = []

    @TinyJit
    def step(x, y):
        opt.zero_grad()
        loss = (layers[1](layers[0](x).relu()) - y).square().mean().backward()
        return loss.realize(*opt.schedule_step())

    with Context(TRAINING=1):
        for i in range(5):
            x, y = Tensor(numbers(4, 6, start=i)), Tensor(numbers(4, 2, start=2 * i))
            if data != "one": x, y = x.shard(TWO, data), y.shard(TWO, data)
            losses.append(step(x.realize(), y.realize()).item())
    return losses, [p.numpy() for p in nn.state.get_parameters(layers)]


@pytest.mark.parametrize("data,hidden", [(0, None), (None, 0), (0, 0)])
def test_training_with_jit(data, hidden):
    want, got = train("one", None), train(data, hidden)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4)
    for a, b in zip(got[1], want[1]): np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_jit_keeps_earlier_results():
    f = TinyJit(lambda x, w: (x * w, x.sum()))
    out = [f(Tensor(numbers(4, start=i)).shard(TWO, 0).realize(), Tensor(numbers(4)).shard(TWO).realize())
           for i in range(5)]
    for i, (product, total) in enumerate(out):
        np.testing.assert_allclose(product.numpy(), numbers(4, start=i) * numbers(4))
        np.testing.assert_allclose(total.item(), numbers(4, start=i).sum())
    assert out[-1][0].uop.axis == 0


def test_state_dict():
    layer, other = nn.Linear(4, 6), nn.Linear(4, 6)
    layer.weight.shard_(TWO, 0), layer.bias.shard_(TWO)
    nn.state.load_state_dict(layer, nn.state.get_state_dict(other), verbose=False)
    assert layer.weight.device == TWO and layer.weight.uop.axis == 0 and layer.bias.uop.axis is None
    np.testing.assert_equal(layer.weight.numpy(), other.weight.numpy())


def test_symbolic():
    x = numbers(6, 4)
    t = Tensor(x).shard(TWO, 1)
    rows = Variable("rows", 1, 6).bind(4)
    np.testing.assert_allclose(t[:rows].sum(1).realize()[:4].numpy(), x[:4].sum(1), rtol=1e-6)


@pytest.mark.parametrize("axis", [None, 0])
def test_pickle(axis):
    t = pickle.loads(pickle.dumps(Tensor(numbers(4, 2)).shard(TWO, axis)))
    assert t.device == TWO and t.uop.axis == axis
    np.testing.assert_equal(t.numpy(), numbers(4, 2))


def test_kernel_on_each_shard():
    def twice(out, x):
        i = UOp.range(out.shape[0], 0)
        return out[i].store(x[i] * 2).end(i).sink(arg=KernelInfo(name="twice"))

    x = Tensor(numbers(6)).shard(TWO, 0).realize()
    out = Tensor(Tensor.empty(3, device=TWO).uop.unshard(0))
    out = Tensor.custom_kernel(out, x, fxn=twice)[0]
    assert out.uop.axis == 0
    np.testing.assert_equal(out.numpy(), 2 * numbers(6))


OPERATIONS = {
    "softmax": lambda t: t.softmax(0) + t.softmax(1), "var": lambda t: t.var(0), "std": lambda t: t.std(1),
    "argmax": lambda t: t.argmax(1),
    "layernorm": lambda t: t.layernorm(), "sort": lambda t: t.sort(1)[0], "topk": lambda t: t.topk(2, 1)[0],
    "triu": lambda t: t.triu(),
    "gather": lambda t: t.gather(1, Tensor([[0, 1], [2, 3], [4, 5], [6, 7]]).to(t.device)),
    "one_hot": lambda t: (t * 4 + 3).cast(dtypes.int).one_hot(40),
    "max_pool": lambda t: t.reshape(1, 1, 4, 8).max_pool2d((2, 2)),
    "einsum": lambda t: Tensor.einsum("ij,kj->ik", t, t), "where": lambda t: (t > 3).where(t, 0),
    "split": lambda t: t.split(4, 1)[0],
    "bitcast": lambda t: t.bitcast(dtypes.uint8), "rows": lambda t: t[Tensor([1, 3]).to(t.device)],
    "step": lambda t: t[::2],
    "columns": lambda t: t[:, Tensor([1, 3]).to(t.device)],
    "conv": lambda t: t.reshape(4, 8, 1, 1).conv2d(Tensor.ones(2, 8, 1, 1).to(t.device)),
    "logsumexp": lambda t: t.logsumexp(0), "any": lambda t: (t > 6).any(0), "prod": lambda t: (t / 4 + 1).prod(0),
    "T": lambda t: t.T @ t,
    "attention": lambda t: t.reshape(1, 4, 8).scaled_dot_product_attention(t.reshape(1, 4, 8), t.reshape(1, 4, 8)),
    "half": lambda t: t.half().sum(0).float(), "chain": lambda t: (t.sum(0, keepdim=True) + t).max(1),
    "all": lambda t: (t >= -3).all(),
    "other devices": lambda t: t.to(FOUR if isinstance(t.device, tuple) else FOUR[0]) + 1,
    "contiguous": lambda t: (t + 1).contiguous().sum(0),
}


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operation(name, axis):
    f, x = OPERATIONS[name], numbers(4, 8)
    np.testing.assert_allclose(f(Tensor(x).shard(TWO, axis)).numpy(), f(Tensor(x)).numpy(), rtol=1e-5, atol=1e-6)


def test_sums_of_halves_that_stay_floats():
  devices = ("CPU:0", "CPU:1")
  t = Tensor.full((4,), 40000.0, dtype="half").contiguous().realize().shard(devices, 0)
  assert t.float().sum().item() == 160000 and t.sum(dtype="float32").item() == 160000
  assert t.mean().item() == 40000
  x = Tensor.arange(1000).cast("bfloat16").contiguous().realize()
  assert x.shard(devices, 0).float().mean().item() == x.float().mean().item()
