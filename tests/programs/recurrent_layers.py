"""The library's LSTM and GRU layers on padded sequences: last valid outputs, two layers, both directions, trained
with clipped gradients."""

import numpy as np
from common import initial, integers, log, normal
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict
from tinygrad_cpp.nn.train import clip_grad_norm


class Classifier:
    def __init__(self):
        self.lstm = nn.LSTM(4, 6, num_layers=2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(12, 5, batch_first=True)
        self.fc = nn.Linear(5, 3)

    def __call__(self, x, last):
        h, _ = self.lstm(x)
        h, _ = self.gru(h)
        return self.fc(h[Tensor.arange(x.shape[0]), last])


net = Classifier()
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
opt = nn.optim.Adam(get_parameters(net), lr=0.02)
lengths = np.array([3, 6, 2, 5, 6])
x, y = Tensor(normal(5, 6, 4, seed=1)), Tensor(integers(3, 5, seed=2))
with Context(TRAINING=1):
    for step in range(4):
        opt.zero_grad()
        loss = net(x, Tensor((lengths - 1).astype(np.int32))).sparse_categorical_crossentropy(y)
        loss.backward()
        log("norm", clip_grad_norm(opt.params, 0.5).item())
        opt.step()
        log("loss", loss.item())
out, (h, c) = net.lstm(x)
log("state", h.sum(axis=2).tolist(), rtol=1e-3)  # four steps of Adam
log("cell", c.square().sum().item(), rtol=1e-3)
