import torch
import torch.nn.functional as F
from common import initial, integers, log, normal

L = torch.nn.Linear
student = torch.nn.Sequential(L(6, 10), torch.nn.ReLU(), L(10, 4))
teacher = torch.nn.Sequential(L(6, 14), torch.nn.GELU(approximate="tanh"), L(14, 4))
for net in (student, teacher):
    net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
opt = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
x, y = torch.tensor(normal(14, 6, seed=1)), torch.tensor(integers(4, 14, seed=2)).long()
y[3] = y[7] = -1
for step in range(8):
    logits = student(x)
    if step % 4 == 0:
        loss = F.cross_entropy(logits, y, ignore_index=-1, label_smoothing=0.1)
    elif step % 4 == 1:
        loss = F.cross_entropy(logits, y, ignore_index=-1, weight=torch.tensor([1.0, 2.0, 0.5, 1.5]))
    elif step % 4 == 2:
        hot = F.one_hot(y.clamp(min=0), 4).float()
        loss = F.cross_entropy(student(0.3 * x + 0.7 * x.flip(0)), 0.3 * hot + 0.7 * hot.flip(0))
    else:
        soft = (teacher(x) / 2).softmax(-1).detach()
        loss = 4 * F.kl_div((logits / 2).log_softmax(-1), soft, reduction="batchmean")
    log("loss", loss.item())
    opt.zero_grad()
    loss.backward()
    opt.step()
log("teacher", teacher[0].weight.square().sum().item())
log("student", student[0].weight.tolist())
