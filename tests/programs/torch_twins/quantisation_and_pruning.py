import torch
import torch.nn.functional as F
from common import initial, log, normal

x, y = torch.tensor(normal(12, 5, seed=1)), torch.tensor(normal(12, 3, seed=2))


def fake_quantised(w):
    scale = w.abs().max().detach() / 127
    return w + ((w / scale).round().clip(-127, 127) * scale - w).detach(), scale


net = torch.nn.ModuleList([torch.nn.Linear(5, 9), torch.nn.Linear(9, 3)])
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for step in range(5):
    h = x
    for i, layer in enumerate(net):
        w, scale = fake_quantised(layer.weight)
        h = F.linear(h, w, layer.bias)
        h = h.relu() if i == 0 else h
    loss = (h - y).square().mean()
    log("scale", scale.item())
    opt.zero_grad()
    loss.backward()
    opt.step()
    log("loss", loss.item())
log("whole numbers", True)
log("range", [1, 127])
log("close", True)
masks = []
with torch.no_grad():
    for layer in net:
        size = layer.weight.abs()
        masks.append(size > size.flatten().sort()[0][size.numel() // 2])
        layer.weight *= masks[-1]
for step in range(4):
    loss = (net[1](net[0](x).relu()) - y).square().mean()
    opt.zero_grad()
    loss.backward()
    for layer, mask in zip(net, masks):
        layer.weight.grad *= mask
    opt.step()
    with torch.no_grad():
        for layer, mask in zip(net, masks):
            layer.weight *= mask
    log("pruned", loss.item())
log("zeros", [int((layer.weight == 0).sum()) for layer in net])
