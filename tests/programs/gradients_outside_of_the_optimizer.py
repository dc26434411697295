"""Tensors that get gradients and are in no optimizer: a learned scale kept fixed, data, a whitening filter, a
frozen layer; many steps, jitted too."""

from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_state_dict, load_state_dict


class Net:
    def __init__(self):
        self.whiten = Tensor(normal(4, 4, seed=1))
        self.fc, self.frozen = nn.Linear(4, 5), nn.Linear(5, 5)
        self.scale, self.shift = Tensor.ones(5).contiguous(), Tensor.zeros(5).contiguous()

    def __call__(self, x):
        return self.frozen(self.fc(x @ self.whiten).tanh()) * self.scale + self.shift


y = Tensor(normal(6, 5, seed=2)).realize()
for jitted in (False, True):
    net = Net()
    load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
    opt = nn.optim.SGD([net.fc.weight, net.fc.bias, net.shift], lr=0.1, momentum=0.9)
    x = Tensor(normal(6, 4, seed=3)).realize()

    def step(x):
        opt.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        opt.step()
        return loss.realize()

    step = TinyJit(step) if jitted else step
    with Context(TRAINING=1):
        for i in range(7):
            log("loss", step(x).item())
    log("weight", net.fc.weight.numpy())
    log(
        "unchanged", [net.whiten.square().sum().item(), net.scale.sum().item(), net.frozen.weight.square().sum().item()]
    )
    if not jitted:
        log("accumulated", net.scale.grad.tolist())
        log("accumulated in the data", x.grad.numpy())
