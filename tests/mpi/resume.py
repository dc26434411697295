#!/usr/bin/env python3
"""resume.py PROGRAM KIND other_size|restart|kill [RUNS]: training runs of resume_program that end early and go on.

other_size: 4 processes, then 2, then one compute the losses of a run of 2 that was not interrupted.
restart: a process dies once, tools/restart.py starts the launcher again, and the losses are the same.
kill: in each run a process dies at a random moment; all others get a PeerError within 10 s of it, no process stays
behind, and the checkpoint is that of the last step that was reported, or of the one after it."""
import os, pathlib, random, re, signal, subprocess, sys, tempfile, time, uuid
import faults

LIMIT_S = 10  # from the death to the end of all processes
ROOT = pathlib.Path(__file__).resolve().parents[2]

def launch(kind, ranks): return faults.launch(kind, ranks) if ranks > 1 else []

def run(command, **env):
  return subprocess.run(command, env=dict(os.environ, NUM_CPU_THREADS="1", WORLD_TIMEOUT="20", **env),
                        capture_output=True, text=True, timeout=120)

def losses(text): return {int(m[1]): float(m[2]) for m in re.finditer(r"step (\d+) loss (\S+)", text)}

def check_same(got, want):
  assert got.keys() == want.keys(), f"steps {sorted(got)}, expected {sorted(want)}"
  for step, value in want.items():
    assert abs(got[step] - value) <= 1e-5 * abs(value), f"step {step}: loss {got[step]}, expected {value}"

def straight(program, kind, folder):
  p = run(launch(kind, 2) + [program, folder + "/straight", "9"])
  assert p.returncode == 0, p.stdout + p.stderr
  return losses(p.stdout)

def other_size(program, kind, folder):
  got = {}
  for ranks, until in ((4, 3), (2, 6), (1, 9)):
    p = run(launch(kind, ranks) + [program, folder + "/run", str(until)])
    assert p.returncode == 0 and f"begins at step {until - 3}" in p.stdout, p.stdout + p.stderr
    got |= losses(p.stdout)
  check_same(got, straight(program, kind, folder))

def restart(program, kind, folder):
  restart = [sys.executable, str(ROOT / "tools/restart.py")]
  p = run(restart + ["3"] + launch(kind, 2) + [program, folder + "/run", "9", "1", "0", "4"])
  assert p.returncode == 0 and "begins at step 4" in p.stdout, p.stdout + p.stderr
  assert p.stderr.count("starting again") == 1, p.stderr
  check_same(losses(p.stdout), straight(program, kind, folder))
  p = run(restart + ["1", sys.executable, "-c", "raise SystemExit(7)"])
  assert p.returncode == 7 and p.stderr.count("starting again (1 of 1)") == 1, p.stderr
  assert "it was started 2 times" in p.stderr, p.stderr
  # Ctrl-C between two starts ends it.
  with subprocess.Popen(restart + ["5", sys.executable, "-c", "raise SystemExit(7)"], stderr=subprocess.PIPE,
                        text=True) as q:
    assert "starting again (1 of 5)" in q.stderr.readline()
    q.send_signal(signal.SIGINT)
    assert q.wait(20) == 130 and q.stderr.read() == "", q.returncode

def kill_once(program, kind, folder, saved):
  """`saved`: the step that runs before have reported."""
  ranks, mark = 4, str(uuid.uuid4())
  who, after = random.randrange(ranks), random.randrange(0, 1500)
  start = time.monotonic()
  p = run(launch(kind, ranks) + [program, folder, "1000000", str(who), str(after)], TG_FAULT_RUN=mark)
  took = time.monotonic() - start
  problems = []
  errors = {int(m[1]): int(m[2]) for m in re.finditer(r"rank (\d+): PeerError of rank (-?\d+):", p.stdout)}
  for r in set(range(ranks)) - {who}:
    if errors.get(r) != who: problems.append(f"rank {r}: PeerError of {errors.get(r)}")
  if p.returncode == 0: problems.append("the launcher reports success")
  if took - after / 1000 > LIMIT_S: problems.append(f"took {took:.1f} s")
  time.sleep(0.2)
  if orphans := faults.left_behind("TG_FAULT_RUN=" + mark): problems.append(f"processes {orphans} are left")
  reported = max(losses(p.stdout), default=saved)
  if os.path.exists(folder + "/model.safetensors.index.json"):
    q = run([program, folder, "0"])
    at = re.search(r"begins at step (\d+)", q.stdout)
    if not at or int(at[1]) < reported: problems.append(f"checkpoint lost after step {reported}: {q.stdout}{q.stderr}")
  elif reported: problems.append(f"no checkpoint after step {reported}")
  if problems: print(f"rank {who} killed after {after} ms: {'; '.join(problems)}", p.stdout[-2000:], p.stderr[-2000:],
                     sep="\n")
  return not problems, took - after / 1000, reported

def kill(program, kind, folder, runs):
  """All runs go on from one checkpoint, each from what the one before left."""
  results, saved = [], 0
  for _ in range(runs):
    results.append(kill_once(program, kind, folder + "/run", saved))
    saved = results[-1][2]
  good = sum(ok for ok, _, _ in results)
  print(f"{good}/{runs} runs; at most {max(t for _, t, _ in results):.1f} s after the death; "
        f"step {max(s for _, _, s in results)}")
  assert good == runs

if __name__ == "__main__":
  program, kind, what = sys.argv[1:4]
  with tempfile.TemporaryDirectory() as folder:
    if what == "kill": kill(program, kind, folder, int(sys.argv[4]))
    else: {"other_size": other_size, "restart": restart}[what](program, kind, folder)
  print("ok")
