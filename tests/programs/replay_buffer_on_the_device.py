"""Double Q-learning whose replay buffer is a set of tensors written slice by slice as a ring, sampled by index tensors;
a jitted training step and a jitted greedy action share the weights, the target network follows by assign."""

import numpy as np
from common import initial, integers, log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, dtypes, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class Q:
    def __init__(self):
        self.l1, self.value, self.advantage = nn.Linear(3, 16), nn.Linear(16, 1), nn.Linear(16, 4)

    def __call__(self, s):
        h = self.l1(s).relu()
        a = self.advantage(h)
        return self.value(h) + a - a.mean(-1, keepdim=True)


online, target = Q(), Q()
for q in (online, target):
    load_state_dict(q, {k: Tensor(v) for k, v in initial(get_state_dict(q)).items()}, verbose=False)
for p in get_parameters(target):
    p.is_param_(False)
opt = nn.optim.SGD(get_parameters(online), lr=0.05, momentum=0.9)
CAP = 24
states, nexts = Tensor.zeros(CAP, 3).contiguous().realize(), Tensor.zeros(CAP, 3).contiguous().realize()
actions, rewards = Tensor.zeros(CAP,
                                dtype=dtypes.int32).contiguous().realize(), Tensor.zeros(CAP).contiguous().realize()


@TinyJit
def greedy(s):
    return online(s).argmax(-1).realize()


@TinyJit
def train(idx):
    s, n, a, r = states[idx], nexts[idx], actions[idx], rewards[idx]
    best = online(n).argmax(-1, keepdim=True)
    goal = (r + 0.9 * target(n).gather(1, best).squeeze(1)).detach()
    error = online(s).gather(1, a.unsqueeze(1)).squeeze(1) - goal
    loss = (error.abs() < 1).where(0.5 * error.square(), error.abs() - 0.5).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.realize(), error.abs().realize()


at = 0
with Context(TRAINING=1):
    for i in range(12):
        s = normal(4, 3, seed=i)
        a = greedy(Tensor(s)).numpy() if i % 3 else integers(4, 4, seed=i)
        n = s * 0.5 + a[:, None] * 0.1
        r = np.cos(s.sum(1)) - 0.2 * a
        where = slice(at, at + 4)
        states[where], nexts[where] = Tensor(s), Tensor(n.astype(np.float32))
        actions[where] = Tensor(a.astype(np.int32))
        rewards[where] = Tensor(r.astype(np.float32))
        at = (at + 4) % CAP
        log("action", a.astype(np.int64))
        if i >= 2:
            loss, err = train(Tensor(integers(min(CAP, 4 * (i + 1)), 8, seed=100 + i)))
            log("loss", loss.item())
            log("error", err.numpy())
        if i % 4 == 3:
            for p, q in zip(get_parameters(target), get_parameters(online)):
                p.assign(0.7 * p + 0.3 * q)
            log("target", target.l1.weight.numpy())
log("rewards", rewards.numpy())
log("actions", actions.tolist())
log("weight", online.advantage.weight.numpy())
