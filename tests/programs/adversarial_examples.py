"""FGSM and projected gradient descent on the input of a classifier, then adversarial training with the examples
found."""

from common import initial, integers, log, normal
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

net = [nn.Linear(6, 16), Tensor.relu, nn.Linear(16, 3)]
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
x, y = Tensor(normal(10, 6, seed=1)).realize(), Tensor(integers(3, 10, seed=2)).realize()

loss = x.sequential(net).sparse_categorical_crossentropy(y)
log("loss", loss.item())
loss.backward()
fast = x.detach() + 0.1 * x.grad.sign()
log(
    "fast gradient sign",
    [fast.sequential(net).sparse_categorical_crossentropy(y).item(), (fast - x).abs().max().item()],
)

attack = x.detach().clone().realize()
for step in range(5):
    (g,) = attack.sequential(net).sparse_categorical_crossentropy(y).gradient(attack)
    moved = attack + 0.05 * g.sign()
    attack = moved.maximum(x - 0.15).minimum(x + 0.15).detach().realize()
    log("attacked", attack.sequential(net).sparse_categorical_crossentropy(y).item())

opt = nn.optim.SGD(get_parameters(net), lr=0.1)
with Context(TRAINING=1):
    for step in range(4):
        x.grad = None
        x.sequential(net).sparse_categorical_crossentropy(y).backward()
        bad = (x + 0.1 * x.grad.sign()).detach()
        opt.zero_grad()
        loss = bad.sequential(net).sparse_categorical_crossentropy(y)
        loss.backward()
        opt.step()
        log("adversarial loss", loss.item())
log("weight", net[0].weight.numpy())
