"""LoRA: a loaded net stays frozen, its layers are wrapped by low-rank updates that are trained, merged and saved."""

import os
import tempfile

from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict, safe_load, safe_save


class Net:
    def __init__(self):
        self.l1, self.l2 = nn.Linear(6, 10), nn.Linear(10, 3)

    def __call__(self, x):
        return self.l2(self.l1(x).gelu())


class Adapter:
    def __init__(self, layer, a, rank=2):
        self.layer, self.a, self.b = layer, a, Tensor.zeros(layer.weight.shape[0], rank)

    def __call__(self, x):
        return self.layer(x) + (x @ self.a.T) @ self.b.T * 0.5


net = Net()
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
path = os.path.join(tempfile.mkdtemp(), "base.safetensors")
safe_save(get_state_dict(net), path)
load_state_dict(net, safe_load(path), verbose=False)
x, y = Tensor(normal(14, 6, seed=1)).realize(), Tensor(normal(14, 3, seed=2)).realize()
log("base", (net(x) - y).square().mean().item())
base = net.l1.weight.numpy()
net.l1, net.l2 = Adapter(net.l1, Tensor(normal(2, 6, seed=3))), Adapter(net.l2, Tensor(normal(2, 10, seed=4)))
opt = nn.optim.AdamW([net.l1.a, net.l1.b, net.l2.a, net.l2.b], lr=0.05, weight_decay=0.0)


@TinyJit
@Context(TRAINING=1)
def step(x, y):
    opt.zero_grad()
    loss = (net(x) - y).square().mean()
    loss.backward()
    opt.step()
    return loss.realize()


for _ in range(7):
    log("loss", step(x, y).item())
    log("norm of b", net.l1.b.square().sum().sqrt().item())
log("frozen", bool((net.l1.layer.weight.numpy() == base).all()))
merged = Net()
for name in ("l1", "l2"):
    adapter = getattr(net, name)
    getattr(merged, name).weight = adapter.layer.weight + adapter.b @ adapter.a * 0.5
    getattr(merged, name).bias = adapter.layer.bias
log("merged", (merged(x) - net(x)).abs().max().item(), atol=1e-5)
safe_save(get_state_dict(merged), path)
log("saved", safe_load(path)["l2.weight"].numpy(), rtol=1e-3)  # seven steps of Adam
log("names", ",".join(sorted(get_state_dict(net))))
log("count", len(get_parameters(net)))
