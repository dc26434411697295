"""Quantisation-aware training with straight-through rounding, int8 weights afterwards, and magnitude pruning with masks
that stay on while training goes on."""

from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, dtypes, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

x, y = Tensor(normal(12, 5, seed=1)), Tensor(normal(12, 3, seed=2))


def fake_quantised(w):
    scale = w.abs().max().detach() / 127
    return w + ((w / scale).round().clip(-127, 127) * scale - w).detach(), scale


net = [nn.Linear(5, 9), nn.Linear(9, 3)]
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
opt = nn.optim.SGD(get_parameters(net), lr=0.1, momentum=0.9)
with Context(TRAINING=1):
    for step in range(5):
        h = x
        for i, layer in enumerate(net):
            w, scale = fake_quantised(layer.weight)
            h = h.linear(w.T, layer.bias)
            h = h.relu() if i == 0 else h
        loss = (h - y).square().mean()
        log("scale", scale.item())
        opt.zero_grad()
        loss.backward()
        opt.step()
        log("loss", loss.item(), rtol=1e-3)  # a weight may round to the other side
w, scale = fake_quantised(net[0].weight)
whole = (net[0].weight / scale).round().cast(dtypes.int8)
log("whole numbers", whole.dtype == dtypes.int8)
log("range", [int(whole.min().item() >= -127), int(whole.abs().max().item())])
product = (x * 16).round().cast(dtypes.int8).matmul(whole.T, dtype=dtypes.int32)
log("close", bool(((product * scale / 16) - x @ w.T).abs().max().item() < 0.2))

for layer in net:
    layer.mask = (layer.weight.abs() > layer.weight.abs().flatten().sort()[0][layer.weight.numel() // 2]).detach()
    layer.mask.realize()
    layer.weight.assign(layer.weight * layer.mask).realize()
with Context(TRAINING=1):
    for step in range(4):
        out = net[1](net[0](x).relu())
        loss = (out - y).square().mean()
        opt.zero_grad()
        loss.backward()
        for layer in net:
            layer.weight.grad = layer.weight.grad * layer.mask
        opt.step()
        for layer in net:
            layer.weight.assign(layer.weight * layer.mask).realize()
        log("pruned", loss.item(), rtol=1e-3)
    log("zeros", [int((layer.weight == 0).sum().item()) for layer in net])
