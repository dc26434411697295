"""Elastic weight consolidation: squared gradients of single samples as importance, old weights kept, a second task
learned with the penalty; a rehearsal buffer kept in NumPy."""

import numpy as np
from common import initial, integers, log, normal
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

net = [nn.Linear(5, 8), Tensor.tanh, nn.Linear(8, 3)]
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
params = get_parameters(net)
opt = nn.optim.SGD(params, lr=0.2)
tasks = [(normal(10, 5, seed=s), integers(3, 10, seed=s + 1)) for s in (1, 11)]


def loss_of(x, y):
    return Tensor(x).sequential(net).sparse_categorical_crossentropy(Tensor(y))


def train(x, y, steps, penalty=lambda: 0):
    with Context(TRAINING=1):
        for _ in range(steps):
            opt.zero_grad()
            loss = loss_of(x, y) + penalty()
            loss.backward()
            opt.step()
            log("loss", loss.item())


train(*tasks[0], 5)
fisher = [Tensor.zeros_like(p).contiguous().realize() for p in params]
for i in range(10):
    for f, g in zip(fisher, loss_of(tasks[0][0][i : i + 1], tasks[0][1][i : i + 1]).gradient(*params)):
        f += g.square() / 10
log("importance", [f.sum().item() for f in fisher])
old = [p.detach().clone().realize() for p in params]
train(*tasks[1], 5, lambda: 2 * sum(((p - o).square() * f).sum() for p, o, f in zip(params, old, fisher)))
log("first task", loss_of(*tasks[0]).item())
log("moved", [(p - o).abs().max().item() for p, o in zip(params, old)])
x, y = (np.concatenate([a, b[:4]]) for a, b in zip(tasks[1], tasks[0]))
train(x, y, 3)
log("both", [loss_of(*task).item() for task in tasks])
