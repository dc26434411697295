"""Fine-tuning: a pretrained net is saved and loaded, its first layer frozen by not giving it to the optimizer, a
new head is trained."""

import os
import tempfile

from common import initial, integers, log, normal
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict, safe_load, safe_save


class Net:
    def __init__(self, classes):
        self.body = nn.Linear(6, 10)
        self.norm = nn.LayerNorm(10)
        self.head = nn.Linear(10, classes)

    def features(self, x):
        return self.norm(self.body(x)).gelu()

    def __call__(self, x):
        return self.head(self.features(x))


pretrained = Net(5)
load_state_dict(pretrained, {k: Tensor(v) for k, v in initial(get_state_dict(pretrained)).items()}, verbose=False)
path = os.path.join(tempfile.mkdtemp(), "pretrained.safetensors")
safe_save(get_state_dict(pretrained), path)

net = Net(3)
state = safe_load(path)
load_state_dict(net, {k: v for k, v in state.items() if not k.startswith("head")}, strict=False, verbose=False)
net.head.weight = Tensor(normal(3, 10, seed=7))
net.head.bias = Tensor.zeros(3)
x, y = Tensor(normal(15, 6, seed=8)), Tensor(integers(3, 15, seed=9))
opt = nn.optim.Adam(get_parameters([net.norm, net.head]), lr=0.05)
with Context(TRAINING=1):
    for step in range(5):
        opt.zero_grad()
        loss = net(x).sparse_categorical_crossentropy(y)
        log("loss", loss.item())
        loss.backward()
        log("gradient of the frozen layer", net.body.weight.grad.square().sum().sqrt().item())
        net.body.weight.grad = net.body.bias.grad = None
        opt.step()
log("body", net.body.weight.numpy())
log("head", net.head.weight.numpy())

# Then all layers, the body with a smaller rate.
slow = nn.optim.SGD(get_parameters(net.body), lr=0.01)
both = nn.optim.OptimizerGroup(slow, opt)
with Context(TRAINING=1):
    for step in range(3):
        both.zero_grad()
        loss = net(x).sparse_categorical_crossentropy(y)
        loss.backward()
        both.step()
        log("loss", loss.item())
log("body", net.body.weight.numpy())
log("accuracy", (net(x).argmax(axis=1) == y).mean().item())
