"""Lesson 8: a backend from scratch, from Python: 8_backend.py liblesson_toy.so

A device is a C++ class: the module has no way to write one in Python. What it has is load_backend(), which opens a
shared object that registers a device; here the one that 8_backend.cpp makes, TOY. From then on Python uses it by
name."""
import sys

from tinygrad_cpp import Context, Device, GlobalCounters, Tensor, nn
from tinygrad_cpp.device import load_backend

load_backend(sys.argv[1])
print("TOY is known:", Device.canonicalize("toy:0"))

# ---- 7. The same program on two devices. ----
a = Tensor([[1.0, 2.0], [3.0, 4.0]])
there = a.to("TOY").realize()
GlobalCounters.reset()
product = (there @ there + 1).relu().realize()
print(f"{product.device}: {GlobalCounters.kernel_count} kernel:", *(f"{v:g}" for row in product.tolist() for v in row))
difference = product.to("CPU") - (a @ a + 1).relu()
print(f"difference from CPU: {difference.abs().max().item():g}")
print("sorted: ", *(f"{v:g}" for v in Tensor([3, 1, 2]).to("TOY").sort()[0].tolist()))

# ---- 8. Training on it: gradients and optimizers are graphs like any other. ----
with Context(DEV="TOY", TRAINING=1):
  x = (Tensor.arange(16).float() / 16).realize()
  y = (x * 3 + 1).realize()
  slope, start = Tensor([0.0]), Tensor([0.0])
  sgd = nn.optim.SGD([slope, start], lr=0.5)
  for _ in range(100):
    sgd.zero_grad()
    (x * slope + start - y).square().mean().backward()
    sgd.step()
  print(f"on {slope.device}: y = {slope.item():.2f} x + {start.item():.2f}")
