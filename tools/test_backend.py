#!/usr/bin/env python3
"""Runs all of tests/device on one device and says what works, what fails or is skipped and why, and how fast it is.

tools/test_backend.py build/dev/bin/test_device DEV [--filter=GLOB] [--limit=SECONDS]

Every test suite has a process of its own, so that a crash or a hang is that of one suite. Exit code 1 when a case
failed.
"""
import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
import time


def arguments():
  p = argparse.ArgumentParser(description="Runs tests/device on one device.")
  p.add_argument("program", help="the built test_device")
  p.add_argument("device", help="the value of DEV")
  p.add_argument("--filter", default="*", help="cases to run, as --gtest_filter has it")
  p.add_argument("--limit", type=int, default=1800, help="seconds a suite may take")
  p.add_argument("--no-speed", action="store_true", help="leave out how fast it is")
  return p.parse_args()


def suites(program, filter, env):
  """Returns the names of the suites, each with its cases."""
  run = subprocess.run([program, "--gtest_list_tests", "--gtest_filter=" + filter], env=env, capture_output=True,
                       text=True)
  if run.returncode:
    sys.exit(f"{program} --gtest_list_tests failed: {run.stderr.strip()}")
  out, name = collections.OrderedDict(), None
  for line in run.stdout.splitlines():
    if line.startswith("  "):
      out[name].append(name + line.split("#")[0].strip())
    elif line.endswith(".") or ".  #" in line:
      name = line.split("#")[0].strip()
      out[name] = []
  if not any(out.values()):
    sys.exit(f"no case matches --filter={filter}")
  return {n: [c for c in cases if "DISABLED_" not in c and n + "DISABLED_" not in c] for n, cases in out.items()}


def said_by(output):
  """Returns what each case printed, by case: reports say that one was skipped, not why."""
  said, case = {}, None
  for line in output.splitlines():
    if line.startswith("[ RUN"):
      case = line.split("]")[1].strip()
      said[case] = []
    elif line.startswith("[ "):
      case = None
    elif case and line.strip() and not line.endswith(": Skipped"):
      said[case].append(line.strip())
  return said


def results_of(path, said):
  """Returns (case, result, reason) of every case in a JSON report; `said` is what each printed."""
  with open(path) as f:
    report = json.load(f)
  for suite in report["testsuites"]:
    for case in suite["testsuite"]:
      name = suite["name"] + "." + case["name"]
      if case.get("failures"):
        yield name, "failed", case["failures"][0]["failure"].strip().splitlines()
      elif case["result"] == "SKIPPED":
        yield name, "skipped", said.get(name, [])[-1:]
      elif case["result"] == "COMPLETED":
        yield name, "passed", []


def run_suite(program, name, cases, env, limit):
  """Runs one suite; returns (case, result, reason lines) of each of its cases."""
  with tempfile.TemporaryDirectory() as folder:
    report = os.path.join(folder, "report.json")
    run = None
    command = [program, f"--gtest_filter={':'.join(cases)}", "--gtest_output=json:" + report]
    try:
      run = subprocess.run(command, env=env, capture_output=True, text=True, errors="replace", timeout=limit)
      ended = f"the process ended with {run.returncode}"
      started = [l.split("]")[1].strip() for l in run.stdout.splitlines() if l.startswith("[ RUN")]
    except subprocess.TimeoutExpired as e:
      ended = f"not done after {limit} s"
      text = e.stdout.decode(errors="replace") if e.stdout else ""
      started = [l.split("]")[1].strip() for l in text.splitlines() if l.startswith("[ RUN")]
    if os.path.exists(report):
      return list(results_of(report, said_by(run.stdout if run else "")))
    last = started[-1] if started else name + "*"
    return [(last, "failed", [ended])] + [(c, "not run", [f"after {last}"]) for c in cases if c not in started]


def main():
  a = arguments()
  env = dict(os.environ, DEV=a.device)
  env.setdefault("SPEC", "1")
  counts, problems, skipped, slow = collections.Counter(), [], collections.Counter(), []
  for name, cases in suites(a.program, a.filter, env).items():
    if not cases:
      continue
    begin = time.time()
    for case, result, reason in run_suite(a.program, name, cases, env, a.limit):
      counts[result] += 1
      if result in ("failed", "not run"):
        problems.append(case)
        print(f"{result}: {case}\n    " + "\n    ".join(reason[:4]))
      if result == "skipped":
        skipped[" ".join(reason)] += 1
    slow.append((time.time() - begin, name))
    print(f"{name:32} {len(cases):4} cases {slow[-1][0]:8.1f} s", flush=True)
  print()
  for reason, n in skipped.most_common():
    print(f"skipped {n}: {reason}")
  total = sum(counts.values())
  slowest = ", ".join(f"{n[:-1]} {s:.0f} s" for s, n in sorted(slow)[:-4:-1])
  print(f"\n{a.device}: {counts['passed']} of {total} cases passed, {counts['failed']} failed, "
        f"{counts['not run']} not run, {counts['skipped']} skipped; slowest: {slowest}")
  if a.no_speed:
    return 1 if problems else 0
  speed = subprocess.run([os.path.join(os.path.dirname(a.program), "device_speed")], env=env, capture_output=True,
                         text=True)
  print("\nHow fast it is:")
  print(speed.stdout + speed.stderr, end="")
  return 1 if problems or speed.returncode else 0


if __name__ == "__main__":
  sys.exit(main())
