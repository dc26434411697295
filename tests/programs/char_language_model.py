"""A character model with an embedding and an LSTM cell, trained jitted on windows of a text, then asked for text
greedily."""

import numpy as np
from common import initial, log
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

text = "the quick brown fox jumps over the lazy dog. " * 4
chars = sorted(set(text))
codes = np.array([chars.index(c) for c in text], np.int32)


class Model:
    def __init__(self):
        self.embed, self.cell, self.out = nn.Embedding(len(chars), 8), nn.LSTMCell(8, 16), nn.Linear(16, len(chars))

    def __call__(self, tokens, state=None):
        logits = []
        x = self.embed(tokens)
        for t in range(tokens.shape[1]):
            state = self.cell(x[:, t], state)
            logits.append(self.out(state[0]))
        return Tensor.stack(*logits, dim=1), state


model = Model()
load_state_dict(model, {k: Tensor(v) for k, v in initial(get_state_dict(model)).items()}, verbose=False)
opt = nn.optim.Adam(get_parameters(model), lr=0.05)


@TinyJit
@Context(TRAINING=1)
def step(x, y):
    opt.zero_grad()
    logits, _ = model(x)
    loss = logits.sparse_categorical_crossentropy(y)
    loss.backward()
    opt.step()
    return loss.realize()


for i in range(8):
    rows = np.stack([codes[j : j + 7] for j in range(i * 3, i * 3 + 32, 4)])
    log("loss", step(Tensor(rows[:, :-1]).realize(), Tensor(rows[:, 1:]).realize()).item())
log("cell", model.cell.weight_hh.square().sum().item())

token, state, words = Tensor([[int(codes[0])]]), None, ""
for _ in range(12):
    logits, state = model(token, state)
    token = logits[:, -1].argmax(axis=-1, keepdim=True)
    words += chars[token.item()]
log("text", words)
log("logits", logits.numpy())
