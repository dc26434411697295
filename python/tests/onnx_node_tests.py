"""onnx_node_tests.py PATTERN...: the node tests of the package onnx whose names match none of the patterns. Prints
those that fail with the reason, and ends with status 1 if there is one."""
import fnmatch
import sys
import warnings

import numpy as np
import onnx
import onnx.numpy_helper
from onnx.backend.test.loader import load_model_tests

from tinygrad_cpp.nn.onnx import OnnxRunner


def compare(got, want, case):
  """Returns what is wrong with one output, or an empty text."""
  if isinstance(want, list): return next((w for a, b in zip(got, want, strict=True) if (w := compare(a, b, case))), "")
  if want is None: return "" if got is None else "something for nothing"
  if isinstance(want, onnx.TensorProto): want = onnx.numpy_helper.to_array(want)
  want, got = np.asarray(want), got.numpy() if hasattr(got, "numpy") else np.asarray(got)
  if got.shape != want.shape: return f"shape {got.shape} for {want.shape}"
  if want.dtype.kind in "OUS":
    return "" if got.astype(str).tolist() == want.astype(str).tolist() else f"{got} for {want}"
  if got.dtype.kind != want.dtype.kind: return f"type {got.dtype} for {want.dtype}"
  if want.dtype.kind not in "biu": got, want = got.astype(np.float64), want.astype(np.float64)
  close = np.allclose(got, want, rtol=max(case.rtol, 1e-3), atol=max(case.atol, 1e-7), equal_nan=True)
  return "" if close else f"{got.reshape(-1)[:8]} for {want.reshape(-1)[:8]}"


def run(case):
  runner = OnnxRunner(case.model.SerializeToString())
  constants = {t.name for t in case.model.graph.initializer}
  names = [i.name for i in case.model.graph.input if i.name not in constants]
  for inputs, outputs in case.data_sets:
    wrong = compare(list(runner(dict(zip(names, inputs))).values()), list(outputs), case)
    if wrong: return wrong
  return ""


def main():
  warnings.simplefilter("ignore")
  cases = [c for c in load_model_tests(kind="node") if not any(fnmatch.fnmatch(c.name, p) for p in sys.argv[1:])]
  failed = 0
  for case in cases:
    try: wrong = run(case)
    except Exception as e: wrong = f"{type(e).__name__}: {e}"
    if wrong: print(f"{case.name}: {wrong[:300]}")
    failed += bool(wrong)
  print(f"{len(cases) - failed} of {len(cases)} pass")
  sys.exit(bool(failed))


if __name__ == "__main__": main()
