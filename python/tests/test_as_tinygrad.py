"""Programs that import tinygrad run on this package."""
import os
import subprocess
import sys
import pytest


def run(*arguments, **kw):
  return subprocess.run([sys.executable, *arguments], capture_output=True, text=True,
                        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, **kw)


def test_a_program_runs_under_the_name_tinygrad(tmp_path):
  (tmp_path / "part.py").write_text("from tinygrad.nn.state import get_parameters\n")
  (tmp_path / "program.py").write_text("""
import sys
import tinygrad, tinygrad.nn as nn, part
from tinygrad.helpers import getenv
from tinygrad.uop.ops import UOp
import tinygrad_cpp
assert tinygrad is tinygrad_cpp and nn.Linear is tinygrad_cpp.nn.Linear and UOp is tinygrad_cpp.UOp
assert __name__ == "__main__" and len(part.get_parameters(nn.Linear(2, 3))) == 2
print(sys.argv[1:], tinygrad.__name__, tinygrad.Tensor([1.0, 2.0]).sum().item())
""")
  p = run("-m", "tinygrad_cpp.as_tinygrad", "program.py", "-x", "1", cwd=tmp_path)
  assert p.stdout == "['-x', '1'] tinygrad_cpp 3.0\n", p.stderr


@pytest.mark.parametrize("name", ["tinygrad.nothing", "tinygrad.nn.nothing"])
def test_a_missing_module_is_named(name):
  p = run("-c", f"import tinygrad_cpp.as_tinygrad\ntry:\n  import {name}\nexcept ModuleNotFoundError as e:\n  print(e)")
  assert p.stdout == f"tinygrad_cpp has no module {name}\n", p.stderr


def test_without_a_program():
  p = run("-m", "tinygrad_cpp.as_tinygrad")
  assert p.returncode == 1 and "usage" in p.stderr
