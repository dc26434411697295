"""LAMB with weight decay on a small convolutional net, eager and jitted."""

from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict

x, y = Tensor(normal(4, 2, 6, 6, seed=1)).realize(), Tensor(normal(4, 3, seed=2)).realize()


class Net:
    def __init__(self):
        self.conv, self.fc = nn.Conv2d(2, 4, 3), nn.Linear(16, 3)

    def __call__(self, x):
        return self.fc(self.conv(x).relu().max_pool2d().flatten(1))


def run(jitted):
    net = Net()
    state = get_state_dict(net)
    for name, value in initial(state).items():
        state[name].assign(Tensor(value))
    opt = nn.optim.LAMB(get_parameters(net), lr=0.05, weight_decay=0.01)

    def step(x, y):
        opt.zero_grad()
        loss = (net(x) - y).square().mean().backward()
        opt.step()
        return loss.realize()

    step = TinyJit(step) if jitted else step
    for _ in range(5):
        log("loss", step(x, y).item())
    log("conv", net.conv.weight.numpy())
    log("fc", net.fc.weight.numpy())


with Context(TRAINING=1):
    run(False)
    run(True)
