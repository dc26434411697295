"""Random programs of leaves, expressions, reads, gradients, updates in place and kept copies: whatever is looked at in
between, every value and gradient is that of the graph as it was built."""

from common import log, random_steps, uniform
from tinygrad_cpp import Context, Tensor, nn

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
    leaves, values, copies, seen = [], [], [], []  # values: tensor and the leaves it depends on, with their versions

    def pick(i):
        choice = [(leaf, {(k, version)}) for k, (leaf, version) in enumerate(leaves)] + values[-6:]
        return choice[i % len(choice)]

    def look(x, how=0):
        seen.append(sum([x.numpy().sum(), sum(x.tolist()), sum(v.item() for v in x), sum(x.data())][how : how + 1]))

    for kind, i, j, k in random_steps(seed, 22):
        value, needs = values[i % len(values)] if values else (None, set())
        current = all(leaves[n][1] == version for n, version in needs)
        with_gradient = [n for n, (leaf, _) in enumerate(leaves) if leaf.grad is not None]
        if kind == "leaf" and len(leaves) < 4:
            start = Tensor(uniform(3, seed=100 * seed + len(leaves), low=0.2))
            leaves.append([start.realize() if k % 2 else start, 0])
        elif kind == "compute":
            (a, needs_a), (b, needs_b) = pick(i), pick(j)
            values.append((BINARY[k % len(BINARY)](a, b), needs_a | needs_b))
        elif kind == "slice" and values:
            values.append((value[1:].pad(((0, 1),)), needs))
        elif kind == "read" and values:
            look(value, j % 4)
        elif kind == "backward" and needs and current:
            (value * 0.5).sum().backward()
        elif kind == "gradient" and needs and current:
            wanted = sorted({n for n, _ in needs})
            gradients = value.square().sum().gradient(*[leaves[n][0] for n in wanted])
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
            entry = leaves[with_gradient[i % len(with_gradient)]]
            leaf, entry[1] = entry[0], entry[1] + 1
            if j % 3 == 0:
                leaf.assign((leaf.detach() - 0.1 * leaf.grad).detach())
            elif j % 3 == 1:
                leaf.assign(leaf.detach() - 0.1 * leaf.grad).realize()
            else:
                leaf -= (0.1 * leaf.grad).detach()
        elif kind == "step" and with_gradient:
            chosen = [leaves[n] for n in with_gradient[i % len(with_gradient) :]]
            with Context(TRAINING=1):
                nn.optim.SGD([leaf for leaf, _ in chosen], lr=0.1).step()
            for entry in chosen:
                entry[1] += 1
        elif kind == "detach" and values:
            values.append((value.detach(), set()))
        elif kind == "copy" and values:
            copies.append(value.detach().clone().realize() if j % 2 else value.detach().clone())
        elif kind == "average" and copies:
            copy = copies[i % len(copies)]
            copy.assign(copy * 0.9 + pick(j)[0].detach() * 0.1)
            if k % 3 == 0:
                look(copy)
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
    log(f"program {seed}", run(seed), rtol=1e-3)  # products of up to 22 steps
