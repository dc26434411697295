#!/usr/bin/env python3
"""Compares the lists of tinygrad's public names in docs/api with the headers and the Python module, and writes
docs/api_coverage.md.

  tools/api_coverage.py                    writes the document
  tools/api_coverage.py --check            fails when a listed name is missing, untested, or the document is stale
  tools/api_coverage.py --module NAME      fails when the importable Python module lacks a listed name or a keyword of
  its signature

Lists: tensor.tsv (name, category, signature, cpp), nn.tsv (name, signature, cpp, module), env.tsv (name, default,
state). The column cpp is the C++ name, `python: why` for what only Python has, or `later: what` for what belongs to a
part that is not there yet."""
import argparse
import csv
import importlib
import inspect
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "api_coverage.md"
# Names that only forward to others, or that tests use without their name.
TESTED_AS = {"operator()": r"\)\(|\w\((?:Slice|Ellipsis|None)", "scalar": r"Tensor\(", "Tensor": r"Tensor\(",
             "repr": r"repr\(|<<"}


def rows(name):
    with open(ROOT / "docs" / "api" / name, encoding="utf-8") as f:
        return list(csv.DictReader(f, delimiter="\t", quoting=csv.QUOTE_NONE))


def without_comments(text):
    return re.sub(r"//[^\n]*", "", re.sub(r"/\*.*?\*/", "", text, flags=re.S))


def headers():
    return "\n".join(without_comments(p.read_text()) for d in ("base", "uop", "runtime", "engine", "tensor", "io", "nn")
                     for p in sorted((ROOT / "tinygrad" / d).rglob("*.h")))


def declared(cpp, text):
    if cpp.startswith("operator") and cpp != "operator()":
        symbol = re.escape(cpp[len("operator"):])
        listed = symbol.removesuffix("=")  # TG_FOR_EACH_OPERATOR: those that also update
        return bool(re.search(r"operator\s*" + symbol + r"\s*\(|TG_BINARY\(" + symbol + ",|X\\(" + listed + ",", text))
    name = re.escape(cpp)
    return bool(re.search(r"(?<![\w.])" + name + r"\s*\(|(?:struct|class)\s+" + name + r"\b|TG_REDUCE\(" + name + r"\)",
                          text))


def tested(cpp, text):
    if cpp in TESTED_AS:
        return bool(re.search(TESTED_AS[cpp], text))
    if cpp.startswith("operator"):
        return re.escape(cpp[len("operator"):]) and bool(re.search(r"[\w)\]] ?" + re.escape(cpp[len("operator"):])
                                                                   + r" ?[\w(-]|" +
                                                                  re.escape(cpp[len("operator"):]) + r"[\w(]", text))
    return bool(re.search(r"\b" + re.escape(cpp) + r"\b", text))


def bound_names():
    """Names the Python package defines, as far as the sources tell: strings and macro arguments of the binding, and
    definitions of the Python files."""
    names = set()
    for p in sorted((ROOT / "python" / "src").glob("*.cpp")):
        text = without_comments(p.read_text())
        names.update(re.findall(r'"(\w+)"', text))
        names.update(re.findall(r"\bTG_[A-Z_]+\((\w+)", text))
        for op, reverse in re.findall(r'operators\(c, "(\w+)"(.*)', text):
            names.update(f"__{r}{op}__" for r in ("", "r", "i"))
    for p in sorted((ROOT / "python" / "tinygrad_cpp").rglob("*.py")):
        text = p.read_text()
        names.update(re.findall(r"^\s*(?:def|class) (\w+)", text, flags=re.M))
        names.update(w for line in re.findall(r"import ([^\n#]*)", text) for w in re.findall(r"\w+", line))
        names.update(re.findall(r"^(\w+(?:, \w+)*) = ", text, flags=re.M))
        names.update(re.findall(r"\bTensor\.(\w+)(?:, | = )", text))
        names.update(w for group in re.findall(r"^\s*((?:\w+ = )+)", text, flags=re.M)
                     for w in re.findall(r"\w+", group))
    return names


def state_of(cpp):
    return cpp.split(":")[0] if re.match(r"(python|later): ", cpp) else ""


def document(text, bound):
    out = ["# Coverage of tinygrad's public API", "",
           "Made by `tools/api_coverage.py` from the lists in `docs/api`, which say what tinygrad has, its defaults "
           "included, and from the headers and the Python sources; CI checks it. Signatures are the",
           "Python module's. Names of C++ are those of `tinygrad/tensor/tensor.h` and `tinygrad/nn`.", ""]

    def table(title, head, lines):
        out.extend([f"## {title}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head), *lines, ""])

    def cpp_cell(cpp):
        kind = state_of(cpp)
        if kind: return cpp.split(": ", 1)[1] if kind == "python" else f"later ({cpp.split(': ', 1)[1]})"
        return f"`{cpp}`" if declared(cpp, text) else "missing"

    def python_cell(name, cpp):
        return "later" if state_of(cpp) == "later" else "yes" if name.split(".")[-1] in bound else "missing"

    def code(s):
        return "`" + s.replace("|", "\\|") + "`"

    tensor = rows("tensor.tsv")
    for category in dict.fromkeys(r["category"] for r in tensor):
        table(f"Tensor: {category}", ["Python", "C++", "module"],
              [f"| {code(r['signature'])} | {cpp_cell(r['cpp'])} | {python_cell(r['name'], r['cpp'])} |"
               for r in tensor if r["category"] == category])
    for module in dict.fromkeys(r["module"] for r in rows("nn.tsv")):
        table(module, ["Python", "C++", "module"],
              [f"| {code(r['name'] + r['signature'])} | {cpp_cell(r['cpp'])} | {python_cell(r['name'], r['cpp'])} |"
               for r in rows("nn.tsv") if r["module"] == module])
    env = (ROOT / "tinygrad" / "base" / "env_table.inc").read_text()
    table("Environment variables", ["name", "tinygrad's default", "state"],
          [f"| `{r['name']}` | {r['default'].replace('|', chr(92) + '|')} | "
           f"{'yes' if in_env(r['name'], env) else 'later'} |" for r in rows("env.tsv")])
    return "\n".join(out)


def in_env(name, env):
    return bool(re.search(r"^(?:INT|STR)\(" + name + ",", env, flags=re.M))


def without_example():
    """Names of Tensor that docs/operations.md, whose examples run, does not show."""
    text = (ROOT / "docs" / "operations.md").read_text()
    names = {r["cpp"] for r in rows("tensor.tsv") if re.fullmatch(r"\w+", r["cpp"])}
    return sorted(n for n in names if not re.search(r"\b" + n + r"\b", text))


def check():
    text, bound, problems = headers(), bound_names(), []
    tests = "\n".join(p.read_text() for p in sorted((ROOT / "tests").rglob("*")) if p.suffix in (".cpp", ".h"))
    for r in rows("tensor.tsv") + rows("nn.tsv"):
        kind = state_of(r["cpp"])
        if kind == "later":
            continue
        if not kind and not declared(r["cpp"], text):
            problems.append(f"{r['name']}: no {r['cpp']} in the headers")
        elif not kind and not tested(r["cpp"], tests):
            problems.append(f"{r['name']}: no test uses {r['cpp']}")
        if r["name"].split(".")[-1] not in bound:
            problems.append(f"{r['name']}: not in the Python module's sources")
    env = (ROOT / "tinygrad" / "base" / "env_table.inc").read_text()
    problems += [f"{r['name']}: not in env_table.inc" for r in rows("env.tsv") if r["state"] != "later"
                 and not in_env(r["name"], env)]
    problems += [f"{name}: no example in docs/operations.md" for name in without_example()]
    if not DOCUMENT.exists() or DOCUMENT.read_text() != document(text, bound):
        problems.append("docs/api_coverage.md is stale: run tools/api_coverage.py")
    return problems


def keywords(signature):
    """Names of the parameters of a listed signature."""
    inside, depth, parts, part = signature[signature.find("(")
                                           + 1:signature.rfind(")")] if "(" in signature else "", 0, [], ""
    if ") -> " in signature:
        inside = signature[signature.find("(") + 1:signature.rfind(") -> ")]
    for c in inside:
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += c
    return [p.split(":")[0].split("=")[0].strip() for p in parts + [part] if p.strip()]


def check_module(name):
    problems = []
    core = importlib.import_module(name)
    tensor = importlib.import_module(name + ".tensor").Tensor
    for r in rows("tensor.tsv"):
        if state_of(r["cpp"]) == "later":
            continue
        member = inspect.getattr_static(tensor, r["name"], None)
        if member is None and not hasattr(tensor, r["name"]):
            problems.append(f"Tensor.{r['name']} is missing")
            continue
        doc = getattr(getattr(tensor, r["name"], None), "__doc__", None) or ""
        # Python's own functions have a signature; those of the extension spell it in their text
        if inspect.isfunction(member):
            doc = f"{inspect.signature(member)} {doc}"
        if r["name"].startswith("__") or r["signature"].startswith("property") or "kwargs" in doc or "*" in doc:
            continue
        for k in keywords(r["signature"]):
            if re.fullmatch(r"[a-zA-Z_]\w*", k) and doc and not re.search(r"\b" + k + r"\b", doc.split("\n")[0] + doc):
                problems.append(f"Tensor.{r['name']} has no argument {k}")
    for r in rows("nn.tsv"):
        if state_of(r["cpp"]) == "later":
            continue
        target = importlib.import_module(f"{name}.{r['module']}")
        for part in r["name"].split("."):
            target = getattr(target, part, None)
        if target is None:
            problems.append(f"{r['module']}.{r['name']} is missing")
    assert core
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--module")
    args = parser.parse_args()
    if not args.check and not args.module:
        DOCUMENT.write_text(document(headers(), bound_names()))
        return 0
    problems = (check() if args.check else []) + (check_module(args.module) if args.module else [])
    for p in problems:
        print(p, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
