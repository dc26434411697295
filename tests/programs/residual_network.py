"""A residual convolutional net with batch norm, strided and grouped convolutions, jitted training with augmented
images, then evaluation."""

from common import initial, integers, log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class Block:
    def __init__(self, n_in, n_out, stride):
        self.conv1, self.bn1 = nn.Conv2d(n_in, n_out, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(n_out)
        self.conv2, self.bn2 = nn.Conv2d(n_out, n_out, 3, padding=1, groups=2, bias=False), nn.BatchNorm2d(n_out)
        self.short = nn.Conv2d(n_in, n_out, 1, stride=stride, bias=False) if stride > 1 else None

    def __call__(self, x):
        out = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (out + (self.short(x) if self.short else x)).relu()


class ResNet:
    def __init__(self):
        self.stem, self.blocks = nn.Conv2d(1, 4, 3, padding=1), [Block(4, 4, 1), Block(4, 8, 2)]
        self.fc = nn.Linear(8, 3)

    def __call__(self, x):
        return self.fc(self.stem(x).relu().sequential(self.blocks).mean(axis=(2, 3)))


net = ResNet()
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
opt = nn.optim.SGD(get_parameters(net), lr=0.05, momentum=0.9, weight_decay=1e-3, nesterov=True)
images, labels = Tensor(normal(12, 1, 8, 8, seed=1)).realize(), Tensor(integers(3, 12, seed=2)).realize()


@TinyJit
@Context(TRAINING=1)
def step(x, y):
    opt.zero_grad()
    out = net(x)
    loss = out.sparse_categorical_crossentropy(y)
    loss.backward()
    opt.step()
    return loss.realize(), (out.argmax(axis=1) == y).sum().realize()


for i in range(6):
    rows = Tensor(integers(12, 6, seed=10 + i))
    x = images[rows]
    x = x.flip(3) if i % 2 else x.pad((1, 1, 1, 1))[:, :, 2:, :8]
    x = x.pad((0, 0, 8 - x.shape[2], 0))
    loss, right = step(x.contiguous().realize(), labels[rows].contiguous().realize())
    log("loss", loss.item())
    log("right", int(right.item()))
log("evaluation", net(images).log_softmax().numpy(), rtol=1e-3)  # batch statistics of six samples
log("running variance", net.blocks[1].bn2.running_var.tolist())
