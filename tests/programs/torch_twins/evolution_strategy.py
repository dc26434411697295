import numpy as np
import torch
from common import log, normal

POPULATION, SIZE = 16, 4
target = torch.tensor([0.5, -1.0, 2.0, 0.0])
weights = torch.tensor((np.maximum(0, np.log(9) - np.log(np.arange(1, POPULATION + 1)))).astype(np.float32))
weights = weights / weights.sum()
mean, sigma = torch.zeros(SIZE), torch.ones(SIZE)
for generation in range(8):
    population = mean + sigma * torch.tensor(normal(POPULATION, SIZE, seed=generation))
    scores = ((population - target).square() * torch.tensor([1.0, 4.0, 0.5, 2.0])).sum(1)
    order = scores.argsort()
    best = population[order]
    mean = (best * weights.unsqueeze(1)).sum(0)
    sigma = 0.7 * sigma + 0.3 * ((best - mean).square() * weights.unsqueeze(1)).sum(0).sqrt()
    log("best", scores.min().item())
    log("order", order[:5].tolist())
    log("mean", mean.tolist())
log("sigma", sigma.tolist())
values, indices = scores.topk(3, largest=False)
log("top", values.tolist())
log("top indices", indices.tolist())
