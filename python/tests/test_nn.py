"""nn from Python: layers, state, optimizers, schedules, helpers of training loops."""
import collections
import copy
import os
import pickle
import zipfile

import numpy as np
import pytest

import tinygrad_cpp
from tinygrad_cpp import Context, Tensor, TinyJit, dtypes, nn
from tinygrad_cpp.nn.state import (get_parameters, get_state_dict, load_state_dict, safe_load, safe_load_metadata,
                                   safe_save, torch_load, zip_extract)


@pytest.fixture
def training():
  with Context(TRAINING=1):
    yield


class Net:
  def __init__(self):
    self.conv = nn.Conv2d(1, 4, 3)
    self.norm = nn.BatchNorm(4)
    self.blocks = [nn.Linear(4, 8), {"last": nn.Linear(8, 3, bias=False)}]
    self.name = "net"

  def __call__(self, x):
    return self.blocks[1]["last"](self.blocks[0](self.norm(self.conv(x)).relu().mean((2, 3))).relu())


# ---- layers ----


def test_linear():
  layer = nn.Linear(5, 3)
  x = np.random.default_rng(0).normal(size=(2, 4, 5)).astype(np.float32)
  np.testing.assert_allclose(layer(Tensor(x)).numpy(), x @ layer.weight.numpy().T + layer.bias.numpy(), rtol=1e-5,
                             atol=1e-5)
  assert nn.Linear(5, 3, bias=False).bias is None


@pytest.mark.parametrize(
  "layer, shape, expected",
  [
    (lambda: nn.Conv1d(2, 3, 5), (1, 2, 9), (1, 3, 5)),
    (lambda: nn.Conv2d(2, 3, (3, 4), padding="same", dilation=(2, 1)), (1, 2, 6, 7), (1, 3, 6, 7)),
    (lambda: nn.Conv2d(2, 4, (2, 3, 1), stride=2), (1, 2, 4, 5, 6), (1, 4, 2, 2, 3)),
    (lambda: nn.ConvTranspose1d(2, 3, 4, stride=3), (1, 2, 5), (1, 3, 16)),
    (lambda: nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1, output_padding=1), (1, 2, 4, 5), (1, 3, 8, 10)),
    (lambda: nn.Embedding(7, 3), None, (2, 3)),
    (lambda: nn.RMSNorm(6), (2, 6), (2, 6)),
    (lambda: nn.GRUCell(3, 4), (2, 3), (2, 4)),
    (lambda: nn.MultiheadAttention(8, 2), (2, 5, 8), (2, 5, 8)),
  ],
)
def test_shapes(layer, shape, expected):
  x = Tensor([0, 6]) if shape is None else Tensor.rand(*shape)
  assert layer()(x).shape == expected


@pytest.mark.parametrize("make, axes",
                         [(lambda: nn.GroupNorm(2, 4), None), (lambda: nn.InstanceNorm(4), (2, 3)),
                          (lambda: nn.LayerNorm((3, 5)), (2, 3)),
                                        (lambda: nn.LayerNorm2d(4), (1,))])
def test_norms_give_mean_0_and_variance_1(make, axes):
  Tensor.manual_seed(0)
  y = make()(Tensor.rand(2, 4, 3, 5) * 3 + 1).numpy()
  if axes is None:
    y, axes = y.reshape(2, 2, -1), (2,)
  np.testing.assert_allclose(y.mean(axes), 0, atol=1e-5)
  np.testing.assert_allclose(y.var(axes), 1, atol=1e-3)


def test_batchnorm_tracks_while_training():
  bn, x = nn.BatchNorm(3), Tensor.rand(8, 3, 4) + 2
  with Context(TRAINING=1):
    y = bn(x).numpy()
  np.testing.assert_allclose(y.mean((0, 2)), 0, atol=1e-5)
  np.testing.assert_allclose(bn.running_mean.numpy(), 0.1 * x.numpy().mean((0, 2)), rtol=1e-4)
  np.testing.assert_allclose(bn.running_var.numpy(), 0.9 + 0.1 * x.numpy().var((0, 2)) * 96 / 93, rtol=1e-4)
  before = bn.running_mean.numpy()
  bn(x).realize()
  np.testing.assert_equal(bn.running_mean.numpy(), before)
  assert bn.num_batches_tracked.item() == 1 and not bn.running_mean.is_param


def test_batchnorm_of_an_empty_batch_and_of_single_values():
  bn = nn.BatchNorm(3)
  with Context(TRAINING=1):
    assert bn(Tensor.zeros(0, 3, 4)).shape == (0, 3, 4)
    assert bn.running_mean.tolist() == [0, 0, 0] and bn.running_var.tolist() == [1, 1,
            1] and bn.num_batches_tracked.item() == 1
    with pytest.raises(ValueError, match=r"\(1, 3\), whose channels have one value each"):
      bn(Tensor.ones(1, 3))


def test_rmsnorm_keeps_the_digits_of_float64():
  y = nn.RMSNorm(3, elementwise_affine=False)(Tensor([1.0, 2.0, 3.0], dtype=dtypes.float64)).numpy()
  np.testing.assert_allclose(y, np.arange(1, 4) / np.sqrt(14 / 3 + 1e-6), rtol=1e-14)


def test_lstm_is_its_cells():
  net, cell, x = nn.LSTM(3, 4), nn.LSTMCell(3, 4), Tensor.rand(5, 2, 3)
  cell.weight_ih, cell.weight_hh = net.weight_ih_l0, net.weight_hh_l0
  cell.bias_ih, cell.bias_hh = net.bias_ih_l0, net.bias_hh_l0
  y, (h, c) = net(x)
  state, steps = None, []
  for t in range(5):
    state = cell(x[t], state)
    steps.append(state[0].numpy())
  np.testing.assert_allclose(y.numpy(), np.stack(steps), rtol=1e-4, atol=1e-6)
  np.testing.assert_allclose(c[0].numpy(), state[1].numpy(), rtol=1e-4, atol=1e-6)
  assert list(get_state_dict(nn.GRU(2, 3, bidirectional=True)))[-1] == "bias_hh_l0_reverse"
  assert nn.GRU(2, 3, num_layers=2, batch_first=True)(Tensor.rand(4, 6, 2))[1].shape == (2, 4, 3)


def test_attention_masks():
  layer, x = nn.MultiheadAttention(8, 2), Tensor.rand(2, 3, 8)
  causal, weights = layer(x, is_causal=True, need_weights=True)
  np.testing.assert_allclose(causal.numpy(), layer(x, mask=Tensor.ones(3, 3, dtype=dtypes.bool).tril()).numpy(),
                             rtol=1e-5, atol=1e-6)
  assert weights.shape == (2, 2, 3, 3) and weights.numpy()[0, 0, 0, 1] == 0
  assert set(get_state_dict(layer)) == {"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"}


def test_layers_can_be_subclassed_and_weights_replaced():
  class Half(nn.Linear):
    def __init__(self, *args):
      super().__init__(*args)
      self.scale = Tensor([0.5])

    def __call__(self, x):
      return super().__call__(x) * self.scale

  layer = Half(2, 1)
  layer.weight, layer.bias = Tensor([[2.0, 4.0]]), None
  assert layer(Tensor([[1.0, 1.0]])).item() == 3
  assert list(get_state_dict(layer)) == ["weight", "scale"]


def test_wrong_arguments():
  with pytest.raises(ValueError, match="same"):
    nn.Conv2d(1, 1, 3, padding="valid")
  with pytest.raises(ValueError, match="stride"):
    nn.Conv2d(1, 1, 3, stride=2, padding="same")
  with pytest.raises(TypeError, match="integers"):
    nn.Embedding(3, 2)(Tensor([1.0]))
  with pytest.raises(ValueError, match=r"\(2, 4\).*\(3,\)"):
    nn.LayerNorm(3)(Tensor.zeros(2, 4))
  with pytest.raises(ValueError, match="divisor"):
    nn.MultiheadAttention(8, 3)


# ---- state ----


def test_state_dict_walks_python_objects():
  Pair = collections.namedtuple("Pair", "a b")
  t = [Tensor([float(i)]) for i in range(6)]
  state = get_state_dict({"list": [t[0], (t[1],)], "named": Pair(t[2], {"x": t[3]}),
                          "ordered": collections.OrderedDict(y=t[4]), 3: t[5], "no": 1, "none": None})
  assert list(state) == ["list.0", "list.1.0", "named.a", "named.b.x", "ordered.y", "3"]
  assert all(a is b for a, b in zip(state.values(), t))
  assert list(get_state_dict(t[0], "x.")) == ["x"]
  net = Net()
  assert list(get_state_dict(net)) == ["conv.weight", "conv.bias", "norm.weight", "norm.bias",
                                       "norm.num_batches_tracked", "norm.running_mean",
                                         "norm.running_var", "blocks.0.weight", "blocks.0.bias", "blocks.1.last.weight"]
  assert len(get_parameters(net)) == 10


def test_load_state_dict():
  a, b, x = Net(), Net(), Tensor.rand(2, 1, 6, 6)
  loaded = load_state_dict(b, get_state_dict(a), verbose=False)
  assert len(loaded) == 10 and loaded[0] is b.conv.weight
  np.testing.assert_equal(a(x).numpy(), b(x).numpy())


def test_load_state_dict_reports():
  net = Net()
  before = net.conv.weight.numpy()
  state = {k: Tensor.zeros(*v.shape) for k, v in get_state_dict(net).items()}
  state["other"] = state.pop("blocks.0.bias")
  with pytest.raises(KeyError, match="blocks.0.bias.*other.*strict=False"):
    load_state_dict(net, state, verbose=False)
  state["blocks.0.bias"], state["conv.bias"] = Tensor.zeros(8), Tensor.zeros(5)
  with pytest.raises(ValueError, match=r"Shape mismatch in layer `conv.bias`: Expected shape \(4,\), but found \(5,\)"):
    load_state_dict(net, state, verbose=False)
  np.testing.assert_equal(net.conv.weight.numpy(), before)
  assert len(load_state_dict(net, {"conv.bias": Tensor.ones(4)}, strict=False, verbose=False)) == 1
  np.testing.assert_equal(net.conv.bias.numpy(), np.ones(4))
  state = {"norm.num_batches_tracked": Tensor([7]), "unused": Tensor([1])}
  load_state_dict(net, state, strict=False, verbose=False, consume=True)
  assert net.norm.num_batches_tracked.item() == 7 and list(state) == ["unused"]


# ---- files ----


def test_safetensors(tmp_path):
  path = tmp_path / "a.safetensors"
  state = {"a": Tensor([[1.0, 2.0]]), "b": Tensor([True, False]), "h": Tensor([1.5]).half(), "n": Tensor([3])}
  safe_save(state, str(path), {"by": "test"})
  loaded = safe_load(path)
  assert list(loaded) == list(state)
  for k, v in state.items():
    assert loaded[k].dtype == v.dtype
    np.testing.assert_equal(loaded[k].numpy(), v.numpy())
  _, start, header = safe_load_metadata(path)
  assert start % 8 == 0 and header["__metadata__"] == {"by": "test"} and header["a"]["shape"] == [1, 2]
  np.testing.assert_equal(safe_load(Tensor(path.read_bytes()))["a"].numpy(), [[1, 2]])
  with pytest.raises(ValueError):
    safe_save({"w": Tensor(1)}, str(path))
  path.write_bytes((1 << 40).to_bytes(8, "little") + b"{}")
  with pytest.raises(tinygrad_cpp.FormatError, match="header"):
    safe_load(path)
  with pytest.raises(FileNotFoundError):
    safe_load(tmp_path / "none")


class Reference:
  """Pickles as a call of any function."""

  def __init__(self, function, *args):
    self.call = function, args

  def __reduce__(self):
    return self.call


class Pickler(pickle.Pickler):
  def persistent_id(self, obj):
    return obj if isinstance(obj, tuple) and obj and obj[0] == "storage" else None


def _checkpoint(path, obj, data=b""):
  with open(path.parent / "p", "wb") as f:
    Pickler(f, 2).dump(obj)
  with zipfile.ZipFile(path, "w") as z:
    z.write(path.parent / "p", "x/data.pkl")
    z.writestr("x/data/0", data)


def test_torch_load_runs_nothing(tmp_path):
  path = tmp_path / "x.pt"
  _checkpoint(path, {"v": 3, "bad": Reference(os.mkdir, str(tmp_path / "made"))})
  with pytest.raises(tinygrad_cpp.FormatError, match="posix.mkdir"):
    torch_load(path, keep_opaque=False)
  assert torch_load(path)["v"] == 3
  assert not (tmp_path / "made").exists()
  path.write_bytes(b"nonsense" * 9)
  with pytest.raises(ValueError, match="torch_load"):
    torch_load(path)
  with zipfile.ZipFile(path, "w") as z:
    z.writestr("a", b"abc")
  with pytest.raises(ValueError, match="data.pkl"):
    torch_load(path)
  np.testing.assert_equal(zip_extract(path)["a"].numpy(), list(b"abc"))


# ---- optimizers ----


def _steps(make, steps=3):
  x, w, m = Tensor([[0.5, -1.0, 0.25]]), Tensor([[1.0, 2.0], [0.5, -1.0],
                                                 [0.0, 1.0]]), Tensor([[0.1, 0.2]]).is_param_(False)
  opt = make([x, w, m])
  assert len(opt.params) == 2 and len(opt.buffers) == 1
  for _ in range(steps):
    opt.zero_grad()
    (x.matmul(w).tanh() - m).square().sum().backward()
    opt.step()
  return np.concatenate([x.numpy().reshape(-1), w.numpy().reshape(-1)])


def _by_hand(update, steps=3):
  x, w, m = np.array([[0.5, -1.0, 0.25]]), np.array([[1.0, 2.0], [0.5, -1.0], [0.0, 1.0]]), np.array([[0.1, 0.2]])
  state = {}
  for _ in range(steps):
    y = np.tanh(x @ w)
    g = 2 * (y - m) * (1 - y * y)
    gx, gw = g @ w.T, x.T @ g
    x, w = x - update("x", x, gx, state), w - update("w", w, gw, state)
  return np.concatenate([x.reshape(-1), w.reshape(-1)])


def _momentum(name, p, g, state):
  state[name] = 0.9 * state.get(name, 0) + g + 0.1 * p
  return 0.125 * state[name]


def _adam(decay):
  def update(name, p, g, state):
    m, v, t = state.get(name, (0, 0, 0))
    m, v, t = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g, t + 1
    state[name] = m, v, t
    return 0.01 * (m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8) + decay * p)

  return update


@pytest.mark.parametrize("fused", [False, True])
def test_optimizers(training, fused):
  o = nn.optim
  np.testing.assert_allclose(_steps(lambda p: o.SGD(p, lr=0.125, momentum=0.9, weight_decay=0.1, fused=fused)),
                             _by_hand(_momentum), rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(_steps(lambda p: o.Adam(p, lr=0.01, fused=fused)), _by_hand(_adam(0)), rtol=1e-4,
                             atol=1e-4)
  np.testing.assert_allclose(_steps(lambda p: o.AdamW(p, lr=0.01, weight_decay=0.1, fused=fused)), _by_hand(_adam(0.1)),
                             rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", [nn.optim.LARS, nn.optim.LAMB, nn.optim.Muon, nn.optim.RMSprop])
def test_other_optimizers_reduce_the_loss(training, make):
  target, x = Tensor([[1.0, 2.0], [3.0, 4.0]]).is_param_(False), Tensor.zeros(2, 2).contiguous()
  opt = make([x], lr=0.05)
  losses = []
  for _ in range(20):
    loss = (x - target).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
  assert losses[-1] < losses[0]


def test_optimizer_state_and_groups(training):
  a, b = Tensor([1.0]), Tensor([2.0, 3.0])
  group = nn.optim.OptimizerGroup(nn.optim.Adam([a]), nn.optim.SGD([b], lr=1.0))
  assert set(get_state_dict(group[0])) == {"params.0", "lr", "b1_t", "b2_t", "m.0", "v.0"}
  (a.sum() + b.sum()).backward()
  group.step()
  assert b.tolist() == [1, 2] and abs(a.item() - 0.999) < 1e-6
  group.zero_grad()
  assert a.grad is None and b.grad is None
  group[1].lr.assign([0.5])
  b.sum().backward()
  group[1].step()
  assert b.tolist() == [0.5, 1.5]


def test_mistakes_with_optimizers():
  p = Tensor([1.0])
  with pytest.raises(ValueError, match="get_parameters"):
    nn.optim.SGD([])
  with pytest.raises(AssertionError):
    nn.optim.SGD([Tensor([1.0]).is_param_(False)])
  with pytest.raises(ValueError, match="lr"):
    nn.optim.Adam([p], lr=-1)
  opt = nn.optim.Adam([p])
  with Context(TRAINING=0), pytest.raises(RuntimeError, match=r"Context\(TRAINING=1\)"):
    opt.step()
  with Context(TRAINING=1), pytest.raises(RuntimeError, match=r"parameter 0 of shape \(1,\) has no gradient"):
    opt.step()


def test_user_defined_optimizer(training):
  class Sign(nn.optim.Optimizer):
    def _step(self, params, grads):
      return [self.lr * g.sign() for g in grads], []

  p = Tensor([1.0, -2.0])
  opt = Sign([p], 0.5)
  p.square().sum().backward()
  opt.step()
  assert p.tolist() == [0.5, -1.5]


def test_training_lowers_the_loss(training):
  Tensor.manual_seed(1)
  net, x, y = Net(), Tensor.rand(16, 1, 6, 6), Tensor.randint(16, high=3)
  opt = nn.optim.Adam(get_parameters(net), lr=0.01)
  losses = []
  for _ in range(15):
    loss = net(x).sparse_categorical_crossentropy(y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
  assert losses[-1] < losses[0] and net.norm.num_batches_tracked.item() == 15


# ---- around the optimizer ----


@pytest.mark.parametrize("captured", [False, True])
def test_a_learning_rate_in_place_of_another_is_assigned(captured):
  p = Tensor([1.0]).realize()
  opt = nn.optim.SGD([p], lr=0.125)
  def step(x):
    opt.zero_grad()
    (p * x).sum().backward()
    opt.step()
    return (p * 1).realize()
  f, one = TinyJit(step) if captured else step, Tensor([1.0]).realize()
  def expect(rate, times=1):
    for _ in range(times):
      before = p.item()
      assert before - f(one).item() == rate
  with Context(TRAINING=1):
    expect(0.125, 4)
    opt.lr = 0.5
    expect(0.5)
    opt.lr *= 2
    expect(1)
    opt.lr = opt.lr / 4
    expect(0.25)
    opt.lr = Tensor(2)
    expect(2)
    nn.optim.OptimizerGroup(opt).lr = 0.5
    expect(0.5)
  with pytest.raises(ValueError, match=r"\[SGD\] got lr = -1"): opt.lr = -1
  with pytest.raises(TypeError, match=r"\[SGD\] got lr = 'fast', expected a number or a tensor"): opt.lr = "fast"


def test_schedules():
  opt = nn.optim.SGD([Tensor([1.0])], lr=0.5)
  s = nn.lr_scheduler.MultiStepLR(opt, [2, 3], 0.5)
  rates = []
  for _ in range(4):
    rates.append(opt.lr.item())
    s.step()
  assert rates == [0.5, 0.5, 0.25, 0.125] and s.steps == 4
  s = nn.lr_scheduler.OneCycleLR(opt, max_lr=1.0, total_steps=10, anneal_strategy="linear")
  assert abs(opt.lr.item() - 0.04) < 1e-6
  s.go_to(2)
  assert abs(opt.lr.item() - 1.0) < 1e-6
  plateau = nn.lr_scheduler.ReduceLROnPlateau(opt, patience=0, factor=0.5)
  plateau.step(1.0), plateau.step(1.0)
  assert abs(opt.lr.item() - 0.5) < 1e-6 and plateau.best == 1.0
  with pytest.raises(TypeError, match="optimizer"):
    nn.lr_scheduler.StepLR(3, 1)


def test_clip_accumulate_average(training):
  p = Tensor([1.0, 2.0])
  opt = nn.optim.SGD([p], lr=1.0)
  steps, ema = nn.train.GradAccumulator(opt, 2), nn.train.Ema([p], 0.5)
  assert not steps.backward((p * Tensor([2.0, 0.0]).is_param_(False)).sum())
  assert steps.backward((p * Tensor([0.0, 4.0]).is_param_(False)).sum())
  assert p.tolist() == [0, 0]
  ema.update()
  assert ema.averages[0].tolist() == [0.5, 1]
  ema.swap()
  assert p.tolist() == [0.5, 1]
  p.grad = Tensor([3.0, 4.0])
  assert abs(nn.train.clip_grad_norm([p], 1.0).item() - 5) < 1e-5
  np.testing.assert_allclose(p.grad.numpy(), [0.6, 0.8], rtol=1e-5)


def test_mixed_precision(training):
  p = Tensor([1.0, 2.0]).half().realize()
  masters = nn.train.MasterWeights([p])
  opt, scaler = nn.optim.SGD(masters.masters, lr=1e-4), nn.train.LossScaler(init_scale=1024)
  for _ in range(8):
    opt.zero_grad()
    scaler.scale(p.sum()).backward()
    masters.take_gradients()
    assert scaler.step(opt)
    masters.update()
  np.testing.assert_allclose(masters.masters[0].numpy(), [1 - 8e-4, 2 - 8e-4], atol=1e-6)
  opt.params[0].grad = Tensor([float("inf"), 1.0])
  assert not scaler.step(opt) and scaler.value == 512


def test_gradcheck():
  x = Tensor(np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32))
  assert nn.train.gradcheck(lambda t: t.tanh().matmul(t.transpose()), x)
  assert not nn.train.gradcheck(lambda t: t * t.detach(), x)
  assert nn.train.jacobian(lambda t: t.sum(0), x).shape == (3, 6)


def test_data_loader():
  x, y = Tensor(np.arange(20, dtype=np.float32).reshape(10, 2)), Tensor(np.arange(10))
  loader = nn.data.DataLoader(x, y, batch_size=4, shuffle=True, seed=3, workers=2,
                              transforms=[lambda b: [b[0] * 2, b[1]]])
  assert len(loader) == 3
  first, second = ([i for _, rows in loader for i in rows.tolist()] for _ in range(2))
  assert sorted(first) == list(range(10)) and first != second and first == loader.order(0)
  loader.epoch = 0
  for a, b in loader:
    np.testing.assert_equal(a.numpy()[:, 0], b.numpy() * 4)


def test_transforms():
  x = Tensor.rand(4, 3, 8, 8)
  assert nn.data.random_crop(x, 8, 8, padding=2).shape == x.shape
  np.testing.assert_equal(nn.data.random_flip(x, 1.0).numpy(), x.numpy()[..., ::-1])
  np.testing.assert_allclose(nn.data.normalize(x, [0.5], [2.0]).numpy(), (x.numpy() - 0.5) / 2, rtol=1e-4, atol=1e-6)
  images, labels = nn.data.cutmix(x, Tensor([0, 1, 2, 3]).one_hot(4).float())
  np.testing.assert_allclose(labels.sum(1).numpy(), np.ones(4), rtol=1e-5)


def test_datasets():
  images, labels, test_images, test_labels = nn.datasets.mnist()
  assert images.shape == (60000, 1, 28, 28) and images.dtype == dtypes.uint8 and test_labels.shape == (10000,)
  assert labels[:5].tolist() == [5, 0, 4, 1, 9]
  assert test_images[0].max().item() > 128


@pytest.mark.parametrize("make",
                         [lambda p: nn.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
                          lambda p: nn.optim.AdamW(p, lr=0.01),
                                  lambda p: nn.optim.LAMB(p, lr=0.01, fused=True),
                                  lambda p: nn.optim.RMSprop(p, momentum=0.5, centered=True)])
def test_a_captured_step_is_the_step(training, make):
  def train(jit):
    Tensor.manual_seed(2)
    net, x, y = Net(), Tensor.rand(6, 4, 1, 6, 6).realize(), Tensor.randint(6, 4, high=3).realize()
    opt = make(get_parameters(net))
    schedule = nn.lr_scheduler.StepLR(opt, 3, 0.5)

    def step(x, y):
      opt.zero_grad()
      loss = net(x).sparse_categorical_crossentropy(y).backward()
      return loss.realize(*opt.schedule_step())

    if jit: step = TinyJit(step)
    losses = []
    for i in range(6):
      losses.append(step(x[i].contiguous().realize(), y[i].contiguous().realize()).item())
      schedule.step()
    return losses, [t.numpy() for t in get_parameters(net)]

  losses, params = train(False)
  jit_losses, jit_params = train(True)
  np.testing.assert_allclose(jit_losses, losses, rtol=1e-4)
  for a, b in zip(jit_params, params): np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
  assert params[4] == 6


def test_models_of_methods_are_copied_and_pickled():
    layers = [nn.Linear(3, 4), Tensor.relu, Tensor.abs, nn.Linear(4, 2)]
    x = Tensor([[1.0, -2.0, 3.0]])
    for copied in (copy.deepcopy(layers), pickle.loads(pickle.dumps(layers)), copy.copy(layers)):
        assert copied[1] is Tensor.relu and copied[2] is layers[2]
        np.testing.assert_array_equal(x.sequential(copied).numpy(), x.sequential(layers).numpy())
    copied = copy.deepcopy(layers)
    copied[0].weight.assign(Tensor.zeros(4, 3)).realize()
    assert layers[0].weight.abs().sum().item() > 0
    for bound in (copy.deepcopy(x.relu), pickle.loads(pickle.dumps(x.relu))):
        assert bound().tolist() == [[1, 0, 3]]
    assert pickle.loads(pickle.dumps(Tensor.zeros, 2)) is Tensor.zeros and pickle.loads(pickle.dumps(Tensor.relu,
            2)) is Tensor.relu


def test_load_state_dict_reaches_captured_functions():
    layer, state = nn.Linear(2, 2), {"weight": Tensor.ones(2, 2).realize(), "bias": Tensor([1.0, 2.0]).realize()}
    opt = nn.optim.SGD([layer.weight, layer.bias], lr=0.5)
    evaluate = TinyJit(lambda x: layer(x).realize())

    @TinyJit
    def train(x):
        opt.zero_grad()
        loss = layer(x).sum().backward()
        opt.step()
        return loss.realize()

    x = Tensor([[1.0, 1.0]]).realize()
    with Context(TRAINING=1):
        for _ in range(3):
            train(x), evaluate(x)
        pending = layer.bias * 1
        before = layer.bias.numpy()
        for _ in range(2):
            load_state_dict(layer, state, verbose=False)
            assert evaluate(x).tolist() == [[3, 4]]
            assert train(x).item() == 7 and evaluate(x).tolist() == [[1.5, 2.5]] and layer.bias.tolist() == [0.5, 1.5]
    assert state["weight"].tolist() == [[1, 1], [1, 1]] and pending.tolist() == before.tolist()


def test_load_state_dict_leaves_others_that_share_the_storage_alone():
    a, b = nn.Linear(2, 1), nn.Linear(2, 1)
    a.weight.realize()
    b.weight.replace(a.weight)
    view, was = a.bias.realize().reshape(1, 1), a.bias.tolist()
    load_state_dict(b, {"weight": Tensor.ones(1, 2), "bias": Tensor([3.0])}, verbose=False)
    assert a.weight.tolist() != [[1, 1]] and b.weight.tolist() == [[1, 1]] and b.bias.tolist() == [3]
    load_state_dict(a, {"weight": b.weight, "bias": b.bias}, verbose=False)
    assert view.tolist() == [was] and a.bias.tolist() == [3]
    load_state_dict(a, {"weight": Tensor.ones(1, 2, dtype=dtypes.half), "bias": b.bias}, verbose=False)
    assert a.weight.dtype == dtypes.half and b.bias.tolist() == [3]


# ---- halves, and samples without a batch ----


@pytest.mark.parametrize("layer, shape", [
  (lambda: nn.LayerNorm(4), (1, 4)), (lambda: nn.GroupNorm(1, 4), (1, 4)), (lambda: nn.InstanceNorm(1), (1, 1, 4)),
  (lambda: nn.BatchNorm(1), (4, 1, 1, 1)),
])
def test_norms_of_halves(layer, shape, training):
  x = Tensor([1000.0, -1000.0, 3000.0, 2000.0], dtype="half").reshape(*shape)
  y = layer()(x)
  np.testing.assert_allclose(y.float().numpy().flatten(), [-0.16907, -1.52148, 1.18359, 0.50732], atol=1e-3)


def test_norms_keep_halves_and_make_integers_floats():
  x = Tensor([[1000.0, 3000.0]], dtype="half")
  norm = nn.LayerNorm(2)
  norm.weight, norm.bias = norm.weight.half(), norm.bias.half()
  assert norm(x).dtype is dtypes.half and nn.RMSNorm(2, elementwise_affine=False)(x).dtype is dtypes.half
  assert nn.LayerNorm(2, elementwise_affine=False)(x).dtype is dtypes.half
  assert nn.LayerNorm(2)(Tensor([[1, 3]])).dtype is dtypes.float
  np.testing.assert_allclose(nn.RMSNorm(2)(Tensor([[3, 4]])).numpy(), [[0.848528, 1.131371]], rtol=1e-5)


def test_batch_norm_of_a_half_model(training):
  norm = nn.BatchNorm(1)
  for t in nn.state.get_state_dict(norm).values():
    if dtypes.is_float(t.dtype): t.replace(t.half().realize())
  y = norm(Tensor([100.0, -100.0, 300.0, 200.0], dtype="half").reshape(4, 1, 1, 1))
  assert y.dtype is dtypes.half and norm.running_var.dtype is dtypes.half
  np.testing.assert_allclose(norm.running_var.float().numpy(), [0.9 + 0.1 * 29166.67], rtol=1e-3)


def test_samples_without_a_batch():
  x = Tensor(np.random.default_rng(3).normal(size=(5, 3)).astype(np.float32))
  for layer in (nn.LSTM(3, 2, 2, bidirectional=True), nn.GRU(3, 2, 2, bidirectional=True)):
    one, all_ = layer(x), layer(x.unsqueeze(1))
    np.testing.assert_allclose(one[0].numpy(), all_[0].squeeze(1).numpy(), rtol=1e-6)
    assert one[0].shape == (5, 4)
  h, c = nn.LSTMCell(3, 2)(x[0])
  assert h.shape == c.shape == nn.GRUCell(3, 2)(x[0]).shape == (2,)
  assert nn.ConvTranspose2d(3, 4, 2)(Tensor.ones(3, 5, 5)).shape == (4, 6, 6)
  assert nn.Conv2d(3, 4, 2)(Tensor.ones(3, 5, 5)).shape == (4, 4, 4)
  norm = nn.InstanceNorm(3)
  for shape in ((3, 7), (3, 4, 5)):
    y = Tensor(np.random.default_rng(4).normal(size=shape).astype(np.float32))
    np.testing.assert_allclose(norm(y).numpy(), norm(y.unsqueeze(0))[0].numpy(), rtol=1e-6)
