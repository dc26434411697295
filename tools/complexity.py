#!/usr/bin/env python3
"""Measures the cognitive complexity of every function in tinygrad/ with clang-tidy and compares it with the limits in
complexity.json, which may only fall: complexity.py [--update] [BUILD [FILE...]]. What clang-tidy said of a file is kept
in BUILD/complexity-cache.json until the file or a header of it changes. --self-test checks the reading of its
output."""
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

GOAL = 40  # functions above it are counted
LIMITS = pathlib.Path(__file__).with_name("complexity.json")
FINDING = re.compile(r"^(.+?):(\d+):\d+: warning: function '(.+?)' has cognitive complexity of (\d+)", re.M)
CHECK = "readability-function-cognitive-complexity"
CONFIG = f"{{CheckOptions: [{{key: {CHECK}.Threshold, value: {GOAL}}}]}}"


INCLUDE = re.compile(r'^#include "(tinygrad/[^"]+)"', re.M)


@functools.cache
def content(path):
  return pathlib.Path(path).read_text(encoding="utf-8")


def key_of(source):
  """Hashes a file with all headers of the project it sees."""
  seen, stack = {source}, [source]
  while stack:
    new = [i for i in INCLUDE.findall(content(stack.pop())) if i not in seen and os.path.exists(i)]
    seen.update(new)
    stack += new
  return hashlib.sha256("".join(p + content(p) for p in sorted(seen)).encode()).hexdigest()


def findings(output, root):
  """{(file, line, function): complexity}"""
  return {(os.path.relpath(f, root), int(n), name): int(c) for f, n, name, c in FINDING.findall(output)}


def measure(tool, build, source):
  # The build may be another compiler's: its warnings, as errors, are not what is asked here.
  command = [tool, "-p", build, "--quiet", "--extra-arg=-w", "--extra-arg=-Wno-error", f"-checks=-*,{CHECK}",
             f"-config={CONFIG}", "-header-filter=tinygrad/.*"]
  run = subprocess.run([*command, source], capture_output=True, text=True)
  if "error:" in run.stdout: sys.exit(f"complexity: {source}: {run.stdout.strip()}")
  return run.stdout


def judge(found, limits):
  """What is worse than the limits, and the limits that would do now."""
  now = {"worst": max([GOAL, *found.values()]), "above_goal": len(found)}
  return [f"{k} is {now[k]}, at most {limits[k]}" for k in now if now[k] > limits[k]], now


def self_test():
  text = "/r/tinygrad/a.cpp:7:3: warning: function 'f' has cognitive complexity of 61 (threshold 40) [x]\n  note: +1\n"
  found = findings(text + text, "/r")
  assert found == {("tinygrad/a.cpp", 7, "f"): 61}, found
  assert judge(found, {"worst": 61, "above_goal": 1})[0] == []
  assert judge(found, {"worst": 60, "above_goal": 0})[0] == ["worst is 61, at most 60", "above_goal is 1, at most 0"]
  assert judge({}, {"worst": 60, "above_goal": 2})[1] == {"worst": GOAL, "above_goal": 0}
  print("4 cases")


def main():
  if "--self-test" in sys.argv: return self_test()
  args = [a for a in sys.argv[1:] if a != "--update"]
  build, sources = args[0] if args else "build/dev", args[1:]
  tool = shutil.which("clang-tidy-19") or shutil.which("clang-tidy")
  if not tool: sys.exit("complexity: no clang-tidy")
  sources = sources or sorted(str(p) for p in pathlib.Path("tinygrad").rglob("*.cpp") if "llvm_plugin" not in p.parts)
  cache = pathlib.Path(build, "complexity-cache.json")
  known = json.loads(cache.read_text()) if cache.exists() else {}

  def output_of(source):
    key = key_of(source)
    return key, known[key] if key in known else measure(tool, build, source)

  with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool: outputs = dict(pool.map(output_of, sources))
  cache.write_text(json.dumps({**({} if len(args) < 2 else known), **outputs}))
  found = {}
  for output in outputs.values(): found.update(findings(output, os.getcwd()))
  for (path, line, name), complexity in sorted(found.items(), key=lambda f: -f[1]):
    print(f"{complexity:5} {name} {path}:{line}")
  limits = json.loads(LIMITS.read_text())
  bad, now = judge(found, limits)
  if "--update" in sys.argv:
    LIMITS.write_text(json.dumps({k: min(v, limits[k]) for k, v in now.items()}) + "\n")
  for line in bad: print(f"complexity: {line}")
  sys.exit(1 if bad else 0)


if __name__ == "__main__": main()
