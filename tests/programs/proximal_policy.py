"""PPO: actions drawn with given noise, old log-probabilities and values read as NumPy arrays, advantages computed in
NumPy, several epochs over shuffled minibatches with clipping, a jitted update that is told the clip range as a
tensor."""

import numpy as np
from common import initial, integers, log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, dtypes, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class Policy:
    def __init__(self):
        self.body, self.pi, self.v = nn.Linear(4, 16), nn.Linear(16, 3), nn.Linear(16, 1)

    def __call__(self, s):
        h = self.body(s).tanh()
        return self.pi(h).log_softmax(), self.v(h).squeeze(-1)


net = Policy()
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
opt = nn.optim.Adam(get_parameters(net), lr=0.01)
T, GAMMA, LAM = 32, 0.95, 0.9
drift = normal(3, 4, seed=3) * 0.3


@TinyJit
def act(s):
    logp, v = net(s)
    return logp.realize(), v.realize()


@TinyJit
def update(s, a, old, adv, ret, clip):
    opt.zero_grad()
    logp, v = net(s)
    taken = logp.gather(1, a.reshape(-1, 1)).squeeze(1)
    ratio = (taken - old).exp()
    surrogate = (ratio * adv).minimum(ratio.clamp(1 - clip, 1 + clip) * adv)
    entropy = -(logp.exp() * logp).sum(1).mean()
    loss = -surrogate.mean() + 0.5 * (v - ret).square().mean() - 0.01 * entropy
    loss.backward()
    norm = sum([p.grad.square().sum() for p in opt.params]).sqrt()
    scale = (0.5 / (norm + 1e-6)).minimum(1.0)
    for p in opt.params:
        p.grad = p.grad * scale
    opt.step()
    return loss.realize(), norm.realize(), ((ratio - 1).abs() > clip).float().mean().realize()


with Context(TRAINING=1):
    for episode in range(3):
        state, rows = normal(1, 4, seed=episode) * 0.5, []
        gumbel = -np.log(-np.log(np.random.RandomState(50 + episode).uniform(0.01, 0.99, (T, 3))))
        for t in range(T):
            logp, v = act(Tensor(state))
            lp = logp.numpy()[0]
            a = int((lp + gumbel[t]).argmax())
            new = (state * 0.9 + drift[a]).astype(np.float32)
            rows.append((state[0], a, lp[a], v.item(), -float(np.abs(new).sum())))
            state = new
        s, a, old, val, rew = (np.array(c, dtype=np.float32) for c in zip(*rows))
        adv, last = np.zeros(T, np.float32), 0.0
        for t in reversed(range(T)):
            nxt = val[t + 1] if t + 1 < T else 0.0
            last = rew[t] + GAMMA * nxt - val[t] + GAMMA * LAM * last
            adv[t] = last
        ret = adv + val
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        log("actions", a.astype(np.int64))
        for epoch in range(2):
            order = np.random.RandomState(90 + episode * 2 + epoch).permutation(T)
            for idx in order.reshape(2, -1):
                out = update(
                    Tensor(s[idx]),
                    Tensor(a[idx], dtype=dtypes.int32),
                    Tensor(old[idx]),
                    Tensor(adv[idx]),
                    Tensor(ret[idx]),
                    Tensor([0.2 if epoch == 0 else 0.1]),
                )
                log("loss, norm, clipped", np.array([o.item() for o in out]))
log("policy", net.pi.weight.numpy())
