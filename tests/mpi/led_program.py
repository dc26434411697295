#!/usr/bin/env python3
"""led_program.py TG TEST_MPI KIND: tg llm and tg serve as several processes, against one: replies, long pauses,
mistakes, how they end."""
import json, os, re, signal, subprocess, sys, tempfile, time, urllib.request
from faults import launch, left_behind

tg, test_mpi, kind = sys.argv[1:4]
folder = tempfile.TemporaryDirectory()
model = os.path.join(folder.name, "model.gguf")
subprocess.run([test_mpi, "--tiny-model", model], check=True)
MARK = f"TG_LED_RUN={os.getpid()}"
ENV = dict(os.environ, NUM_CPU_THREADS="1", WORLD_TIMEOUT="3", **dict([MARK.split("=")]))
LLM = [tg, "llm", "--model", model, "--temperature", "0", "--max-tokens", "12"]

def run(ranks, *arguments, text=""):
  command = [*LLM, *arguments]
  return subprocess.run(launch(kind, ranks, *command) if ranks else command, input=text, env=ENV, capture_output=True,
                        text=True, timeout=60)

def same_replies():
  want = run(0, "--prompt", "Hello")
  assert want.returncode == 0 and want.stdout.strip(), want
  got = run(2, "--prompt", "Hello")
  assert got.returncode == 0 and got.stdout == want.stdout, (got, want)
  measured = run(2, "--benchmark", "--prompt-tokens", "32", "--reply-tokens", "16", "--batch", "2", "--json")
  figures = json.loads(measured.stdout)
  assert figures["decode_tok_s"] > 0 and figures["batch_tok_s"] > 0, figures

def pauses():
  """A conversation in which nobody says anything for longer than processes wait for each other."""
  want = run(0, text="Hi\nAgain\n").stdout
  with subprocess.Popen(launch(kind, 2, *LLM), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENV, text=True) as p:
    for line in ("Hi\n", "Again\n"):
      p.stdin.write(line)
      p.stdin.flush()
      time.sleep(5)
    p.stdin.close()
    got = p.stdout.read()
  assert p.returncode == 0 and got == want, (p.returncode, got, want)

def mistakes():
  r = run(2, "--prompt", "x" * 5000)
  assert r.returncode == 1 and "expected at most" in r.stderr + r.stdout, r
  r = subprocess.run(launch(kind, 2, tg, "llm", "--model", "/no/such.gguf", "-p", "x"), env=ENV, capture_output=True,
                     text=True, timeout=60)
  assert r.returncode != 0 and "/no/such.gguf" in r.stderr, r
  r = run(3, "--prompt", "x")  # the model has 2 heads
  assert r.returncode == 1 and "got 3 processes for 2 heads" in r.stderr, r

def serves():
  serve = [tg, "serve", "--model", model, "--port", "0", "--json", "--quiet", "--max-sequences", "2"]
  def ask(address):
    body = {"model": "model", "prompt": "Hello", "max_tokens": 8, "temperature": 0}
    request = urllib.request.Request(address + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=30))["choices"][0]["text"]
  texts = []
  for command in (serve, launch(kind, 2, *serve)):
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=ENV, text=True) as p:
      address = json.loads(p.stdout.readline())["address"]
      texts += [ask(address), ask(address)]
      time.sleep(4)  # longer than WORLD_TIMEOUT
      texts.append(ask(address))
      p.send_signal(signal.SIGTERM)
      p.wait(timeout=20)
  assert len(set(texts)) == 1 and texts[0], texts

for test in (same_replies, pauses, mistakes, serves):
  test()
  for _ in range(50):
    if not (orphans := left_behind(MARK)): break
    time.sleep(0.1)
  else: sys.exit(f"{test.__name__}: processes {orphans} are left")
  print(f"{test.__name__}: ok")
