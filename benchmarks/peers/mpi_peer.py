"""MPI_Allreduce alone, between as many processes as the row has threads."""
import pathlib, subprocess, sys
import numpy as np
from worker import Cannot, Reported, Work

MPIRUN = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]


class Peer:
  def __init__(self, name: str, threads: int):
    self.threads, self.world = threads, None
    text = subprocess.run(MPIRUN[:1] + ["--version"], capture_output=True, text=True, check=True).stdout
    self.version = text.splitlines()[0].removeprefix("mpirun ").strip()

  def allreduce(self, row) -> Work:
    if self.world: self.world.communicate()
    self.world = subprocess.Popen(MPIRUN + ["-n", str(self.threads), sys.executable,
                                            str(pathlib.Path(__file__).with_name("mpi_loop.py")),
                                            str(row.args["bytes"]), str(row.args["repeats"])],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    def run() -> Reported:
      self.world.stdin.write("\n")
      self.world.stdin.flush()
      if not (line := self.world.stdout.readline()): raise Cannot("the processes under mpirun ended")
      return Reported(float(line))
    return Work(run, lambda: [])
