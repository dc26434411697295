"""A graph net: messages along edges by indexing, summed at their targets with scatter_reduce, one-hot degrees,
node classification."""

import numpy as np
from common import initial, integers, log, normal
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

NODES, EDGES = 12, 30
source, target = integers(NODES, EDGES, seed=1), integers(NODES, EDGES, seed=2)
source, target = Tensor(np.concatenate([source, np.arange(NODES, dtype=np.int32)])), Tensor(
    np.concatenate([target, np.arange(NODES, dtype=np.int32)])
)


class GraphLayer:
    def __init__(self, n_in, n_out):
        self.message, self.own = nn.Linear(n_in, n_out), nn.Linear(n_in, n_out, bias=False)

    def __call__(self, x):
        messages = self.message(x)[source]
        index = target.unsqueeze(1).expand(messages.shape)
        total = Tensor.zeros(NODES, messages.shape[1]).scatter_reduce(0, index, messages, "sum")
        degree = (target.unsqueeze(1) == Tensor.arange(NODES)).sum(axis=0).unsqueeze(1)
        return self.own(x) + total / degree


net = [GraphLayer(5, 8), GraphLayer(8, 3)]
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
opt = nn.optim.Adam(get_parameters(net), lr=0.03)
x, y = Tensor(normal(NODES, 5, seed=3)), Tensor(integers(3, NODES, seed=4))
with Context(TRAINING=1):
    for epoch in range(6):
        opt.zero_grad()
        hidden = net[0](x).relu()
        out = net[1](hidden)
        log("hidden", hidden.sum(axis=0).tolist())
        loss = out.sparse_categorical_crossentropy(y)
        loss.backward()
        opt.step()
        log("loss", loss.item())
log("classes", out.argmax(axis=1).tolist())
log("weight", net[0].message.weight.numpy())
