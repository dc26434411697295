#!/usr/bin/env python3
"""Checks the include graph of tinygrad/: a folder includes only folders above it in LAYERS, a room of codegen/ only
rooms above it in ROOMS, no include cycle, no file over MAX_LINES lines, no file name used twice, no use of the umbrella
header from inside. Run from the repository's root, or give it; --self-test
checks the checker."""
import os
import re
import sys
import tempfile

LAYERS = ["base", "uop", "target", "schedule", "codegen", "render", "runtime", "engine", "tensor", "io", "nn", "onnx",
          "llm", "viz"]
ROOMS = {"codegen": ["ranges", "decomp", "scratch", "opt", "cost", "plan", "expand", "linear"]}
UMBRELLA = "tinygrad/tinygrad.h"
MAX_LINES = 900
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^">]+)[">]', re.M)


def read_graph(root):
  """file -> (line count, project files it includes), paths relative to root."""
  graph = {}
  for folder, _, names in os.walk(os.path.join(root, "tinygrad")):
    for name in names:
      if name.endswith((".h", ".hpp", ".cpp", ".inc")):
        path = os.path.relpath(os.path.join(folder, name), root)
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as f:
          text = f.read()
        includes = []
        for inc in INCLUDE.findall(text):
          beside = os.path.normpath(os.path.join(os.path.dirname(path), inc))
          includes.append(inc if inc.startswith("tinygrad/") else beside if os.path.exists(os.path.join(root, beside))
                          else None)
        graph[path] = (text.count("\n"), [i for i in includes if i])
  return graph


def layer(path):
  parts = path.split("/")
  return parts[1] if len(parts) > 2 else None  # None: the umbrella header itself


def room(path):
  parts = path.split("/")
  return parts[2] if len(parts) > 3 else None  # None: beside the rooms, free to include and to be included


def check_room(path, inc):
  """Returns what is wrong with an include from one room of a folder to another; empty: nothing."""
  order = ROOMS.get(layer(path)) if layer(path) == layer(inc) else None
  mine, theirs = room(path), room(inc)
  if not order or not mine or not theirs: return ""
  unknown = [r for r in (mine, theirs) if r not in order]
  if unknown: return f"{path}: room {unknown[0]} is not in the list of rooms"
  return f"{path}: room {mine} includes {inc} from a higher room" if order.index(theirs) > order.index(mine) else ""


def find_twins(graph):
  """Returns a line for every pair of files of one name, a header and its source aside."""
  first, bad = {}, []
  for path in sorted(graph):
    other = first.setdefault(os.path.basename(path), path)
    if other != path: bad.append(f"{path}: has the name of {other}")
  return bad


def find_cycles(graph):
  state, found = {}, []
  for start in sorted(graph):
    if start in state: continue
    path, stack = [start], [iter(graph[start][1])]
    state[start] = "open"
    while stack:
      inc = next(stack[-1], None)
      if inc is None:
        stack.pop()
        state[path.pop()] = "done"
      elif inc in graph and state.get(inc) == "open":
        found.append("include cycle: " + " -> ".join(path[path.index(inc):] + [inc]))
      elif inc in graph and inc not in state:
        state[inc] = "open"
        path.append(inc)
        stack.append(iter(graph[inc][1]))
  return found


def check(root):
  graph, bad = read_graph(root), []
  rank = {name: i for i, name in enumerate(LAYERS)}
  for path, (lines, includes) in sorted(graph.items()):
    mine = layer(path)
    if lines > MAX_LINES: bad.append(f"{path}: {lines} lines, at most {MAX_LINES}")
    if mine is None: continue
    if mine not in rank:
      bad.append(f"{path}: folder {mine} is not in the list of layers")
      continue
    for inc in includes:
      theirs = layer(inc)
      if theirs is None: bad.append(f"{path}: includes {inc}, which is for users only")
      elif inc not in graph: bad.append(f"{path}: includes {inc}, which does not exist")
      elif theirs in rank and rank[theirs] > rank[mine]:
        bad.append(f"{path}: {mine} includes {inc} from a higher layer")
      elif (wrong := check_room(path, inc)): bad.append(wrong)
  return graph, bad + find_twins(graph) + find_cycles(graph)


def self_test():
  cases = {
    "clean": ({"base/a.h": "", "uop/b.cpp": '#include "tinygrad/base/a.h"\n'}, None),
    "upward": ({"base/a.h": '#include "tinygrad/uop/b.h"\n', "uop/b.h": ""}, "higher layer"),
    "cycle": ({"base/a.h": '#include "tinygrad/base/b.h"\n', "base/b.h": '#include "a.h"\n'},
              "include cycle: tinygrad/base/a.h -> tinygrad/base/b.h"),
    "long": ({"base/a.h": "\n" * (MAX_LINES + 1)}, f"{MAX_LINES + 1} lines"),
    "umbrella": ({"tinygrad.h": "", "base/a.cpp": f"#include <{UMBRELLA}>\n"}, "for users only"),
    "unknown": ({"misc/a.h": ""}, "not in the list"),
    "room": ({"codegen/ranges/a.h": '#include "tinygrad/codegen/plan/b.h"\n', "codegen/plan/b.h": ""}, "higher room"),
    "new room": ({"codegen/ranges/a.h": '#include "tinygrad/codegen/new/b.h"\n', "codegen/new/b.h": ""},
                 "list of rooms"),
    "twins": ({"base/a.h": "", "uop/a.h": ""}, "has the name of"),
    "absent": ({"base/a.cpp": '#include "tinygrad/base/gone.h"\n'}, "does not exist"),
  }
  for name, (files, expected) in cases.items():
    with tempfile.TemporaryDirectory() as root:
      for path, text in files.items():
        full = os.path.join(root, "tinygrad", path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as f: f.write(text)
      _, bad = check(root)
      if (expected is None) != (not bad) or (expected and expected not in bad[0]):
        sys.exit(f"self-test {name}: got {bad}, expected {expected}")
  print(f"{len(cases)} cases")


def main():
  if "--self-test" in sys.argv: return self_test()
  graph, bad = check(sys.argv[1] if len(sys.argv) > 1 else ".")
  if not graph: sys.exit("check_layers: no sources under tinygrad/")
  for line in bad: print(line)
  print(f"check_layers: {len(graph)} files, {sum(n for n, _ in graph.values())} lines, {len(bad)} violations")
  sys.exit(1 if bad else 0)


if __name__ == "__main__": main()
