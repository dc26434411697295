"""A mixture density net: logsumexp over components, weights, means and widths read while training, an inverse
problem."""

import math

import numpy as np
from common import initial, log, uniform
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class MDN:
    def __init__(self, components=3):
        self.hidden, self.weights, self.means, self.widths = nn.Linear(1, 12), *(
            nn.Linear(12, components) for _ in range(3)
        )

    def __call__(self, x):
        h = self.hidden(x).tanh()
        return self.weights(h).log_softmax(), self.means(h), self.widths(h)


net = MDN()
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
opt = nn.optim.AdamW(get_parameters(net), lr=0.02)
y = np.linspace(0, 1, 20, dtype=np.float32)[:, None]
x = Tensor((y + 0.3 * np.sin(2 * np.pi * y) + 0.05 * uniform(20, 1, seed=1)).astype(np.float32))
with Context(TRAINING=1):
    for step in range(6):
        opt.zero_grad()
        weight, mean, log_width = net(x)
        z = (Tensor(y) - mean) * (-log_width).exp()
        component = weight - 0.5 * z.square() - log_width - 0.5 * math.log(2 * math.pi)
        loss = -component.logsumexp(axis=1).mean()
        log("responsibilities", component.softmax(axis=1)[0].tolist())
        log("loss", loss.item())
        loss.backward()
        opt.step()
log("expected", (net(x)[0].exp() * net(x)[1]).sum(axis=1).numpy())
