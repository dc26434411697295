import torch
from common import log, normal

H, L = 6, 5
data = torch.tensor(normal(60, 2, 3, seed=1))
for _ in range(2):
    wx, wh, b = (torch.tensor(normal(*s, seed=i) * 0.3, requires_grad=True) for i,
                 s in enumerate([(3, 4 * H), (H, 4 * H), (4 * H,)]))
    out = torch.tensor(normal(H, 3, seed=9) * 0.3, requires_grad=True)
    h = c = torch.zeros(2, H)
    for k in range(0, 55, L):
        x, y, loss = data[k : k + L], data[k + 1 : k + L + 1], 0
        for t in range(L):
            i, f, g, o = (x[t] @ wx + h @ wh + b).chunk(4, dim=1)
            c = (f + 1).sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            loss = loss + (h @ out - y[t]).square().mean()
        loss = loss / L
        grads = torch.autograd.grad(loss, [wx, wh, b, out])
        with torch.no_grad():
            for p, g in zip([wx, wh, b, out], grads):
                p -= 0.2 * g
        h, c = h.detach(), c.detach()
        log("loss", loss.item())
        if k == 25:
            h = torch.zeros_like(h)
    log("state", h.tolist())
    log("weight", wh.tolist())
