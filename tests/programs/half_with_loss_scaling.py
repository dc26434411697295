"""Training with half parameters: float32 masters of the program's own, a loss scale that halves after an overflow,
steps skipped then."""

from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, dtypes, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

net = [nn.Linear(6, 12), Tensor.relu, nn.Linear(12, 2)]
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
params = get_parameters(net)
masters = [p.clone().realize() for p in params]
for p in params:
    p.replace(p.cast(dtypes.half).realize())
opt = nn.optim.Adam(masters, lr=0.02)
x, y = Tensor(normal(16, 6, seed=1)).half(), Tensor(normal(16, 2, seed=2))
scale, tolerance = 2.0**20, 3e-3  # halves have 11 bits
with Context(TRAINING=1):
    for step in range(10):
        for p in params:
            p.grad = None
        out = x.sequential(net)
        loss = (out.float() - y).square().mean()
        (loss * scale).backward()
        gradients = [p.grad.float() / scale for p in params]
        finite = all(bool(g.isfinite().all().item()) for g in gradients)
        log("step", [finite, scale])
        if not finite:
            scale /= 4
            continue
        for m, g in zip(masters, gradients):
            m.grad = g
        opt.step()
        for p, m in zip(params, masters):
            p.assign(m.cast(dtypes.half)).realize()
        log("loss", loss.item(), rtol=tolerance)
log("dtype", str(params[0].dtype).split(".")[-1])
log("masters", masters[0].numpy(), rtol=2e-2)  # Adam's steps are signs where gradients are below a half's resolution
