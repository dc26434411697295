"""The module has every name of the lists in docs/api, with the arguments of its signature."""
import subprocess
import sys
from pathlib import Path


def test_module_is_complete():
    tool = Path(__file__).resolve().parents[2] / "tools" / "api_coverage.py"
    run = subprocess.run([sys.executable, str(tool), "--module", "tinygrad_cpp"], capture_output=True, text=True,
                         timeout=120)
    assert run.returncode == 0, run.stderr
