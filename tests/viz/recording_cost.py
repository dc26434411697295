#!/usr/bin/env python3
"""What recording costs: training steps of ResNet-18 from an empty cache, with VIZ=1 and without, in turns. Every
rewrite is recorded, in less than 100 MB, in less than twice the time; prints the figures.

  recording_cost.py TG [RUNS]"""
import json
import os
import subprocess
import sys
import tempfile
import time

MOST_BYTES, MOST_TIME = 100e6, 2.0


def run(tg, folder, **env):
  """Seconds of a process that trains with an empty cache."""
  cache = os.path.join(folder, "cache.db")
  for name in os.listdir(folder):
    if name.startswith("cache.db"): os.remove(os.path.join(folder, name))
  begin = time.monotonic()
  subprocess.run([tg, "bench", "--child", "resnet18_train_peak"], check=True, stdout=subprocess.DEVNULL,
                 env={**os.environ, "XDG_CACHE_HOME": folder, "CACHEDB": cache, **env})
  return time.monotonic() - begin


def main():
  tg, runs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
  with tempfile.TemporaryDirectory() as folder:
    file = os.path.join(folder, "run.viz")
    plain, recorded = [], []
    for _ in range(runs):
      plain.append(run(tg, folder))
      recorded.append(run(tg, folder, VIZ="1", VIZ_FILE=file))
    size = os.path.getsize(file)
    overview = json.loads(subprocess.run([tg, "viz", "--json", file], check=True, capture_output=True).stdout)
  ratio = min(recorded) / min(plain)
  rules = sum(r["hits"] for r in overview["rules"])
  print(f"{size / 1e6:.1f} MB, {overview['kernels']} kernels, {overview['rewrites']} rewrites ({rules} counted by "
        f"rules), {min(plain):.1f} s unrecorded, {min(recorded):.1f} s recorded: {ratio:.2f} x")
  if overview["broken"] or not overview["rewrites"]: raise SystemExit("the recording is not whole")
  if size > MOST_BYTES: raise SystemExit(f"the recording has {size} bytes, expected at most {MOST_BYTES:.0f}")
  if ratio > MOST_TIME: raise SystemExit(f"recording takes {ratio:.2f} times as long, expected at most {MOST_TIME}")


if __name__ == "__main__": main()
