#!/usr/bin/env python3
"""Writes the list of ONNX operators in docs/onnx.md from the table of the library (tinygrad/onnx/operators.h); --check
fails where the page differs. Needs the Python module in PYTHONPATH."""
import itertools
import pathlib
import sys

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "onnx.md"
BEGIN, END = "<!-- operators: made by tools/onnx_operators.py -->\n", "<!-- end of operators -->\n"


def table():
  from tinygrad_cpp import _core
  out = "| domain | operators, each with the first version of its domain that a row serves |\n|---|---|\n"
  for domain, rows in itertools.groupby(sorted(_core.onnx_operators()), key=lambda row: row[0]):
    names = [f"{name} {', '.join(str(r[2]) for r in versions)}"
             for name, versions in itertools.groupby(rows, key=lambda row: row[1])]
    out += f"| {domain or 'ai.onnx'} ({len(names)}) | {' · '.join(names)} |\n"
  return out


def main():
  text = PAGE.read_text(encoding="utf-8")
  before, rest = text.split(BEGIN)
  made = before + BEGIN + table() + END + rest.split(END)[1]
  if "--check" not in sys.argv: PAGE.write_text(made, encoding="utf-8")
  elif made != text: sys.exit(f"{PAGE} does not have the operators of the library: run tools/onnx_operators.py")


if __name__ == "__main__": main()
