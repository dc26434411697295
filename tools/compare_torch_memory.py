#!/usr/bin/env python3
"""compare_torch_memory.py [--tg build/release/bin/tg]: peak memory of ResNet-18 training steps, here and in PyTorch,
each in a process of its own.

The row resnet18_train_peak of `tg bench` and the program below do the same: batch 8 of (3, 224, 224), SGD with
momentum, three steps. What is compared is the greatest resident size of the process. Fails when ours is more than 1.1
times PyTorch's. Needs torch."""
import argparse, json, subprocess, sys

TORCH = """
import torch, torch.nn as nn, resource
torch.manual_seed(0)
class Block(nn.Module):
  def __init__(self, a, b, s):
    super().__init__()
    self.conv1, self.bn1 = nn.Conv2d(a, b, 3, s, 1, bias=False), nn.BatchNorm2d(b)
    self.conv2, self.bn2 = nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b)
    down = [nn.Conv2d(a, b, 1, s, bias=False), nn.BatchNorm2d(b)] if s != 1 or a != b else []
    self.down = nn.Sequential(*down)
    self.relu = nn.ReLU(inplace=True)
  def forward(self, x): return self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))) + self.down(x))
sizes = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1),
         (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
layers = [Block(*a) for a in sizes]
net = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
                    nn.MaxPool2d(3, 2, 1), *layers,
                    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))
optim = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
x, y = torch.randn(8, 3, 224, 224), torch.arange(8) * 100
for _ in range(3):
  optim.zero_grad()
  loss = nn.functional.cross_entropy(net(x), y)
  loss.backward()
  optim.step()
assert torch.isfinite(loss)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--tg", default="build/release/bin/tg")
  parser.add_argument("--python", default=sys.executable, help="interpreter with torch")
  args = parser.parse_args()
  theirs = int(subprocess.run([args.python, "-c", TORCH], check=True, capture_output=True, text=True).stdout) / 1e6
  row = subprocess.run([args.tg, "bench", "--json", "--filter", "^resnet18_train_peak$"], check=True,
                       capture_output=True, text=True).stdout
  ours = json.loads(row)["value"]
  print(f"resnet18_train_peak: {ours:.0f} MB, PyTorch {theirs:.0f} MB, {ours / theirs:.2f} of it")
  return 0 if ours <= 1.1 * theirs else 1


if __name__ == "__main__":
  sys.exit(main())
