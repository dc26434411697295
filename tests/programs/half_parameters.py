"""Half parameters given straight to each optimizer: eager and jitted steps, losses summed in float32."""

from common import log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, dtypes, nn

x, y = Tensor(normal(16, 6, seed=1)).half().realize(), Tensor(normal(16, 3, seed=2)).realize()
tolerance = 1e-2  # a handful of roundings to 11 bits
optimizers = {
    "SGD": lambda p: nn.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: nn.optim.Adam(p, lr=0.02),
    "AdamW": lambda p: nn.optim.AdamW(p, lr=0.02, weight_decay=0.1),
    "LAMB": lambda p: nn.optim.LAMB(p, lr=0.02),
    "LARS": lambda p: nn.optim.LARS(p, lr=1.0, tcoef=0.05),
    "Muon": lambda p: nn.optim.Muon(p, lr=0.02),
}
with Context(TRAINING=1):
    for name, make in optimizers.items():
        for jitted in (False, True):
            w = Tensor(normal(6, 3, seed=3), dtype=dtypes.half).realize()
            opt = make([w])

            def step():
                opt.zero_grad()
                loss = ((x @ w).float() - y).square().mean()
                loss.backward()
                opt.step()
                return loss.realize()

            step = TinyJit(step) if jitted else step
            log(name, [step().item() for _ in range(5)], rtol=tolerance)
            log("w", w.float().numpy(), rtol=tolerance)
            log("dtype", str(w.dtype).split(".")[-1])
