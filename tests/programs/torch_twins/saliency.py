import torch
import torch.nn.functional as F
from common import initial, log, normal


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2, self.fc = (
            torch.nn.Conv2d(1, 4, 3, padding=1),
            torch.nn.Conv2d(4, 6, 3, padding=1),
            torch.nn.Linear(6, 5),
        )

    def forward(self, x):
        self.maps = self.conv2(F.max_pool2d(self.conv1(x).relu(), 2)).relu()
        return self.fc(self.maps.mean((2, 3)))


net = Net()
net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
image = torch.tensor(normal(1, 1, 8, 8, seed=1), requires_grad=True)
scores = net(image)
winner = int(scores.argmax())
log("winner", winner)
log("scores", scores.tolist())
scores[0, winner].backward()
log("saliency", image.grad.abs()[0, 0].tolist())
total = 0
for k in range(5):
    point = (image.detach() * ((k + 0.5) / 5)).requires_grad_()
    total = total + torch.autograd.grad(net(point)[0, winner], point)[0] / 5
log("sum of attributions", (total * image).sum().item())
log("difference of scores", (net(image)[0, winner] - net(image * 0)[0, winner]).item())
score = net(image)[0, winner]
(slope,) = torch.autograd.grad(score, net.maps)
log("map", (net.maps * slope.mean((2, 3), keepdim=True)).sum(1).relu().tolist())
