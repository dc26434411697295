"""What llama.cpp computes on CPUs, in PyTorch: before each product with a packed matrix the other factor is rounded
to 8 bits in blocks of 32 with a scale in float16, and queries, keys, values and probabilities are rounded to float16.
It tells how much of a difference from llama.cpp is llama.cpp's own rounding."""
import gguf
import numpy as np
import torch
import torch.nn.functional as F
from llm_reference import Reference

BLOCK = 32


def half(x): return x.to(torch.float16).to(x.dtype)


def in_blocks(x):
  """8-bit numbers (..., blocks, 32) and the scales (..., blocks, 1) of blocks."""
  blocks = x.unflatten(-1, (-1, BLOCK))
  largest = blocks.abs().amax(-1, keepdim=True)
  return torch.round(blocks * torch.where(largest > 0, 127 / largest, 0)), largest / 127


class EightBitReference(Reference):
  """For models of the architecture llama whose matrices are Q4_1 or Q8_0."""
  def __init__(self, path):
    super().__init__(path)
    self.offsets, self.packed = {}, set()
    for t in gguf.GGUFReader(str(path)).tensors:
      if t.tensor_type.name in ("Q4_1", "Q8_0"): self.packed.add(t.name)
      if t.tensor_type.name == "Q4_1":  # a scale, an offset, 32 numbers of 4 bits
        raw = np.ascontiguousarray(t.data.reshape(t.data.shape[0], -1, 20)[..., 2:4])
        self.offsets[t.name] = torch.from_numpy(raw.view(np.float16)[..., 0].astype(np.float32))

  def product(self, x, name):
    if name not in self.packed: return F.linear(x, self.w[name])
    q, scale = in_blocks(x)
    y = F.linear((q * half(scale)).flatten(-2), self.w[name])
    if name not in self.offsets: return y
    # Offsets are multiplied with sums of blocks that are rounded once more.
    sums = q.sum(-1)
    return y + F.linear(half(scale[..., 0] * sums) - half(scale[..., 0]) * sums, self.offsets[name])

  def linear(self, x, name): return self.product(x, name + ".weight")

  def attend(self, q, k, v, scale, window):
    scores = half(q) @ half(k).transpose(-1, -2) * scale
    at = torch.arange(q.shape[1])
    scores = scores.masked_fill(at[None] > at[:, None], -torch.inf)
    return (half(scores.softmax(-1)) @ half(v)).transpose(0, 1).flatten(1)

  def logits(self, tokens):
    x = self.w["token_embd.weight"][torch.tensor(tokens)]
    for i in range(self.layers): x = self.layer(x, i)
    return self.product(self.norm(x, "output_norm"), "token_embd.weight")
