"""The same random programs; a leaf that is updated is replaced by a new one, so that older expressions keep its
value."""

import torch
from common import log, random_steps, uniform

BINARY = [
    lambda x, y: x * y,
    lambda x, y: x + y * 0.5,
    lambda x, y: x - y,
    lambda x, y: x.sigmoid() * y,
    lambda x, y: (x * y).sum() * 0.3 + x * 0.2,
    lambda x, y: x.relu() + y * 0.1,
    lambda x, y: x.sin() * 0.7 + y * 0.3,
    lambda x, y: x / (1 + y * y),
]


def run(seed):
    leaves, values, copies, seen = [], [], [], []

    def pick(i):
        choice = [(leaf, {(k, version)}) for k, (leaf, version) in enumerate(leaves)] + values[-6:]
        return choice[i % len(choice)]

    def look(x):
        seen.append(x.sum().item())

    def update(entry):
        leaf, gradient = entry[0], entry[0].grad
        entry[:] = (leaf - 0.1 * gradient).detach().requires_grad_(), entry[1] + 1
        entry[0].grad = gradient.detach()

    for kind, i, j, k in random_steps(seed, 22):
        value, needs = values[i % len(values)] if values else (None, set())
        current = all(leaves[n][1] == version for n, version in needs)
        with_gradient = [n for n, (leaf, _) in enumerate(leaves) if leaf.grad is not None]
        if kind == "leaf" and len(leaves) < 4:
            start = torch.tensor(uniform(3, seed=100 * seed + len(leaves), low=0.2), requires_grad=True)
            leaves.append([start, 0])
        elif kind == "compute":
            (a, needs_a), (b, needs_b) = pick(i), pick(j)
            values.append((BINARY[k % len(BINARY)](a, b), needs_a | needs_b))
        elif kind == "slice" and values:
            values.append((torch.nn.functional.pad(value[1:], (0, 1)), needs))
        elif kind == "read" and values:
            look(value)
        elif kind == "backward" and needs and current:
            (value * 0.5).sum().backward(retain_graph=True)
        elif kind == "gradient" and needs and current:
            wanted = [leaves[n][0] for n in sorted({n for n, _ in needs})]
            gradients = torch.autograd.grad(
                value.square().sum(), wanted, create_graph=True, allow_unused=True, materialize_grads=True
            )
            values += [(g, needs) for g in gradients]
        elif kind == "inspect" and with_gradient:
            look(leaves[with_gradient[i % len(with_gradient)]][0].grad)
        elif kind == "zero":
            for leaf, _ in leaves:
                leaf.grad = None
        elif kind == "halve" and with_gradient:
            leaf = leaves[with_gradient[i % len(with_gradient)]][0]
            leaf.grad = leaf.grad * 0.5
        elif kind == "update" and with_gradient:
            update(leaves[with_gradient[i % len(with_gradient)]])
        elif kind == "step" and with_gradient:
            for n in with_gradient[i % len(with_gradient) :]:
                update(leaves[n])
        elif kind == "detach" and values:
            values.append((value.detach(), set()))
        elif kind == "copy" and values:
            copies.append(value.detach().clone())
        elif kind == "average" and copies:
            n = i % len(copies)
            copies[n] = copies[n] * 0.9 + pick(j)[0].detach() * 0.1
            if k % 3 == 0:
                look(copies[n])
    for x, _ in values:
        look(x)
    for leaf, _ in leaves:
        look(leaf)
        if leaf.grad is not None:
            look(leaf.grad)
    for copy in copies:
        look(copy)
    return seen


for seed in range(150):
    log(f"program {seed}", run(seed))
