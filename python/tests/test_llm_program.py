"""python -m tinygrad_cpp.llm: the same options and replies as the library's own conversations."""
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("gguf", reason="models are written by the gguf package")

import tiny_model  # noqa: E402
from tinygrad_cpp._core import ChatSession  # noqa: E402

COMMAND = [sys.executable, "-m", "tinygrad_cpp.llm", "--model"]
GREEDY = ["--temperature", "0", "--max-tokens", "6"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
  path = tmp_path_factory.mktemp("model") / "tiny.gguf"
  tiny_model.write(path)
  return str(path)


def program(model, *args, text=""):
  return subprocess.run(COMMAND + [model, *args], input=text, capture_output=True, text=True, timeout=100)


def test_prompts_system_messages_and_raw_texts(model):
  chat = ChatSession.open(model)
  chat.set_system("Be brief.")
  r = program(model, "-p", "Hi", "--system", "Be brief.", *GREEDY)
  assert r.stdout == chat.reply("Hi", temperature=0.0, max_tokens=6)["text"] + "\n", r.stderr
  raw = ChatSession.open(model).complete("Hi", temperature=0.0, max_tokens=6)["text"]
  assert program(model, "-p", "Hi", "--raw", *GREEDY).stdout == raw + "\n"
  assert program(model, "-p", "Hi", "--raw", "--stop", raw[2:4], *GREEDY).stdout == raw[:raw.index(raw[2:4])] + "\n"


def test_conversations_from_a_pipe(model):
  r = program(model, *GREEDY, text="Hi\n/clear\nHi\n/exit\nnever read\n")
  one = ChatSession.open(model).reply("Hi", temperature=0.0, max_tokens=6)["text"] + "\n"
  assert r.stdout == one * 2 and r.returncode == 0, r.stderr


def test_benchmark_figures(model):
  r = program(model, "--benchmark", "16", "--prompt-tokens", "20", "--threads", "2", "--json")
  figures = json.loads(r.stdout)
  assert figures["prefill_tokens"] == 20 and figures["first_token_s"] > figures["load_s"]
  for name in ("prefill_tok_s", "decode_tok_s", "decode_gb_s", "peak_mb", "weight_mb", "cache_mb"):
    assert figures[name] > 0, name
  r = program(model, "--benchmark", "16", "--prompt-tokens", "500")
  assert r.returncode == 1 and "expected at most the context of 512" in r.stderr and "Traceback" not in r.stderr


def test_errors_are_messages(model):
  for args, why in ((["-p", "x", "--top-p", "0"], "top_p"), (["-p", "x" * 600], "expected at most 384")):
    r = program(model, *args)
    assert r.returncode == 1 and why in r.stderr and "Traceback" not in r.stderr
  r = subprocess.run(COMMAND + ["smolm2:135m"], capture_output=True, text=True, timeout=100)
  assert r.returncode == 1 and "did you mean smollm2:135m?" in r.stderr


def test_ctrl_c_stops_the_reply(tmp_path):
  tiny_model.write(tmp_path / "long.gguf", context=1 << 20)
  child, fd = pty.fork()
  if child == 0:
    # the most likely tokens repeat without end, where draws would find the token that ends a reply
    os.execv(sys.executable, COMMAND + [str(tmp_path / "long.gguf"), "-c", "200000", "--temperature", "0"])
  seen = b""

  def wait_for(text):
    nonlocal seen
    end = time.monotonic() + 60
    while text not in seen:
      assert time.monotonic() < end and select.select([fd], [], [], 60)[0], seen
      try: seen += os.read(fd, 4096)
      except OSError: raise AssertionError(f"the program ended ({os.waitpid(child, 0)[1]}): {seen!r}") from None
    seen = seen[seen.index(text) + len(text):]
  try:
    wait_for(b"> ")
    for _ in range(2):
      os.write(fd, b"a story\n")
      wait_for(b"a story\r\n")
      time.sleep(0.5)
      os.write(fd, b"\x03")
      wait_for(b"[interrupted]")
      wait_for(b"> ")
    os.write(fd, b"\x04")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    child = 0
  finally:
    if child: os.kill(child, signal.SIGKILL)
    os.close(fd)


def test_usage_errors(model):
  for args, why in ((["--raw"], "--prompt"), (["-p", "x", "--max-tokens", "-2"], "--max-tokens"),
                    (["-p", "x", "--threads", "-1"], "--threads")):
    out = program(model, *args)
    assert out.returncode == 2 and why in out.stderr, out


def test_a_reply_that_is_cut_off_says_so(model):
  assert "[--max-tokens reached]" in program(model, "-p", "hello", "--temperature", "0", "--max-tokens", "1").stderr
