"""Programs that give samples line by line, turns between them, and what samples are reported as."""
import os, select, signal, statistics, subprocess, time
from typing import Callable, Iterable, Protocol


class Failed(Exception):
  """A program that cannot give samples, and why."""


class Program:
  """A child process that answers each line it is given with a line."""
  def __init__(self, argv: list[str], env: dict[str, str], log):
    self.rest, self.log, self.log_start = b"", log, log.tell()
    self.process = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                                    start_new_session=True)

  def line(self, timeout: float) -> str:
    """The next line of its output."""
    end = time.monotonic() + timeout
    while b"\n" not in self.rest:
      if not select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))[0]:
        self.kill()
        raise Failed(f"gave no answer within {timeout:.0f} s")
      data = os.read(self.process.stdout.fileno(), 65536)
      if not data:
        self.kill()
        raise Failed(f"ended with {self.process.returncode}: {self.last_words()}")
      self.rest += data
    answer, self.rest = self.rest.split(b"\n", 1)
    return answer.decode()

  def ask(self, request: str, timeout: float) -> str:
    try:
      self.process.stdin.write(request.encode() + b"\n")
      self.process.stdin.flush()
    except OSError as e: raise Failed(f"has ended: {e.strerror}: {self.last_words()}") from None
    return self.line(timeout)

  def sample(self, timeout: float) -> float:
    return parse_seconds(self.ask("", timeout))

  def last_words(self) -> str:
    self.log.seek(self.log_start)
    lines = [l for l in self.log.read().decode(errors="replace").splitlines() if l.strip()]
    self.log.seek(0, os.SEEK_END)
    return lines[-1][:200] if lines else "no message"

  def alive(self) -> bool: return self.process.poll() is None

  def finish(self, timeout: float = 5) -> None:
    try: self.process.stdin.close()
    except OSError: pass
    try: self.process.wait(timeout)
    except subprocess.TimeoutExpired: self.kill()
    self.process.stdout.close()

  def kill(self) -> None:
    try: os.killpg(self.process.pid, signal.SIGKILL)  # compilers it has started are in its group
    except ProcessLookupError: pass
    self.process.wait()


def parse_seconds(answer: str) -> float:
  """The seconds of a sample; Failed with the reason for "cannot REASON" and for anything else."""
  if answer.startswith("cannot "): raise Failed(answer[len("cannot "):])
  try: seconds = float(answer)
  except ValueError: raise Failed(f"answered {answer[:80]!r}, expected seconds") from None
  if not 0 < seconds < float("inf"): raise Failed(f"answered {answer!r}, expected positive seconds")
  return seconds


class Sampler(Protocol):
  def sample(self, timeout: float) -> float: ...


SLOW = 4        # times the best: such a program is not in the running and gets few samples
SLOW_SECONDS = 2.0


def interleave(programs: dict[str, Sampler], known: dict[str, float], pairs: int, seconds: float, timeout: float,
               failed: Callable[[str, str], None], clock: Callable[[], float] = time.monotonic,
               rest: float = 0) -> dict[str, list[float]]:
  """Samples of each program, taken in turns: at least `pairs` rounds of all that are in the running, more (up to three
  times as many) while that takes less than `seconds`. The order rotates, so that no program always follows the same
  one. A program whose run was `known` to be long and slow when it was set up keeps that as its only sample. One that
  fails is left out and named; when the first one (ours) does, that ends everything. Before each sample come `rest`
  seconds in which the processes of the one before come to rest."""
  ours, samples, first = next(iter(programs)), {}, {}
  def take(name: str) -> float | None:
    time.sleep(rest)
    try: return programs[name].sample(timeout)
    except Failed as e:
      if name == ours: raise
      failed(name, str(e))
      return None
  for name in programs:  # decides who is in the running; does not count
    hopeless = name in known and known[name] > max(SLOW_SECONDS, SLOW * min(known.values()))
    value = known[name] if hopeless else take(name)
    if value is not None: first[name] = value
  best = min(first.values())
  running = [name for name in first if name == ours or first[name] <= SLOW * best]
  for name in first:
    if name in running: continue
    taken = [take(name) for _ in range(3)] if first[name] * 3 < SLOW_SECONDS else [first[name]]
    if None not in taken: samples[name] = taken
  samples.update({name: [] for name in running})
  start, done = clock(), 0
  while done < pairs or (done < 3 * pairs and clock() - start < seconds):
    for name in running[done % len(running):] + running[:done % len(running)]:
      value = take(name)
      if value is None:
        running = [n for n in running if n != name]
        del samples[name]
        break  # the round is repeated: every program in the running has a sample of each
      samples[name].append(value)
    else:
      done += 1
      continue
    for name in running: del samples[name][done:]
  return {name: samples[name] for name in programs if name in samples}


def quartiles(values: Iterable[float]) -> tuple[float, float]:
  """First and third quartile."""
  v = sorted(values)
  if len(v) < 2: return v[0], v[0]
  q = statistics.quantiles(v, n=4, method="inclusive")
  return q[0], q[2]


def result(name: str, threads: int, samples: dict[str, list[float]], versions: dict[str, str]) -> dict:
  """What a row is reported as; times in milliseconds. `pairs`: samples of ours and of each peer in the running; slower
  peers may have fewer (`samples`)."""
  ours = next(iter(samples))
  ms = {n: [1e3 * s for s in v] for n, v in samples.items()}
  medians = {n: round(statistics.median(v), 6) for n, v in ms.items()}
  peers = {n: m for n, m in sorted(medians.items(), key=lambda item: item[1]) if n != ours}
  return {"name": name, "threads": threads, "unit": "ms", "ours": medians[ours], "peers": peers,
          "ratio": round(medians[ours] / min(peers.values()), 4) if peers else None,
          "best": min(peers, key=peers.get) if peers else None, "pairs": len(ms[ours]),
          "spread": {n: [round(q, 6) for q in quartiles(v)] for n, v in ms.items()},
          "samples": {n: len(v) for n, v in ms.items()},
          "versions": {n: versions[n] for n in peers if n in versions}}
