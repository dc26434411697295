#!/usr/bin/env python3
"""Checks that every function of the public headers, those that tinygrad/tinygrad.h includes, is documented: by a
comment of its own, by the comment at the head of its paragraph (declarations without an empty line between them), which
then speaks of all of them, or, in the first paragraph of a class, by that of the class. Doxygen finds the functions.
Destructors, copies, moves, comparisons and what is private need none.

  check_docs.py          prints what lacks a comment; fails if there is any
  check_docs.py --self-test"""
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
ENTRY = "tinygrad/tinygrad.h"
DOXYFILE = """INPUT = {root}/tinygrad
FILE_PATTERNS = *.h
RECURSIVE = YES
OUTPUT_DIRECTORY = {out}
GENERATE_HTML = NO
GENERATE_LATEX = NO
GENERATE_XML = YES
XML_PROGRAMLISTING = NO
QUIET = YES
WARNINGS = NO
"""
NEEDS_NONE = re.compile(r"~|operator(=|==|!=|<=>|bool)$")


def public_headers(root, entry=ENTRY):
  """Paths of the headers that programs see, from the includes."""
  found, open_ = set(), [entry]
  while open_:
    path = open_.pop()
    if path in found: continue
    found.add(path)
    open_ += re.findall(r'^#include "(tinygrad/[^"]+\.h)"', (root / path).read_text(), re.M)
  return found


CLASS = re.compile(r"(template <.*> *)?(class|struct)\b[^;]*$")
COMMENT = ("///", "*/")


def has_comment(lines, line):
  """Whether the declaration of this line (from 1) has a comment, or the paragraph around it begins with one."""
  if "///<" in lines[line - 1]: return True
  for k in range(line - 2, -1, -1):
    text = lines[k].strip()
    if text.startswith(COMMENT): return True
    if not text: return False
    if CLASS.match(text): return lines[k - 1].strip().startswith(COMMENT)
  return False


def functions(xml):
  """(file, line, class, name, args) of every public function."""
  for path in sorted(xml.glob("*.xml")):
    for compound in ElementTree.parse(path).getroot().iter("compounddef"):
      owner = compound.findtext("compoundname") if compound.get("kind") != "file" else ""
      for member in compound.iter("memberdef"):
        place = member.find("location")
        if member.get("kind") != "function" or member.get("prot") != "public" or place is None: continue
        declared = place.get("declfile") or place.get("file"), place.get("declline") or place.get("line")
        yield declared[0], int(declared[1]), owner, member.findtext("name"), member.findtext("argsstring") or ""


def is_special(owner, name, args):
  """Whether it is a destructor, a comparison, a copy or a move, or a function that is deleted."""
  own = owner.split("::")[-1]
  copies = name == own and re.match(rf"\((const )?{re.escape(own)} ?&&?( \w+)?\)", args)
  return bool(NEEDS_NONE.search(name.replace(" ", ""))) or "=delete" in args.replace(" ", "") or bool(copies)


def undocumented(root, entry=ENTRY):
  """Sorted (file, line, name) of what lacks a comment, and the number of functions."""
  headers = public_headers(root, entry)
  lines = {h: (root / h).read_text().split("\n") for h in headers}
  missing, all_ = set(), set()
  with tempfile.TemporaryDirectory() as out:
    subprocess.run(["doxygen", "-"], input=DOXYFILE.format(root=root, out=out), text=True, check=True,
                   stderr=subprocess.DEVNULL)
    for path, line, owner, name, args in functions(pathlib.Path(out) / "xml"):
      path = str(pathlib.Path(path).relative_to(root)) if path.startswith("/") else path
      if path not in headers or is_special(owner, name, args) or "::detail" in owner: continue
      all_.add((path, line, name))
      if not has_comment(lines[path], line): missing.add((path, line, f"{owner}::{name}"))
  return sorted(missing), len(all_)


SELF_TEST = '''/// \\file A test.
#pragma once
namespace tg {

/// Returns one.
int one();
int two();

int three();  ///< of it
int four();

struct S {
  int a();

  /// Returns b.
  int b();
  ~S();
  S(const S&) = delete;
};

}  // namespace tg
'''


def self_test():
  with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder)
    (root / "tinygrad").mkdir()
    (root / "tinygrad/tinygrad.h").write_text(SELF_TEST)
    missing, count = undocumented(root)
  names = [name.split("::")[-1] for _, _, name in missing]
  assert names == ["four", "a"] and count == 6, (names, count)


def main():
  if sys.argv[1:] == ["--self-test"]: return self_test()
  missing, count = undocumented(ROOT)
  for path, line, name in missing: print(f"{path}:{line}: {name.lstrip(':')} has no comment")
  print(f"check_docs: {count} public functions, {len(missing)} without a comment")
  return 1 if missing else 0


if __name__ == "__main__": sys.exit(main())
