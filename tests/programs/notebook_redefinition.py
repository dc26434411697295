"""A notebook: cells run again and again in one namespace, classes and models redefined while old objects live on,
results shown by repr."""

from common import initial, log, normal

cells = {
    "imports": """
from tinygrad_cpp import Tensor, nn, Context, TinyJit
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict
""",
    "data": """
x = Tensor(normal(10, 4, seed=1))
y = Tensor(normal(10, 1, seed=2))
x
""",
    "model": """
class Model:
    def __init__(self, hidden=5):
        self.l1, self.l2 = nn.Linear(4, hidden), nn.Linear(hidden, 1)
    def __call__(self, x):
        return self.l2(self.l1(x).tanh())
""",
    "better model": """
class Model:
    def __init__(self, hidden=5):
        self.l1, self.l2, self.skip = nn.Linear(4, hidden), nn.Linear(hidden, 1), nn.Linear(4, 1)
    def __call__(self, x):
        return self.l2(self.l1(x).relu()) + self.skip(x)
""",
    "build": """
model = Model()
load_state_dict(model, {k: Tensor(v) for k, v in initial(get_state_dict(model)).items()}, verbose=False)
opt = nn.optim.Adam(get_parameters(model), lr=0.05)
losses = []
""",
    "look": """
prediction = model(x)
print(prediction.shape, prediction[:3].tolist(), prediction)
prediction
""",
    "train": """
with Context(TRAINING=1):
    for _ in range(3):
        opt.zero_grad()
        loss = (model(x) - y).square().mean()
        losses.append(loss.item())
        loss.backward()
        opt.step()
loss
""",
    "jitted": """
@TinyJit
def step(x, y):
    opt.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    opt.step()
    return loss.realize()
with Context(TRAINING=1):
    losses += [step(x.realize(), y.realize()).item() for _ in range(4)]
""",
}
namespace = {"normal": normal, "initial": initial, "__name__": "notebook"}


def run(name):
    lines = cells[name].strip().split("\n")
    if lines[-1].isidentifier():
        exec("\n".join(lines[:-1]), namespace)
        namespace["_"] = eval(lines[-1], namespace)
        repr(namespace["_"])
    else:
        exec("\n".join(lines), namespace)


for name in (
    "imports",
    "data",
    "model",
    "build",
    "look",
    "train",
    "look",
    "train",
    "data",
    "better model",
    "train",
    "build",
    "look",
    "train",
    "jitted",
    "jitted",
):
    run(name)
    if name in ("train", "jitted"):
        log(name, namespace["losses"])
log("shown", namespace["_"].item())
log("weight", namespace["model"].l1.weight.numpy())
