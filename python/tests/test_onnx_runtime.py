"""Operators of com.microsoft and ai.onnx.ml against onnxruntime, where it and the package onnx are installed."""
import numpy as np
import pytest

from tinygrad_cpp import FormatError
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


def svm(classes, kernel, probability=False, **attributes):
  """A classifier of 2, 3, ... support vectors of three features for each class."""
  counts, pairs = list(range(2, classes + 2)), classes * (classes - 1) // 2
  more = {"prob_a": (-0.5 - np.abs(f(pairs))).tolist(), "prob_b": f(pairs).tolist()} if probability else {}
  return {"classlabels_ints": list(range(5, 5 + classes)), "coefficients": f((classes - 1) * sum(counts)).tolist(),
          "kernel_params": [0.3, 0.2, 3.0], "kernel_type": kernel, "rho": f(pairs).tolist(),
          "support_vectors": f(3 * sum(counts)).tolist(), "vectors_per_class": counts, **more, **attributes}


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
  **{f"SVMClassifier {kernel} {classes} {probability}": (ML, [f(20, 3)], svm(classes, kernel, probability), 2)
     for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID") for classes in (2, 4) for probability in (False, True)},
  **{f"SVMClassifier {how}": (ML, [f(20, 3)], svm(4, "RBF", how != "LOGISTIC", post_transform=how), 2)
     for how in ("LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")},
  "SVMClassifier double": (ML, [f(20, 3).astype(np.float64)], svm(3, "RBF"), 2),
  **{f"SVMClassifier without vectors {n}": (ML, [f(20, 3)], {
    "classlabels_ints": list(range(3, 3 + n)), "coefficients": f(3 * n).tolist(), "rho": [0.1],
    "kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0]}, 2) for n in (2, 3)},
  "TreeEnsembleRegressor": (ML, [f(9, 2)], {**trees("target"), "n_targets": 3}, 1),
  "TreeEnsembleClassifier": (ML, [f(9, 2)], {**trees("class"), "classlabels_int64s": [3, 8, 9],
                                             "post_transform": "SOFTMAX"}, 2),
}


@pytest.mark.parametrize("op", CASES)
def test_against_onnxruntime(op):
  domain, arrays, attributes, outputs = CASES[op]
  names = [f"i{k}" for k in range(len(arrays))]
  op = op.partition(" ")[0]
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


def ml_model(op, input_type, outputs=1, **attributes):
  """A model of one operator of ai.onnx.ml."""
  node = helper.make_node(op, ["x"], [f"o{k}" for k in range(outputs)], domain=ML, **attributes)
  x = onnx.ValueInfoProto(name="x", type=input_type)
  graph = helper.make_graph([node], "g", [x], [helper.make_empty_tensor_value_info(f"o{k}") for k in range(outputs)])
  opsets = [helper.make_opsetid("", 20), helper.make_opsetid(ML, 3)]
  return helper.make_model(graph, ir_version=10, opset_imports=opsets).SerializeToString()


def both(model, x):
  want = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
  return list(OnnxRunner(model)({"x": x}).values()), want


FLOATS = helper.make_tensor_type_proto(1, None)
def map_type(key, item): return helper.make_map_type_proto(key, helper.make_tensor_type_proto(item, []))


def test_labels_of_support_vectors_may_be_texts():
  attributes = svm(3, "RBF", classlabels_strings=["one", "two", "three"])
  del attributes["classlabels_ints"]
  (labels, _), (want, _) = both(ml_model("SVMClassifier", FLOATS, 2, **attributes), f(20, 3))
  assert len(set(want)) == 3
  np.testing.assert_array_equal(labels.astype(str), want.astype(str))


@pytest.mark.parametrize("how", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"])
def test_the_score_of_two_classes_is_transformed(how):
  """As the standard's reference does it: onnxruntime leaves it as it is."""
  from onnx.reference import ReferenceEvaluator
  model, x = ml_model("SVMClassifier", FLOATS, 2, **svm(2, "RBF", post_transform=how)), f(20, 3)
  want = np.concatenate([ReferenceEvaluator(model).run(None, {"x": row[None]})[1] for row in x])
  np.testing.assert_allclose(OnnxRunner(model)({"x": x})["o1"].numpy(), want, rtol=1e-3, atol=1e-4)


def test_features_far_from_zero_keep_their_distances():
  attributes = svm(3, "RBF")
  far = {**attributes, "support_vectors": (np.array(attributes["support_vectors"]).round(1) + 4096).tolist()}
  (_, got), (_, want) = both(ml_model("SVMClassifier", FLOATS, 2, **far), f(20, 3).round(1) + 4096)
  np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("keys", [{"classlabels_int64s": [3, 1, 2]}, {"classlabels_strings": ["b", "", "ä"]}])
@pytest.mark.parametrize("shape", [(4, 3), (3,)])
def test_rows_become_dictionaries(keys, shape):
  (got,), (want,) = both(ml_model("ZipMap", FLOATS, **keys), f(*shape))
  assert got == want and isinstance(got, list) and [list(d) for d in got] == [list(d) for d in want]


@pytest.mark.parametrize("key, x, vocabulary", [
  (8, {"a": 1.5, "z": 2.0}, {"string_vocabulary": ["z", "b", "a", "z"]}),
  (7, {5: 0.1, 7: 3.0}, {"int64_vocabulary": [4, 5]})])
def test_dictionaries_become_rows(key, x, vocabulary):
  (got,), (want,) = both(ml_model("DictVectorizer", map_type(key, 1), **vocabulary), x)
  assert got.shape == want.shape and got.tolist() == want.tolist()


@pytest.mark.parametrize("to", ["TO_FLOAT", "TO_INT64", "TO_STRING"])
@pytest.mark.parametrize("form", ["DENSE", "SPARSE"])
def test_maps_are_cast(to, form):
  model = ml_model("CastMap", map_type(7, 1), cast_to=to, map_form=form, max_map=7)
  (got,), (want,) = both(model, {4: 1.75, 0: -2.5, 9: 3.0})
  assert got.shape == want.shape and got.tolist() == want.tolist()


# onnxruntime takes no dictionaries of other types from Python.
@pytest.mark.parametrize("op, key, item, x, attributes, want", [
  ("DictVectorizer", 7, 11, {5: 0.1}, {"int64_vocabulary": [4, 5]}, [[0, 0.1]]),
  ("DictVectorizer", 8, 7, {"a": 1 << 60}, {"string_vocabulary": ["a", "b"]}, [[1 << 60, 0]]),
  ("DictVectorizer", 7, 8, {1: "one"}, {"int64_vocabulary": [0, 1]}, [["", "one"]]),
  ("CastMap", 7, 8, {4: "12", 0: "-3"}, {"cast_to": "TO_FLOAT"}, [[-3, 12]]),
  ("CastMap", 7, 8, {4: "12", 0: "-3"}, {"cast_to": "TO_INT64", "map_form": "SPARSE", "max_map": 2}, [[-3, 0]]),
  ("CastMap", 7, 8, {1: "x"}, {"cast_to": "TO_STRING", "map_form": "SPARSE", "max_map": 3}, [["0.f", "x", "0.f"]]),
  ("CastMap", 7, 1, {}, {}, [[]])])
def test_maps_of_other_types(op, key, item, x, attributes, want):
  got = OnnxRunner(ml_model(op, map_type(key, item), **attributes))({"x": x})["o0"]
  assert got.tolist() == want


def test_maps_in_a_sequence_become_rows():
  maps = helper.make_sequence_type_proto(map_type(8, 1))
  model = ml_model("DictVectorizer", maps, string_vocabulary=["a", "b"])
  got = OnnxRunner(model)({"x": [{"a": 1}, {"b": 2.5}]})["o0"]
  assert got.tolist() == [[1, 0], [0, 2.5]]


def test_mistakes_with_maps():
  model = OnnxRunner(ml_model("DictVectorizer", map_type(8, 1), string_vocabulary=["a"]))
  with pytest.raises(ValueError, match="got a number as key of input x, expected type STRING"): model({"x": {1: 2.0}})
  with pytest.raises(ValueError, match="item of another type in input x, expected FLOAT"): model({"x": {"a": "b"}})
  with pytest.raises(ValueError, match="got a tensor for input x, expected a map"): model({"x": np.ones(2, np.float32)})
  with pytest.raises(ValueError, match="got a dict of texts and numbers"): model({"x": {"a": "b", "c": 1}})
  with pytest.raises(ValueError, match="got a map for input x, expected a tensor"):
    OnnxRunner(ml_model("ZipMap", FLOATS, classlabels_int64s=[1]))({"x": {1: 1.0}})
  cast = OnnxRunner(ml_model("CastMap", map_type(7, 8)))
  with pytest.raises(ValueError, match='got text "1x", expected a number'): cast({"x": {1: "1x"}})


@pytest.mark.parametrize("change, message", [
  ({"coefficients": [1.0]}, "got 1 coefficients for 9 vectors and 3 classes"), ({"rho": [1.0]}, "got 1 values of rho"),
  ({"vectors_per_class": [1 << 62, 1 << 62, 1]}, "vectors_per_class has"), ({"prob_a": [1.0]}, "values of prob_a"),
  ({"vectors_per_class": [9]}, "got 1 numbers of vectors for 3 classes"),
  ({"support_vectors": [1.0]}, "got 1 numbers for 9 rows")])
def test_damaged_support_vectors(change, message):
  runner = OnnxRunner(ml_model("SVMClassifier", FLOATS, 2, **svm(3, "RBF", **change)))
  with pytest.raises(FormatError, match=message): runner({"x": f(2, 3)})
