"""One model, several captured functions: a training step given a dict and keywords, an evaluation, a step for the
smaller last batch, a method of a trainer object; weights are loaded, frozen, scaled in place and replaced between
calls, rates changed, an epoch is abandoned by an exception and done again."""

import numpy as np
from common import initial, integers, log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class Net:
    def __init__(self):
        self.l1, self.norm, self.l2 = nn.Linear(5, 8), nn.BatchNorm(8), nn.Linear(8, 3)

    def __call__(self, x):
        return self.l2(self.norm(self.l1(x)).relu())


class Trainer:
    def __init__(self, net):
        self.net, self.opt, self.seen = net, nn.optim.SGD(get_parameters(net), lr=0.1,
                                                          momentum=0.8), Tensor.zeros(3).contiguous().realize()
        self.small = TinyJit(self.loss_of)

    def loss_of(self, x, y):
        self.opt.zero_grad()
        loss = self.net(x).sparse_categorical_crossentropy(y)
        loss.backward()
        self.opt.step()
        self.seen.assign(self.seen + y.one_hot(3).sum(0)).realize()
        return loss.realize()

    @TinyJit
    def train(self, batch, *, scale):
        self.opt.zero_grad()
        loss = (self.net(batch["x"]) * scale).sparse_categorical_crossentropy(batch["y"]).backward()
        self.opt.step()
        self.seen += batch["y"].one_hot(3).sum(0)
        return {"loss": loss.realize(), "seen": self.seen.clone().realize()}


net = Net()
start = {k: v for k, v in initial(get_state_dict(net)).items() if "num_batches" not in k}
load_state_dict(net, {k: Tensor(v) for k, v in start.items()}, strict=False, verbose=False)
t = Trainer(net)


@TinyJit
def evaluate(x):
    out = net(x)
    return out.softmax().realize(), out.argmax(1).realize()


def batches(epoch):
    x, y = normal(28, 5, seed=epoch), integers(3, 28, seed=50 + epoch)
    for i in range(0, 28, 8):
        yield Tensor(x[i : i + 8]), Tensor(y[i : i + 8])


def run(epoch, stop=None):
    with Context(TRAINING=1):
        for i, (x, y) in enumerate(batches(epoch)):
            if i == stop:
                raise KeyboardInterrupt
            if x.shape[0] == 8:
                out = t.train({"x": x, "y": y}, scale=Tensor([1.0 + 0.1 * epoch]))
                log("loss", out["loss"].item())
                log("seen", out["seen"].numpy())
            else:
                log("small", t.small(x, y).item())


held = Tensor(normal(6, 5, seed=99)).realize()
for epoch in range(6):
    if epoch == 2:
        try:
            run(epoch, stop=2)
        except KeyboardInterrupt:
            log("stopped", epoch)
    run(epoch)
    probabilities, best = evaluate(held)
    log("probabilities", probabilities.numpy())
    log("best", best.numpy().astype(np.int64))
    if epoch == 1:
        load_state_dict(net, {k: Tensor(v) * 1.1 for k, v in start.items()}, strict=False, verbose=False)
        log("loaded", evaluate(held)[0].numpy())
    if epoch == 2:
        t.opt.lr.assign(t.opt.lr * 0.3)
        net.l2.weight *= 0.9
        log("scaled", evaluate(held)[0].numpy())
    if epoch == 3:
        for b in t.opt.b:
            b.assign(Tensor.zeros_like(b)).realize()
log("running mean", net.norm.running_mean.numpy())
log("seen", t.seen.numpy())
