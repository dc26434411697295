"""An exponential moving average of the weights, kept in tensors of the program's own and evaluated with; eager and
jitted."""

from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

x, y = Tensor(normal(10, 4, seed=1)).realize(), Tensor(normal(10, 2, seed=2)).realize()


class Net:
    def __init__(self):
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

    def __call__(self, x):
        return self.b(self.a(x).leaky_relu(0.1))


for jitted in (False, True):
    net, average = Net(), Net()
    start = initial(get_state_dict(net))
    for model in (net, average):
        load_state_dict(model, {k: Tensor(v) for k, v in start.items()}, verbose=False)
    shadow = get_parameters(average)
    opt = nn.optim.SGD(get_parameters(net), lr=0.2, momentum=0.9)

    def step(x, y):
        opt.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        opt.step()
        for s, p in zip(shadow, get_parameters(net)):
            s.assign(s * 0.8 + p.detach() * 0.2)
        return loss.realize(*shadow)

    step = TinyJit(step) if jitted else step
    for i in range(6):
        with Context(TRAINING=1):
            log("loss", step(x, y).item())
        log("loss of the average", (average(x) - y).square().mean().item())
    log("average", average.a.weight.numpy())
    log("weight", net.a.weight.numpy())
