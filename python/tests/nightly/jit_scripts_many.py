"""Random scripts of captured functions, compared with the same scripts without a capture (python/tests/jit_scripts.py).

    PYTHONPATH=build/dev/python python python/tests/nightly/jit_scripts_many.py --scripts 10000 --threaded 1000
    ... --first 5 --scripts 1                                       # one of them again

A script that differs or fails is printed, and the exit status is 1.
"""
import argparse
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import jit_scripts  # noqa: E402


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--scripts", type=int, default=10000, help="one at a time")
  parser.add_argument("--threaded", type=int, default=1000, help="--threads at a time")
  parser.add_argument("--threads", type=int, default=4)
  parser.add_argument("--first", type=int, default=0, help="seed")
  parser.add_argument("--held", type=float, default=0.6, help="how many of the program's values are kept, 0 to 1")
  options = parser.parse_args()
  wrong, start = 0, time.monotonic()
  for seed in range(options.first, options.first + options.scripts):
    if text := jit_scripts.check(seed, options.held):
      wrong += 1
      print(text, flush=True)
  print(f"{options.scripts} scripts, {wrong} wrong, {time.monotonic() - start:.0f} s", flush=True)
  wrong_threaded, start = 0, time.monotonic()
  for seed in range(options.first, options.first + options.threaded, options.threads):
    for text in jit_scripts.check_threads(list(range(seed, seed + options.threads)), options.held):
      wrong_threaded += 1
      print(text, flush=True)
  print(f"{options.threaded} scripts on {options.threads} threads, {wrong_threaded} wrong, "
        f"{time.monotonic() - start:.0f} s")
  return 1 if wrong or wrong_threaded else 0


if __name__ == "__main__":
  sys.exit(main())
