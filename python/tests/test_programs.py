"""Programs as users of tinygrad write them, through the module's names alone."""
import importlib
import sys

import numpy as np
import pytest


@pytest.fixture
def tinygrad(monkeypatch):
    """`import tinygrad` finds our module, under every name that the programs below use."""
    for name in ("", ".tensor", ".dtype", ".helpers", ".device", ".nn", ".nn.optim", ".nn.state", ".nn.datasets",
                 ".engine.jit", ".uop.ops"):
        monkeypatch.setitem(sys.modules, "tinygrad" + name, importlib.import_module("tinygrad_cpp" + name))
    return sys.modules["tinygrad"]


def run(source: str) -> dict:
    scope: dict = {}
    exec(compile(source, "program", "exec"), scope)
    return scope


def test_autograd(tinygrad):
    s = run("""
from tinygrad import Tensor
x = Tensor.eye(3).clone()
y = Tensor([[2.0, 0, -2.0]])
z = y.matmul(x).sum()
z.backward()
dx, dy = x.grad.tolist(), y.grad.tolist()
""")
    assert s["dx"] == [[2.0] * 3, [0.0] * 3, [-2.0] * 3] and s["dy"] == [[1.0, 1.0, 1.0]]


def test_autograd_of_older_versions(tinygrad):
    s = run("""
from tinygrad import Tensor
x = Tensor.eye(3, requires_grad=True)
y = Tensor([[2.0, 0, -2.0]], requires_grad=True)
y.matmul(x).sum().backward()
dx, dy = x.grad.numpy(), y.grad.numpy()
""")
    np.testing.assert_array_equal(s["dx"], [[2] * 3, [0] * 3, [-2] * 3])
    np.testing.assert_array_equal(s["dy"], [[1, 1, 1]])


TRAIN = """
from tinygrad import Tensor, nn
from tinygrad.helpers import Context

class Net:
  def __init__(self):
    self.layers = [nn.Conv2d(1, 4, 3), Tensor.relu, nn.BatchNorm(4), Tensor.max_pool2d, lambda x: x.flatten(1),
                   nn.Linear(4 * 3 * 3, 3)]
  def __call__(self, x): return x.sequential(self.layers)

Tensor.manual_seed(3)
model = Net()
opt = OPTIMIZER
x, y = Tensor.randn(16, 1, 8, 8), Tensor.randint(16, high=3)
losses = []
MODE
  for _ in range(30):
    opt.zero_grad()
    loss = model(x).sparse_categorical_crossentropy(y)
    loss.backward()
    opt.step()
    losses.append(loss.item())
names = list(nn.state.get_state_dict(model))
"""


@pytest.mark.parametrize("optimizer",
                         ["nn.optim.SGD(nn.state.get_parameters(model), lr=0.05, momentum=0.9)",
                          "nn.optim.Adam(nn.state.get_parameters(model), lr=0.01)",
                                       "nn.optim.AdamW(nn.state.get_parameters(model), lr=0.01)",
                                       "nn.optim.LAMB(nn.state.get_parameters(model), lr=0.01)"])
@pytest.mark.parametrize("mode", ["with Context(TRAINING=1):", "with Tensor.train():"])
def test_training(tinygrad, optimizer, mode):
    s = run(TRAIN.replace("OPTIMIZER", optimizer).replace("MODE", mode))
    assert s["losses"][-1] < 0.5 * s["losses"][0]
    assert s["names"] == ["layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias",
                          "layers.2.num_batches_tracked", "layers.2.running_mean",
                          "layers.2.running_var", "layers.5.weight", "layers.5.bias"]


def test_step_outside_training(tinygrad):
    with pytest.raises((RuntimeError, AssertionError), match="TRAINING|train"):
        run(TRAIN.replace("OPTIMIZER", "nn.optim.SGD(nn.state.get_parameters(model))").replace("MODE", "if True:"))


def test_errors_name_the_optimizer(tinygrad):
    from tinygrad import Tensor, nn
    for make in (nn.optim.SGD, nn.optim.Adam, nn.optim.AdamW):
        with pytest.raises((RuntimeError, AssertionError), match=make.__name__):
            make([Tensor([1.0])]).step()
