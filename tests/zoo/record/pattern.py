"""Weights and inputs that C++ computes alike (tests/zoo/pattern.h), and the files of expected values.

The scripts beside this one build a network of PyTorch, give it weights by name, and record what it computes in float64:

  python tests/zoo/record/resnet.py          # needs torch and torchvision

Weights are functions of their name and place, so that no file has to carry them."""
import pathlib
import re
import numpy as np
import torch
from safetensors.numpy import save_file

EXPECTED = pathlib.Path(__file__).resolve().parent.parent / "expected"
MOST = 512  # values of a tensor that a file has


def uniform(name: str, count: int) -> np.ndarray:
  """Returns numbers in [-1, 1) that depend on the name and on the place."""
  seed = 2166136261
  for byte in name.encode(): seed = ((seed ^ byte) * 16777619) & 0xFFFFFFFF
  x = np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B9) + np.uint32(seed)
  for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
    x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
  return ((x >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)).astype(np.float32)


def pattern(name: str, *shape: int) -> torch.Tensor:
  """Returns the input of this name and shape: floats in [-1, 1), in float64."""
  return torch.from_numpy(uniform(name, int(np.prod(shape)))).double().reshape(shape)


def numbers(name: str, below: int, *shape: int) -> torch.Tensor:
  """Returns integers from 0 to below - 1."""
  return ((pattern(name, *shape) + 1) * (below / 2)).floor().clamp(0, below - 1).long()


def weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
  """Returns the value of a weight: its variance is one over its fan-in, scales are near 1, offsets near 0."""
  u = uniform(name, int(np.prod(shape))).reshape(shape)
  last = name.rpartition(".")[2]
  if last == "running_var": return np.float32(1) + np.float32(0.5) * u
  middle = 1 if re.search("weight|gamma|scale", last) else 0
  if len(shape) <= 1: return np.float32(middle) + np.float32(0.1) * u
  fan_in = int(np.prod(shape[1:]))
  return u * np.float32(np.sqrt(np.float32(3.0) / np.float32(fan_in)))


def give_weights(model: torch.nn.Module, rename=lambda name: name) -> dict[str, str]:
  """Makes a network float64 and gives its parameters and buffers of floats the weights of their names; `rename` gives
  a name in C++ for one in PyTorch, or None for one that C++ does not have. Returns the name in C++ by that in
  PyTorch."""
  names = {}
  model.double()
  with torch.no_grad():
    for name, t in model.state_dict().items():
      new = rename(name)
      if new is None: continue
      names[name] = new
      if t.is_floating_point(): t.copy_(torch.as_tensor(weight(new, tuple(t.shape))))
  return names


def gradients(model: torch.nn.Module, output: torch.Tensor, names: dict[str, str]) -> dict[str, torch.Tensor]:
  """Returns the gradients of sum(output * pattern) by name in C++."""
  model.zero_grad()
  (output * pattern("output.gradient", *output.shape)).sum().backward()
  return {f"gradient.{names[n]}": p.grad for n, p in model.named_parameters() if n in names and p.grad is not None}


def sampled(t: torch.Tensor) -> np.ndarray:
  t = t.detach().flatten()
  t = t[:: max(1, -(-t.numel() // MOST))]
  return (t.float() if t.is_floating_point() else t).numpy()


def record(name: str, tensors: dict[str, torch.Tensor], keep=lambda key: True) -> None:
  """Writes expected/NAME.safetensors: of each tensor the shape and at most MOST values, evenly spaced."""
  out = {}
  for key, t in tensors.items():
    if not keep(key): continue
    out[key] = np.ascontiguousarray(sampled(t))
    out[f"{key}.shape"] = np.array(t.shape, dtype=np.int64)
  EXPECTED.mkdir(exist_ok=True)
  save_file(out, EXPECTED / f"{name}.safetensors")
  print(f"{name}: {len(out) // 2} tensors, {sum(a.nbytes for a in out.values())} bytes")


def record_names(name: str, model: torch.nn.Module, rename=lambda name: name) -> None:
  """Writes expected/NAME.names: name in C++ and shape of every weight. A model on the device "meta" needs no memory."""
  lines = [" ".join([new, *map(str, t.shape)]) for n, t in model.state_dict().items() if (new := rename(n)) is not None]
  (EXPECTED / f"{name}.names").write_text("\n".join(sorted(lines)) + "\n")
