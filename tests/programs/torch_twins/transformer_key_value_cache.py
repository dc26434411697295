import torch
import torch.nn.functional as F
from common import initial, log, uniform

DIM, HEADS, CONTEXT, VOCABULARY = 16, 2, 16, 13


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (torch.nn.Linear(DIM, DIM, bias=False) for _ in range(4))

    def forward(self, x):
        t = x.shape[1]
        q, k, v = (f(x).reshape(1, t, HEADS, DIM // HEADS).transpose(1, 2) for f in (self.q, self.k, self.v))
        return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(1, t, DIM))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.position = torch.nn.Embedding(VOCABULARY, DIM), torch.nn.Embedding(CONTEXT, DIM)
        self.layers = torch.nn.ModuleList(
            [
                torch.nn.ModuleDict(
                    {
                        "attention": Attention(),
                        "norm": torch.nn.RMSNorm(DIM, eps=1e-6),
                        "up": torch.nn.Linear(DIM, 32),
                        "down": torch.nn.Linear(32, DIM),
                    }
                )
                for _ in range(2)
            ]
        )
        self.out = torch.nn.Linear(DIM, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens) + self.position(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = x + layer["attention"](layer["norm"](x))
            x = x + layer["down"](F.silu(layer["up"](x)))
        return self.out(x)[:, -1]


model = Model()
model.load_state_dict({k: torch.tensor(v) for k, v in initial(model.state_dict()).items()})
for style in ("greedy", "sampled"):
    tokens, noise = [3, 1, 4, 1, 5], uniform(CONTEXT, seed=5)
    for i in range(9):
        logits = model(torch.tensor([tokens]))
        log("logits", logits[0].tolist())
        if style == "greedy":
            tokens.append(int(logits.argmax()))
        else:
            tokens.append(int(((logits[0] / 0.7).softmax(-1).cumsum(0) < float(noise[i])).sum()))
    log("tokens", tokens)
