import numpy as np
import torch
import torch.nn.functional as F
from common import initial, log

text = "the quick brown fox jumps over the lazy dog. " * 4
chars = sorted(set(text))
codes = np.array([chars.index(c) for c in text], np.int32)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.cell, self.out = (
            torch.nn.Embedding(len(chars), 8),
            torch.nn.LSTMCell(8, 16),
            torch.nn.Linear(16, len(chars)),
        )

    def forward(self, tokens, state=None):
        logits, x = [], self.embed(tokens)
        for t in range(tokens.shape[1]):
            state = self.cell(x[:, t], state)
            logits.append(self.out(state[0]))
        return torch.stack(logits, 1), state


model = Model()
model.load_state_dict({k: torch.tensor(v) for k, v in initial(model.state_dict()).items()})
opt = torch.optim.Adam(model.parameters(), lr=0.05)
for i in range(8):
    rows = torch.tensor(np.stack([codes[j : j + 7] for j in range(i * 3, i * 3 + 32, 4)])).long()
    opt.zero_grad()
    logits, _ = model(rows[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
    loss.backward()
    opt.step()
    log("loss", loss.item())
log("cell", model.cell.weight_hh.square().sum().item())
token, state, words = torch.tensor([[int(codes[0])]]), None, ""
for _ in range(12):
    logits, state = model(token, state)
    token = logits[:, -1].argmax(-1, keepdim=True)
    words += chars[token.item()]
log("text", words)
log("logits", logits.tolist())
