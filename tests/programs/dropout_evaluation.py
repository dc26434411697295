"""Dropout: off in evaluation, on in training; masks given by the program make training steps comparable; the
library's own keeps the mean."""

from common import initial, log, normal, uniform
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class Net:
    def __init__(self):
        self.l1, self.l2 = nn.Linear(6, 20), nn.Linear(20, 1)

    def __call__(self, x, mask=None):
        h = self.l1(x).relu()
        h = h.dropout(0.5) if mask is None else mask.where(h * 2, 0)
        return self.l2(h)


net = Net()
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
opt = nn.optim.SGD(get_parameters(net), lr=0.05)
x, y, masks = Tensor(normal(10, 6, seed=1)), Tensor(normal(10, 1, seed=2)), uniform(5, 10, 20, seed=3) < 0.5
for step in range(5):
    with Context(TRAINING=1):
        opt.zero_grad()
        loss = (net(x, Tensor(masks[step])) - y).square().mean()
        loss.backward()
        opt.step()
    log("loss", loss.item())
    log("evaluation", (net(x) - y).square().mean().item())
    log("evaluated twice is the same", bool((net(x) == net(x)).all().item()))
Tensor.manual_seed(7)
with Context(TRAINING=1):
    big = Tensor.ones(200, 200).dropout(0.25)
    values = big.numpy()
log("two values", sorted(set(values.round(4).flatten().tolist())))
log("mean", float(values.mean()), rtol=0.02)  # 40,000 draws
log("off", float(Tensor.ones(10, 10).dropout(0.25).sum().item()))
