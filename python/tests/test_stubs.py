"""The type stubs of the extension are Python, and type checkers accept them and programs that use them."""
import ast
import json
import pathlib
import subprocess
import sys

import pytest

import tinygrad_cpp

PACKAGE = pathlib.Path(tinygrad_cpp.__file__).parent
STUBS = PACKAGE / "_core.pyi"
PROGRAM = """
from tinygrad_cpp import Tensor, dtypes
x = Tensor([1.0, 2.0], dtype=dtypes.float32)
y: Tensor = (x * 2 + 1).sum()
shape = y.shape
with Tensor.no_grad(): number = y.item()
"""
WRONG = "from tinygrad_cpp import Tensor\nTensor([1.0]).no_method_of_this_name()\n"


def run(*command, cwd):
  return subprocess.run([sys.executable, "-m", *command], cwd=cwd, capture_output=True, text=True, timeout=300)


@pytest.fixture
def folder(tmp_path):
  """A copy of the package as it is installed, so that checkers see the stubs and no build tree."""
  if not STUBS.exists(): pytest.skip("the stubs were not built: target tinygrad_python_stubs")
  import shutil
  shutil.copytree(PACKAGE, tmp_path / "tinygrad_cpp", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
  (tmp_path / "program.py").write_text(PROGRAM)
  (tmp_path / "wrong.py").write_text(WRONG)
  (tmp_path / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "basic"}))
  return tmp_path


def test_they_are_python(folder):
  tree = ast.parse((folder / "tinygrad_cpp" / "_core.pyi").read_text())
  classes = {node.name: {f.name for f in node.body if isinstance(f, ast.FunctionDef)}
             for node in tree.body if isinstance(node, ast.ClassDef)}
  assert {"matmul", "backward", "train", "no_grad"} <= classes["Tensor"]


def test_mypy_accepts_them(folder):
  pytest.importorskip("mypy")
  r = run("mypy", "--follow-imports=silent", "tinygrad_cpp/_core.pyi", "program.py", cwd=folder)
  assert r.returncode == 0, r.stdout + r.stderr
  wrong = run("mypy", "--follow-imports=silent", "wrong.py", cwd=folder)
  assert "no_method_of_this_name" in wrong.stdout


def test_pyright_accepts_them(folder):
  pytest.importorskip("basedpyright")
  r = run("basedpyright", "--level", "error", "tinygrad_cpp/_core.pyi", "program.py", cwd=folder)
  assert r.returncode == 0, r.stdout + r.stderr
  wrong = run("basedpyright", "--level", "error", "wrong.py", cwd=folder)
  assert "no_method_of_this_name" in wrong.stdout
