"""DQN: a target network synchronised every three steps, double Q targets, Huber loss, a replay buffer that is a
tensor written in slices."""

from common import initial, integers, log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class Q:
    def __init__(self):
        self.l1, self.l2 = nn.Linear(3, 10), nn.Linear(10, 4)

    def __call__(self, x):
        return self.l2(self.l1(x).relu())


online, target = Q(), Q()
load_state_dict(online, {k: Tensor(v) for k, v in initial(get_state_dict(online)).items()}, verbose=False)
load_state_dict(target, {k: v.clone() for k, v in get_state_dict(online).items()}, verbose=False)
opt = nn.optim.Adam(get_parameters(online), lr=0.02)
memory = Tensor.zeros(32, 3).contiguous().realize()


@TinyJit
def learn(s, a, r, s2):
    best = online(s2).argmax(axis=1, keepdim=True)
    wanted = (r + 0.9 * target(s2).gather(1, best).squeeze(1)).detach()
    opt.zero_grad()
    error = online(s).gather(1, a.unsqueeze(1)).squeeze(1) - wanted
    loss = (error.abs() < 1).where(0.5 * error.square(), error.abs() - 0.5).mean()
    loss.backward()
    opt.step()
    return loss.realize()


with Context(TRAINING=1):
    for step in range(8):
        memory[step * 4 : step * 4 + 4] = Tensor(normal(4, 3, seed=step))
        rows = integers(step * 4 + 4, 6, seed=50 + step)
        s, s2 = (
            memory[Tensor(rows)].contiguous().realize(),
            memory[Tensor((rows + 1) % (step * 4 + 4))].contiguous().realize(),
        )
        a, r = Tensor(integers(4, 6, seed=80 + step)).realize(), Tensor(normal(6, seed=90 + step)).realize()
        log("loss", learn(s, a, r, s2).item())
        if step % 3 == 2:
            for t, o in zip(get_parameters(target), get_parameters(online)):
                t.assign(o.detach()).realize()
        log("target", target(s)[0].numpy())
log("memory", memory.sum(axis=0).tolist())
log("weight", online.l1.weight.numpy())
