import torch
from common import log, normal

x, y = torch.tensor(normal(20, 3, seed=1)), torch.tensor(normal(20, seed=2))


def loss_of(theta):
    w1, b, w2 = theta[:12].reshape(3, 4), theta[12:16], theta[16:20]
    return ((x @ w1 + b).tanh() @ w2 - y).square().mean() + 1e-3 * theta.square().sum()


def value_and_gradient(theta):
    theta = theta.detach().requires_grad_()
    loss = loss_of(theta)
    return loss.detach(), torch.autograd.grad(loss, theta)[0]


theta, history = torch.tensor(normal(20, seed=3) * 0.5), []
loss, g = value_and_gradient(theta)
for step in range(6):
    log("loss", loss.item())
    log("gradient", g.norm().item())
    d, alphas = g, []
    for s, v, rho in reversed(history):
        alphas.append(rho * (s * d).sum())
        d = d - alphas[-1] * v
    if history:
        s, v, _ = history[-1]
        d = d * ((s * v).sum() / v.square().sum())
    for (s, v, rho), a in zip(history, reversed(alphas)):
        d = d + s * (a - rho * (v * d).sum())
    d, rate, decrease = -d, 1.0, -(g * d).sum().item()
    while loss_of(theta + rate * d).item() > loss.item() - 1e-4 * rate * abs(decrease):
        rate /= 2
    log("rate", rate)
    new = theta + rate * d
    new_loss, new_g = value_and_gradient(new)
    s, v = new - theta, new_g - g
    history = (history + [(s, v, 1 / (s * v).sum())])[-4:]
    theta, loss, g = new, new_loss, new_g
log("theta", theta.tolist())
