"""Jitted functions that return tuples, dicts, lists and None, that take lists and keywords, whose results are kept
and fed back."""

from common import log, normal
from tinygrad_cpp import Tensor, TinyJit

w = Tensor(normal(3, 3, seed=1)).realize()


@TinyJit
def forward(x, scale=None):
    h = (x @ w).tanh()
    return h.realize(), {"sum": h.sum().realize(), "parts": [h.max().realize(), (h * scale).min().realize()]}, None


kept = []
for i in range(6):
    h, extra, nothing = forward(Tensor(normal(2, 3, seed=i)).realize(), scale=Tensor([float(i + 1)]).realize())
    kept.append(h)
    log("sum", extra["sum"].item())
    log("parts", [p.item() for p in extra["parts"]])
log("kept", [h.sum().item() for h in kept])

state = Tensor.ones(2, 3).contiguous().realize()
advance = TinyJit(lambda s: (s @ w * 0.5 + 0.1).realize())
for i in range(6):
    state = advance(state)
log("state", state.numpy())

pair = TinyJit(lambda tensors: [t.realize() for t in (tensors[0] + tensors[1], tensors[0] * tensors[1])])
for i in range(5):
    out = pair([Tensor([1.0 + i]).realize(), Tensor([2.0 * i]).realize()])
    log("pair", [t.item() for t in out])


@TinyJit
def accumulate(x):
    total.assign(total + x).realize()


total = Tensor.zeros(3).contiguous().realize()
for i in range(6):
    log("returned", str(accumulate(Tensor(normal(3, seed=30 + i)).realize())))
log("total", total.tolist())
