#!/usr/bin/env python3
"""Sends malformed requests to `tg serve` with a tiny model, from several clients at once, while others drip single
bytes. Fails for an answer of 5xx, a refusal that is no JSON error, a hang, a server that ends, memory above the limit,
and when a good request does not get the answer afterwards that it got before.

serve_malformed.py TG [--requests 10000] [--seed 1] [--clients 8] [--growth-mb 200]"""
import argparse
import collections
import json
import pathlib
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import malformed_requests as malformed
import tiny_model

GOOD = malformed.post("/v1/completions", {"prompt": "Once", "max_tokens": 8, "temperature": 0})


def resident_mb(pid):
  with open(f"/proc/{pid}/statm") as f: return int(f.read().split()[1]) * 4096 >> 20


class Attack:
  def __init__(self, port, a):
    self.port, self.seed, self.left, self.lock = port, a.seed, iter(range(a.requests)), threading.Lock()
    self.failures, self.statuses, self.slowest, self.over = [], collections.Counter(), [], False

  def client(self):
    while True:
      with self.lock: number = next(self.left, None)
      if number is None or len(self.failures) > 20: return
      rng = random.Random(f"{self.seed}:{number}")
      kind, pieces = malformed.request(rng)
      start = time.monotonic()
      received = b""
      try:
        received = malformed.exchange(self.port, pieces, rng.random() < 0.3)
        wrong = malformed.judge(received)
      except (malformed.Hang, OSError) as e: wrong = f"{type(e).__name__} {e}"
      took = time.monotonic() - start
      with self.lock:
        self.statuses[int(received[9:12]) if received[9:12].isdigit() else 0] += 1
        self.slowest = sorted([*self.slowest, (round(took, 2), kind, number)], reverse=True)[:5]
        if wrong: self.failures.append(f"request {number} ({kind}): {wrong}")

  def drip(self):
    """Keeps a connection busy with a byte now and then."""
    data = malformed.post("/v1/completions", {"prompt": "x" * 1000, "max_tokens": 1})
    while not self.over:
      try:
        with socket.create_connection(("127.0.0.1", self.port)) as s:
          for byte in data:
            s.sendall(bytes([byte]))
            for _ in range(5):
              if self.over: return
              time.sleep(0.1)
      except OSError: time.sleep(0.1)


def good(port):
  answers = malformed.answers(malformed.exchange(port, [GOOD], False))
  return answers[0][0], json.loads(answers[0][1])["choices"][0]["text"]


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("tg")
  parser.add_argument("--requests", type=int, default=10000)
  parser.add_argument("--seed", type=int, default=1)
  parser.add_argument("--clients", type=int, default=8)
  parser.add_argument("--growth-mb", type=int, default=200)
  parser.add_argument("--only", type=int, help="send this request alone and show the answer")
  a = parser.parse_args()
  with tempfile.TemporaryDirectory() as folder:
    tiny_model.write(pathlib.Path(folder) / "tiny.gguf")
    server = subprocess.Popen([a.tg, "serve", "--model", f"{folder}/tiny.gguf", "--port", "0", "--quiet"],
                              stdout=subprocess.PIPE, text=True)
    found = re.search(r"http://[^:]+:(\d+) ", server.stdout.readline())
    if not found: sys.exit("the server did not start")
    port = int(found[1])
    if a.only is not None:
      kind, pieces = malformed.request(random.Random(f"{a.seed}:{a.only}"))
      print(kind, [p if isinstance(p, float) else p[:2000] for p in pieces])
      print(malformed.exchange(port, pieces, False)[:2000])
      server.terminate()
      return
    before, attack, begin = good(port), Attack(port, a), time.monotonic()
    first = peak = resident_mb(server.pid)
    threads = [threading.Thread(target=attack.client) for _ in range(a.clients)]
    drips = [threading.Thread(target=attack.drip) for _ in range(16)]
    for t in threads + drips: t.start()
    while any(t.is_alive() for t in threads):
      time.sleep(0.2)
      if server.poll() is not None:
        attack.failures.append(f"the server ended with {server.returncode}")
        break
      peak = max(peak, resident_mb(server.pid))
    attack.over = True
    for t in threads + drips: t.join()
    seconds = time.monotonic() - begin
    if server.poll() is None:
      if (after := good(port)) != before: attack.failures.append(f"another answer afterwards: {after}, was {before}")
      if peak - first > a.growth_mb: attack.failures.append(f"memory grew from {first} to {peak} MB")
      server.terminate()
      code = server.wait(30)
      if code != 0: attack.failures.append(f"the server ended with {code}")
    print(json.dumps({"requests": sum(attack.statuses.values()), "seconds": round(seconds),
                      "failures": len(attack.failures), "statuses": dict(sorted(attack.statuses.items())),
                      "slowest": attack.slowest, "first_mb": first, "peak_mb": peak}))
    for f in attack.failures[:20]: print(f)
    sys.exit(1 if attack.failures else 0)


if __name__ == "__main__":
  main()
