#!/usr/bin/env python3
"""Compares a training step of one process under mpirun with the same without: wall time and CPU seconds of the process,
of samples taken in turns. Prints medians and quartiles of the ratios of neighbours; exits with 1 where the medians are
above --limit."""
import argparse, os, pathlib, statistics, sys, tempfile

import environment, sampling

MPIRUN = ["mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none", "-n", "1"]


def processes_below(pid: int) -> list[int]:
  """This process and all that it has started, and those they have."""
  found = [pid]
  for p in found:
    for task in pathlib.Path(f"/proc/{p}/task").iterdir(): found += map(int, (task / "children").read_text().split())
  return found


def cpu_seconds(pid: int) -> float:
  """What its threads have run so far."""
  tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
  return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


class Step:
  """A program that makes a step for each line."""
  def __init__(self, before: list[str], tg: pathlib.Path, row: str, log):
    self.program = sampling.Program([*before, str(tg), "bench", "--child", row, "--threads", "1"],
                                    environment.variables(1), log)
    self.program.sample(300)  # it has compiled and captured the step
    self.pid = next(p for p in processes_below(self.program.process.pid)
                    if os.readlink(f"/proc/{p}/exe") == str(tg.resolve()))

  def sample(self) -> tuple[float, float]:
    """Wall and CPU seconds."""
    before = cpu_seconds(self.pid)
    wall = self.program.sample(300)
    return wall, cpu_seconds(self.pid) - before


def main() -> int:
  p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  p.add_argument("--row", default="ddp_gpt2_block_step", help="the child row of `tg bench` that is measured")
  p.add_argument("--pairs", type=int, default=60, metavar="N", help="samples of each (default 60)")
  p.add_argument("--limit", type=float, default=1.01, metavar="RATIO", help="the most that is accepted (default 1.01)")
  p.add_argument("--tg", type=pathlib.Path, default=environment.ROOT / "build" / "release" / "bin" / "tg")
  o = p.parse_args()
  with tempfile.TemporaryFile() as log:
    steps = [Step([], o.tg, o.row, log), Step(MPIRUN, o.tg, o.row, log)]
    for s in steps: [s.sample() for _ in range(3)]
    taken: list[list[tuple[float, float]]] = [[], []]
    for i in range(o.pairs):
      for k in (0, 1) if i % 2 else (1, 0): taken[k].append(steps[k].sample())
    for s in steps: s.program.finish()
  worst = 0.0
  for what, at in (("wall", 0), ("CPU", 1)):
    alone, under = ([s[at] for s in t] for t in taken)
    ratios = [b / a for a, b in zip(alone, under)]
    low, high = sampling.quartiles(ratios)
    a, b = (1e3 * statistics.median(v) for v in (alone, under))
    r = statistics.median(ratios)
    print(f"{what}: {a:.2f} ms alone, {b:.2f} ms under mpirun; ratio {r:.4f} [{low:.4f} .. {high:.4f}]")
    worst = max(worst, r)
  return 0 if worst <= o.limit else 1


if __name__ == "__main__": sys.exit(main())
