"""Adam and AdamW, eager and jitted, one of them on all parameters as one flat tensor (fused=True)."""

from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

x, y = Tensor(normal(9, 6, seed=1)).realize(), Tensor(normal(9, 2, seed=2)).realize()


def run(make, jitted):
    net = [nn.Linear(6, 8), nn.LayerNorm(8), Tensor.silu, nn.Linear(8, 2)]
    load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
    opt = make(get_parameters(net))

    def step():
        opt.zero_grad()
        loss = (x.sequential(net) - y).abs().mean()
        loss.backward()
        opt.step()
        return loss.realize()

    step = TinyJit(step) if jitted else step
    for _ in range(5):
        log("loss", step().item())
    log("w", net[0].weight.numpy())
    log("norm", net[1].weight.numpy())


with Context(TRAINING=1):
    for jitted in (False, True):
        run(lambda p: nn.optim.Adam(p, lr=0.02), jitted)
        run(lambda p: nn.optim.AdamW(p, lr=0.02, weight_decay=0.2, b1=0.8, b2=0.95), jitted)
        run(lambda p: nn.optim.AdamW(p, lr=0.02, fused=True), jitted)
