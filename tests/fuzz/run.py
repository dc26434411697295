#!/usr/bin/env python3
"""Runs every fuzz target for some seconds from its corpus: run.py BUILD/bin/fuzz SECONDS [TARGET...].

Fails when an input crashes, hangs, takes too much memory or leaks. The input is kept as crash-NAME-* in the current
folder: once it is mended, it joins tests/fuzz/corpus/NAME as a regression (good_* parses, bad_* is refused)."""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"
MESSAGE_LINES = 80
INPUT_BYTES, MEMORY_MB, ALLOCATION_MB, INPUT_SECONDS = 1 << 16, 2048, 512, 10


def run(program, target, seconds):
  """Returns the exit status and what libFuzzer said."""
  with tempfile.TemporaryDirectory() as found:
    command = [program, f"-max_total_time={seconds}", f"-max_len={INPUT_BYTES}", f"-timeout={INPUT_SECONDS}",
               f"-rss_limit_mb={MEMORY_MB}", f"-malloc_limit_mb={ALLOCATION_MB}", f"-artifact_prefix=crash-{target}-",
               "-print_final_stats=1", "-verbosity=1", found, str(CORPUS / target)]
    r = subprocess.run(command, env=os.environ | {"FUZZ_TARGET": target}, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, timeout=seconds * 3 + 120)
    return r.returncode, r.stdout.decode(errors="replace")


def main():
  if len(sys.argv) < 3: sys.exit(__doc__)
  program, seconds = os.path.abspath(sys.argv[1]), int(sys.argv[2])
  targets = sys.argv[3:] or sorted(p.name for p in CORPUS.iterdir() if p.is_dir())
  failed = []
  with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    for target, (status, text) in zip(targets, pool.map(lambda t: run(program, t, seconds), targets)):
      inputs = re.search(r"number_of_executed_units:\s+(\d+)", text)
      memory = re.search(r"peak_rss_mb:\s+(\d+)", text)
      print(f"{target:20} {inputs[1] if inputs else '?':>9} inputs {memory[1] if memory else '?':>5} MB  "
            f"{'ok' if status == 0 else 'FAILED'}", flush=True)
      if status != 0:
        failed.append(target)
        lines = [line for line in text.splitlines() if not re.match(r"#\d+|\s*NEW_FUNC", line)]
        print("\n".join(lines[-MESSAGE_LINES:]), flush=True)
  if failed: sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__": main()
