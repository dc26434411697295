"""python -m tinygrad_cpp.llm: talk to a language model, complete a text, or measure the speed of both."""
from __future__ import annotations
import argparse, json, os, resource, secrets, sys, time
from .. import _core
from .serve import serve_forever


SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty",
            "penalty_window")


def parse(args: list[str] | None = None) -> argparse.Namespace:
  p = argparse.ArgumentParser(prog="python -m tinygrad_cpp.llm", description=__doc__)
  p.add_argument("-m", "--model", default="smollm2:135m", help="a GGUF file, its address, or a name (see --list)")
  p.add_argument("--list", action="store_true", help="show the models known by name")
  p.add_argument("-p", "--prompt", help="answer this and end")
  p.add_argument("--raw", action="store_true", help="continue --prompt as it is, without the chat template")
  p.add_argument("-s", "--system", help="system message")
  p.add_argument("--chat-template", default="", metavar="FILE|NAME",
                 help="a template of conversations in place of the model's: a file, or chatml, llama3, ...")
  p.add_argument("-c", "--context", "--max_context", type=int, default=0,
                 help="tokens of a conversation; 0: the model's own, at most 4096")
  p.add_argument("-n", "--max-tokens", type=int, default=-1, help="tokens of a reply; -1: until the context is full")
  p.add_argument("--stop", action="append", default=[], help="a text that ends a reply (several times for several)")
  p.add_argument("--cache", choices=("float16", "float32"), default="float32", help="type of keys and values in memory")
  p.add_argument("--device", default="")
  for name, kind, value in (("temperature", float, 0.8), ("top-k", int, 40), ("top-p", float, 0.95), ("min-p", float, 0.05),
                            ("repetition-penalty", float, 1.0), ("frequency-penalty", float, 0.0),
                            ("presence-penalty", float, 0.0), ("penalty-window", int, 64), ("seed", int, None)):
    p.add_argument("--" + name, type=kind, default=value)
  p.add_argument("--threads", type=int, default=0, help="threads of the CPU; 0: all processors")
  p.add_argument("--benchmark", nargs="?", type=int, const=128, metavar="COUNT",
                 help="measure loading, prefill, COUNT steps of decode, and memory")
  p.add_argument("--prompt-tokens", type=int, default=512, help="length of the prompt of --benchmark")
  p.add_argument("--serve", nargs="?", type=int, const=8000, metavar="PORT",
                 help="serve OpenAI's API and a chat page on 127.0.0.1 (tg serve has more options)")
  p.add_argument("--json", action="store_true", help="the figures of --benchmark as JSON")
  out = p.parse_args(args)
  if out.raw and out.prompt is None: p.error("--raw needs --prompt")
  if out.raw and (out.system or out.chat_template): p.error("--raw takes no --system and no --chat-template")
  if not 0 <= out.temperature <= 100: p.error(f"--temperature: got {out.temperature}, expected 0 to 100")
  if out.max_tokens < -1: p.error(f"--max-tokens: got {out.max_tokens}, expected -1 or more")
  if not 0 <= out.threads <= 1024: p.error(f"--threads: got {out.threads}, expected 0 to 1024")
  return out


def show(text: str) -> bool:
  print(text, end="", flush=True)
  return True


def answer(args: argparse.Namespace, chat: _core.ChatSession, text: str, raw: bool) -> None:
  """Prints a reply as it is made. Ctrl-C ends it."""
  make = chat.complete if raw else chat.reply
  seed = secrets.randbits(62) if args.seed is None else args.seed
  try:
    out = make(text, max_tokens=args.max_tokens, seed=seed, stop=args.stop, on_text=show,
               **{name: getattr(args, name) for name in SAMPLING})
  except KeyboardInterrupt:
    print()
    print("[interrupted]", file=sys.stderr)
    return
  print()
  if out["finish_reason"] == "length": print("[--max-tokens reached]", file=sys.stderr)
  if out["finish_reason"] == "context": print("[the context is full: the reply ends here]", file=sys.stderr)
  if chat.forgotten: print(f"[the context is full: the first {chat.forgotten} messages were left out]", file=sys.stderr)


def talk(args: argparse.Namespace, chat: _core.ChatSession) -> None:
  while True:
    try: line = input("> " if sys.stdin.isatty() else "")
    except (EOFError, KeyboardInterrupt): return
    if line in ("/exit", "/quit"): return
    if line == "/clear": chat.clear()
    elif line.startswith("/system "):
      chat.set_system(line[8:])
      chat.clear()
    elif line.startswith("/"):
      print("/clear forgets the conversation, /system TEXT sets the system message, /exit ends")
    elif line:
      try: answer(args, chat, line, raw=False)
      except ValueError as e: print(e, file=sys.stderr)


def median(values: list[float]) -> float: return sorted(values)[len(values) // 2]


def benchmark(args: argparse.Namespace) -> None:
  start = time.perf_counter()
  model = _core.ChatSession.open(_core.llm_find_model(args.model), args.context, args.cache, args.device).model
  load = time.perf_counter() - start
  if args.benchmark < 8: raise ValueError(f"[llm] got --benchmark {args.benchmark}, expected 8 steps or more")
  if args.prompt_tokens + args.benchmark > model.max_context:
    raise ValueError(f"[llm] got a prompt and a reply of {args.prompt_tokens + args.benchmark} tokens together, "
                     f"expected at most the context of {model.max_context}")
  tokens = [(i * 7919 + 13) % model.vocab_size for i in range(args.prompt_tokens)]
  model.prefill(0, tokens[:6])
  first = time.perf_counter() - start
  prefills, steps = [], []
  for _ in range(6):
    model.rewind(0, 0)
    start = time.perf_counter()
    model.prefill(0, tokens)
    prefills.append(time.perf_counter() - start)
  for i in range(args.benchmark):
    start = time.perf_counter()
    model.decode([(0, i % model.vocab_size)])
    steps.append(time.perf_counter() - start)
  step = median(steps[3:])  # the first calls run, then capture
  out = {"model": args.model, "load_s": load, "first_token_s": first, "prefill_tokens": len(tokens),
         "prefill_tok_s": len(tokens) / median(prefills[3:]), "decode_tok_s": 1 / step,
         "decode_gb_s": model.weight_bytes / step / 1e9,
         "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
         "weight_mb": model.weight_bytes / 1e6, "cache_mb": model.cache_bytes / 1e6}
  if args.json: print(json.dumps(out, indent=2))
  else: print("\n".join(f"{name:15} {value if isinstance(value, (str, int)) else f'{value:.4g}'}"
                        for name, value in out.items()))


def main(args: list[str] | None = None) -> None:
  a = parse(args)
  if a.threads > 0: os.environ["NUM_CPU_THREADS"] = str(a.threads)
  if a.list:
    for name, url in _core.llm_known_models(): print(f"{name:14} {url}")
    return
  if a.benchmark is not None: return benchmark(a)
  file = _core.llm_find_model(a.model, lambda line: print(line, file=sys.stderr))
  if a.serve is not None:
    return serve_forever(file, port=a.serve, context=a.context, chat_template=a.chat_template)
  chat = _core.ChatSession.open(file, a.context, a.cache, a.device, a.chat_template)
  if chat.model.context_warning: print(f"[{chat.model.context_warning}]", file=sys.stderr)
  other = "--chat-template FILE|NAME gives another"
  if a.system and not chat.can_chat: sys.exit(f"--system needs a chat template, and {chat.chat_problem}: {other}")
  if a.system: chat.set_system(a.system)
  if a.prompt is not None and not a.raw and not chat.can_chat:
    print(f"[{chat.chat_problem}: the text is continued as it is; {other}]", file=sys.stderr)
  if a.prompt is not None: answer(a, chat, a.prompt, raw=a.raw or not chat.can_chat)
  elif not chat.can_chat: sys.exit(f"{a.model}: {chat.chat_problem}: --prompt continues a text, {other}")
  else: talk(a, chat)


if __name__ == "__main__":
  try: main()
  except _core.Error as e: sys.exit(f"{e}")
  except ValueError as e: sys.exit(f"{e}")
