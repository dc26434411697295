"""Models, optimizers and tensors pickled and copied: training goes on in the copy as it does in the original,
which stays what it is."""

import copy
import os
import pickle
import tempfile

from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, dtypes, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class Net:
    def __init__(self):
        self.l1, self.l2, self.name = nn.Linear(4, 6), nn.Linear(6, 2), "net"

    def __call__(self, x):
        return self.l2(self.l1(x).tanh())


x, y = Tensor(normal(8, 4, seed=1)), Tensor(normal(8, 2, seed=2))


def train(net, opt, steps):
    with Context(TRAINING=1):
        for _ in range(steps):
            opt.zero_grad()
            loss = (net(x) - y).square().mean()
            loss.backward()
            opt.step()
            log("loss", loss.item())


net = Net()
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
opt = nn.optim.SGD(get_parameters(net), lr=0.1, momentum=0.9)
train(net, opt, 3)
path = os.path.join(tempfile.mkdtemp(), "model.pickle")
with open(path, "wb") as f:
    pickle.dump({"net": net, "momentum": opt.b, "epoch": 3}, f)
copied = copy.deepcopy(net)
train(net, opt, 2)
with open(path, "rb") as f:
    saved = pickle.load(f)
log("epoch", f"{saved['epoch']} {saved['net'].name}")
again = saved["net"]
opt2 = nn.optim.SGD(get_parameters(again), lr=0.1, momentum=0.9)
for b, value in zip(opt2.b, saved["momentum"]):
    b.assign(value).realize()
train(again, opt2, 2)
log("copy", copied(x).square().sum().item())
lazy = pickle.loads(pickle.dumps(Tensor(normal(3, seed=5)) * 2 + 1))
log("lazy", lazy.tolist())
tensors = [Tensor([1, 2]), Tensor([1.5, -2.0], dtype=dtypes.half).float(), Tensor([True, False]).int()]
log("types", [t.tolist() for t in pickle.loads(pickle.dumps(tensors))])
