#!/usr/bin/env python3
"""Compiles and runs the code of the documentation: every block fenced as cpp, python or sh, its output compared with
the block fenced as text that follows it. docs/writing.md says how a page asks for what its code needs.

  snippets.py list                      the groups of all pages, a line "PAGE LANGUAGE NUMBER" each
  snippets.py cpp PAGE.md OUT.cpp       the page's C++ as one translation unit
  snippets.py run PAGE.md LANGUAGE N    runs a group; --build is the build folder, --update rewrites what it prints
  snippets.py check                     fences without a known language, links that lead nowhere, command lines
  snippets.py --self-test"""
import argparse
import dataclasses
import difflib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LANGUAGES = ("cpp", "python", "sh")
# What else a fence may say: results, command lines that are checked but not run here, files of other formats.
OTHERS = ("text", "console", "cmake", "json", "yaml", "toml", "ini", "mermaid")
MARK = "\x1e"  # in front of the number of the block whose output follows
TIMEOUT = 280

FENCE = re.compile(r"^```(\S*)\s*$")
COMMENT = re.compile(r"^<!--\s*snippet:\s*(.*?)\s*(-->)?$")
QUANTITY = re.compile(r"\d[\d.,]*(?:e[+-]?\d+)?(\s?)(ns|us|µs|ms|s|GFLOPS|GB/s|MB/s|GFLOP/s|%)(?![\w])")

TIMES = ("ns", "us", "µs", "ms", "s")


class PageError(Exception):
  pass


@dataclasses.dataclass
class Block:
  language: str
  line: int                      # of the first line of code, from 1
  code: str
  words: dict                    # what its comment asks for
  before: str = ""               # code in front of it that readers do not see
  after: str = ""
  declarations: str = ""         # the same at namespace scope
  output: str | None = None      # what it prints, if the page says so
  output_lines: tuple = (0, 0)   # where that is: the lines between the fences, from 0


@dataclasses.dataclass
class Group:
  """Blocks that share their variables: one process."""
  language: str
  number: int
  blocks: list


def parse_words(text):
  """{"env": {...}, "name": ...} of the words of a comment."""
  words = {"env": {}}
  for word in text.split():
    key, sep, value = word.partition("=")
    if key.isupper() and sep: words["env"][key] = value
    elif key in ("continues", "name", "scope", "throws", "measured", "output", "status"): words[key] = value or True
    else: raise PageError(f"a comment asks for {word}")
  return words


def parse_page(text):
  """The blocks of a page in order. Throws PageError with the line."""
  blocks, pending = [], {"words": {"env": {}}, "before": "", "after": "", "file": ""}
  lines = text.split("\n")
  last, only_blank_since = None, False
  i = 0

  def fresh():
    return {"words": {"env": {}}, "before": "", "after": "", "file": ""}

  while i < len(lines):
    comment, fence = COMMENT.match(lines[i]), FENCE.match(lines[i])
    if comment and comment[2]:
      try: pending["words"] = parse_words(comment[1])
      except PageError as e: raise PageError(f"line {i + 1}: {e}") from None
    elif comment:
      if comment[1] not in ("before", "after", "file"):
        raise PageError(f"line {i + 1}: hidden code is before, after or file")
      end = next((j for j in range(i + 1, len(lines)) if lines[j].strip() == "-->"), None)
      if end is None: raise PageError(f"line {i + 1}: the comment does not end")
      pending[comment[1]] += "\n".join(lines[i + 1:end]) + "\n"
      i = end
    elif fence:
      end = next((j for j in range(i + 1, len(lines)) if lines[j] == "```"), None)
      if end is None: raise PageError(f"line {i + 1}: the block does not end")
      code = "\n".join(lines[i + 1:end])
      if fence[1] in LANGUAGES:
        last = Block(fence[1], i + 2, code, pending["words"], pending["before"], pending["after"], pending["file"])
        blocks.append(last)
        only_blank_since = True
      elif fence[1] == "text" and (pending["words"].get("output") or last and only_blank_since):
        if last is None or last.output is not None: raise PageError(f"line {i + 1}: output of no block")
        last.output, last.output_lines = code, (i + 1, end)
        only_blank_since = False
      elif fence[1] not in OTHERS:
        raise PageError(f"line {i + 1}: a block fenced as {fence[1]!r}; known are {', '.join(LANGUAGES + OTHERS)}")
      else: only_blank_since = False
      pending = fresh()
      i = end
    elif lines[i].strip(): only_blank_since = False
    i += 1
  return blocks


def group_blocks(blocks):
  """Groups of the blocks of a page, numbered from 1 within their language."""
  groups, latest, named = [], {}, {}
  for b in blocks:
    wanted = b.words.get("continues")
    if wanted:
      g = latest.get(b.language) if wanted is True else named.get(wanted)
      if g is None: raise PageError(f"line {b.line}: continues nothing")
      g.blocks.append(b)
    else:
      g = Group(b.language, 1 + sum(x.language == b.language for x in groups), [b])
      groups.append(g)
    latest[b.language] = g
    if "name" in b.words: named[b.words["name"]] = g
  return groups


def pages():
  found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
  if (ROOT / "AGENTS.md").exists(): found.append(ROOT / "AGENTS.md")
  return found + sorted((ROOT / "docs").rglob("*.md"))


def page_name(path):
  """docs/guide/01_tensors.md is guide_01_tensors."""
  relative = path.resolve().relative_to(ROOT).with_suffix("")
  parts = relative.parts[1:] if relative.parts[0] == "docs" else relative.parts
  return re.sub(r"\W", "_", "_".join(parts))


def read_page(path):
  try: return group_blocks(parse_page(path.read_text()))
  except PageError as e: raise PageError(f"{path}: {e}") from None


# ---- C++ ----

TYPE = re.compile(r"^(struct|class|template|enum|namespace|union)\b(?![^{]*=)")
FUNCTION = re.compile(r"^(?!(?:for|if|while|switch|else|do|try|return|case)\b)"
                      r"[\w:][\w:<>,&*\s]*[\s&*>]\w+\([^=]*\)\s*(?:const\s*)?(?:->.*)?\{.*$")


def split_declarations(code, line):
  """(includes, declarations, statements) of a block: a type or a function at the left margin is a declaration."""
  includes, declarations, statements = [], [], []
  lines = code.split("\n")
  i = 0
  while i < len(lines):
    text = lines[i]
    if text.startswith("#include"): includes.append(text)
    elif re.match(r"^using\b|^namespace \w+ = ", text): declarations.append((line + i, text))
    elif TYPE.match(text) or FUNCTION.match(text):
      end = i
      closed = re.search(r"[;}]\s*(//.*)?$", text) and text.count("{") == text.count("}")
      while not closed:
        end += 1
        if end == len(lines): raise PageError(f"line {line + i}: a declaration does not end at the left margin")
        closed = lines[end].startswith("}")
      declarations += [(line + j, lines[j]) for j in range(i, end + 1)]
      i = end
    else: statements.append((line + i, text))
    i += 1
  return includes, declarations, statements


def numbered(lines, name):
  """The lines with #line wherever numbering jumps."""
  out, expected = [], None
  for number, text in lines:
    if number != expected: out.append(f'#line {number} "{name}"')
    out.append(text)
    expected = number + 1
  return out


def finish_main(lines):
  """`int main` as a function among others."""
  out, inside = [], False
  for number, text in lines:
    if re.match(r"^int main\(", text):
      text, inside = re.sub(r"^int main\(", "static int program(", text), True
    elif inside and text.startswith("}"):
      out.append((number, "return 0;"))
      inside = False
    out.append((number, text))
  return out


def cpp_unit(path):
  """The translation unit of a page: a namespace for each group, a function snippets_PAGE(group)."""
  name, shown = page_name(path), str(path.resolve().relative_to(ROOT))
  includes = ["#include <tinygrad/tinygrad.h>", "#include <iostream>", '#include "snippets_main.h"']
  body, cases = [], []
  for g in read_page(path):
    if g.language != "cpp": continue
    declarations, statements = [], []
    for k, b in enumerate(g.blocks):
      statements.append((0, f"snippets::mark({k});"))
      for code, line in ((b.declarations, 0), (b.before, 0), (b.code, b.line), (b.after, 0)):
        if not code: continue
        i, d, s = split_declarations(code, line)
        includes += i
        if code is b.declarations or code is b.code and b.words.get("scope") == "file": d, s = d + s, []
        declarations += finish_main(d)
        statements += s
        if any(t.startswith("static int program(") for _, t in declarations) and code is b.code:
          main = next(t for _, t in declarations if t.startswith("static int program("))
          argument = "argc" in main
          statements.append((0, 'char* arguments[] = {const_cast<char*>("program"), nullptr}; program(1, arguments);'
                             if argument else "program();"))
    space = f"{name}_{g.number}"
    body += [f"namespace {space} {{", "using namespace tg;", *numbered(declarations, shown), "static void run() {",
             *numbered(statements, shown), "}", f"}}  // namespace {space}"]
    cases.append(f'static const snippets::Register register_{space}("{name}", {g.number}, {space}::run);')
  return "\n".join([*dict.fromkeys(includes), *body, *cases]) + "\n"


# ---- running ----

PYTHON = '''import sys
sys.stdout.reconfigure(line_buffering=True)
blocks, scope = {blocks!r}, {{"__name__": "__main__"}}
import linecache, traceback
exec("from tinygrad_cpp import Tensor, nn, dtypes, Context, TinyJit, Variable, GlobalCounters, Device", scope)
for k, (before, code, after, line, name) in enumerate(blocks):
  print("\\x1e%d" % k, flush=True)
  try:
    exec(compile(before, name, "exec"), scope)
    exec(compile("\\n" * (line - 1) + code, name, "exec"), scope)
    exec(compile(after, name, "exec"), scope)
  except Exception as e:
    print("%s: %s" % (type(e).__name__, e))
    print("\\x1fthrown", flush=True)
    if not {throws!r}[k]: traceback.print_exc(limit=-1, chain=False)
    if k + 1 == len(blocks) or not {throws!r}[k]: sys.exit(0 if {throws!r}[k] else 1)
'''


def command_of(path, g, build, python, folder):
  """What runs the group."""
  if g.language == "cpp": return [str(build / "bin" / "docs_snippets"), page_name(path), str(g.number)]
  shown = str(path.resolve().relative_to(ROOT))
  if g.language == "python":
    blocks = [(b.declarations + b.before, b.code, b.after, b.line, shown) for b in g.blocks]
    script = PYTHON.format(blocks=blocks, throws=[bool(b.words.get("throws")) for b in g.blocks])
    (folder / ".program.py").write_text(script)
    return [python, ".program.py"]
  text = "set -e\n"
  for k, b in enumerate(g.blocks):
    text += f"printf '\\036%d\\n' {k}\n{b.before}\n"
    status = b.words.get("status")
    text += f"set +e\n(set -e\n{b.code}\n)\nstatus=$?\nset -e\n[ $status = {status} ]\n" if status else b.code + "\n"
    text += b.after + "\n"
  (folder / ".program.sh").write_text(text)
  return ["bash", ".program.sh"]


def make_sandbox(folder, build):
  """A folder like the repository's root, with the build where users have theirs; what a snippet writes stays in it."""
  for entry in ROOT.iterdir():
    if entry.name in ("build", ".git", ".venv"): continue
    (folder / entry.name).symlink_to(entry)
  (folder / "build").mkdir()
  for preset in ("dev", "release"): (folder / "build" / preset).symlink_to(build)


def execute(path, g, build, python):
  """(status, outputs of the blocks): runs the group in a sandbox."""
  env = dict(os.environ)
  for b in g.blocks: env.update(b.words["env"])
  env["PATH"] = os.pathsep.join([str(build / "bin"), os.path.dirname(python), env["PATH"]])
  env["PYTHONPATH"] = str(build / "python")
  env["COLUMNS"] = "100"
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    make_sandbox(folder, build)
    env["VIZ_FILE"] = str(folder / "last.viz")
    done = subprocess.run(command_of(path, g, build, python, folder), cwd=folder, env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=TIMEOUT)
  text = done.stdout.decode(errors="replace").replace(name + "/", "")
  parts = re.split(MARK + r"(\d+)\n", text)
  outputs = {int(k): v for k, v in zip(parts[1::2], parts[2::2])}
  return done.returncode, parts[0], [outputs.get(k) for k in range(len(g.blocks))]


def without_figure(quantity):
  """A measured quantity without its number; of times any unit, as a slower machine prints another."""
  return f"... {'s' if quantity[2] in TIMES else quantity[2]}"


def line_matches(expected, got, measured):
  expected, got = expected.rstrip(), got.rstrip()
  if measured:
    expected, got = (re.sub(r" +", " ", QUANTITY.sub(without_figure, t)) for t in (expected, got))
  if "..." not in expected or expected == got: return expected == got
  return re.fullmatch(".*?".join(re.escape(p) for p in expected.split("...")), got) is not None


def matches(expected, got, measured=False):
  """Whether lines are equal; `...` is any text in a line, and alone any number of lines."""
  e, g = expected.rstrip("\n").split("\n"), got.rstrip("\n").split("\n")
  reach = {0}  # numbers of lines of `got` that the lines of `expected` so far may have matched
  for line in e:
    if line.strip() == "...": reach = set(range(min(reach), len(g) + 1)) if reach else set()
    else: reach = {i + 1 for i in reach if i < len(g) and line_matches(line, g[i], measured)}
  return len(g) in reach


def compare(g, status, preamble, outputs):
  """Problems of a run, as text."""
  problems = []
  for b, out in zip(g.blocks, outputs):
    if out is None:
      problems.append(f"line {b.line}: not reached")
      continue
    thrown = "\x1fthrown\n" in out
    out = out.replace("\x1fthrown\n", "")
    if thrown != bool(b.words.get("throws")):
      problems.append(f"line {b.line}: {'an error that the page does not announce' if thrown else 'no error'}\n{out}")
    elif b.output is not None and not matches(b.output, out, b.words.get("measured")):
      diff = difflib.unified_diff(b.output.split("\n"), out.rstrip("\n").split("\n"), "page", "printed", lineterm="")
      problems.append(f"line {b.line}: the output differs\n" + "\n".join(diff))
  if status: problems.append(f"ended with status {status}\n{preamble}" + "".join(o or "" for o in outputs)[-6000:])
  return problems


def update(path, g, outputs):
  """Writes what the blocks printed into the page."""
  lines = path.read_text().split("\n")
  for b, out in sorted(zip(g.blocks, outputs), key=lambda x: -x[0].line):
    if b.output is None or out is None: continue
    out = out.replace("\x1fthrown\n", "")
    if matches(b.output, out, b.words.get("measured")): continue
    first, end = b.output_lines
    lines[first:end] = [t.rstrip() for t in out.rstrip("\n").split("\n")]
  path.write_text("\n".join(lines))


def run(path, language, number, build, python, rewrite):
  """Problems of a group, or of all groups of a page (number 0)."""
  problems = []
  count = len(read_page(path))
  for n in range(count):
    g = read_page(path)[n]  # --update moves lines
    if language not in ("all", g.language) or number not in (0, g.number): continue
    try: status, preamble, outputs = execute(path, g, build, python)
    except subprocess.TimeoutExpired as e:
      problems.append(f"{path} {g.language} {g.number}: over {TIMEOUT} s\n{e.stdout}")
      continue
    if rewrite: update(path, g, outputs)
    g = read_page(path)[n]
    problems += [f"{path} {g.language} {g.number}, {p}" for p in compare(g, status, preamble, outputs)]
  return problems


# ---- checks of pages alone ----

def anchors(path):
  """What #... may name in a page, as GitHub and MkDocs make it of headings."""
  found, inside = set(), False
  for line in path.read_text().split("\n"):
    if line.startswith("```"): inside = not inside
    heading = None if inside else re.match(r"^#+ +(.*)$", line)
    if heading:
      text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1])
      found.add(re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-"))
  return found


def links_of(path):
  """(target, file or folder, anchor) of the links of a page that stay in the repository."""
  text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.S | re.M)
  text = re.sub(r"`[^`\n]*`", "", text)
  for target in re.findall(r"\]\(([^)\s]+)\)", text):
    if re.match(r"\w+:", target): continue
    file, _, anchor = target.partition("#")
    yield target, (path.parent / file).resolve() if file else path, anchor


def broken_links(path):
  for target, to, anchor in links_of(path):
    if not to.exists(): yield f"{path}: a link to {target}"
    elif anchor and to.suffix == ".md" and anchor not in anchors(to):
      yield f"{path}: a link to {target}: no such heading"


def known_commands():
  makefile = (ROOT / "Makefile").read_text()
  presets = json.loads((ROOT / "CMakePresets.json").read_text())
  targets = re.findall(r"^([\w-]+(?: [\w-]+)*):", makefile, re.M)
  return {"targets": {t for names in targets for t in names.split()},
          "presets": {p["name"] for p in presets["configurePresets"]},
          "commands": set(re.findall(r'\{"([\w-]+)",', (ROOT / "apps/tg/main.cpp").read_text()))}


def wrong_command(line, known):
  """What is wrong with a command line that is shown and not run; "" if nothing is."""
  words = [w for w in line.split("#")[0].split() if not re.match(r"^[A-Z_]+=", w)]
  if not words: return ""
  program = words[0]
  if program == "make":
    for w in words[1:]:
      if w == "&&": break
      if "=" not in w and not w.startswith("-") and w not in known["targets"]: return f"make {w}"
  if "--preset" in words and words[words.index("--preset") + 1] not in known["presets"]: return "no such preset"
  if program.split("/")[-1] == "tg" and len(words) > 1 and words[1][0] != "-" and words[1] not in known["commands"]:
    return f"tg {words[1]}"
  for w in words:
    if re.match(r"^(scripts|tools|tests|examples|benchmarks|apps|python)/[\w./]+$", w) and not (ROOT / w).exists():
      return f"there is no {w}"
  return ""


def check():
  problems, known = [], known_commands()
  for path in pages():
    try: read_page(path)
    except PageError as e: problems.append(str(e))
    problems += broken_links(path)
    for code in re.findall(r"^```console\n(.*?)^```$", path.read_text(), re.S | re.M):
      for line in code.split("\n"):
        wrong = wrong_command(re.sub(r"^\$ ", "", line), known)
        if wrong: problems.append(f"{path}: {line}: {wrong}")
  return problems


def self_test():
  text = "a\n<!-- snippet: name=x DEBUG=2 measured -->\n```cpp\nint a;\n```\n\n```text\n1 us\n...\n2\n```\n" \
         "<!-- snippet: before\nint b;\n-->\n<!-- snippet: continues=x -->\n```cpp\na;\n```\n"
  blocks = parse_page(text)
  assert [b.code for b in blocks] == ["int a;", "a;"] and blocks[1].before == "int b;\n" and blocks[0].line == 4, blocks
  assert blocks[0].output == "1 us\n...\n2" and blocks[0].words["env"] == {"DEBUG": "2"}
  groups = group_blocks(blocks)
  assert len(groups) == 1 and len(groups[0].blocks) == 2
  assert matches("1 us\n...\n2", "7.5 us\nx\ny\n2\n", True) and not matches("1 us\n...\n2", "7.5 us\nx\n2\n")
  assert matches("a ... c", "a b c") and not matches("a ... c", "a b d") and matches("...\na", "a")
  assert not matches("a", "a\nb") and not matches("a\nb", "a") and matches("x 12.5 GFLOPS y", "x  3 GFLOPS y", True)
  for wrong in ("```\nx\n```\n", "```cpp\nx\n", "<!-- snippet: nonsense -->\n", "```rust\n```\n"):
    try: parse_page(wrong)
    except PageError: continue
    raise AssertionError(wrong)
  i, d, s = split_declarations("#include <a>\nusing tg::Tensor;\nTensor f(int x) {\n  return x;\n}\nstruct A {\n};\n"
                               "for (int i : {1}) {\n}\nTensor y(x, {.a = {1}});\nauto g = [](int z) {\n};", 1)
  assert i == ["#include <a>"] and [n for n, _ in d] == [2, 3, 4, 5, 6, 7] and len(s) == 5, (d, s)
  known = {"targets": {"demo", "test"}, "presets": {"dev"}, "commands": {"viz"}}
  assert not wrong_command("DEV=CL make demo # x", known) and wrong_command("make tea", known)
  assert wrong_command("tg dance", known) and not wrong_command("tg viz --text", known)
  print("snippets.py: the checks work")


def main():
  p = argparse.ArgumentParser()
  p.add_argument("--self-test", action="store_true")
  p.add_argument("what", nargs="?", choices=["list", "cpp", "run", "check"])
  p.add_argument("rest", nargs="*")
  p.add_argument("--build", type=pathlib.Path, default=ROOT / "build/dev")
  p.add_argument("--python", default=sys.executable)
  p.add_argument("--update", action="store_true")
  a = p.parse_args()
  try:
    if a.self_test: self_test()
    elif a.what == "list":
      for path in pages():
        for g in read_page(path): print(path.relative_to(ROOT), page_name(path), g.language, g.number)
    elif a.what == "cpp":
      out = pathlib.Path(a.rest[1])
      out.write_text(cpp_unit(pathlib.Path(a.rest[0])))
    else:
      if a.what == "check": problems = check()
      else:
        page, language, number = a.rest + ["all", "0"][len(a.rest) - 1:]
        problems = run(pathlib.Path(page).resolve(), language, int(number), a.build.resolve(), a.python, a.update)
      for problem in problems: print(problem)
      if problems: sys.exit(1)
  except PageError as e: sys.exit(str(e))


if __name__ == "__main__": main()
