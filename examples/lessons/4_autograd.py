"""Lesson 4: gradients, checked against differences, and a network that learns exclusive or."""
from tinygrad_cpp import Context, Tensor, dtypes, nn


def gradient_error(f, at):
  """Returns the largest difference between the gradient of f at x and central differences in float64."""
  def value(v): return f(Tensor(v, dtype=dtypes.float64)).item()
  x = Tensor(at, dtype=dtypes.float64)
  gradient = f(x).gradient(x)[0].tolist()
  worst = 0.0
  for i in range(len(at)):
    above, below = list(at), list(at)
    above[i] += 1e-5
    below[i] -= 1e-5
    worst = max(worst, abs((value(above) - value(below)) / 2e-5 - gradient[i]))
  return worst


class Mlp:
  def __init__(self): self.hidden, self.out = nn.Linear(2, 8), nn.Linear(8, 1)
  def __call__(self, x): return self.out(self.hidden(x).tanh())


# ---- 1. backward() puts the derivative of a loss into every leaf. ----
x = Tensor([1.0, 2.0, 3.0])
loss = (x * x).sum()
loss.backward()
print("d(x.x)/dx:", *(f"{g:g}" for g in x.grad.tolist()))

# ---- 2. Gradients are expressions: they can be differentiated again. ----
t = Tensor([2.0])
first = (t * t * t).sum().gradient(t)[0]
print(f"3t^2 = {first.item():g}, 6t = {first.sum().gradient(t)[0].item():g}")

# ---- 3. Gradient checking: analytic against (f(x + h) - f(x - h)) / 2h. ----
at = [0.3, -1.2, 2.5]
functions = {"exp(sin x)": lambda v: v.sin().exp().sum(), "log softmax": lambda v: v.log_softmax()[1],
             "norm": lambda v: v.square().sum().sqrt(), "max * mean": lambda v: v.max() * v.mean()}
for name, f in functions.items():
  print(f"{name}:", "within 1e-8 of differences" if gradient_error(f, at) < 1e-8 else "WRONG")

# ---- 4. Exclusive or: no line separates it, a hidden layer does. ----
Tensor.manual_seed(1)
inputs, want = Tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]]), Tensor([[0.0], [1], [1], [0]])
model = Mlp()
optimizer = nn.optim.Adam(nn.state.get_parameters(model), lr=0.05)
with Context(TRAINING=1):
  for _ in range(200):
    optimizer.zero_grad()
    error = (model(inputs) - want).square().mean().backward()
    optimizer.step()
    last = error.item()
print("loss after 200 steps below 0.01:", "yes" if last < 0.01 else "no")
print("learned:", *(f"{abs(v[0]):.0f}" for v in model(inputs).tolist()))

# ---- 5. detach() stops a gradient. ----
y = Tensor([3.0])
print(f"d(y * detach(y))/dy = {(y * y.detach()).sum().gradient(y)[0].item():g}")
