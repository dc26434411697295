"""A small causal transformer decodes with a key/value cache written at a bound position by a jitted step: greedily,
with top-k sampling on given numbers, and with a beam search that reorders the cache by an index tensor."""

import numpy as np
from common import initial, log, uniform
from tinygrad_cpp import Tensor, TinyJit, Variable, dtypes, nn
from tinygrad_cpp.nn.state import get_state_dict, load_state_dict

V, D, HEADS, LONGEST = 13, 16, 2, 12


class Block:
    def __init__(self):
        self.n1, self.qkv, self.proj = nn.LayerNorm(D), nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D)
        self.n2, self.up, self.down = nn.RMSNorm(D), nn.Linear(D, 2 * D), nn.Linear(2 * D, D)

    def __call__(self, x, pos):
        B, T, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).reshape(B, T, 3, HEADS, D // HEADS).permute(2, 0, 3, 1, 4).chunk(3)
        if not hasattr(self, "cache"):
            self.cache = Tensor.zeros(2, 4, HEADS, LONGEST, D // HEADS).contiguous().realize()
        self.cache[:, :B, :, pos : pos + T].assign(Tensor.stack(k[0], v[0])).realize()
        keys, values = self.cache[0, :B, :, : pos + T], self.cache[1, :B, :, : pos + T]
        mask = None
        if T > 1:
            mask = Tensor.full((1, 1, T, T), float("-inf")).triu(1)
        a = q[0].scaled_dot_product_attention(keys, values, attn_mask=mask)
        x = x + self.proj(a.transpose(1, 2).reshape(B, T, D))
        return x + self.down(self.up(self.n2(x)).gelu())


class Model:
    def __init__(self):
        self.tok, self.pos, self.blocks, self.norm = nn.Embedding(V, D), nn.Embedding(LONGEST, D), [Block(),
                Block()], nn.LayerNorm(D)
        self.step = TinyJit(self.forward)

    def forward(self, tokens, pos):
        T = tokens.shape[1]
        x = self.tok(tokens) + self.pos(Tensor.arange(LONGEST).reshape(1, LONGEST)[:, pos : pos + T])
        for b in self.blocks:
            x = b(x, pos)
        return (self.norm(x)[:, -1] @ self.tok.weight.T * 3).log_softmax().realize()

    def __call__(self, tokens, pos):
        if tokens.shape[1] > 1 or pos == 0:
            return self.forward(tokens, pos)
        return self.step(tokens, Variable("pos", 1, LONGEST - 1).bind(pos))


model = Model()
load_state_dict(model, {k: Tensor(v) for k, v in initial(get_state_dict(model)).items() if "cache" not in k},
                verbose=False)
prompt = [3, 1, 4]


def greedy():
    tokens = list(prompt)
    logits = model(Tensor([tokens]), 0)
    while len(tokens) < LONGEST:
        tokens.append(logits.argmax(-1).item())
        log("best", logits.max().item())
        if len(tokens) < LONGEST:
            logits = model(Tensor([tokens[-1:]]), len(tokens) - 1)
    return tokens


def sampled(k, temperature):
    tokens, draws = [list(prompt), list(prompt[::-1])], uniform(LONGEST, 2, seed=4)
    logits = model(Tensor(tokens), 0)
    step = TinyJit(lambda t, p: model.forward(t, p))
    while len(tokens[0]) < LONGEST:
        values, places = (logits / temperature).topk(k)
        cumulative = values.softmax(-1).cumsum(-1).numpy()
        chosen = [int((c < u).sum()) for c, u in zip(cumulative, draws[len(tokens[0])])]
        log("cumulative", cumulative)
        new = places.gather(1, Tensor(chosen).reshape(2, 1)).tolist()
        tokens = [t + n for t, n in zip(tokens, new)]
        if len(tokens[0]) < LONGEST:
            logits = step(Tensor(new, dtype=dtypes.int32), Variable("pos", 1, LONGEST - 1).bind(len(tokens[0]) - 1))
    return tokens


def beams(width):
    logits = model(Tensor([prompt] * width), 0)
    scores = logits[:1].topk(width)[0].reshape(width)
    tokens = [prompt + [t] for t in logits[0].topk(width)[1].tolist()]
    step = TinyJit(lambda t, p: model.forward(t, p))
    while len(tokens[0]) < LONGEST:
        logits = step(Tensor([t[-1:] for t in tokens]), Variable("pos", 1, LONGEST - 1).bind(len(tokens[0]) - 1))
        total = (scores.unsqueeze(1) + logits).flatten()
        scores, places = total.topk(width)
        parents, last = (places // V).tolist(), (places % V).tolist()
        log("scores", scores.numpy())
        tokens = [tokens[p] + [t] for p, t in zip(parents, last)]
        for b in model.blocks:
            b.cache[:, :width] = b.cache[:, Tensor(parents)].contiguous()
    return tokens


log("greedy", greedy())
log("sampled", sampled(5, 0.8))
log("beams", beams(3))
log("greedy again", greedy())
