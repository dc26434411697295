"""One net applied to anchor, positive and negative: the triplet loss with the hardest negative chosen from values
that were read."""

import numpy as np
from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

net = [nn.Linear(5, 12), Tensor.tanh, nn.Linear(12, 4, bias=False)]
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
opt = nn.optim.Adam(get_parameters(net), lr=0.02)
centres = normal(4, 5, seed=1)
labels = np.arange(12) % 4
with Context(TRAINING=1):
    for step in range(6):
        x = centres[labels] + 0.3 * normal(12, 5, seed=20 + step)
        embedded = Tensor(x).sequential(net)
        distance = (embedded.unsqueeze(1) - embedded.unsqueeze(0)).square().sum(axis=2)
        d = distance.numpy()
        same = labels[:, None] == labels[None]
        positive = np.where(same, d, -1).argmax(axis=1)
        negative = np.where(same, np.inf, d).argmin(axis=1)
        log("mined", [positive.tolist(), negative.tolist()])
        rows = Tensor.arange(12)
        loss = (distance[rows, Tensor(positive)] - distance[rows, Tensor(negative)] + 0.5).relu().mean()
        log("loss", loss.item())
        opt.zero_grad()
        loss.backward()
        opt.step()
log("centres", Tensor(centres).sequential(net).numpy())
