#!/usr/bin/env python3
"""ddp_loop.py KIND RANK SIZE FOLDER: a process of training by torch's DistributedDataParallel on gloo, with one thread
and a part of each batch. Rank 0 takes a sample for each line that it gets, and answers its seconds."""
import sys, time
import numpy as np
import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, __file__.rsplit("/", 2)[0])
import inputs, torch_peer
from rows import GPT2_LOSSES, MNIST_BATCH_LOSSES


class Block(nn.Module):
  """A GPT-2 block with its loss."""
  def __init__(self):
    super().__init__()
    self.p = nn.ParameterList(torch.from_numpy(v) for v in inputs.gpt2_values())
  def forward(self, x, want): return (torch_peer.block(x, list(self.p)) - want).square().mean()


def mnist_ddp():
  images, labels = inputs.mnist()
  model = torch_peer.ConvNet()
  names = [(name, tuple(p.shape)) for name, p in model.named_parameters()]
  with torch.no_grad():
    for p, v in zip(model.parameters(), inputs.layer_values(names)): p.copy_(torch.from_numpy(v))
  batch = torch.from_numpy(images[:512]).float(), torch.from_numpy(labels[:512]).long()
  # statistics of the batch norms are those of each process's part here, of the whole batch in ours
  return model, torch.optim.Adam(model.parameters(), lr=1e-3, fused=True), batch, MNIST_BATCH_LOSSES, 0.05


def gpt2_ddp():
  model, batch = Block(), tuple(torch.from_numpy(inputs.floats((4, 128, 768), seed)) for seed in (7, 9))
  return model, torch.optim.AdamW(model.parameters(), fused=True), batch, GPT2_LOSSES, 2e-3


def main() -> None:
  kind, rank, size, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
  torch.set_num_threads(1)
  torch.set_num_interop_threads(1)
  dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
  model, optimizer, batch, losses, tolerance = {"mnist_ddp": mnist_ddp, "gpt2_ddp": gpt2_ddp}[kind]()
  part = [t.chunk(size)[rank].clone() for t in batch]
  ddp = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
  def step() -> torch.Tensor:
    optimizer.zero_grad()
    loss = ddp(*part)
    loss.backward()
    optimizer.step()
    return loss.detach()
  for want in losses:
    mean = step()
    dist.all_reduce(mean)
    if abs(mean.item() / size - want) > tolerance * want: sys.exit(f"the loss is {mean.item() / size}, expected {want}")
  for _ in range(3): step()  # buckets are divided again after the first ones
  more = torch.ones(1, dtype=torch.int32)
  while True:
    if rank == 0: more[0] = 1 if sys.stdin.readline() else 0
    dist.broadcast(more, 0)
    if not more.item(): break
    dist.barrier()
    start = time.perf_counter()
    step().item()
    if rank == 0: print(f"{time.perf_counter() - start:.9g}", flush=True)
  dist.destroy_process_group()


if __name__ == "__main__":
  main()
