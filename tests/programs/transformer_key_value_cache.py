"""Generation with a key-value cache written at a Variable position by a jitted step: prompt first, then greedily
and with given noise."""

import numpy as np
from common import initial, log, uniform
from tinygrad_cpp import Tensor, TinyJit, Variable, nn
from tinygrad_cpp.nn.state import get_state_dict, load_state_dict

DIM, HEADS, CONTEXT, VOCABULARY = 16, 2, 16, 13


class Attention:
    def __init__(self):
        self.q, self.k, self.v, self.o = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))

    def __call__(self, x, start):
        t = x.shape[1]
        q, k, v = (f(x).reshape(1, t, HEADS, DIM // HEADS) for f in (self.q, self.k, self.v))
        if not hasattr(self, "cache"):
            self.cache = Tensor.zeros(2, 1, CONTEXT, HEADS, DIM // HEADS).contiguous().realize()
        self.cache[:, :, start : start + t].assign(Tensor.stack(k, v)).realize()
        keys, values = self.cache[0][:, : start + t], self.cache[1][:, : start + t]
        mask = Tensor.full((1, 1, t, start + t), float("-inf")).triu(start + 1) if t > 1 else None
        out = q.transpose(1, 2).scaled_dot_product_attention(keys.transpose(1, 2), values.transpose(1, 2), mask)
        return self.o(out.transpose(1, 2).reshape(1, t, DIM))


class Model:
    def __init__(self):
        self.embed, self.position = nn.Embedding(VOCABULARY, DIM), nn.Embedding(CONTEXT, DIM)
        self.layers = [
            {"attention": Attention(), "norm": nn.RMSNorm(DIM), "up": nn.Linear(DIM, 32), "down": nn.Linear(32, DIM)}
            for _ in range(2)
        ]
        self.out = nn.Linear(DIM, VOCABULARY, bias=False)
        self.jitted = TinyJit(self.forward)

    def forward(self, tokens, start):
        positions = Tensor.arange(CONTEXT).shrink(((start, start + tokens.shape[1]),))
        x = self.embed(tokens) + self.position(positions).reshape(1, tokens.shape[1], DIM)
        for layer in self.layers:
            x = x + layer["attention"](layer["norm"](x), start)
            x = x + layer["down"](layer["up"](x).silu())
        return self.out(x)[:, -1].realize()

    def __call__(self, tokens, start):
        if tokens.shape[1] > 1:
            return self.forward(tokens, start)
        return self.jitted(tokens, Variable("start", 1, CONTEXT - 1).bind(start))


model = Model()
load_state_dict(model, {k: Tensor(v) for k, v in initial(get_state_dict(model)).items()}, verbose=False)
for style in ("greedy", "sampled"):
    tokens, start, noise = [3, 1, 4, 1, 5], 0, uniform(CONTEXT, seed=5)
    for i in range(9):
        logits = model(Tensor([tokens[start:]]), start)
        start = len(tokens)
        log("logits", logits[0].numpy())
        if style == "greedy":
            tokens.append(int(logits.argmax().item()))
        else:
            probabilities = (logits[0] / 0.7).softmax()
            tokens.append(int((probabilities.cumsum() < float(noise[i])).sum().item()))
    log("tokens", tokens)
