import numpy as np
import torch
import torch.nn.functional as F
from common import initial, log, uniform

V, D, HEADS, LONGEST = 13, 16, 2, 12


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.n1, self.qkv, self.proj = nn.LayerNorm(D), nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D)
        self.n2, self.up, self.down = nn.RMSNorm(D, eps=1e-6), nn.Linear(D, 2 * D), nn.Linear(2 * D, D)

    def forward(self, x):
        B, T, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).reshape(B, T, 3, HEADS, D // HEADS).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(B, T, D))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = torch.nn.Embedding(V, D), torch.nn.Embedding(LONGEST, D)
        self.blocks, self.norm = torch.nn.ModuleList([Block(), Block()]), torch.nn.LayerNorm(D)

    @torch.no_grad()
    def forward(self, tokens):
        tokens = torch.tensor(tokens)
        x = self.tok(tokens) + self.pos(torch.arange(tokens.shape[1]))
        for b in self.blocks:
            x = b(x)
        return (self.norm(x)[:, -1] @ self.tok.weight.T * 3).log_softmax(-1)


model = Model()
model.load_state_dict({k: torch.tensor(v) for k, v in initial(model.state_dict()).items()})
prompt = [3, 1, 4]


def greedy():
    tokens = list(prompt)
    while len(tokens) < LONGEST:
        logits = model([tokens])
        tokens.append(logits.argmax(-1).item())
        log("best", logits.max().item())
    return tokens


def sampled(k, temperature):
    tokens, draws = [list(prompt), list(prompt[::-1])], uniform(LONGEST, 2, seed=4)
    while len(tokens[0]) < LONGEST:
        values, places = (model(tokens) / temperature).topk(k)
        cumulative = values.softmax(-1).cumsum(-1).numpy()
        chosen = [int((c < u).sum()) for c, u in zip(cumulative, draws[len(tokens[0])])]
        log("cumulative", cumulative)
        tokens = [t + n for t, n in zip(tokens, places.gather(1, torch.tensor(chosen).reshape(2, 1)).tolist())]
    return tokens


def beams(width):
    scores, last = model([prompt])[0].topk(width)
    tokens = [prompt + [t] for t in last.tolist()]
    while len(tokens[0]) < LONGEST:
        scores, places = (scores.unsqueeze(1) + model(tokens)).flatten().topk(width)
        log("scores", scores.numpy())
        tokens = [tokens[p] + [t] for p, t in zip((places // V).tolist(), (places % V).tolist())]
    return tokens


log("greedy", greedy())
log("sampled", sampled(5, 0.8))
log("beams", beams(3))
log("greedy again", greedy())
