#!/usr/bin/env python3
"""Compares `tg bench` with other libraries, row by row, in the same run.

Every program is a process of its own, kept to the first N processors, with N threads that wait passively. Each checks
its result once; then samples are taken in turns (ours, peer, peer, ours, ...), at least 15 of each. A row is reported
with the medians, their quartiles, and the ratio of our time to the best peer's.

The driver needs the standard library only. Peers run in the interpreter that --python or PYTHON names (else this one);
packages it lacks are installed from PyPI into an environment under build/ that sees its other packages. `tg` is
build/release/bin/tg: cmake --preset release && cmake --build --preset release --target tg."""
import argparse, json, pathlib, re, subprocess, sys, tempfile
from typing import Iterator, TextIO

import environment, report
from rows import BY_NAME, COLLECTIVE_ROWS, LARGE_ROWS, ROWS, ZOO_ROWS, Row
from sampling import Failed, Program, interleave, parse_seconds, result

HERE = pathlib.Path(__file__).resolve().parent
PEERS = ["torch", "torch_compile", "tinygrad", "onnxruntime", "numpy", "llama", "llama_native", "mpi",
         "ddp", "zoo"]
ON_REQUEST = ["torch_avx512"]  # PyTorch whose MKL is told to use AVX-512 where it would not
ACCELERATED = ["torch", "torch_compile"]  # peers that run on accelerators here
QUANTIZED = ["tinygrad", "llama", "llama_native"]  # peers with products of GGML's formats
OURS = "tg"
REST = 0.05  # seconds before a sample of several processes: rank 0 answers while others still finish the one before


def say(text: str) -> None: print(text, file=sys.stderr, flush=True)


def peers_of(row: Row, chosen: list[str]) -> list[str]:
  """llama.cpp has nothing but quantized products to offer here; torch, ONNX Runtime and NumPy have none of GGML's
  formats. tinygrad would store the scores of long sequences, and take minutes. Networks, and rows of several processes,
  have peers of their own."""
  if row.group == "zoo": return [p for p in chosen if p == "zoo"]
  if row.group == "collective": return [p for p in chosen if p == ("mpi" if row.kind == "allreduce" else "ddp")]
  chosen = [p for p in chosen if p not in ("mpi", "ddp", "zoo")]
  if row.args.get("time", 0) > 1024: chosen = [p for p in chosen if p != "tinygrad"]
  return [p for p in chosen
          if (p in QUANTIZED if row.kind == "gemv_quantized" else p not in QUANTIZED or p == "tinygrad")]


def parse_threads(text: str) -> list[int]:
  try: counts = [int(t) for t in text.split(",")]
  except ValueError: raise argparse.ArgumentTypeError(f"got {text!r}, expected numbers with commas between") from None
  if not counts or min(counts) < 1: raise argparse.ArgumentTypeError(f"got {text!r}, expected positive numbers")
  return counts


def parse_peers(text: str) -> list[str]:
  names = [t for t in text.split(",") if t]
  if unknown := [n for n in names if n not in PEERS + ON_REQUEST]:
    raise argparse.ArgumentTypeError(f"got {', '.join(unknown)}, expected some of {', '.join(PEERS + ON_REQUEST)}")
  return names


def choose_rows(pattern: str, device: str = "CPU") -> list[Row]:
  more = LARGE_ROWS if device != "CPU" else ZOO_ROWS + COLLECTIVE_ROWS
  try: found = [r for r in ROWS + more if re.search(pattern, r.name)]
  except re.error as e: raise SystemExit(f"--filter {pattern!r} is not a regular expression: {e}") from None
  if not found: raise SystemExit(f"--filter {pattern!r} matches no row; --list shows them")
  return found


class Comparison:
  def __init__(self, options: argparse.Namespace, python: str, log: TextIO):
    self.o, self.python, self.log = options, python, log
    self.workers: dict[tuple[str, int], Program | None] = {}  # None: it cannot start
    self.versions: dict[str, str] = {}

  def worker(self, peer: str, threads: int) -> Program:
    key = (peer, threads)
    if key in self.workers and (self.workers[key] is None or self.workers[key].alive()):
      if self.workers[key] is None: raise Failed("does not start (see above)")
      return self.workers[key]
    self.workers[key] = None
    program = Program([self.python, str(HERE / "peers" / "worker.py"), peer, str(threads), self.o.device],
                      environment.variables(threads, peer, self.o.device), self.log)
    answer = program.line(self.o.setup_time)
    if not answer.startswith("peer "):
      program.finish()
      raise Failed(answer.removeprefix("cannot "))
    self.versions[peer] = answer.removeprefix("peer ")
    self.workers[key] = program
    return program

  def ready(self, row: Row, peer: str, threads: int) -> tuple[Program, float]:
    """The program, and what one run took while it was set up."""
    program = self.worker(peer, threads)
    return program, parse_seconds(program.ask(f"row {row.name}", self.o.setup_time).removeprefix("ready "))

  def row(self, row: Row, threads: int) -> dict:
    """Failed when ours fails."""
    label = f"{row.name}, {threads} thread{'s' if threads > 1 else ''}"
    programs: dict[str, Program] = {}
    known: dict[str, float] = {}
    ours = Program([str(self.o.tg), "bench", "--on-request", "--pin", "--threads", str(threads), "--filter",
                    f"^{re.escape(row.name)}$"],
                   environment.variables(threads, device=self.o.device), self.log)
    try:
      if (answer := ours.line(self.o.setup_time)) != "ready": raise Failed(f"answered {answer!r}, expected ready")
      # a peer that needs minutes where we need seconds is not asked again and again
      known[OURS] = ours.sample(self.o.setup_time)
      for peer in peers_of(row, self.o.peers):  # one after another: each is idle when the next is set up
        try: programs[peer], known[peer] = self.ready(row, peer, threads)
        except Failed as e: say(f"{label}: without {peer}: {e}")
      rest = REST if row.group == "collective" else 0
      samples = interleave({OURS: ours, **programs}, known, self.o.pairs, self.o.time, self.o.setup_time,
                           lambda peer, why: say(f"{label}: without {peer}: {why}"), rest=rest)
    finally: ours.finish()
    if len(samples) < 3 and row.group not in ("collective", "zoo"): say(f"{label}: fewer than two peers")
    return result(row.name, threads, samples, self.versions)

  def rows(self, rows: list[Row]) -> Iterator[dict | None]:
    for threads in self.o.threads:
      for row in rows:
        try: yield self.row(row, threads)
        except Failed as e:
          say(f"{row.name}, {threads} threads: tg {e}")
          yield None
      self.finish()  # the workers of the next number of threads are others

  def finish(self) -> None:
    for program in self.workers.values():
      if program: program.finish()
    self.workers.clear()


def machine(tg: pathlib.Path, threads: list[int]) -> dict:
  """What the machine can do, measured: the line that begins a stored file."""
  peaks = {}
  for n in threads:
    r = subprocess.run([str(tg), "bench", "--json", "--pin", "--threads", str(n), "--filter", "^roofline"],
                       capture_output=True, text=True, check=True)
    peaks[str(n)] = {row["name"].removeprefix("roofline_"): row["max"]
                     for row in map(json.loads, r.stdout.splitlines())}
  model, flags = environment.processor("model name") or "unknown processor", environment.processor("flags").split()
  isa = next((name for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in flags), "")
  return {"machine": f"{model}{', ' + isa if isa else ''}", "peaks": peaks}


def table_line(r: dict) -> str:
  low, high = r["spread"][OURS]
  ratio = f"{r['ratio']:8.2f}" if r["ratio"] else "       -"
  return f"{r['name']:32} {r['threads']:2} {r['ours']:10.4g} {ratio}  [{low:.4g} .. {high:.4g}]  " + "  ".join(
      f"{n} {v:.4g}" for n, v in r["peers"].items())


def main() -> int:
  p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  p.add_argument("--json", action="store_true", help="one JSON object a line, each written as soon as its row is done")
  p.add_argument("--filter", default="", metavar="REGEX", help="only rows whose name it finds")
  p.add_argument("--threads", type=parse_threads, default=[1, 2], metavar="N[,M]",
                 help="numbers of threads (default 1,2)")
  p.add_argument("--pairs", type=int, default=15, metavar="N", help="rounds at least (default 15)")
  p.add_argument("--time", type=float, default=2, metavar="S",
                 help="short rows have up to three times as many rounds within S seconds (default 2)")
  p.add_argument("--peers", type=parse_peers, default=PEERS, metavar="A,B",
                 help=f"some of {', '.join(PEERS)}; on request: {', '.join(ON_REQUEST)}")
  p.add_argument("--device", default="CPU", metavar="DEV",
                 help="the value of DEV; on accelerators the peer is PyTorch (cuBLAS, cuDNN), and more rows fill them")
  p.add_argument("--list", action="store_true", help="only list the rows")
  p.add_argument("--python", default=environment.default_python(),
                 help="interpreter of the peers (default: the variable PYTHON, else this one)")
  p.add_argument("--venv", type=pathlib.Path, metavar="DIR", help="environment of the peers; made when it is missing")
  p.add_argument("--no-install", action="store_true", help="install nothing; peers that are missing are left out")
  p.add_argument("--setup-time", type=float, default=300, metavar="S",
                 help="a program that takes longer to set up a row, or for a sample, is left out (default 300)")
  p.add_argument("--tg", type=pathlib.Path, default=environment.ROOT / "build" / "release" / "bin" / "tg",
                 help="the program that is compared")
  p.add_argument("--store", type=pathlib.Path, metavar="FILE",
                 help="write the machine's limits and the rows into a file of JSON lines")
  p.add_argument("--markdown", type=pathlib.Path, metavar="FILE",
                 help="make the report (and its figures beside it) from the file that --store names; measures nothing")
  o = p.parse_args()
  if o.markdown:
    if not o.store: p.error("--markdown needs --store FILE, the results it is made from")
    report.write(o.store, o.markdown)
    return 0
  rows = choose_rows(o.filter, o.device)
  if o.device != "CPU":
    if o.store: p.error("--store is for reports on the processor; with --device use --json")
    o.peers, o.threads = [peer for peer in o.peers if peer in ACCELERATED], o.threads[-1:]
  if o.list:
    for row in rows: print(f"{row.name:32} {row.group:10} {', '.join(peers_of(row, o.peers))}")
    return 0
  if not o.tg.exists(): raise SystemExit(f"no {o.tg}: build it first (make release)")
  wanted = [peer for peer in o.peers if any(peer in peers_of(row, o.peers) for row in rows)]
  python = environment.interpreter(o.python, wanted, o.venv, not o.no_install, say)
  store = o.store.open("w") if o.store else None
  if store: print(json.dumps(machine(o.tg, o.threads)), file=store, flush=True)
  if not o.json: print(f"{'name':32} {'th':>2} {'ours ms':>10} {'ratio':>8}  quartiles, peers (ms)")
  code = 0
  with tempfile.TemporaryFile() as log:
    comparison = Comparison(o, python, log)
    try:
      for r in comparison.rows(rows):
        if r is None:
          code = 1
          continue
        print(json.dumps(r) if o.json else table_line(r), flush=True)
        if store: print(json.dumps(r), file=store, flush=True)
    finally: comparison.finish()
  return code


if __name__ == "__main__": sys.exit(main())
