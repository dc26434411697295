"""A Kalman filter whose noise is learned by differentiating through its recursion, Gauss-Newton on residuals with
products of the Jacobian (two reverse passes), a hidden Markov model whose posteriors are gradients of its
log-likelihood, and a differentiable pendulum integrated by Verlet steps."""

import numpy as np
from common import integers, log, normal, uniform
from tinygrad_cpp import Context, Tensor, TinyJit, nn

# Kalman
F, H = Tensor([[1.0, 0.1], [0.0, 0.95]]), Tensor([[1.0, 0.0]])
z = normal(12, 1, seed=1).cumsum(0).astype(np.float32)
logq, logr = Tensor([-2.0, -2.0]), Tensor([0.0])
opt = nn.optim.Adam([logq, logr], lr=0.1)


@TinyJit
def fit(z):
    m, P, total = Tensor.zeros(2, 1), Tensor.eye(2), 0.0
    for t in range(12):
        m, P = F @ m, F @ P @ F.T + logq.exp() * Tensor.eye(2)
        S = H @ P @ H.T + logr.exp()
        K = P @ H.T / S
        e = z[t].reshape(1, 1) - H @ m
        total = total + 0.5 * (S.log() + e * e / S).sum()
        m, P = m + K @ e, (Tensor.eye(2) - K @ H) @ P
    opt.zero_grad()
    total.backward()
    opt.step()
    return total.realize(), m.realize()


with Context(TRAINING=1):
    for _ in range(5):
        total, m = fit(Tensor(z))
        log("filter", total.item())
        log("state", m.numpy())
log("noise", logq.tolist() + logr.tolist())

# Gauss-Newton
t, target = Tensor(np.linspace(0, 2, 15, dtype=np.float32)), Tensor(normal(15, seed=2) * 0.05
                                                                    + 2 * np.exp(-np.linspace(0, 2,
                                                                            15)).astype(np.float32))
p = Tensor([1.6, 1.2, 0.1])
for i in range(5):
    p = p.detach().clone()
    residual = p[0] * (-p[1] * t).exp() + p[2] - target
    dual = Tensor.zeros(15).contiguous().requires_grad_() if hasattr(Tensor,
                                                                     "requires_grad_") else Tensor.zeros(15).contiguous(
                                                                             )
    vjp = residual.gradient(p, gradient=dual)[0]
    columns = [vjp.gradient(dual, gradient=Tensor.eye(3)[k])[0].numpy() for k in range(3)]
    J = np.stack(columns, axis=1)
    log("cost", residual.square().sum().item(), rtol=1e-3)
    step = np.linalg.solve(J.T @ J + 1e-3 * np.eye(3, dtype=np.float32), J.T @ residual.numpy())
    p = p - Tensor(step.astype(np.float32))
log("fitted", p.numpy(), rtol=1e-3)

# hidden Markov model
A, E = Tensor(normal(3, 3, seed=4)), Tensor(normal(3, 4, seed=5))
seen = integers(4, 10, seed=6)
emissions = E.log_softmax(1)[:, Tensor(seen)].T.contiguous()
alpha = emissions[0] + float(np.log(1 / 3))
for k in range(1, 10):
    alpha = (alpha.reshape(3, 1) + A.log_softmax(1)).logsumexp(0) + emissions[k]
likelihood = alpha.logsumexp(0)
posterior, dA = likelihood.gradient(emissions, A)
log("likelihood", likelihood.item())
log("posterior", posterior.numpy())
log("transitions", dA.numpy())
log("sums", posterior.sum(1).numpy())

# pendulum
angle, speed, length = Tensor(1.0).clone(), Tensor(0.0).clone(), Tensor(1.3).clone()
th, v = angle, speed
for _ in range(40):
    half = v - 0.025 * 9.81 / length * th.sin()
    th = th + 0.05 * half
    v = half - 0.025 * 9.81 / length * th.sin()
log("end", [th.item(), v.item()])
log("sensitivity", [g.item() for g in th.gradient(angle, speed, length)])
