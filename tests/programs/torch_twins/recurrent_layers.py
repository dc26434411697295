import torch
import torch.nn.functional as F
from common import initial, integers, log, normal


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(4, 6, num_layers=2, batch_first=True, bidirectional=True)
        self.gru = torch.nn.GRU(12, 5, batch_first=True)
        self.fc = torch.nn.Linear(5, 3)

    def forward(self, x, last):
        h, _ = self.gru(self.lstm(x)[0])
        return self.fc(h[torch.arange(x.shape[0]), last])


net = Classifier()
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
opt = torch.optim.Adam(net.parameters(), lr=0.02)
last = torch.tensor([2, 5, 1, 4, 5])
x, y = torch.tensor(normal(5, 6, 4, seed=1)), torch.tensor(integers(3, 5, seed=2)).long()
for step in range(4):
    opt.zero_grad()
    loss = F.cross_entropy(net(x, last), y)
    loss.backward()
    log("norm", torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5).item())
    opt.step()
    log("loss", loss.item())
out, (h, c) = net.lstm(x)
log("state", h.sum(2).tolist())
log("cell", c.square().sum().item())
