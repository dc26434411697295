"""Training that stops after four steps, saves weights and optimizer state, and goes on in new objects: the losses
are those of one run."""

import os
import tempfile

from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict, safe_load, safe_save

x, y = Tensor(normal(16, 4, seed=1)).realize(), Tensor(normal(16, 2, seed=2)).realize()


class Net:
    def __init__(self):
        self.l1, self.l2 = nn.Linear(4, 8), nn.Linear(8, 2)

    def __call__(self, x):
        return self.l2(self.l1(x).elu())


def train(net, opt, steps, jitted):
    def step(x, y):
        opt.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        opt.step()
        return loss.realize()

    step = TinyJit(step) if jitted else step
    with Context(TRAINING=1):
        for _ in range(steps):
            log("loss", step(x, y).item())


folder = tempfile.mkdtemp()
for jitted in (False, True):
    net = Net()
    load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
    opt = nn.optim.AdamW(get_parameters(net), lr=0.05)
    train(net, opt, 4, jitted)
    model_file, opt_file = os.path.join(folder, "model.safetensors"), os.path.join(folder, "opt.safetensors")
    safe_save(get_state_dict(net), model_file)
    safe_save(get_state_dict(opt), opt_file)

    net = Net()
    opt = nn.optim.AdamW(get_parameters(net), lr=0.05)
    load_state_dict(net, safe_load(model_file), verbose=False)
    load_state_dict(opt, safe_load(opt_file), verbose=False)
    train(net, opt, 4, jitted)
    log("weight", net.l1.weight.numpy())
