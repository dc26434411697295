#!/usr/bin/env python3
"""restart.py TIMES COMMAND...: runs a command, mpirun or srun with its program, and again when it fails, at most TIMES
times. A program that loads its checkpoint when there is one goes on where it was. A command that Ctrl-C or SIGTERM
ends is not started again."""
import signal, subprocess, sys, time

PAUSE_S = 1.0  # until a launcher has cleaned up

def main(times, command):
  ended = []  # signals that asked us to end
  def end(number, _frame):
    ended.append(number)
    if child and child.poll() is None: child.send_signal(number)
  child = None
  for s in (signal.SIGINT, signal.SIGTERM): signal.signal(s, end)
  for attempt in range(times + 1):
    child = subprocess.Popen(command, start_new_session=True)
    code = child.wait()
    if code == 0: return 0
    if ended: return 128 + ended[0]
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    if attempt == times: break
    print(f"restart: {command[0]} ended with {how}; starting again ({attempt + 1} of {times})", file=sys.stderr,
          flush=True)
    time.sleep(PAUSE_S)
    if ended: return 128 + ended[0]
  print(f"restart: {command[0]} ended with {how}; it was started {times + 1} times", file=sys.stderr)
  return code if code > 0 else 128 - code

if __name__ == "__main__":
  if len(sys.argv) < 3 or not sys.argv[1].isdigit(): sys.exit(__doc__)
  sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
