import numpy as np
import torch
import torch.nn.functional as F
from common import initial, integers, log


class Block(torch.nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = torch.nn.LayerNorm(dim), torch.nn.LayerNorm(dim)
        self.qkv, self.proj = torch.nn.Linear(dim, 3 * dim), torch.nn.Linear(dim, dim)
        self.up, self.down = torch.nn.Linear(dim, 4 * dim), torch.nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            s.reshape(b, t, self.heads, c // self.heads).transpose(1, 2) for s in self.qkv(self.ln1(x)).chunk(3, dim=-1)
        )
        scores = q @ k.transpose(2, 3) / (c // self.heads) ** 0.5
        self.attention = scores.masked_fill(~torch.ones(t, t, dtype=torch.bool).tril(), -float("inf")).softmax(-1)
        x = x + self.proj((self.attention @ v).transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class GPT(torch.nn.Module):
    def __init__(self, vocabulary=11, context=6, dim=16):
        super().__init__()
        self.tokens, self.positions = torch.nn.Embedding(vocabulary, dim), torch.nn.Embedding(context, dim)
        self.blocks = torch.nn.Sequential(*[Block(dim, 2) for _ in range(2)])
        self.ln, self.head = torch.nn.LayerNorm(dim), torch.nn.Linear(dim, vocabulary, bias=False)

    def forward(self, x):
        return self.head(self.ln(self.blocks(self.tokens(x) + self.positions(torch.arange(x.shape[1])))))


model = GPT()
model.load_state_dict({k: torch.tensor(v) for k, v in initial(model.state_dict()).items()})
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
data = torch.tensor(np.cumsum(integers(3, 4, 5, 7, seed=1), axis=-1) % 11).long()
for batch in data:
    opt.zero_grad()
    loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    log("attention", model.blocks[1].attention[0, 0, -1].tolist())
    loss.backward()
    log("norm", sum(p.grad.square().sum() for p in model.parameters()).sqrt().item())
    opt.step()
    log("loss", loss.item())
log("logits", model(data[0, :1, :-1])[0, -1].tolist())
