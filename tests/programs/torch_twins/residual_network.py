import torch
import torch.nn.functional as F
from common import initial, integers, log, normal


class Block(torch.nn.Module):
    def __init__(self, n_in, n_out, stride):
        super().__init__()
        C, B = torch.nn.Conv2d, torch.nn.BatchNorm2d
        self.conv1, self.bn1 = C(n_in, n_out, 3, stride=stride, padding=1, bias=False), B(n_out)
        self.conv2, self.bn2 = C(n_out, n_out, 3, padding=1, groups=2, bias=False), B(n_out)
        self.short = C(n_in, n_out, 1, stride=stride, bias=False) if stride > 1 else None

    def forward(self, x):
        out = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (out + (self.short(x) if self.short else x)).relu()


class ResNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.blocks = torch.nn.Sequential(Block(4, 4, 1), Block(4, 8, 2))
        self.fc = torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.fc(self.blocks(self.stem(x).relu()).mean((2, 3)))


net = ResNet()
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3, nesterov=True)
images, labels = torch.tensor(normal(12, 1, 8, 8, seed=1)), torch.tensor(integers(3, 12, seed=2)).long()
for i in range(6):
    rows = torch.tensor(integers(12, 6, seed=10 + i)).long()
    x, y = images[rows], labels[rows]
    x = x.flip(3) if i % 2 else F.pad(x, (1, 1, 1, 1))[:, :, 2:, :8]
    x = F.pad(x, (0, 0, 8 - x.shape[2], 0))
    opt.zero_grad()
    out = net(x)
    loss = F.cross_entropy(out, y)
    loss.backward()
    opt.step()
    log("loss", loss.item())
    log("right", int((out.argmax(1) == y).sum()))
net.eval()
log("evaluation", net(images).log_softmax(-1).tolist())
log("running variance", net.blocks[1].bn2.running_var.tolist())
