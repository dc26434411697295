import torch
from common import log, normal

x, y = torch.tensor(normal(16, 6, seed=1)).half(), torch.tensor(normal(16, 3, seed=2))


def orthogonal(g):
    z = g / (g.norm() + 1e-7)
    z = z.T if g.shape[0] > g.shape[1] else z
    for _ in range(5):
        s = z @ z.T
        z = 3.4445 * z + (-4.775 * s + 2.0315 * s @ s) @ z
    return z.T if g.shape[0] > g.shape[1] else z


def update(name, w, g, state, t, decay=0.0):
    """Gives the step in float32, by the formulas of the papers."""
    if name in ("Adam", "AdamW", "LAMB"):
        state["m"], state["v"] = 0.9 * state.get("m", 0) + 0.1 * g, 0.999 * state.get("v", 0) + 0.001 * g * g
        eps = 1e-6 if name == "LAMB" else 1e-8
        up = state["m"] / (1 - 0.9**t) / ((state["v"] / (1 - 0.999**t)).sqrt() + eps) + (
            0.1 * w if name == "AdamW" else 0
        )
        return 0.02 * (w.norm() / up.norm() if name == "LAMB" else 1) * up
    if name == "LARS":
        rate = 0.05 * w.norm() / (g.norm() + 1e-4 * w.norm())
        state["b"] = 0.9 * state.get("b", 0) + rate * (g + 1e-4 * w)
        return state["b"]
    state["b"] = (0.95 if name == "Muon" else 0.9) * state.get("b", 0) + g
    return 0.02 * orthogonal(g + 0.95 * state["b"]) + 0.1 * 0.02 * w if name == "Muon" else 0.1 * state["b"]


for name in ("SGD", "Adam", "AdamW", "LAMB", "LARS", "Muon"):
    for jitted in (False, True):
        w, state, losses = torch.tensor(normal(6, 3, seed=3)).half().requires_grad_(), {}, []
        for t in range(1, 6):
            w.grad = None
            loss = ((x @ w).float() - y).square().mean()
            loss.backward()
            with torch.no_grad():
                w.copy_(w.float() - update(name, w.float(), w.grad.float(), state, t))
            losses.append(loss.item())
        log(name, losses)
        log("w", w.tolist())
        log("dtype", "half")
