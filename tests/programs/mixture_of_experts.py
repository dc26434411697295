"""A mixture of experts: the two best of four by topk, their weights renormalised, a balancing loss, loads read as
numbers."""

from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

EXPERTS, DIM = 4, 6


class Mixture:
    def __init__(self):
        self.gate = nn.Linear(DIM, EXPERTS, bias=False)
        self.up, self.down = Tensor.zeros(EXPERTS, DIM, 8), Tensor.zeros(EXPERTS, 8, DIM)

    def __call__(self, x):
        probabilities = self.gate(x).softmax()
        weight, chosen = probabilities.topk(2)
        weight = weight / weight.sum(axis=1, keepdim=True)
        hidden = (x.unsqueeze(1).unsqueeze(1) @ self.up[chosen]).silu()
        out = ((hidden @ self.down[chosen]).squeeze(2) * weight.unsqueeze(2)).sum(axis=1)
        load = chosen.one_hot(EXPERTS).sum(axis=(0, 1)) / (2 * x.shape[0])
        return out, EXPERTS * (load * probabilities.mean(axis=0)).sum(), load


layer = Mixture()
load_state_dict(layer, {k: Tensor(v) for k, v in initial(get_state_dict(layer)).items()}, verbose=False)
opt = nn.optim.Adam(get_parameters(layer), lr=0.02)
x, y = Tensor(normal(10, DIM, seed=1)), Tensor(normal(10, DIM, seed=2))
with Context(TRAINING=1):
    for step in range(5):
        out, balance, load = layer(x)
        log("load", load.tolist())
        loss = (x + out - y).square().mean() + 0.1 * balance
        log("loss", loss.item())
        opt.zero_grad()
        loss.backward()
        log("gate", layer.gate.weight.grad.square().sum().sqrt().item())
        opt.step()
log("up", layer.up.square().sum(axis=(1, 2)).tolist())
