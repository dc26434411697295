"""Runs a lesson and compares what it prints: lesson.py EXPECTED -- PROGRAM [ARGUMENT...]"""
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from snippets import matches

expected = pathlib.Path(sys.argv[1]).read_text()
done = subprocess.run(sys.argv[3:], stdout=subprocess.PIPE, text=True)
if done.returncode: sys.exit(f"{done.stdout}ended with status {done.returncode}")
if not matches(expected, done.stdout): sys.exit(f"expected:\n{expected}\nprinted:\n{done.stdout}")
