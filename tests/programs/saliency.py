"""Which pixels matter: the gradient of the winning score to the image, integrated gradients, and Grad-CAM from a
hidden layer."""

from common import initial, log, normal
from tinygrad_cpp import Tensor, nn
from tinygrad_cpp.nn.state import get_state_dict, load_state_dict


class Net:
    def __init__(self):
        self.conv1, self.conv2, self.fc = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 6, 3, padding=1), nn.Linear(6, 5)

    def __call__(self, x):
        self.maps = self.conv2(self.conv1(x).relu().max_pool2d()).relu()
        return self.fc(self.maps.mean(axis=(2, 3)))


net = Net()
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
image = Tensor(normal(1, 1, 8, 8, seed=1))
scores = net(image)
winner = int(scores.numpy().argmax())
log("winner", winner)
log("scores", scores.numpy())
scores[0, winner].backward()
log("saliency", image.grad.abs()[0, 0].numpy())

total = Tensor.zeros(1, 1, 8, 8)
for k in range(5):
    point = (image.detach() * ((k + 0.5) / 5)).realize()
    point.grad = None
    net(point)[0, winner].backward()
    total = total + point.grad / 5
attribution = total * image
log("sum of attributions", attribution.sum().item())
log("difference of scores", (net(image)[0, winner] - net(image * 0)[0, winner]).item())

score = net(image)[0, winner]
(slope,) = score.gradient(net.maps)
cam = (net.maps * slope.mean(axis=(2, 3), keepdim=True)).sum(axis=1).relu()
log("map", cam.numpy())
