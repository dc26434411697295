"""A selective state space layer: depthwise causal convolution, a scan over time as a Python loop for training (jitted)
and the same recurrence with a carried state, one token at a time, for inference; both must agree."""

import numpy as np
from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

D, E, N, K = 6, 8, 4, 3


class Mamba:
    def __init__(self):
        self.inp, self.conv = nn.Linear(D, 2 * E, bias=False), nn.Conv1d(E, E, K, groups=E, padding=K - 1)
        self.x_proj, self.dt, self.out = nn.Linear(E, 1 + 2 * N, bias=False), nn.Linear(1, E), nn.Linear(E, D,
                bias=False)
        self.a_log = Tensor(np.log(np.tile(np.arange(1, N + 1, dtype=np.float32), (E, 1))))
        self.d = Tensor.ones(E)

    def terms(self, u):
        delta, b, c = self.x_proj(u).split([1, N, N], dim=-1)
        delta = self.dt(delta).softplus()
        a = (delta.unsqueeze(-1) * -self.a_log.exp()).exp()
        return a, delta.unsqueeze(-1) * b.unsqueeze(-2) * u.unsqueeze(-1), c

    def __call__(self, x):
        T = x.shape[1]
        u, z = self.inp(x).chunk(2, dim=-1)
        u = self.conv(u.transpose(1, 2))[:, :, :T].transpose(1, 2).silu()
        a, bu, c = self.terms(u)
        h, ys = Tensor.zeros(x.shape[0], E, N), []
        for t in range(T):
            h = a[:, t] * h + bu[:, t]
            ys.append((h * c[:, t].unsqueeze(1)).sum(-1))
        return self.out((Tensor.stack(*ys, dim=1) + self.d * u) * z.silu())

    def one(self, x, window, h):
        u, z = self.inp(x).chunk(2, dim=-1)
        window.assign(window[:, :, 1:].cat(u.unsqueeze(-1), dim=-1))
        u = ((window * self.conv.weight.squeeze(1)).sum(-1) + self.conv.bias).silu()
        a, bu, c = self.terms(u)
        h.assign(a * h + bu)
        return self.out(((h * c.unsqueeze(1)).sum(-1) + self.d * u) * z.silu()).realize()


net = Mamba()
load_state_dict(
    net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items() if k not in ("a_log", "d")}, strict=False,
    verbose=False
)
opt = nn.optim.AdamW(get_parameters(net), lr=0.02, weight_decay=0.1)


@TinyJit
def train(x, y):
    opt.zero_grad()
    loss = (net(x) - y).square().mean().backward()
    return loss.realize(*opt.schedule_step())


sequence = normal(2, 9, D, seed=1)
with Context(TRAINING=1):
    for i in range(6):
        x = normal(2, 9, D, seed=i + 2)
        log("loss", train(Tensor(x), Tensor(np.roll(x, 1, axis=1))).item())
        if i % 2:
            log("whole", net(Tensor(sequence)).numpy())
            window, h = Tensor.zeros(2, E, K).contiguous().realize(), Tensor.zeros(2, E, N).contiguous().realize()
            step = TinyJit(lambda x: net.one(x, window, h))
            log("one by one", np.stack([step(Tensor(sequence[:, t])).numpy() for t in range(9)], axis=1))
log("a", net.a_log.numpy())
log("d", net.d.tolist())
