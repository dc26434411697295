"""Runs a test's file as a program in two processes, where there is an mpirun."""
import os, shutil, subprocess, sys
import pytest

import tinygrad_cpp

needs_mpirun = pytest.mark.skipif(not shutil.which("mpirun.openmpi"), reason="needs Open MPI's mpirun")


def run_in_two_processes(file, timeout, *arguments, fails=False):
  """Returns what they print."""
  module = os.path.dirname(os.path.dirname(tinygrad_cpp.__file__))
  env = {**os.environ, "PYTHONPATH": module, "NUM_CPU_THREADS": "1", "WORLD_TIMEOUT": "60"}
  command = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2", sys.executable,
             file, *arguments]
  done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout)
  assert fails == (done.returncode != 0), done.stdout + done.stderr
  return done.stdout
