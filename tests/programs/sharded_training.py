"""Data-parallel training on two CPU devices: batch sharded, weights on both, losses and gradients as on one
device; eager and jitted."""

from common import initial, integers, log, normal
from tinygrad_cpp import Context, Device, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

devices = tuple(f"{Device.DEFAULT}:{i}" for i in range(2))
X, Y = normal(6, 12, 5, seed=1), integers(3, 6, 12, seed=2)


class Net:
    def __init__(self):
        self.l1, self.bn, self.l2 = nn.Linear(5, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def __call__(self, x):
        return self.l2(self.bn(self.l1(x)).relu())


for jitted in (False, True):
    net = Net()
    load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
    for p in get_parameters(net):
        p.shard_(devices)
    opt = nn.optim.Adam(get_parameters(net), lr=0.02)

    def step(x, y):
        opt.zero_grad()
        loss = net(x).sparse_categorical_crossentropy(y)
        loss.backward()
        opt.step()
        return loss.realize()

    step = TinyJit(step) if jitted else step
    with Context(TRAINING=1):
        for x, y in zip(X, Y):
            loss = step(Tensor(x).shard(devices, axis=0).realize(), Tensor(y).shard(devices, axis=0).realize())
            log("loss", loss.item())
    log("prediction", net(Tensor(X[0]).shard(devices, axis=0)).argmax(axis=1).tolist())
    log("weight", net.l1.weight.numpy())
log("devices", len(net.l1.weight.device))
