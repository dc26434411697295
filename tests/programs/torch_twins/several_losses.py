import torch
from common import log, normal

shapes = [(4, 6), (6, 2), (6, 3)]
shared, head_a, head_b = (torch.tensor(normal(*s, seed=i + 1), requires_grad=True) for i, s in enumerate(shapes))
log_sigma = torch.zeros(2, requires_grad=True)
opt = torch.optim.Adam([shared, head_a, head_b, log_sigma], lr=0.02)
x, ya, yb = torch.tensor(normal(9, 4, seed=4)), torch.tensor(normal(9, 2, seed=5)), torch.tensor(normal(9, 3, seed=6))
for step in range(5):
    h = (x @ shared).sigmoid()
    a, b = (h @ head_a - ya).square().mean(), (h @ head_b - yb).abs().mean()
    log("parts", [a.item(), b.item()])
    opt.zero_grad()
    weighted = [part * (-2 * log_sigma[i]).exp() + log_sigma[i] for i, part in enumerate((a, b))]
    weighted[0].backward(retain_graph=True)
    log("after one", shared.grad.square().sum().item())
    log("no gradient yet", str(head_b.grad is None))
    weighted[1].backward(retain_graph=True)
    log("after two", shared.grad.square().sum().item())
    ga, gb = (torch.autograd.grad(part, shared, retain_graph=True)[0] for part in (a, b))
    log("cosine", ((ga * gb).sum() / (ga.square().sum() * gb.square().sum()).sqrt()).item())
    opt.step()
log("sigma", log_sigma.tolist())
log("shared", shared.tolist())
