import numpy as np
import torch
import torch.nn.functional as F
from common import initial, integers, log, normal


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.norm, self.l2 = torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.l2(self.norm(self.l1(x)).relu())


net = Net()
start = initial(net.state_dict())
net.load_state_dict({k: torch.tensor(v) for k, v in start.items()})
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.8)
seen = torch.zeros(3)


def batches(epoch):
    x, y = normal(28, 5, seed=epoch), integers(3, 28, seed=50 + epoch)
    for i in range(0, 28, 8):
        yield torch.tensor(x[i : i + 8]), torch.tensor(y[i : i + 8]).long()


def run(epoch, stop=None):
    net.train()
    for i, (x, y) in enumerate(batches(epoch)):
        if i == stop:
            return
        scale = 1 + 0.1 * epoch if x.shape[0] == 8 else 1
        opt.zero_grad()
        loss = F.cross_entropy(net(x) * scale, y)
        loss.backward()
        opt.step()
        seen.add_(F.one_hot(y, 3).sum(0))
        if x.shape[0] == 8:
            log("loss", loss.item())
            log("seen", seen.numpy())
        else:
            log("small", loss.item())


@torch.no_grad()
def evaluate(x):
    net.eval()
    out = net(x)
    return out.softmax(1), out.argmax(1)


held = torch.tensor(normal(6, 5, seed=99))
for epoch in range(6):
    if epoch == 2:
        run(epoch, stop=2)
        log("stopped", epoch)
    run(epoch)
    probabilities, best = evaluate(held)
    log("probabilities", probabilities.tolist())
    log("best", best.tolist())
    if epoch == 1:
        net.load_state_dict({k: torch.tensor(v * np.float32(1.1)) if "num_batches" not in k else torch.tensor(0) for k,
                             v in start.items()})
        log("loaded", evaluate(held)[0].tolist())
    if epoch == 2:
        opt.param_groups[0]["lr"] *= 0.3
        with torch.no_grad():
            net.l2.weight *= 0.9
        log("scaled", evaluate(held)[0].tolist())
    if epoch == 3:
        for p in net.parameters():
            opt.state[p]["momentum_buffer"].zero_()
log("running mean", net.norm.running_mean.tolist())
log("seen", seen.tolist())
