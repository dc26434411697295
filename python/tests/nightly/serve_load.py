#!/usr/bin/env python3
"""Puts clients on `tg serve` for minutes: prompts and replies of mixed lengths, streams and whole answers, a third of
them left in the middle. Fails for an answer of 5xx, a wrong answer, a server that ends, memory that grows, a client
that is never answered, and for requests that are still there when all clients are gone.

serve_load.py TG MODEL [--clients 64] [--minutes 10] [--growth-mb 100] [-- OPTIONS OF tg serve]"""
import argparse
import http.client
import json
import random
import re
import subprocess
import sys
import threading
import time


class Load:
  def __init__(self, port, end):
    self.port, self.end, self.lock = port, end, threading.Lock()
    self.counts = {"answered": 0, "left": 0, "busy": 0, "tokens": 0}
    self.failures, self.answers, self.seconds = [], {}, []

  def count(self, **more):
    with self.lock:
      for k, v in more.items(): self.counts[k] += v

  def answered(self, number, start, tokens=0):
    self.count(answered=1, tokens=tokens)
    with self.lock:
      self.answers[number] += 1
      self.seconds.append(time.time() - start)

  def client(self, number):
    rng = random.Random(number)
    self.answers[number] = 0
    while time.time() < self.end and len(self.failures) < 20:
      try: self.request(rng, number)
      except Exception as e:
        with self.lock: self.failures.append(f"client {number}: {type(e).__name__} {e}")
        time.sleep(0.2)

  def request(self, rng, number):
    start = time.time()
    stream, leaves = rng.random() < 0.5, rng.random() < 1 / 3
    length = rng.choice([1, 20, 150])
    words = " ".join(rng.choice(["the", "cat", "sat", "on", "a", "red", "mat", "7"]) for _ in range(length))
    body = {"messages": [{"role": "system", "content": "You are brief."}, {"role": "user", "content": words}],
            "max_tokens": rng.choice([1, 8, 32, 96]), "stream": stream, "seed": rng.randrange(1 << 30)}
    connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
    try:
      connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
      if leaves and not stream:
        time.sleep(rng.random())
        return self.count(left=1)
      answer = connection.getresponse()
      if answer.status == 429:
        answer.read()
        time.sleep(float(answer.headers["Retry-After"]) * rng.random())
        return self.count(busy=1)
      if answer.status != 200: raise RuntimeError(f"status {answer.status}: {answer.read()[:200]}")
      if leaves:
        answer.read(rng.randrange(1, 2000))
        return self.count(left=1)
      text = answer.read().decode()
      if stream:
        if not text.endswith("data: [DONE]\n\n"): raise RuntimeError("a stream ended early: " + text[-200:])
        return self.answered(number, start)
      usage = json.loads(text)["usage"]
      if usage["completion_tokens"] > body["max_tokens"]: raise RuntimeError("too many tokens")
      self.answered(number, start, usage["completion_tokens"])
    finally:
      connection.close()


def resident_mb(pid):
  with open(f"/proc/{pid}/statm") as f: return int(f.read().split()[1]) * 4096 >> 20


def metrics(port):
  connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
  connection.request("GET", "/metrics")
  lines = connection.getresponse().read().decode().splitlines()
  return {k: float(v) for k, v in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def left_over(port):
  """Returns what requests still hold when their clients are gone."""
  for _ in range(100):
    now = metrics(port)
    held = {k: now[k] for k in ("tg_requests_active", "tg_requests_waiting") if now[k]}
    if now["tg_connections"] > 1: held["tg_connections"] = now["tg_connections"]
    if not held: return ""
    time.sleep(0.1)
  return f"left over: {held}"


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("tg")
  parser.add_argument("model")
  parser.add_argument("--clients", type=int, default=64)
  parser.add_argument("--minutes", type=float, default=10)
  parser.add_argument("--growth-mb", type=int, default=100)
  at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
  a, options = parser.parse_args(sys.argv[1:at]), sys.argv[at + 1:]
  server = subprocess.Popen([a.tg, "serve", "--model", a.model, "--port", "0", "--quiet", *options],
                            stdout=subprocess.PIPE, text=True)
  line = server.stdout.readline()
  found = re.search(r"http://[^:]+:(\d+) ", line)
  if not found: sys.exit(f"the server did not start: {line}")
  load = Load(int(found[1]), time.time() + 60 * a.minutes)
  threads = [threading.Thread(target=load.client, args=(i,)) for i in range(a.clients)]
  for t in threads: t.start()
  settled, memory = None, []
  while any(t.is_alive() for t in threads):
    time.sleep(1)
    if server.poll() is not None:
      load.failures.append(f"the server ended with {server.returncode}")
      load.end = 0
      break
    memory.append(resident_mb(server.pid))
    if settled is None and len(memory) > 10 * a.minutes: settled = memory[-1]  # a sixth of the time: caches fill
  for t in threads: t.join()
  total = {}
  if server.poll() is None:
    total = metrics(load.port)
    if held := left_over(load.port): load.failures.append(held)
    if a.minutes >= 5 and min(load.answers.values()) == 0: load.failures.append("a client was never answered")
  server.terminate()
  code = server.wait(30)
  grown = (memory[-1] - settled) if memory and settled else 0
  last = memory[-1] if memory else 0
  waits = sorted(load.seconds) or [0]
  report = {**load.counts, "answers_of_a_client": [min(load.answers.values()), max(load.answers.values())],
            "seconds_half": round(waits[len(waits) // 2], 2), "seconds_most": round(waits[-1], 2),
            "reply_tokens": total.get("tg_reply_tokens_total"), "cached_tokens": total.get("tg_cached_tokens_total"),
            "prefill_seconds": round(total.get("tg_prefill_seconds_total", 0)),
            "decode_seconds": round(total.get("tg_decode_seconds_total", 0)),
            "prompt_tokens": total.get("tg_prompt_tokens_total"),
            "batch": round(total.get("tg_decode_rows_total", 0) / max(1, total.get("tg_decode_steps_total", 1)), 2),
            "failures": len(load.failures), "settled_mb": settled, "last_mb": last, "most_mb": max(memory, default=0),
            "grown_mb": grown, "exit": code}
  print(json.dumps(report))
  for f in load.failures[:10]: print(f)
  sys.exit(1 if load.failures or grown > a.growth_mb or code != 0 else 0)


if __name__ == "__main__":
  main()
