#!/usr/bin/env python3
"""Writes the type stubs of the extension: make_stubs.py OUTPUT, with the built package in the import path.

nanobind's generator takes methods that the package's Python files attach to classes of the extension for functions that
it imports, and writes `bool` for the type inside of a class with a method bool(). Both are mended here."""
import builtins
import inspect
import re
import sys
import types
import typing

import nanobind.stubgen

import tinygrad_cpp  # noqa: F401  attaches the methods
from tinygrad_cpp import _core


def plain_hints(function):
  """Returns the annotations that are names of classes; the stub says nothing about others."""
  try: hints = typing.get_type_hints(function)
  except Exception: return {}  # names that only type checkers import
  return {name: hint for name, hint in hints.items()
          if isinstance(hint, type) and hint.__module__ in ("builtins", _core.__name__)}


def as_own(function, name):
  """Returns the function under the name it is attached by, as if the extension had defined it."""
  simple = (bool, int, float, str, type(None))
  defaults = function.__defaults__ and tuple(d if type(d) in simple else ... for d in function.__defaults__)
  own = types.FunctionType(function.__code__, function.__globals__, name, defaults, function.__closure__)
  own.__kwdefaults__, own.__doc__, own.__module__ = function.__kwdefaults__, function.__doc__, _core.__name__
  own.__annotations__ = plain_hints(function)
  return own


def adopted(value, name):
  """Returns what stands in the stub for an attribute of a class."""
  if isinstance(value, types.FunctionType): return as_own(value, name)
  if isinstance(value, (staticmethod, classmethod)) and isinstance(value.__func__, types.FunctionType):
    own = type(value)(as_own(value.__func__, name))
    own.__module__ = _core.__name__
    return own
  if isinstance(value, type) and value.__module__.startswith("tinygrad_cpp.") and value.__module__ != _core.__name__:
    def make(*args, **kwargs): raise NotImplementedError  # only its signature is used
    return adopted(staticmethod(make), name)
  if isinstance(value, property) and isinstance(value.fget, types.FunctionType):
    setter = as_own(value.fset, name) if isinstance(value.fset, types.FunctionType) else None
    return property(as_own(value.fget, name), setter, doc=value.__doc__)
  return value


def qualified(text):
  """Returns the stub with types that a method of the same class hides, and bases of errors, written as
  builtins.NAME."""
  types_of_python = {n for n, v in vars(builtins).items() if isinstance(v, type)}
  # Errors are named after Python's, which they derive from.
  def python_bases(match):
    bases = re.sub(r"\w+", lambda b: f"builtins.{b[0]}" if b[0] in types_of_python else b[0], match[2])
    return f"class {match[1]}({bases}):"
  text = re.sub(r"(?m)^class (\w+)\((.*)\):$", python_bases, text)
  out = []
  for part in re.split(r"(?m)^(?=class )", text):
    hidden = set(re.findall(r"(?m)^    def (\w+)\(", part)) & types_of_python
    if hidden and part.startswith("class "):
      name = re.compile(rf"(?<![\w.'\"])({'|'.join(sorted(hidden))})(?![\w('\"=]|: (?!\.\.\.))")
      part = re.sub(r"(?m)^(    def \w+)(\(.*)$", lambda m: m[1] + name.sub(r"builtins.\1", m[2]), part)
    out.append(part)
  return "".join(out)


def main(output):
  for _, cls in inspect.getmembers(_core, inspect.isclass):
    if cls.__module__ == tinygrad_cpp.__name__: cls.__module__ = _core.__name__
    for name, value in list(vars(cls).items()):
      if (own := adopted(value, name)) is not value: setattr(cls, name, own)
  # Parts of the extension have no stubs of their own: their classes are objects here.
  modules = [name for name, _ in inspect.getmembers(_core, inspect.ismodule)]
  for name in modules: delattr(_core, name)
  nanobind.stubgen.main(["-q", "-m", _core.__name__, "-o", output])
  with open(output, encoding="utf-8") as f: text = f.read()
  # Operators of tensors overlap with their reflected ones and return no bool, which is what they are for.
  with open(output, "w", encoding="utf-8") as f:
    text = re.sub(r"(?m)^import tinygrad_cpp\._core\.\w+\n", "", text)
    text = re.sub(r"tinygrad_cpp\._core\.[a-z_]+\.\w+", "object", text)
    f.write('# mypy: disable-error-code="misc,override"\nimport builtins\nimport types\n' + qualified(text))
    for name in modules: f.write(f"\n{name}: types.ModuleType\n")


if __name__ == "__main__": main(sys.argv[1])
