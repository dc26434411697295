#!/usr/bin/env python3
"""The profile of several processes: one file with the events of all ranks, whose clocks agree within the error it
states: trace.py PROGRAM MPIRUN RANKS [ARGUMENT...]"""
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

program, mpirun, ranks, arguments = sys.argv[1], sys.argv[2].split(), int(sys.argv[3]), sys.argv[4:]
with tempfile.TemporaryDirectory() as folder:
  file = pathlib.Path(folder) / "trace.json"
  run = subprocess.run([*mpirun, "-n", str(ranks), program, *arguments], capture_output=True, text=True,
                       env={**os.environ, "PROFILE": "1", "PROFILE_FILE": str(file)})
  assert run.returncode == 0, run.stdout + run.stderr
  assert f"[0] profile: {file} of {ranks} processes" in run.stderr.replace("\r", ""), run.stderr
  assert os.listdir(folder) == [file.name], os.listdir(folder)
  trace = json.loads(file.read_text())

events, about = trace["traceEvents"], trace["otherData"]
rank_of = {}  # by process of the trace
for e in events:
  if e["ph"] == "M" and e["name"] == "process_name": rank_of[e["pid"]] = int(e["args"]["name"].split()[1].rstrip(":"))
assert set(rank_of.values()) == set(range(ranks)), rank_of
assert sorted(about) == [f"rank {r}" for r in range(ranks)], about
# One machine has one clock: what was measured between processes is the error of measuring, of which the trace knows.
for r in range(ranks):
  own = about[f"rank {r}"]
  assert abs(own["clock_offset_ns"]) <= own["clock_error_ns"], (r, own)
  assert abs(own["clock_drift_ns"]) <= 2 * own["clock_error_ns"], (r, own)
  assert own["clock_error_ns"] < 1e9 and own["dropped"] == 0, (r, own)
error_us = 2 * max(a["clock_error_ns"] for a in about.values()) / 1000

spans = collections.defaultdict(dict)  # exchanges by arrow: when each rank was in it
slices = [e for e in events if e["ph"] == "X" and "bytes sent" in e.get("args", {}).get("details", "")]
assert len(slices) >= ranks, "no exchanges"
for e in events:
  if e["ph"] not in "stf": continue
  # An arrow leaves where an exchange begins and arrives where one ends.
  at = [abs(s["ts"] + (0 if e["ph"] == "s" else s["dur"]) - e["ts"]) if s["pid"] == e["pid"] else 1e9 for s in slices]
  inside = [slices[i] for i in [at.index(min(at))] if at[i] < 0.01]
  assert inside, f"an arrow at no exchange: {e}"
  spans[e["id"]][rank_of[e["pid"]]] = (inside[0]["name"], inside[0]["ts"], inside[0]["ts"] + inside[0]["dur"])
whole = [s for s in spans.values() if len(s) == ranks]
assert whole, "no exchange of all ranks"
for by_rank in whole:
  names = {n.split(" of ")[0] for n, _, _ in by_rank.values()}
  if not names <= {"allreduce ADD", "allreduce MAX", "allgather", "reduce_scatter ADD"}: continue
  # Nobody has what all contribute to before the last one began.
  assert max(b for _, b, _ in by_rank.values()) <= min(e for _, _, e in by_rank.values()) + error_us, by_rank
print(f"{len(events)} events of {ranks} ranks, {len(whole)} exchanges of all, clocks within {error_us:.1f} us")
