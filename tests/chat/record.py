#!/usr/bin/env python3
"""Renders every template of templates/ for every conversation of conversations.json with jinja2, in the environment
that Hugging Face's apply_chat_template makes, and writes expected.json beside this file. The templates are this
project's own: each uses what the published templates of its family use.

    python tests/chat/record.py        # needs jinja2
"""
import datetime
import json
import os

import jinja2
import jinja2.ext
import jinja2.sandbox

ROOT = os.path.dirname(os.path.abspath(__file__))
NOW = 1717243200  # 2024-06-01 12:00:00 UTC, what strftime_now says
BOS, EOS = "<s>", "</s>"


class Generation(jinja2.ext.Extension):
  """{% generation %}: replies of the assistant. Its body is a block of its own; the text stays as it is."""
  tags = {"generation"}

  def parse(self, parser):
    line = next(parser.stream).lineno
    body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
    return jinja2.nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

  def _text(self, caller):
    return caller()


class Raised(Exception):
  """raise_exception was called."""


def environment(now=NOW):
  def raise_exception(message):
    raise Raised(str(message))

  def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

  def strftime_now(text):
    return datetime.datetime.fromtimestamp(now, datetime.timezone.utc).strftime(text)

  env = jinja2.sandbox.ImmutableSandboxedEnvironment(
      trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
  env.filters["tojson"] = tojson
  env.globals["raise_exception"] = raise_exception
  env.globals["strftime_now"] = strftime_now
  return env


def templates():
  folder = os.path.join(ROOT, "templates")
  for name in sorted(os.listdir(folder)):
    with open(os.path.join(folder, name), encoding="utf-8", newline="") as f:
      yield name.removesuffix(".jinja"), f.read()


def conversations():
  with open(os.path.join(ROOT, "conversations.json"), encoding="utf-8") as f:
    return json.load(f)


def variables_of(conversation):
  """Returns what a template is given: as ChatTemplate.render gives it."""
  return dict(messages=conversation["messages"], tools=conversation.get("tools"),
              documents=conversation.get("documents"),
              add_generation_prompt=conversation.get("add_generation_prompt", True), bos_token=BOS, eos_token=EOS,
              **conversation.get("variables", {}))


def outcome(source, variables, env=None):
  """Returns {"text"}, {"raised"} (what raise_exception was given) or {"error"} (any other failure)."""
  try:
    return {"text": (env or environment()).from_string(source).render(**variables)}
  except Raised as e:
    return {"raised": str(e)}
  except Exception as e:
    return {"error": type(e).__name__}


def main():
  env = environment()
  found = {name: {c["name"]: outcome(source, variables_of(c), env) for c in conversations()}
           for name, source in templates()}
  with open(os.path.join(ROOT, "expected.json"), "w", encoding="utf-8") as f:
    json.dump(found, f, ensure_ascii=False, indent=1)
    f.write("\n")
  kinds = [next(iter(o)) for by_name in found.values() for o in by_name.values()]
  print(len(found), "templates,", {k: kinds.count(k) for k in set(kinds)})


if __name__ == "__main__":
  main()
