#!/usr/bin/env python3
"""Checks the sources as text: columns, statements joined by commas, phrases that have a plainer word, type names that
are defined twice, environment variables nobody reads, functions nobody calls, includes nobody needs, paths
that lead nowhere.
Run from the repository's root; --self-test checks the checks."""
import collections
import pathlib
import re
import subprocess
import sys

from cpp_source import read, tokens, without_templates

COLUMNS = 120
PHRASES = re.compile(
  r"\b(left away|leaves? away|in a circle|anew|greatest number|great kernels|taken? apart|takes (in|off)"
  r"|in steps of (two|one|s\b)|windows in steps|lies? side by side|the house|way of the data|in the making"
  r"|numbers that are none|the other way round)\b", re.I)

# Findings that are known, by check and folder: a number may only fall.
KNOWN = {
  ("columns", "benchmarks/report.py"): 1,
  ("columns", "python/tinygrad_cpp"): 3,
  ("columns", "tests/device"): 1,
  ("columns", "tests/oracle"): 1,
  ("columns", "tinygrad/tensor"): 6,
  ("includes", "python/src"): 1,
  ("includes", "tests/unit"): 1,
  ("includes", "tinygrad/codegen"): 1,
  ("includes", "tinygrad/render"): 2,
  ("includes", "tinygrad/tensor"): 1,
  ("includes", "tinygrad/uop"): 2,
}

FOLDERS = "base|uop|target|schedule|codegen|render|runtime|engine|tensor|io|nn|llm"
PATH = re.compile(rf"(?<![\w/.-])(?:tinygrad/)?((?:{FOLDERS})/[\w/]+\.(?:h|cpp|inc))\b")

DECLARES = set("""auto const constexpr static using typedef struct class enum thread_local unsigned signed long int bool
  char double float template friend extern volatile inline typename goto static_assert alignas""".split())


def after_template(s, i):
  """The index behind the template arguments that open at s[i] == "<"; i when it is a comparison."""
  depth = 0
  for j in range(i, len(s)):
    if s[j] == "<": depth += 1
    elif s[j] in (">", ">>"):
      depth -= len(s[j])
      if depth <= 0: return j + 1
    elif not re.fullmatch(r"\w+|::|,|[-+]|\*|&|&&|\.\.\.|\(|\[|''", s[j]): return i
  return i


def is_declaration(s):
  """Type and name come first."""
  if s[0] in DECLARES: return True
  i = 1 if s[0] == "::" else 0
  while i < len(s) and re.fullmatch(r"[A-Za-z_]\w*", s[i]):
    i += 1
    if i < len(s) and s[i] == "<": i = after_template(s, i)
    if i >= len(s) or s[i] != "::": break
    i += 1
  while i < len(s) and s[i] in ("*", "&", "&&", "const"): i += 1
  if i == 0 or i + 1 >= len(s): return False
  return bool(re.fullmatch(r"[A-Za-z_]\w*", s[i])) and s[i + 1] in ("=", ",", "(", "{", "[")


def joined_by_comma(s):
  """Whether the statement with these token texts has a comma between expressions."""
  while s:
    if s[0] in ("else", "do", "{}"): s = s[1:]
    elif s[0] in ("if", "while", "switch", "for") and "(" in s[:3]: s = s[s.index("(") + 1:]
    elif s[0] in ("case", "default") and ":" in s: s = s[s.index(":") + 1:]
    else: break
  if s[:1] in (["return"], ["throw"]): s = s[1:]
  elif not s or is_declaration(s): return False
  i = 0
  while i < len(s):
    if s[i] == ",": return True
    i = max(i + 1, after_template(s, i)) if s[i] == "<" else i + 1
  return False


class Source:
  """What one C++ file declares and uses, by name."""

  def __init__(self, path, text):
    self.path, self.text, self.commas, self.types, self.functions = path, text, [], [], []
    self.declared, self.used = set(), set()
    directives = re.findall(r"^[ \t]*#[ \t]*(\w+)((?:[^\n\\]|\\\n)*)", text, re.M)
    self.includes = [m[1] for k, rest in directives if k == "include" and (m := re.search(r'"(tinygrad/[^"]+)"', rest))]
    for kind, rest in directives:
      words = re.findall(r"\w+", rest)
      if kind == "define": self.declared.add(words[0])
      if kind != "include": self.used.update(words[kind == "define":])
    if path.endswith(".inc"): self.used.update(re.findall(r"\w+", text))
    else: read(text, self.statement)
    self.words = self.used | {t.text for t in tokens(text)}

  def statement(self, scope, statement):
    s, line = [t.text for t in statement], statement[0].line if statement else 0
    if scope.kind == "code" and joined_by_comma(s): self.commas.append(line)
    if scope.kind not in ("namespace", "class", "file"):
      if scope.kind == "enum": self.declared.update(s)
      return self.used.update(s)
    if "=" in s: self.used.update(s[s.index("="):])
    s = without_templates(s)
    if "decltype" in s: s[s.index("decltype"):s.index("decltype") + 2] = ["auto"]  # a pair of brackets is one "("
    keys = [i for i, w in enumerate(s) if w in ("struct", "class", "union", "enum")]
    if keys and "{}" in s and "(" not in s[:keys[0]]:
      s = [w for w in s[keys[0] + 1:] if w not in ("class", "struct", "(")]
      name = s[0]
      if scope.kind == "namespace" and len(scope.head) > 1 and not {"<", "::"} & set(s[1:2]):
        self.types.append((" ".join(scope.head[1:]), name, line))
      self.declared.add(name)
    elif (open_at := s.index("(") if "(" in s else 0) > 1 and re.fullmatch(r"[a-z]\w*", name := s[open_at - 1]) \
        and "=" not in s[:open_at]:
      self.declared.add(name)
      if "operator" not in s and "~" not in s and "friend" not in s: self.functions.append((name, line))
    elif s[:1] == ["using"]:
      self.declared.add(s[-1] if "=" not in s else s[s.index("=") - 1])
    else:  # variables: the word before an initialiser, a comma or the end
      ends = [i for i, w in enumerate(s) if w in ("=", "{", "[", ",")] + [len(s)]
      self.declared.update(s[i - 1] for i in ends if i and re.fullmatch(r"\w+", s[i - 1]))


def check(files):
  """files: path -> text. Yields (check, path, line, message)."""
  sources = {p: Source(p, t) for p, t in files.items() if p.endswith((".h", ".cpp", ".inc"))}
  twice = collections.defaultdict(set)
  for s in sources.values():
    for n in s.commas: yield "commas", s.path, n, "expressions joined by a comma: write statements"
    for space, name, n in s.types: twice[space, name].add((s.path, n))
  for (space, name), places in twice.items():
    for path, n in sorted(places)[1:] if len({p for p, _ in places}) > 1 else ():
      yield "types", path, n, f"{space}::{name} is defined in {sorted(places)[0][0]} too"
  for path, text in files.items():
    is_code = path.endswith((".h", ".cpp", ".py")) or path.endswith(".inc") and not path.startswith("tests/")
    for n, l in enumerate(text.split("\n"), 1):
      if is_code and len(l) > COLUMNS: yield "columns", path, n, f"{len(l)} columns, at most {COLUMNS}"
      if (m := PHRASES.search(l)) and not path.startswith("tools/check_source"):
        yield "phrases", path, n, f"'{m[0]}': say it in the field's terms"
      for m in PATH.finditer(l) if not path.startswith("tools/check_") else ():
        if f"tinygrad/{m[1]}" not in files: yield "paths", path, n, f"there is no tinygrad/{m[1]}"
  yield from unread_variables(files)
  used = set().union(*(s.used for s in sources.values())) if sources else set()
  for s in sources.values():
    if s.path.startswith("tinygrad/") and s.path.endswith(".h"):
      for name, n in s.functions:
        if name not in used: yield "dead", s.path, n, f"nothing calls {name}"
    for header in s.includes if s.path != "tinygrad/tinygrad.h" else ():
      given = sources.get(header)
      own = header.rsplit(".", 1)[0] == s.path.rsplit(".", 1)[0]
      if given and not own and given.declared and not given.declared & s.words:
        yield "includes", s.path, 1, f"uses nothing of {header}"


def unread_variables(files):
  table = "tinygrad/base/env_table.inc"
  readers = "\n".join(t for p, t in files.items() if p.startswith(("tinygrad/", "apps/", "python/")) and p != table)
  read_names = set(re.findall(r"\benv::(\w+)", readers)) | set(re.findall(r'"([A-Z_0-9]+)"', readers))
  for n, l in enumerate(files.get(table, "").split("\n"), 1):
    m = re.match(r"(?:INT|STR)\((\w+)", l)
    if m and m[1] not in read_names: yield "variables", table, n, f"nothing reads {m[1]}"


CASES = [  # what is checked, files, the findings
  ("commas", {"a.cpp": "void f() { a = 1, b = 2; }"}, 1),
  ("commas", {"a.cpp": "int f() { return g(1), 2; }"}, 1),
  ("commas", {"a.cpp": "void f() { if (x) a = 1, b++; else for (int i = 0, j = 1; i < j; i++, j--) g(i, j); }"}, 1),
  ("commas", {"a.cpp": "auto f = [](int a) { x[a] += 1, y.push_back(a); };"}, 1),
  ("commas", {"a.cpp": "void f() { switch (x) { case 1: a = 1, b = 2; } }"}, 1),
  ("commas", {"a.cpp": "void f() { int a = 1, b = 2; std::map<int, A> m, n; g(a, b); const T *p = q, *r = p; }"}, 0),
  ("commas", {"a.cpp": "void f() { auto [x, y] = g<A, B + 1>(z); h<A, B>(x); v = {1, 2}; w = T{1, 2}; }"}, 0),
  ("commas", {"a.cpp": "struct A { A() : a_(1), b_{2} { g([&](int i, int j) { return T{i, j}; }); } };"}, 0),
  ("commas", {"a.cpp": "enum A { kA, kB }; template <class T, class U> T f(U a, T b) { return a < b ? a : b; }"}, 0),
  ("commas", {"a.cpp": '#define M(a, b) a = 1, b = 2\nint x = 1, y = 2;\nR"(a = 1, b = 2;)";  // a, b'}, 0),
  ("types", {"a.h": "namespace tg { struct A { int a; }; }", "b.cpp": "namespace tg { struct A { int b; }; }"}, 1),
  ("types", {"a.h": "namespace tg { struct A; }", "b.h": "namespace tg { struct A { struct B {}; }; struct A::B {}; }",
             "b.cpp": "namespace tg { namespace { struct C {}; } }", "c.cpp": "namespace { struct C {}; }"}, 0),
  ("dead", {"tinygrad/a.h": "namespace tg { int f(int a); int g(); }", "b.cpp": "int tg::f(int a) { return g(); }"}, 1),
  ("dead", {"tinygrad/a.h": "struct A { int f() const; A(); };", "b.cpp": "int x = A().f();"}, 0),
  ("includes", {"tinygrad/a.h": "int f();", "b.cpp": '#include "tinygrad/a.h"\nint g() { return 1; }'}, 1),
  ("includes", {"tinygrad/a.h": "#define M 1\n", "b.cpp": '#include "tinygrad/a.h"\nint g() { return M; }'}, 0),
  ("variables", {"tinygrad/base/env_table.inc": 'INT(A, 0, 0, 1, "")\nSTR(B, "", "")', "apps/a.cpp": "env::B"}, 1),
  ("columns", {"a.cpp": "//" + "x" * 119, "b.cpp": "//" + "x" * 118}, 1),
  ("paths", {"a.md": "see `uop/a.h` and\nuop/b.h.", "tinygrad/uop/a.h": ""}, 1),
  ("phrases", {"a.md": "It is begun anew.\nIt starts again."}, 1),
]


def self_test():
  for kind, files, expected in CASES:
    found = [f for f in check(files) if f[0] == kind]
    if len(found) != expected: sys.exit(f"self-test: {files} gives {found}, expected {expected} {kind}")
  print(f"{len(CASES)} cases")


def main():
  if "--self-test" in sys.argv: return self_test()
  names = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], check=True,
                         capture_output=True, text=True).stdout.split("\0")
  ends = (".h", ".cpp", ".inc", ".py", ".md")
  paths = [pathlib.Path(n) for n in names if n.endswith(ends)]
  files = {str(p): p.read_text(errors="replace") for p in paths if p.is_file()}
  known, bad = collections.Counter(), 0
  for kind, path, line, message in check(files):
    key = (kind, "/".join(path.split("/")[:2]))
    known[key] += 1
    if known[key] <= KNOWN.get(key, 0): continue
    bad += 1
    print(f"{path}:{line}: {message}")
  for key, limit in KNOWN.items():
    if known[key] < limit: print(f"check_source: {key} has {known[key]} findings left, KNOWN says {limit}: lower it")
  print(f"check_source: {len(files)} files, {bad} violations, {sum(known.values()) - bad} known")
  sys.exit(1 if bad else 0)


if __name__ == "__main__": main()
