#!/usr/bin/env python3
"""Checks that every function of the public headers, those that tinygrad/tinygrad.h includes, is documented: by a
comment of its own, by the comment at the head of its paragraph (declarations without an empty line between them), which
then speaks of all of them, or, in the first paragraph of a class, by that of the class. Doxygen finds the functions.
Destructors, copies, moves, comparisons and what is private need none.

The comment of a function also names every error that the function throws for a mistake of its caller, as found in its
definition and in the helpers of that file (TG_CHECK, throw), and where it makes tensors their shape and type. What
holds for a section of a class stands once below its heading, for a whole class in the comment of the class:

  // ---- losses (loss.cpp) ----
  // Shapes: a scalar, or a loss for each label. Types: that of the logits. Errors: ShapeError for labels that ...

  check_docs.py          prints what lacks a comment or part of it; fails if there is any
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


HEADING = "// ----"


def comment_of(lines, line):
  """All that is said of the declaration of this line: its comment, that of its paragraph, its section and its class."""
  said = []
  k = line - 1
  while k < len(lines) and "///<" in lines[k] or k == line - 1:  # at the end of the line, and going on below it
    said.append(lines[k].partition("//")[2])
    k += 1
    if k >= len(lines) or not lines[k].strip().startswith("///<"): break
  for k in range(line, min(line + 12, len(lines) + 1)):  # of a declaration that takes several lines
    if "///<" in lines[k - 1]: said.append(lines[k - 1].partition("///<")[2])
    if re.search(r"[;}]\s*(//.*)?$", lines[k - 1]): break
  k = line - 2
  while k >= 0 and lines[k].strip() and not lines[k].strip().startswith("///") and HEADING not in lines[k]: k -= 1
  while k >= 0 and lines[k].strip().startswith("///"):
    said.append(lines[k])
    k -= 1
  for k in range(line - 2, -1, -1):
    text = lines[k].strip()
    if HEADING in text and HEADING not in "".join(said):
      said.append(text)
      for below in lines[k + 1:]:
        if not below.strip().startswith("// "): break
        said.append(below)
    if CLASS.match(text) and not lines[k].startswith("    "):
      while k > 0 and lines[k - 1].strip().startswith("///"):
        k -= 1
        said.append(lines[k])
      break
  return " ".join(said)


DEFINITION = re.compile(
    r"^(?:template <[^\n]*>\s*\n?)?(?!namespace|struct|class|enum|using|static_assert)[A-Za-z][^\n]*?"
    r"((?:\w+(?:<[^\n]*>)?::)*\w+|operator\S+)\(", re.M)
THROWN = re.compile(r"TG_CHECK\(\s*(\w+)|throw (?:\w+::)*(\w+Error)\(")


def definitions(text):
  """(name, body) of the functions that a source file defines at its left margin."""
  for m in DEFINITION.finditer(text):
    depth, i = 0, m.end() - 1
    while i < len(text):
      depth += (text[i] == "(") - (text[i] == ")")
      if depth == 0: break
      i += 1
    brace, semicolon = text.find("{", i), text.find(";", i)
    if brace < 0 or (0 <= semicolon < brace and ":" not in text[i:semicolon]): continue
    line_end = text.find("\n", m.start())
    end = line_end if text[m.start():line_end].rstrip().endswith("}") else text.find("\n}", brace)
    yield m.group(1), text[m.start():end if end > 0 else len(text)]


def thrown_errors(root):
  """By `Class::name`, or the name alone of a free function, and by source: the errors that its definition throws there,
  with those of helpers in the same file."""
  found = {}
  for source in sorted((root / "tinygrad").rglob("*.cpp")):
    bodies = {}
    for name, body in definitions(source.read_text()): bodies[name] = bodies.get(name, "") + body
    helpers = {name for name in bodies if "::" not in name}

    def errors(name, seen):
      body = bodies[name]
      out = {a or b for a, b in THROWN.findall(body)}
      for called in set(re.findall(r"\b(\w+)\(", body)) & helpers - seen: out |= errors(called, seen | {called})
      return out

    for name in bodies:
      short = "::".join(re.sub(r"<.*>", "", name).split("::")[-2:])
      found.setdefault(short, {}).setdefault(str(source.relative_to(root)), set()).update(errors(name, {name}))
  return found


def errors_of(by_source, header):
  """The errors of a function that a header declares: of its definition beside the header, else of those of that name in
  its folder, else of all of them."""
  folder = header.rpartition("/")[0] + "/"
  for near in (header.removesuffix(".h") + ".cpp", folder, ""):
    if found := [errors for source, errors in by_source.items() if source.startswith(near)]: return set().union(*found)
  return set()


MAKES_TENSORS = re.compile(r"\bTensors?\b")
SHAPE = re.compile(r"[Ss]hape|\baxis|\baxes|[Ee]lement|scalar|\(\.\.\.|\([a-z]+,|[Bb]roadcast|1-d|[Ss]ize|\brows?\b|"
                   r"[Ss]torage")
TYPE = re.compile(r"[Tt]ype|dtype|float|\bint(32|64)?\b|\bbool\b|uint8|integer|[Vv]alue|[Ss]torage|default")


def lacking(comment, errors, result):
  """What a comment does not say, as a text; empty: nothing."""
  missing = sorted(e for e in errors if e not in ("Error", "InternalError") and e not in comment)
  if MAKES_TENSORS.search(result):
    comment = re.sub(r"\w+Error", "", comment)
    if not SHAPE.search(comment): missing.append("the shape")
    if not TYPE.search(comment): missing.append("the type")
  return ", ".join(missing)


def functions(xml):
  """(file, line, class, name, args, result) of every public function."""
  for path in sorted(xml.glob("*.xml")):
    for compound in ElementTree.parse(path).getroot().iter("compounddef"):
      owner = compound.findtext("compoundname") if compound.get("kind") != "file" else ""
      for member in compound.iter("memberdef"):
        place = member.find("location")
        if member.get("kind") != "function" or member.get("prot") != "public" or place is None: continue
        declared = place.get("declfile") or place.get("file"), place.get("declline") or place.get("line")
        result = member.find("type")
        yield (declared[0], int(declared[1]), owner, member.findtext("name"), member.findtext("argsstring") or "",
               "" if result is None else "".join(result.itertext()))


def is_special(owner, name, args):
  """Whether it is a destructor, a comparison, a copy or a move, or a function that is deleted."""
  own = owner.split("::")[-1]
  copies = name == own and re.match(rf"\((const )?{re.escape(own)} ?&&?( \w+)?\)", args)
  return bool(NEEDS_NONE.search(name.replace(" ", ""))) or "=delete" in args.replace(" ", "") or bool(copies)


def undocumented(root, entry=ENTRY):
  """Sorted (file, line, name, what) of functions whose comment lacks something, and the number of functions."""
  headers, thrown = public_headers(root, entry), thrown_errors(root)
  lines = {h: (root / h).read_text().split("\n") for h in headers}
  missing, all_ = set(), set()
  with tempfile.TemporaryDirectory() as out:
    subprocess.run(["doxygen", "-"], input=DOXYFILE.format(root=root, out=out), text=True, check=True,
                   stderr=subprocess.DEVNULL)
    for path, line, owner, name, args, result in functions(pathlib.Path(out) / "xml"):
      path = str(pathlib.Path(path).relative_to(root)) if path.startswith("/") else path
      if path not in headers or is_special(owner, name, args) or "detail" in owner: continue
      all_.add((path, line, name))
      full, own = f"{owner}::{name}", owner.split("::")[-1]
      if not has_comment(lines[path], line):
        missing.add((path, line, full, "a comment"))
        continue
      key = f"{own}::{name}" if own and own[0].isupper() else name
      if what := lacking(comment_of(lines[path], line), errors_of(thrown.get(key, {}), path), result):
        missing.add((path, line, full, what))
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

struct Tensor {};

/// Errors: ValueError for nothing.
class Checked {
 public:
  /// Says all of it.
  void by_class();
  /// Names one of two.
  void half();

  // ---- a section ----
  // Shapes: the operand's. Types: float. Errors: IndexError for no axis.
  /// Is of a section.
  Tensor sum(int axis);

  // ---- another section ----
  /// Does not say what it makes.
  Tensor made();
};

}  // namespace tg
'''
SELF_TEST_SOURCE = '''namespace tg {
static void need(bool x) { TG_CHECK(ShapeError, x, "no"); }
void Checked::by_class() { throw ValueError("nothing"); }
void Checked::half() {
  TG_CHECK(ValueError, true, "no");
  need(false);
}
Tensor Checked::sum(int axis) {
  TG_CHECK(IndexError, axis, "none");
}
}  // namespace tg
'''


def self_test():
  with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder)
    (root / "tinygrad").mkdir()
    (root / "tinygrad/tinygrad.h").write_text(SELF_TEST)
    (root / "tinygrad/checked.cpp").write_text(SELF_TEST_SOURCE)
    missing, count = undocumented(root)
  lacking_ = [(name.split("::")[-1], what) for _, _, name, what in missing]
  assert lacking_ == [("four", "a comment"), ("a", "a comment"), ("half", "ShapeError"),
                      ("made", "the shape, the type")], lacking_
  assert count == 10, count


def main():
  if sys.argv[1:] == ["--self-test"]: return self_test()
  missing, count = undocumented(ROOT)
  for path, line, name, what in missing: print(f"{path}:{line}: {name.lstrip(':')}: the comment lacks {what}")
  print(f"check_docs: {count} public functions, {len(missing)} whose comment lacks something")
  return 1 if missing else 0


if __name__ == "__main__": sys.exit(main())
