"""Several losses of one graph: backward() of each, sums of some, gradients of parts by gradient(), a second
backward() after zero_grad()."""

from common import log, normal
from tinygrad_cpp import Context, Tensor, nn

shared, head_a, head_b = Tensor(normal(4, 6, seed=1)), Tensor(normal(6, 2, seed=2)), Tensor(normal(6, 3, seed=3))
log_sigma = Tensor.zeros(2)
opt = nn.optim.Adam([shared, head_a, head_b, log_sigma], lr=0.02)
x, ya, yb = Tensor(normal(9, 4, seed=4)), Tensor(normal(9, 2, seed=5)), Tensor(normal(9, 3, seed=6))
with Context(TRAINING=1):
    for step in range(5):
        h = (x @ shared).sigmoid()
        a, b = (h @ head_a - ya).square().mean(), (h @ head_b - yb).abs().mean()
        log("parts", [a.item(), b.item()])
        opt.zero_grad()
        weighted = [part * (-2 * log_sigma[i]).exp() + log_sigma[i] for i, part in enumerate((a, b))]
        weighted[0].backward()
        log("after one", shared.grad.square().sum().item())
        log("no gradient yet", str(head_b.grad is None))
        weighted[1].backward()
        log("after two", shared.grad.square().sum().item())
        ga, gb = a.gradient(shared)[0], b.gradient(shared)[0]
        log("cosine", ((ga * gb).sum() / (ga.square().sum() * gb.square().sum()).sqrt()).item())
        opt.step()
log("sigma", log_sigma.tolist())
log("shared", shared.numpy())
