"""PyTorch's DistributedDataParallel on gloo, between as many processes as the row has threads."""
import pathlib, subprocess, sys, tempfile
import torch
from worker import Cannot, Reported, Work


class Peer:
  def __init__(self, name: str, threads: int):
    self.threads, self.version, self.world = threads, torch.__version__, []

  def _step(self, row) -> Work:
    self._end()
    self.folder = tempfile.TemporaryDirectory(prefix="ddp")  # where they meet
    loop = str(pathlib.Path(__file__).with_name("ddp_loop.py"))
    self.world = [subprocess.Popen([sys.executable, loop, row.kind, str(rank), str(self.threads), self.folder.name],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                  for rank in range(self.threads)]
    first = self.world[0]
    def run() -> Reported:
      first.stdin.write("\n")
      first.stdin.flush()
      if not (line := first.stdout.readline()): raise Cannot("the processes ended")
      return Reported(float(line))
    return Work(run, lambda: [])
  mnist_ddp = gpt2_ddp = _step

  def _end(self) -> None:
    for process in self.world: process.communicate()
