"""Every kind of decoder divided between two processes, against the same one in a process of its own."""
import os, shutil, subprocess, sys, tempfile
import numpy as np
import pytest

import tinygrad_cpp
from tinygrad_cpp import distributed
from tinygrad_cpp._core import LanguageModel
from test_llm_engine import MODELS, TOKENS


def compare(name, folder):
  path = MODELS[name]().write(os.path.join(folder, "model.gguf"))
  whole, divided = (LanguageModel.load(path, max_context=64, max_sequences=2, prefill_chunk=8, divided=d)
                    for d in (False, True))
  results = [[m.prefill_all(0, TOKENS[:13]).numpy(), m.prefill(1, TOKENS[:5]).numpy(),
              *(m.decode([(0, TOKENS[i]), (1, TOKENS[i])]).numpy() for i in range(4))] for m in (divided, whole)]
  for got, want in zip(*results): np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-4)


def test_a_world_of_one(tmp_path): compare("llama", str(tmp_path))


@pytest.mark.skipif(not shutil.which("mpirun.openmpi"), reason="needs Open MPI's mpirun")
def test_two_processes():
  module = os.path.dirname(os.path.dirname(tinygrad_cpp.__file__))
  env = {**os.environ, "PYTHONPATH": module, "NUM_CPU_THREADS": "1", "WORLD_TIMEOUT": "60"}
  command = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2", sys.executable,
             __file__]
  done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=400)
  assert done.returncode == 0, done.stdout + done.stderr
  assert done.stdout.count("equal") == 2 * len(MODELS)


if __name__ == "__main__":
  distributed.init()
  for name in MODELS:
    with tempfile.TemporaryDirectory() as folder: compare(name, folder)
    print(f"rank {distributed.rank()}, {name}: equal", flush=True)
