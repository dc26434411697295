"""A small causal transformer with learned positions, trained on next tokens; the attention map is kept as an
attribute and looked at."""

import numpy as np
from common import initial, integers, log
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class Block:
    def __init__(self, dim, heads):
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def __call__(self, x):
        b, t, c = x.shape
        q, k, v = (
            s.reshape(b, t, self.heads, c // self.heads).transpose(1, 2) for s in self.qkv(self.ln1(x)).chunk(3, dim=-1)
        )
        scores = q @ k.transpose(2, 3) / (c // self.heads) ** 0.5
        mask = Tensor.ones(t, t, dtype="bool").tril()
        self.attention = mask.where(scores, -float("inf")).softmax()
        x = x + self.proj((self.attention @ v).transpose(1, 2).reshape(b, t, c))
        return x + self.down(self.up(self.ln2(x)).gelu())


class GPT:
    def __init__(self, vocabulary=11, context=6, dim=16):
        self.tokens, self.positions = nn.Embedding(vocabulary, dim), nn.Embedding(context, dim)
        self.blocks = [Block(dim, 2) for _ in range(2)]
        self.ln, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocabulary, bias=False)

    def __call__(self, x):
        h = self.tokens(x) + self.positions(Tensor.arange(x.shape[1]))
        return self.head(self.ln(h.sequential(self.blocks)))


model = GPT()
load_state_dict(model, {k: Tensor(v) for k, v in initial(get_state_dict(model)).items()}, verbose=False)
opt = nn.optim.AdamW(get_parameters(model), lr=3e-3)
data = np.cumsum(integers(3, 4, 5, 7, seed=1), axis=-1) % 11
with Context(TRAINING=1):
    for batch in data.astype(np.int32):
        opt.zero_grad()
        loss = model(Tensor(batch[:, :-1])).sparse_categorical_crossentropy(Tensor(batch[:, 1:]))
        log("attention", model.blocks[1].attention[0, 0, -1].tolist())
        loss.backward()
        log("norm", sum(p.grad.square().sum() for p in opt.params).sqrt().item())
        opt.step()
        log("loss", loss.item())
log(
    "logits", model(Tensor(data[0, :1, :-1].astype(np.int32)))[0, -1].numpy(), rtol=1e-3
)  # Adam's first steps are signs of small gradients
