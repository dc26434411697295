"""The embedding is the output layer too: one tensor used twice gets both gradients; gathered by get_parameters
only once."""

from common import initial, integers, log
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class LM:
    def __init__(self):
        self.embed, self.mix, self.out = nn.Embedding(9, 6), nn.Linear(6, 6), nn.Linear(6, 9, bias=False)
        self.out.weight = self.embed.weight

    def __call__(self, tokens):
        return self.out(self.mix(self.embed(tokens)).tanh())


start = {k: v for k, v in initial({k: v for k, v in get_state_dict(LM()).items() if k != "out.weight"}).items()}
tokens = integers(9, 4, 7, seed=1)
x, y = Tensor(tokens[:, :-1]).realize(), Tensor(tokens[:, 1:]).realize()
for jitted in (False, True):
    model = LM()
    load_state_dict(model, {k: Tensor(v) for k, v in start.items()}, strict=False, verbose=False)
    model.out.weight = model.embed.weight
    opt = nn.optim.AdamW(get_parameters(model), lr=0.02)
    log("parameters", len(opt.params))

    def step(x, y):
        opt.zero_grad()
        loss = model(x).sparse_categorical_crossentropy(y)
        loss.backward()
        opt.step()
        return loss.realize()

    step = TinyJit(step) if jitted else step
    with Context(TRAINING=1):
        for i in range(6):
            log("loss", step(x, y).item())
    log("same values", bool((model.out.weight == model.embed.weight).all().item()))
    log("embedding", model.embed.weight.numpy())
