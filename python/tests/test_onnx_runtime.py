"""Operators of com.microsoft and ai.onnx.ml against onnxruntime, where it and the package onnx are installed."""
import numpy as np
import pytest

from tinygrad_cpp.nn.onnx import OnnxRunner

onnx = pytest.importorskip("onnx", reason="the package onnx, which writes the models, is not installed")
ort = pytest.importorskip("onnxruntime", reason="onnxruntime, the reference, is not installed")
from onnx import helper, numpy_helper  # noqa: E402

RNG = np.random.default_rng(0)
MS, ML = "com.microsoft", "ai.onnx.ml"


def f(*shape): return RNG.normal(size=shape).astype(np.float32)
def q(dtype, *shape): return RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)
def trees(prefix):
  """Two trees of three nodes, whose leaves have weights of three classes or targets."""
  return {"nodes_treeids": [0, 0, 0, 1, 1, 1], "nodes_nodeids": [0, 1, 2, 0, 1, 2],
          "nodes_featureids": [1, 0, 0, 0, 0, 0],
          "nodes_values": [0.1, 0.0, 0.0, -0.2, 0.0, 0.0], "nodes_truenodeids": [1, 0, 0, 1, 0, 0],
          "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_GT", "LEAF", "LEAF"],
          "nodes_falsenodeids": [2, 0, 0, 2, 0, 0],
          f"{prefix}_treeids": [0] * 6 + [1] * 6, f"{prefix}_nodeids": [1, 1, 1, 2, 2, 2] * 2,
          f"{prefix}_ids": [0, 1, 2] * 4,
          f"{prefix}_weights": [0.5, -0.25, 0.1, 1.5, 2.0, 0.2, -1.0, 0.75, 0.9, 0.1, 0.3, -0.4]}


X, SCALE, ZERO = f(2, 5, 8), np.array(0.05, np.float32), np.array(7, np.uint8)
CASES = {
  "FastGelu": (MS, [X, f(8)], {}, 1), "BiasGelu": (MS, [X, f(8)], {}, 1), "QuickGelu": (MS, [X], {"alpha": 1.5}, 1),
  "Gelu": (MS, [X], {}, 1), "FusedMatMul": (MS, [f(3, 4), f(5, 4)], {"transB": 1, "alpha": 0.5}, 1),
  "SkipLayerNormalization": (MS, [X, f(2, 5, 8), f(8), f(8), f(8)], {"epsilon": 1e-5}, 1),
  "SkipSimplifiedLayerNormalization": (MS, [X, f(2, 5, 8), f(8)], {"epsilon": 1e-5}, 1),
  "MatMulNBits": (MS, [f(3, 32), q(np.uint8, 6, 2, 8), f(12)], {"K": 32, "N": 6, "bits": 4, "block_size": 16}, 1),
  "MultiHeadAttention": (MS, [X, f(2, 6, 8), f(2, 6, 8), f(24)], {"num_heads": 2}, 1),
  "Attention": (MS, [X, f(8, 24), f(24)], {"num_heads": 2, "unidirectional": 1}, 1),
  "RotaryEmbedding": (MS, [X, np.array([1], np.int64), f(16, 2), f(16, 2)], {"num_heads": 2, "interleaved": 1}, 1),
  "GroupQueryAttention": (MS, [f(1, 3, 32), f(1, 3, 16), f(1, 3, 16), f(1, 1, 4, 16), f(1, 1, 4, 16),
                               np.array([6], np.int32), np.array([7], np.int32), f(16, 8), f(16, 8)],
                          {"num_heads": 2, "kv_num_heads": 1, "do_rotary": 1}, 3),
  "EmbedLayerNormalization": (MS, [np.array([[1, 2, 0]], np.int32), np.array([[0, 1, 1]], np.int32), f(4, 8), f(5, 8),
                                   f(2, 8), f(8), f(8)], {}, 2),
  "QLinearAdd": (MS, [q(np.uint8, 3, 4), SCALE, ZERO, q(np.uint8, 3, 4), SCALE, ZERO,
                      np.array(0.1, np.float32), ZERO], {}, 1),
  "QLinearMul": (MS, [q(np.uint8, 3, 4), SCALE, ZERO, q(np.uint8, 3, 4), SCALE, ZERO,
                      np.array(0.45, np.float32), ZERO], {}, 1),
  "QLinearSigmoid": (MS, [q(np.uint8, 3, 4), SCALE, ZERO, np.array(1 / 255, np.float32), np.array(0, np.uint8)], {}, 1),
  "MatMulIntegerToFloat": (MS, [q(np.uint8, 3, 8), q(np.int8, 8, 4), SCALE, np.abs(f(4)), ZERO,
                                np.array(0, np.int8)], {}, 1),
  "DynamicQuantizeMatMul": (MS, [f(3, 8), q(np.int8, 8, 4), np.array(0.1, np.float32), np.array(0, np.int8)], {}, 1),
  "Scaler": (ML, [f(3, 4)], {"offset": [1.0, 2, 3, 4], "scale": [0.5, 1, 2, 4]}, 1),
  "Normalizer": (ML, [f(3, 4)], {"norm": "L2"}, 1),
  "Imputer": (ML, [np.array([[1, np.nan], [3, 4]], np.float32)], 
              {"imputed_value_floats": [7.0, 8], "replaced_value_float": float("nan")}, 1),
  "OneHotEncoder": (ML, [np.array([1, 5, 2], np.int64)], {"cats_int64s": [1, 2, 3]}, 1),
  "LinearRegressor": (ML, [f(3, 4)], {"coefficients": f(8).tolist(), "intercepts": [0.5, 1], "targets": 2}, 1),
  "LinearClassifier": (ML, [f(3, 4)], {"coefficients": f(12).tolist(), "intercepts": [0.0, 0.1, 0.2], 
                                       "classlabels_ints": [5, 6, 7], "post_transform": "SOFTMAX"}, 2),
  "SVMRegressor": (ML, [f(3, 2)], {"coefficients": [1.0, -2, 0.5], "kernel_params": [0.3, 0.0, 3.0],
                                   "kernel_type": "RBF",
                                   "n_supports": 3, "rho": [0.2], "support_vectors": f(6).tolist()}, 1),
  "TreeEnsembleRegressor": (ML, [f(9, 2)], {**trees("target"), "n_targets": 3}, 1),
  "TreeEnsembleClassifier": (ML, [f(9, 2)], {**trees("class"), "classlabels_int64s": [3, 8, 9],
                                             "post_transform": "SOFTMAX"}, 2),
}


@pytest.mark.parametrize("op", CASES)
def test_against_onnxruntime(op):
  domain, arrays, attributes, outputs = CASES[op]
  names = [f"i{k}" for k in range(len(arrays))]
  node = helper.make_node(op, [*names], [f"o{k}" for k in range(outputs)], domain=domain, **attributes)
  inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in zip(names, arrays)]
  constants = [numpy_helper.from_array(a, n) for n, a in zip(names, arrays) if op == "MatMulNBits" and n != "i0"]
  graph = helper.make_graph([node], "g", [i for i in inputs if i.name not in {c.name for c in constants}],
                            [helper.make_empty_tensor_value_info(f"o{k}") for k in range(outputs)], constants)
  opsets = [helper.make_opsetid("", 20), helper.make_opsetid(domain, 3 if domain == ML else 1)]
  model = helper.make_model(graph, ir_version=10, opset_imports=opsets)
  feed = {i.name: a for i, a in zip(inputs, arrays) if i.name not in {c.name for c in constants}}
  want = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feed)
  got = list(OnnxRunner(model.SerializeToString())(feed).values())
  for a, b in zip(got, want, strict=True):
    a = a.numpy()
    assert a.shape == b.shape and a.dtype == b.dtype
    if b.dtype.kind == "f": np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)
    else: assert np.abs(a.astype(int) - b.astype(int)).max() <= (1 if op.startswith("QLinear") else 0)
