"""A program under debugging: tensors, layers' outputs and gradients are printed and turned into strings between
forward, backward and step."""

from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_state_dict, load_state_dict


class Model:
    def __init__(self):
        self.inner, self.scale, self.out = nn.Linear(3, 5), Tensor.ones(5), nn.Linear(5, 1)

    def __call__(self, x):
        h = self.inner(x)
        print("before the activation:", h, h.numpy().round(3), f"{h.shape} {h.dtype}")
        h = h.sigmoid() * self.scale
        print(f"after: {h.tolist()[0]}", repr(h), str(h))
        return self.out(h)


model = Model()
load_state_dict(model, {k: Tensor(v) for k, v in initial(get_state_dict(model)).items()}, verbose=False)
opt = nn.optim.AdamW(
    [model.inner.weight, model.inner.bias, model.scale, model.out.weight, model.out.bias], lr=0.05, weight_decay=0.1
)
x, y = Tensor(normal(7, 3, seed=1)), Tensor(normal(7, 1, seed=2))
with Context(TRAINING=1):
    for step in range(5):
        opt.zero_grad()
        error = model(x) - y
        print(error, error.data())
        loss = (error * error).mean()
        print("loss", loss, float(loss))
        loss.backward()
        print(model.scale.grad, model.scale.grad.numpy(), model.inner.weight.grad)
        log("gradient of scale", model.scale.grad.tolist())
        opt.step()
        print(model.scale, model.scale.tolist())
        log("loss", loss.item())
log("scale", model.scale.tolist())
log("weight", model.inner.weight.tolist())
