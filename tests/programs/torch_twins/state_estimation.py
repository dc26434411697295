import numpy as np
import torch
from common import integers, log, normal

F, H = torch.tensor([[1.0, 0.1], [0.0, 0.95]]), torch.tensor([[1.0, 0.0]])
z = torch.tensor(normal(12, 1, seed=1).cumsum(0).astype(np.float32))
logq, logr = torch.tensor([-2.0, -2.0], requires_grad=True), torch.tensor([0.0], requires_grad=True)
opt = torch.optim.Adam([logq, logr], lr=0.1)
for _ in range(5):
    m, P, total = torch.zeros(2, 1), torch.eye(2), 0.0
    for t in range(12):
        m, P = F @ m, F @ P @ F.T + logq.exp() * torch.eye(2)
        S = H @ P @ H.T + logr.exp()
        K = P @ H.T / S
        e = z[t].reshape(1, 1) - H @ m
        total = total + 0.5 * (S.log() + e * e / S).sum()
        m, P = m + K @ e, (torch.eye(2) - K @ H) @ P
    opt.zero_grad()
    total.backward()
    opt.step()
    log("filter", total.item())
    log("state", m.tolist())
log("noise", logq.tolist() + logr.tolist())

t, target = torch.tensor(np.linspace(0, 2, 15, dtype=np.float32)), torch.tensor(normal(15, seed=2) * 0.05
        + 2 * np.exp(-np.linspace(0, 2, 15)).astype(np.float32))
p = torch.tensor([1.6, 1.2, 0.1])
for i in range(5):
    f = lambda p: p[0] * (-p[1] * t).exp() + p[2] - target
    J, r = torch.autograd.functional.jacobian(f, p).numpy(), f(p)
    log("cost", r.square().sum().item())
    p = p - torch.tensor(np.linalg.solve(J.T @ J + 1e-3 * np.eye(3, dtype=np.float32),
                                         J.T @ r.numpy()).astype(np.float32))
log("fitted", p.tolist())

A, E = torch.tensor(normal(3, 3, seed=4), requires_grad=True), torch.tensor(normal(3, 4, seed=5), requires_grad=True)
seen = torch.tensor(integers(4, 10, seed=6)).long()
emissions = E.log_softmax(1)[:, seen].T
alpha = emissions[0] + float(np.log(1 / 3))
for k in range(1, 10):
    alpha = (alpha.reshape(3, 1) + A.log_softmax(1)).logsumexp(0) + emissions[k]
likelihood = alpha.logsumexp(0)
posterior, dA = torch.autograd.grad(likelihood, [emissions, A])
log("likelihood", likelihood.item())
log("posterior", posterior.tolist())
log("transitions", dA.tolist())
log("sums", posterior.sum(1).tolist())

angle, speed, length = (torch.tensor(v, requires_grad=True) for v in (1.0, 0.0, 1.3))
th, v = angle, speed
for _ in range(40):
    half = v - 0.025 * 9.81 / length * th.sin()
    th = th + 0.05 * half
    v = half - 0.025 * 9.81 / length * th.sin()
log("end", [th.item(), v.item()])
log("sensitivity", [g.item() for g in torch.autograd.grad(th, [angle, speed, length])])
