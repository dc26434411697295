"""BEAM: searched kernels compute what the others do."""
import numpy as np

from tinygrad_cpp import Context, Tensor, TinyJit


def test_results_stay():
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((70, 96), dtype=np.float32), rng.standard_normal((96, 80), dtype=np.float32)
    x, w = rng.standard_normal((2, 4, 12, 20), dtype=np.float32), rng.standard_normal((6, 4, 3, 3), dtype=np.float32)
    plain = Tensor(x).conv2d(Tensor(w), padding=1).numpy()
    with Context(BEAM=2, BEAM_CANDIDATES_MAX=8, IGNORE_BEAM_CACHE=1):
        np.testing.assert_allclose((Tensor(a) @ Tensor(b)).numpy(), a @ b, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(Tensor(x).conv2d(Tensor(w), padding=1).numpy(), plain, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal((Tensor(a) > 0).sum(0).numpy(), (a > 0).sum(0))


def test_captured_functions():
    f = TinyJit(lambda x: (x @ x).relu().realize())
    with Context(BEAM=1, BEAM_CANDIDATES_MAX=4):
        for i in range(4):
            x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) % (7 + i)
            np.testing.assert_array_equal(f(Tensor(x)).numpy(), np.maximum(x @ x, 0))
