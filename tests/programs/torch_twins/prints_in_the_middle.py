import torch
from common import initial, log, normal


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.scale, self.out = (
            torch.nn.Linear(3, 5),
            torch.nn.Parameter(torch.ones(5)),
            torch.nn.Linear(5, 1),
        )

    def forward(self, x):
        return self.out(self.inner(x).sigmoid() * self.scale)


model = Model()
model.load_state_dict({k: torch.tensor(v) for k, v in initial(model.state_dict()).items()})
opt = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)
x, y = torch.tensor(normal(7, 3, seed=1)), torch.tensor(normal(7, 1, seed=2))
for step in range(5):
    opt.zero_grad()
    error = model(x) - y
    loss = (error * error).mean()
    loss.backward()
    log("gradient of scale", model.scale.grad.tolist())
    opt.step()
    log("loss", loss.item())
log("scale", model.scale.tolist())
log("weight", model.inner.weight.tolist())
