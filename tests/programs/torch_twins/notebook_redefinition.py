import torch
from common import initial, log, normal

x, y = torch.tensor(normal(10, 4, seed=1)), torch.tensor(normal(10, 1, seed=2))


class Model(torch.nn.Module):
    def __init__(self, skip):
        super().__init__()
        self.l1, self.l2 = torch.nn.Linear(4, 5), torch.nn.Linear(5, 1)
        if skip:
            self.skip = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.l2(self.l1(x).relu()) + self.skip(x) if hasattr(self, "skip") else self.l2(self.l1(x).tanh())


def build(skip):
    global model, opt, losses
    model, losses = Model(skip), []
    model.load_state_dict({k: torch.tensor(v) for k, v in initial(model.state_dict()).items()})
    opt = torch.optim.Adam(model.parameters(), lr=0.05)


def train(name, steps=3):
    global loss
    for _ in range(steps):
        opt.zero_grad()
        loss = (model(x) - y).square().mean()
        losses.append(loss.item())
        loss.backward()
        opt.step()
    log(name, losses)


build(False)
for _ in range(3):
    train("train")
build(True)
train("train")
shown = losses[-1]
train("jitted", 4)
train("jitted", 4)
log("shown", shown)
log("weight", model.l1.weight.tolist())
