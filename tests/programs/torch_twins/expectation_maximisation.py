import math

import torch
from common import log, normal

data = normal(30, 2, seed=1)
data[:15] = data[:15] * [0.5, 1.5] + [2, 0]
x, K = torch.tensor(data), 2
weights, means, covariances = torch.ones(K) / K, torch.tensor([[1.0, 1.0], [-1.0, -1.0]]), torch.eye(2).expand(K, 2, 2)
for step in range(6):
    joint = weights.log() + torch.distributions.MultivariateNormal(means, covariances).log_prob(x.unsqueeze(1))
    evidence = joint.logsumexp(1, keepdim=True)
    log("likelihood", evidence.mean().item())
    r = (joint - evidence).exp()
    total = r.sum(0)
    weights, means = total / 30, (r.T @ x) / total.unsqueeze(1)
    centred = x.unsqueeze(1) - means.unsqueeze(0)
    covariances = torch.einsum("nk,nki,nkj->kij", r, centred, centred) / total.reshape(K, 1, 1) + 1e-4 * torch.eye(2)
log("weights", weights.tolist())
log("means", means.tolist())
log("covariances", covariances.tolist())
logits, centres, scales = torch.tensor([0.1, -0.1]), torch.tensor([[1.0, 1.0], [-1.0, -1.0]]), torch.zeros(K, 2)
for p in (logits, centres, scales):
    p.requires_grad_()
opt = torch.optim.Adam([logits, centres, scales], lr=0.1)
for step in range(6):
    z = (x.unsqueeze(1) - centres) * (-scales).exp()
    density = (-0.5 * z.square() - scales - 0.5 * math.log(2 * math.pi)).sum(2)
    loss = -(logits.log_softmax(0) + density).logsumexp(1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    log("loss", loss.item())
log("centres", centres.tolist())
