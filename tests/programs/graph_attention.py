"""Graph attention on an edge list: softmax over the edges of each node by scatter_reduce (amax) and scatter (sum),
gather, sum and mean pooling per graph, nodes dropped by a mask that changes, accuracy read in between."""

import numpy as np
from common import integers, log, normal, uniform
from tinygrad_cpp import Context, Tensor, TinyJit, nn

N, E, F, H = 14, 40, 5, 6
src, dst = integers(N, E, seed=1), integers(N, E, seed=2)
graph = np.sort(integers(3, N, seed=3))
w1, w2 = Tensor(normal(F, H, seed=4) * 0.5), Tensor(normal(H, 4, seed=5) * 0.5)
a1, a2 = Tensor(normal(2, H, seed=6) * 0.5), Tensor(normal(2, 4, seed=7) * 0.5)
params = [w1, w2, a1, a2]
opt = nn.optim.Adam(params, lr=0.02)
s, d, g = Tensor(src), Tensor(dst), Tensor(graph)
counts = Tensor.zeros(3).scatter_reduce(0, g, Tensor.ones(N), reduce="sum")


def layer(x, w, a, alive):
    h = x @ w
    score = ((h * a[0]).sum(-1)[s] + (h * a[1]).sum(-1)[d]).leaky_relu(0.2)
    score = alive[s].where(score, -30.0)
    top = Tensor.full((N,), -1e9).scatter_reduce(0, d, score.detach(), reduce="amax", include_self=False)
    e = (score - top[d]).exp()
    total = Tensor.zeros(N).scatter_reduce(0, d, e, reduce="sum")
    alpha = e / total[d]
    index = d.unsqueeze(-1).expand(E, h.shape[1])
    return Tensor.zeros(N, h.shape[1]).scatter_reduce(0, index, alpha.unsqueeze(-1) * h[s], reduce="sum") + h, alpha


def forward(x, alive):
    h, alpha = layer(x, w1, a1, alive)
    h, _ = layer(h.elu(), w2, a2, alive)
    index = g.unsqueeze(-1).expand(N, 4)
    mean = Tensor.zeros(3, 4).scatter_reduce(0, index, h, reduce="sum") / counts.unsqueeze(-1)
    top = Tensor.full((3, 4), -1e9).scatter_reduce(0, index, h, reduce="amax")
    return mean + top, alpha


@TinyJit
def train(x, alive, y):
    logits, alpha = forward(x, alive)
    loss = logits.sparse_categorical_crossentropy(y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return {"loss": loss, "alpha": alpha, "right": (logits.argmax(1) == y).sum()}


x, y = Tensor(normal(N, F, seed=8)).realize(), Tensor([2, 0, 3]).realize()
with Context(TRAINING=1):
    for i in range(8):
        alive = Tensor(uniform(N, seed=20 + i) > 0.2).realize()
        out = train(x=x, alive=alive, y=y)
        log("loss", out["loss"].item())
        log("alpha", out["alpha"].numpy())
        log("right", out["right"].item())
        if i == 4:
            opt.lr.assign(Tensor([0.005])).realize()
            log("evaluation", forward(x, Tensor.ones(N, dtype="bool"))[0].numpy())
for p in params:
    log("weights", p.numpy())
