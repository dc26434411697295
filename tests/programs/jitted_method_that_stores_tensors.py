"""A jitted method that leaves its attention map and its hidden state in attributes; they are read after the call.
Two instances."""

from common import log, normal
from tinygrad_cpp import Tensor, TinyJit


class Attention:
    def __init__(self, seed):
        self.q, self.k, self.v = (Tensor(normal(4, 4, seed=seed + i)).realize() for i in range(3))
        self.memory = Tensor.zeros(4).contiguous().realize()

    @TinyJit
    def __call__(self, x):
        self.attention = ((x @ self.q) @ (x @ self.k).T / 2).softmax().realize()
        out = self.attention @ (x @ self.v)
        self.memory.assign(self.memory * 0.5 + out.mean(axis=0)).realize()
        self.largest = out.max().realize()
        return out.realize()


first, second = Attention(1), Attention(11)
for i in range(6):
    x = Tensor(normal(3, 4, seed=50 + i)).realize()
    for name, layer in (("first", first), ("second", second)):
        out = layer(x)
        log(name, out.sum(axis=1).tolist())
        log("attention", layer.attention[0].tolist())
        log("largest", layer.largest.item())
        log("memory", layer.memory.tolist())
