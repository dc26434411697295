#!/usr/bin/env python3
"""faults.py PROGRAM KIND RANKS FAULT [RUNS]: runs fault_program under mpirun and asks that every process that is left
gets a PeerError naming the one that failed, in time, and that no process stays behind. FAULT_traced: with PROFILE=1,
each that is left writes what it has done to a file of its own."""
import json, os, pathlib, random, re, subprocess, sys, tempfile, time, uuid

LAUNCH = {
  # It kills all processes a second after one died, unless told to give them longer to say why they end.
  "openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
              "--mca", "odls_base_sigkill_timeout", "3"],
  "mpich": ["mpirun.mpich", "-disable-auto-cleanup"],
}
# By itself mpirun of MPICH kills all processes as soon as a signal ended one, before they can say anything.
UNDER = {"openmpi": [], "mpich": [str(pathlib.Path(__file__).resolve().parents[2] / "tools/under_mpich.sh")]}

def launch(kind, ranks, *program):
  """Returns the command that starts so many processes of a program."""
  return LAUNCH[kind] + ["-n", str(ranks)] + UNDER[kind] + list(program)

# From the fault to the last error. Interpreting what the host is ahead of a fake GPU takes seconds.
LIMIT_S = 20 if os.environ.get("DEV", "").startswith("CUDA") else 10
EXPECT = {  # what the message says
  "kill": "died", "segfault": "died", "throw": "the data set is damaged", "leave": "ended the program|died|left",
  "hang": "did not take part in .* within", "stop": "did not take part in .* within", "shapes": "does something else",
  "rows": "does something else",
  "memory": "memory", "fail": "has seen a NaN",
  # The fake NCCL's: an operation that ends with an error, and one that does not end.
  "device": "has an error of its device: .* unhandled system error .fake.",
  "device_hang": "did not take part in .* within",
}

def left_behind(mark):
  """Returns the processes that have the mark in their environment."""
  found = []
  for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
      with open(f"/proc/{pid}/environ", "rb") as f: mine = mark.encode() in f.read()
      with open(f"/proc/{pid}/stat") as f: zombie = f.read().rsplit(")", 1)[1].split()[0] == "Z"
      if mine and not zombie: found.append(int(pid))
    except OSError: pass
  return found

def untraced(folder, ranks):
  """Returns which of the ranks wrote no trace of something they did."""
  out = []
  for r in ranks:
    try: spans = json.loads(pathlib.Path(folder, f"trace.{r}.json").read_text())["traceEvents"]
    except (OSError, ValueError, KeyError) as e: out.append(f"rank {r}: {e!r}")
    else:
      if not any(s.get("ph") == "X" for s in spans): out.append(f"rank {r} traced nothing")
  return out

def run(program, kind, ranks, fault):
  traced = fault.endswith("_traced")
  fault = fault.removesuffix("_traced")
  who, delay = random.randrange(ranks), random.randrange(0, 400)
  mark = f"TG_FAULT_RUN={uuid.uuid4()}"
  # A process that hangs is waited for, and ended as long after that.
  limit = "3" if fault in ("hang", "stop") else "4"
  env = dict(os.environ, WORLD_TIMEOUT=limit, NUM_CPU_THREADS="1", **dict([mark.split("=")]))
  if fault.startswith("device"):
    env["FAKE_NCCL_STOP"] = f"{who}:{random.randrange(2, 9)}:{2 if fault == 'device' else 0}"
  start = time.time()
  with tempfile.TemporaryDirectory() as folder:
    env["FAKE_NCCL_FOLDER"] = folder
    if traced: env |= {"PROFILE": "1", "PROFILE_FILE": f"{folder}/trace.json"}
    p = subprocess.run(launch(kind, ranks, program, fault, str(who), str(delay)), env=env,
                       capture_output=True, text=True, timeout=60)
    took = time.time() - start
    missing = untraced(folder, [r for r in range(ranks) if r != who]) if traced else []
  errors = {int(m[1]): (int(m[2]), m[3]) for m in re.finditer(r"rank (\d+): PeerError of rank (-?\d+): (.*)", p.stdout)}
  problems = missing
  # Starting the processes is no part of it.
  begun = re.search(r"fault counted from ([0-9.]+)", p.stdout)
  took -= float(begun[1]) - start if begun else 0
  somebody = fault in ("shapes", "rows", "device_hang")  # all wait alike: nobody knows for whom
  for r in range(ranks):
    if r == who and not somebody: continue
    if r not in errors: problems.append(f"rank {r} got no PeerError")
    else:
      of, text = errors[r]
      named = of >= 0 if somebody else of == who
      if not named or not re.search(EXPECT[fault], text): problems.append(f"rank {r}: {errors[r]}, not of {who}")
  if p.returncode == 0: problems.append("mpirun reports success")
  if took - delay / 1000 > LIMIT_S: problems.append(f"took {took:.1f} s")
  for _ in range(30):
    if not (orphans := left_behind(mark)): break
    time.sleep(0.1)
  else: problems.append(f"processes {orphans} are left")
  if problems:
    print(f"{fault} of rank {who} after {delay} ms: " + "; ".join(problems), p.stdout[-3000:], p.stderr[-3000:],
          sep="\n")
  return not problems, took

if __name__ == "__main__":
  program, kind, ranks, fault = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
  runs = int(sys.argv[5]) if len(sys.argv) > 5 else 1
  results = [run(program, kind, ranks, fault) for _ in range(runs)]
  good = sum(ok for ok, _ in results)
  print(f"{good}/{runs} runs; the longest took {max(t for _, t in results):.1f} s")
  sys.exit(0 if good == runs else 1)
