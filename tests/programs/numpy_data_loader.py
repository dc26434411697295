"""An epoch loop over NumPy batches: shuffled by a seeded generator, a last batch of another size, accuracy summed
as Python numbers."""

import numpy as np
from common import initial, integers, log, normal
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

X, Y = normal(22, 5, seed=1), integers(3, 22, seed=2)
X[np.arange(22), Y] += 2


def batches(size, epoch):
    order = np.random.RandomState(epoch).permutation(len(X))
    for start in range(0, len(X), size):
        rows = order[start : start + size]
        yield Tensor(X[rows]), Tensor(Y[rows])


net = [nn.Linear(5, 9), Tensor.relu, nn.Linear(9, 3)]
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
opt = nn.optim.Adam(get_parameters(net), lr=0.03)
for epoch in range(3):
    total, right = 0.0, 0
    with Context(TRAINING=1):
        for x, y in batches(8, epoch):
            opt.zero_grad()
            out = x.sequential(net)
            loss = out.sparse_categorical_crossentropy(y)
            total += loss.item() * len(x)
            right += int((out.argmax(axis=1) == y).sum().item())
            loss.backward()
            opt.step()
    log("training", total / len(X))
    log("right", right)
    log("validation", float(Tensor(X[:7]).sequential(net).sparse_categorical_crossentropy(Tensor(Y[:7])).numpy()))
log("weight", net[0].weight.numpy())
