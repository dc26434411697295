"""A neural ODE, Euler and Runge-Kutta steps unrolled, the trajectory of a spiral fitted through the whole
integration."""

import numpy as np
from common import initial, log
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

f = [nn.Linear(2, 12), Tensor.tanh, nn.Linear(12, 2)]
load_state_dict(f, {k: Tensor(v) for k, v in initial(get_state_dict(f)).items()}, verbose=False)
opt = nn.optim.Adam(get_parameters(f), lr=0.02)
time = np.linspace(0, 2, 9, dtype=np.float32)
target = Tensor(np.stack([np.exp(-0.2 * time) * np.cos(2 * time), np.exp(-0.2 * time) * np.sin(2 * time)], 1))
h = float(time[1] - time[0])


def slope(x):
    return x.sequential(f)


def euler(x):
    return x + h * slope(x)


def runge_kutta(x):
    k1 = slope(x)
    k2 = slope(x + h / 2 * k1)
    k3 = slope(x + h / 2 * k2)
    return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(x + h * k3))


with Context(TRAINING=1):
    for method in (euler, runge_kutta):
        for step in range(4):
            opt.zero_grad()
            path = [Tensor([[1.0, 0.0]])]
            for _ in range(8):
                path.append(method(path[-1]))
            loss = (Tensor.cat(*path) - target).square().mean()
            log("end", path[-1].tolist(), atol=1e-5)  # coordinates near 0 of a path of length 1
            loss.backward()
            opt.step()
            log("loss", loss.item())
log("weight", f[0].weight.numpy())
