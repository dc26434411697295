"""Every kind of decoder divided between two processes, against the same one in a process of its own."""
import os, tempfile
import numpy as np

from tinygrad_cpp import distributed
from tinygrad_cpp._core import LanguageModel
from test_llm_engine import MODELS, TOKENS
from two_processes import needs_mpirun, run_in_two_processes


def compare(name, folder):
  path = MODELS[name]().write(os.path.join(folder, "model.gguf"))
  whole, divided = (LanguageModel.load(path, max_context=64, max_sequences=2, prefill_chunk=8, divided=d)
                    for d in (False, True))
  results = [[m.prefill_all(0, TOKENS[:13]).numpy(), m.prefill(1, TOKENS[:5]).numpy(),
              *(m.decode([(0, TOKENS[i]), (1, TOKENS[i])]).numpy() for i in range(4))] for m in (divided, whole)]
  for got, want in zip(*results): np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-4)


def test_a_world_of_one(tmp_path): compare("llama", str(tmp_path))


@needs_mpirun
def test_two_processes():
  assert run_in_two_processes(__file__, 400).count("equal") == 2 * len(MODELS)


if __name__ == "__main__":
  distributed.init()
  for name in MODELS:
    with tempfile.TemporaryDirectory() as folder: compare(name, folder)
    print(f"rank {distributed.rank()}, {name}: equal", flush=True)
