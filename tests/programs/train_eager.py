"""A classifier trained step by step: the loss is read after each step."""

from common import initial, integers, log, normal
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class Net:
    def __init__(self):
        self.l1, self.l2 = nn.Linear(8, 16), nn.Linear(16, 4)

    def __call__(self, x):
        return self.l2(self.l1(x).relu())


net = Net()
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
opt = nn.optim.SGD(get_parameters(net), lr=0.1, momentum=0.9)
X, Y = normal(6, 12, 8, seed=1), integers(4, 6, 12, seed=2)
with Context(TRAINING=1):
    for x, y in zip(X, Y):
        opt.zero_grad()
        loss = net(Tensor(x)).sparse_categorical_crossentropy(Tensor(y))
        loss.backward()
        opt.step()
        log("loss", loss.item())
        log("gradient", net.l2.bias.grad.numpy())
log("prediction", net(Tensor(X[0])).argmax(axis=1).tolist())
log("weight", net.l1.weight.numpy())
