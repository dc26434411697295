#!/usr/bin/env python3
"""worker.py PEER THREADS [DEVICE]: one peer of the comparison in a process of its own, driven line by line.

First it prints "peer VERSION" (or "cannot REASON" and ends). "row NAME" sets a row up, checks its result, warms it and
answers "ready SECONDS" (of its last run) or "cannot REASON"; then every empty line takes one sample, as `tg bench
--on-request` does, and answers its seconds."""
import gc, importlib, math, os, sys, time, traceback
from typing import Callable, NamedTuple

import inputs
from rows import BY_NAME

LONG_SECONDS = 30
SAMPLE_SECONDS = 20e-3  # other programs ran since the last one: caches and threads have to come back


class Work(NamedTuple):
  run: Callable[[], object]       # what is timed
  results: Callable[[], list]     # arrays of the last run; of training steps: all losses


class Reported(float):
  """The seconds of a run that other processes made, and timed."""


class Cannot(Exception):
  """The peer has no way to do this row."""


def timed(run: Callable[[], object], wait: Callable[[], object]) -> float:
  start = time.perf_counter()
  result = run()
  wait()
  return result if isinstance(result, Reported) else time.perf_counter() - start


def wait_of(peer) -> Callable[[], object]:
  """What waits for the work of a peer, of those that do not wait themselves."""
  return getattr(peer, "wait", lambda: None)


def set_up(peer, name: str) -> tuple[Callable[[], object], int, float]:
  """What runs, how often for a sample, and the seconds of the last run."""
  row, wait = BY_NAME[name], wait_of(peer)
  prepare = getattr(peer, row.kind, None)
  if prepare is None: raise Cannot(f"has no {row.kind}")
  work, steps = prepare(row), row.kind.endswith("_step")
  for _ in range(3 if steps else 1): seconds = timed(work.run, wait)
  if row.group != "collective": inputs.check(row, work.results())  # whose processes check themselves
  if not steps and seconds < LONG_SECONDS: seconds = timed(work.run, wait)  # some decide what to do in the second run
  if seconds < 1: seconds = timed(work.run, wait)
  return work.run, min(max(math.ceil(SAMPLE_SECONDS / max(seconds, 1e-9)), 1), 200), seconds


def sample(run: Callable[[], object], repeats: int, wait: Callable[[], object]) -> float:
  if repeats > 1: run()
  wait()
  start = time.perf_counter()
  results = [run() for _ in range(repeats)]
  wait()
  if isinstance(results[0], Reported): return sum(results) / repeats
  return (time.perf_counter() - start) / repeats


def main() -> None:
  name, threads, device = sys.argv[1], int(sys.argv[2]), (sys.argv[3:] or ["CPU"])[0]
  os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
  out = os.fdopen(os.dup(1), "w", buffering=1)
  os.dup2(2, 1)  # whatever a library prints goes to the standard error
  def say(text: str) -> None: print(text, file=out, flush=True)
  try: peer = importlib.import_module(name.split("_")[0] + "_peer").Peer(name, threads, *[device] * (device != "CPU"))
  except Exception as e: return say(f"cannot {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}")
  say(f"peer {peer.version}")
  run, repeats = None, 1
  for line in sys.stdin:
    try:
      if line.startswith("row "):
        run = None
        gc.collect()
        run, repeats, seconds = set_up(peer, line.split()[1])
        say(f"ready {seconds:.9g}")
      else: say(f"{sample(run, repeats, wait_of(peer)):.9g}")
    except Exception as e:
      if not isinstance(e, (Cannot, inputs.WrongResult)): traceback.print_exc()
      say(f"cannot {'' if isinstance(e, Cannot) else type(e).__name__ + ': '}{(str(e) or '?').splitlines()[0][:200]}")


if __name__ == "__main__":
  sys.modules["worker"] = sys.modules["__main__"]  # peers import Work from here
  main()
