"""Connectionist temporal classification: the forward algorithm over time in log space, differentiated through;
greedy decoding."""

import numpy as np
from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

TIME, CLASSES = 8, 4
labels = [[1, 2, 2], [3, 1, 2]]


def ctc(log_p, label):
    extended = [0]
    for c in label:
        extended += [c, 0]
    n = len(extended)
    index = Tensor(np.array(extended, np.int32))
    skip = Tensor(np.array([i >= 2 and extended[i] != 0 and extended[i] != extended[i - 2] for i in range(n)]))
    alpha = (Tensor.arange(n) < 2).where(log_p[0][index], -1e30)
    for t in range(1, TIME):
        one = alpha.pad(((1, 0),), value=-1e30)[:n]
        two = skip.where(alpha.pad(((2, 0),), value=-1e30)[:n], -1e30)
        alpha = Tensor.stack(alpha, one, two).logsumexp(axis=0) + log_p[t][index]
    return -alpha[n - 2 :].logsumexp()


net = [nn.Linear(5, 12), Tensor.tanh, nn.Linear(12, CLASSES)]
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
opt = nn.optim.Adam(get_parameters(net), lr=0.05)
x = Tensor(normal(2, TIME, 5, seed=1))
with Context(TRAINING=1):
    for step in range(5):
        log_p = x.sequential(net).log_softmax()
        losses = [ctc(log_p[i], label) for i, label in enumerate(labels)]
        log("losses", [loss.item() for loss in losses])
        opt.zero_grad()
        (losses[0] + losses[1]).backward()
        opt.step()
        log("gradient", net[2].weight.grad.square().sum().sqrt().item())
path = x.sequential(net).argmax(axis=2).tolist()
log("decoded", [[c for t, c in enumerate(row) if c and (t == 0 or row[t - 1] != c)] for row in path][0])
