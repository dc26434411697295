"""A jitted training step that is given the same two tensors at each call and calls backward() and step() as usual."""

from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict

layers = [nn.Linear(5, 12), Tensor.tanh, nn.Linear(12, 1)]
for name, value in initial(get_state_dict(layers)).items():
    get_state_dict(layers)[name].assign(Tensor(value)).realize()
opt = nn.optim.Adam(get_parameters(layers), lr=0.02)
x = Tensor(normal(20, 5, seed=1)).realize()
y = Tensor(normal(20, 1, seed=2)).realize()


@TinyJit
def step(x, y):
    opt.zero_grad()
    loss = (x.sequential(layers) - y).square().mean()
    loss.backward()
    opt.step()
    return loss.realize()


with Context(TRAINING=1):
    for _ in range(10):
        log("loss", step(x, y).item())
log("weight", layers[0].weight.numpy())
log("fit", x.sequential(layers).numpy())
