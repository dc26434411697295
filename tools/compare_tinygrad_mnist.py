#!/usr/bin/env python3
"""Trains the MNIST network with tinygrad and with `tg mnist` from the same seed and compares the loss of every step.

usage: compare_tinygrad_mnist.py [--tg build/release/bin/tg] [--steps 5] [--seed 42] [--batch-size 512] [--lr 0.0001]
[--tolerance 1e-3]

Needs tinygrad and NumPy from PyPI (pip install tinygrad numpy) and a C compiler for it. Exit code 1 when a loss differs
by more than the tolerance.

Adam's first steps move every weight by about the learning rate, whatever the size of its gradient: where a gradient is
rounding noise, so is the step. At its default of 0.001 correct float32 programs therefore differ by up to 0.3 % after
five steps (at seed 42 tinygrad itself is 0.12 % from float64 at the third and 0.31 % at the fifth). At 0.0001 rounding
stays below 0.01 %, and a wrong formula still shows."""
import argparse, gzip, os, pathlib, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def read_idx(name, offset, shape):
  import numpy as np
  with gzip.open(ROOT / "data" / "mnist" / name) as f:
    return np.frombuffer(f.read(), dtype=np.uint8)[offset:].reshape(shape)


def tinygrad_losses(steps, seed, batch_size, lr):
  os.environ.setdefault("DEV", "CPU")
  from tinygrad import Context, Tensor, nn
  Tensor.manual_seed(seed)
  layers = [nn.Conv2d(1, 32, 5), Tensor.relu, nn.Conv2d(32, 32, 5), Tensor.relu, nn.BatchNorm(32), Tensor.max_pool2d,
            nn.Conv2d(32, 64, 3), Tensor.relu, nn.Conv2d(64, 64, 3), Tensor.relu, nn.BatchNorm(64), Tensor.max_pool2d,
            lambda x: x.flatten(1), nn.Linear(576, 10)]
  images, labels = Tensor(read_idx("train-images-idx3-ubyte.gz", 16,
                                   (-1, 1, 28, 28))), Tensor(read_idx("train-labels-idx1-ubyte.gz", 8, (-1,)))
  optimizer = nn.optim.Adam(nn.state.get_parameters(layers), lr=lr)
  losses = []
  with Context(TRAINING=1):
    for _ in range(steps):
      optimizer.zero_grad()
      rows = Tensor.randint(batch_size, high=images.shape[0])
      loss = images[rows].sequential(layers).sparse_categorical_crossentropy(labels[rows]).backward()
      losses.append(loss.realize(*optimizer.schedule_step()).item())
      print(f"tinygrad step {len(losses)}: {losses[-1]:.6f}", file=sys.stderr)
  return losses


def tg_losses(tg, steps, seed, batch_size, lr):
  with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "losses")
    subprocess.run([tg, "mnist", "--steps", str(steps), "--seed", str(seed), "--batch-size", str(batch_size), "--lr",
                    str(lr),
                    "--losses", path], check=True)
    with open(path) as f: return [float(line) for line in f]


def main():
  p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  p.add_argument("--tg", default=str(ROOT / "build" / "release" / "bin" / "tg"))
  p.add_argument("--steps", type=int, default=5)
  p.add_argument("--seed", type=int, default=42)
  p.add_argument("--batch-size", type=int, default=512)
  p.add_argument("--lr", type=float, default=0.0001)
  p.add_argument("--tolerance", type=float, default=1e-3, help="greatest relative difference")
  a = p.parse_args()
  theirs = tinygrad_losses(a.steps, a.seed, a.batch_size, a.lr)
  ours = tg_losses(a.tg, a.steps, a.seed, a.batch_size, a.lr)
  worst = 0.0
  print(f"{'step':>4} {'tinygrad':>12} {'tg':>12} {'relative':>10}")
  for i, (t, o) in enumerate(zip(theirs, ours, strict=True)):
    worst = max(worst, abs(t - o) / abs(t))
    print(f"{i + 1:4d} {t:12.6f} {o:12.6f} {abs(t - o) / abs(t):10.2e}")
  verdict = "equal" if worst <= a.tolerance else "DIFFERENT"
  print(f"worst relative difference {worst:.2e}, tolerance {a.tolerance:.0e}: {verdict}")
  return 0 if worst <= a.tolerance else 1


if __name__ == "__main__": sys.exit(main())
