"""An evolution strategy without gradients: a population evaluated by one batched expression, ranks by argsort,
means updated in place."""

import numpy as np
from common import log, normal
from tinygrad_cpp import Tensor, TinyJit

POPULATION, SIZE = 16, 4
target = Tensor([0.5, -1.0, 2.0, 0.0])
weights = Tensor((np.maximum(0, np.log(9) - np.log(np.arange(1, POPULATION + 1)))).astype(np.float32))
weights = (weights / weights.sum()).realize()


@TinyJit
def fitness(population):
    difference = population - target
    return (difference.square() * Tensor([1.0, 4.0, 0.5, 2.0])).sum(axis=1).realize()


mean, sigma = Tensor.zeros(SIZE).contiguous().realize(), Tensor.ones(SIZE).contiguous().realize()
for generation in range(8):
    noise = Tensor(normal(POPULATION, SIZE, seed=generation))
    population = (mean + sigma * noise).realize()
    scores = fitness(population)
    order = scores.argsort()
    best = population[order]
    mean.assign((best * weights.unsqueeze(1)).sum(axis=0)).realize()
    sigma.assign(0.7 * sigma + 0.3 * ((best - mean).square() * weights.unsqueeze(1)).sum(axis=0).sqrt()).realize()
    log("best", scores.min().item())
    log("order", order[:5].tolist())
    log("mean", mean.tolist())
log("sigma", sigma.tolist())
values, indices = scores.topk(3, largest=False)
log("top", values.tolist())
log("top indices", indices.tolist())
