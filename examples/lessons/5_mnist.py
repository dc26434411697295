"""Lesson 5: a convolutional network that reads more than 98 % of MNIST's test digits after a minute of training."""
import os
import sys

import tinygrad_cpp.nn.lr_scheduler
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.datasets import mnist


# ---- 1. A model is any object; its attributes give the tensors names. ----
class Model:
  def __init__(self):
    self.conv1, self.norm1 = nn.Conv2d(1, 16, 5), nn.BatchNorm(16)
    self.conv2, self.norm2 = nn.Conv2d(16, 32, 3), nn.BatchNorm(32)
    self.fc = nn.Linear(800, 10)

  def __call__(self, images):  # (batch, 1, 28, 28) -> (batch, 10)
    x = self.norm1(self.conv1(images)).relu().max_pool2d()  # (batch, 16, 12, 12)
    x = self.norm2(self.conv2(x)).relu().max_pool2d()  # (batch, 32, 5, 5)
    return self.fc(x.flatten(1))


Tensor.manual_seed(42)
BATCH, STEPS = 128, 500
x_train, y_train, x_test, y_test = mnist()
print(f"{x_train.shape[0]} training images of {x_train.shape[2]} x {x_train.shape[3]}")

model = Model()
state = nn.state.get_state_dict(model)
print(sum(t.numel() for name, t in state.items() if name.endswith(("weight", "bias"))), "weights")

# ---- 2. A step. Captured by TinyJit: after two calls a step is a list of launches, and no graph is built. ----
optimizer = nn.optim.Adam(nn.state.get_parameters(model), lr=5e-3)
schedule = nn.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)


@TinyJit
def step(x, y):
  optimizer.zero_grad()
  loss = model(x).sparse_categorical_crossentropy(y).backward()
  optimizer.step()
  return loss


# ---- 3. Training: batches of 128 random images. ----
with Context(TRAINING=1):  # batch norms use the statistics of the batch, optimizers may step
  for i in range(STEPS):
    rows = Tensor.randint(BATCH, high=x_train.shape[0]).realize()
    loss = step(x_train[rows].realize(), y_train[rows].realize())
    schedule.step()  # the rate is a tensor: the captured step sees it fall
    if i == 0: first = loss.item()
    if i == STEPS - 1: last = loss.item()
print("the loss fell below a tenth:", "yes" if last < first / 10 else "no")

# ---- 4. Test: outside of training mode, batch norms use the statistics gathered on the way. ----
count = TinyJit(lambda x, y: (model(x).argmax(1) == y).sum())
right = sum(count(x_test[i:i + 500].clone().realize(), y_test[i:i + 500].clone().realize()).item()
            for i in range(0, x_test.shape[0], 500))
accuracy = 100 * right / x_test.shape[0]
print(f"{accuracy:.2f} %, loss {first:.3f} -> {last:.3f}", file=sys.stderr)
print("more than 98 % of the test images:", "yes" if accuracy > 98 else "no")

# ---- 5. Weights to a file and back. ----
nn.state.safe_save(nn.state.get_state_dict(model), "lesson_mnist_py.safetensors")
again = Model()
nn.state.load_state_dict(again, nn.state.safe_load("lesson_mnist_py.safetensors"), verbose=False)
some = x_test[:10]
print("the same from the file:", "yes" if model(some).tolist() == again(some).tolist() else "no")
os.remove("lesson_mnist_py.safetensors")
