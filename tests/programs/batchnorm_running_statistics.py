"""BatchNorm in training and evaluation: running statistics after each step, a jitted step, validation between
epochs, a saved state."""

from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class Net:
    def __init__(self):
        self.conv, self.bn1 = nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4)
        self.fc, self.bn2 = nn.Linear(16, 5), nn.BatchNorm(5, momentum=0.3)

    def __call__(self, x):
        x = self.bn1(self.conv(x)).relu().max_pool2d()
        return self.bn2(self.fc(x.flatten(1)))


x, y, held_out = (
    normal(6, 8, 2, 6, 6, seed=1) * 2 + 1,
    normal(6, 8, 5, seed=2),
    Tensor(normal(4, 2, 6, 6, seed=3)).realize(),
)
for jitted in (False, True):
    net = Net()
    load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
    opt = nn.optim.SGD([p for p in get_parameters(net) if p.is_param], lr=0.05, momentum=0.9)

    def step(x, y):
        opt.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        opt.step()
        return loss.realize()

    step = TinyJit(step) if jitted else step
    for epoch in range(6):
        with Context(TRAINING=1):
            log("loss", step(Tensor(x[epoch]).realize(), Tensor(y[epoch]).realize()).item())
        log("running", [net.bn1.running_mean.tolist(), net.bn1.running_var.tolist()])
        log("validation", net(held_out).square().mean().item())
    log("steps", int(net.bn1.num_batches_tracked.item()))
    log("second", [net.bn2.running_mean.tolist(), net.bn2.running_var.tolist()])
