"""ONNX models: the runner, small models against NumPy, and the node tests of the package onnx where it is installed."""
import pathlib
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest

from tinygrad_cpp import FormatError, JitError, ShapeError, Tensor, TinyJit, _core, dtypes
from tinygrad_cpp.nn.onnx import Domain, OnnxPBParser, OnnxRunner, OnnxValue, OpSetId, onnx_load, onnx_ops
from tinygrad_cpp.nn.onnx_proto import field

ROOT = pathlib.Path(__file__).resolve().parents[2]
try:
  import onnx
except ImportError:
  onnx = None
needs_onnx = pytest.mark.skipif(onnx is None, reason="the package onnx, the reference, is not installed")


# ---- a writer of protobuf messages, so that models need no package ----
def varint(v):
  v &= (1 << 64) - 1
  out = b""
  while v >= 128: v, out = v >> 7, out + bytes([v & 127 | 128])
  return out + bytes([v])


def pb(*fields):
  out = b""
  for number, v in fields:
    if isinstance(v, int): out += varint(number << 3) + varint(v)
    elif isinstance(v, float): out += varint(number << 3 | 5) + struct.pack("<f", v)
    else:
      b = v.encode() if isinstance(v, str) else v
      out += varint(number << 3 | 2) + varint(len(b)) + b
  return out


ELEMS = {"float32": 1, "uint8": 2, "int8": 3, "int64": 7, "bool": 9, "float16": 10}


def attr(name, v):
  if isinstance(v, float): return pb((1, name), (2, v), (20, 1))
  if isinstance(v, int): return pb((1, name), (3, v), (20, 2))
  if isinstance(v, str): return pb((1, name), (4, v), (20, 3))
  return pb((1, name), *[(8, i) for i in v], (20, 7))


def node(op, inputs, outputs, domain="", **attributes):
  return pb(*[(1, i) for i in inputs], *[(2, o) for o in outputs], (4, op),
            *[(5, attr(k, v)) for k, v in attributes.items()], *([(7, domain)] if domain else []))


def constant(name, a):
  a = np.asarray(a)
  return pb(*[(1, n) for n in a.shape], (2, ELEMS[a.dtype.name]), (8, name), (9, a.tobytes()))


def value(name, shape, dtype="float32"):
  dims = [(1, pb((1, s) if isinstance(s, int) else (2, s))) for s in shape]
  elem = 8 if dtype == "str" else ELEMS[dtype]
  return pb((1, name), (2, pb((1, pb((1, elem), (2, pb(*dims)))))))


def graph(nodes, inputs, outputs, constants=()):
  return pb(*[(1, n) for n in nodes], (2, "g"), *[(5, c) for c in constants], *[(11, i) for i in inputs],
            *[(12, o) for o in outputs])


def graph_attr(name, g): return pb((1, name), (6, g), (20, 5))


def model(nodes, inputs, outputs, constants=(), version=21):
  license_text = pb((1, "license"), (2, "MIT"))
  return pb((1, 9), (7, graph(nodes, inputs, outputs, constants)), (8, pb((2, version))), (14, license_text))


X = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.array([1, 2, 3], dtype=np.float32)
AFFINE = model([node("Mul", ["x", "w"], ["m"]), node("Add", ["m", "w"], ["y"])], [value("x", ["n", 3])],
               [value("y", ["n", 3])], [constant("w", W)])


# ---- the runner ----
@pytest.mark.parametrize("source", ["path", "bytes", "stream", "tensor", "disk"])
def test_sources(tmp_path, source):
  path = tmp_path / "m.onnx"
  path.write_bytes(AFFINE)
  given = {"path": path, "bytes": AFFINE, "stream": path.open("rb"), "tensor": Tensor(AFFINE), "disk": Tensor(path)}
  given = given[source]
  np.testing.assert_array_equal(OnnxRunner(given)({"x": X})["y"].numpy(), X * W + W)


def test_what_a_runner_knows():
  r = onnx_load(AFFINE)
  assert r.graph_inputs == {"x": OnnxValue(("n", 3), dtypes.float32, False, False)}
  assert r.graph_outputs == ("y",) and r.metadata == {"license": "MIT"}
  assert [n.op for n in r.graph_nodes] == ["Mul", "Add"] and r.graph_nodes[0].inputs == ("x", "w")
  assert r.graph_nodes[0].opset_id.version == 21
  np.testing.assert_array_equal(r.graph_values["w"].numpy(), W)


def test_one_capture_serves_every_size_of_a_range():
  run = OnnxRunner(AFFINE).captured(n=(1, 8))
  held = []
  for n in (3, 1, 8, 5, 2, 8):
    x = np.arange(3 * n, dtype=np.float32).reshape(n, 3)
    held.append((x, run({"x": x if n % 2 else Tensor(x)})["y"]))
  for x, y in held: np.testing.assert_array_equal(y.numpy(), x * W + W)
  large = np.zeros((9, 3), np.float32)
  with pytest.raises(ShapeError, match="expected a size of axis 0 from 1 to 8"): run({"x": large})
  with pytest.raises(ValueError, match='range of "q"'): OnnxRunner(AFFINE).captured(q=(1, 8))


@pytest.mark.parametrize("given", [X, X[:, ::-1][:, ::-1], X.tolist(), Tensor(X), X.astype(np.float64)])
def test_inputs_of_all_kinds(given):
  got = OnnxRunner(AFFINE)({"x": given})["y"]
  assert isinstance(got, Tensor) and got.dtype == dtypes.float32
  np.testing.assert_array_equal(got.numpy(), X * W + W)


def test_arrays_come_in_without_a_copy():
  x = np.ones((1000, 1000), np.float32)
  r = OnnxRunner(model([node("Identity", ["x"], ["y"])], [value("x", [1000, 1000])], [value("y", [1000, 1000])]))
  y = r({"x": x})["y"]
  x[5, 7] = 3
  assert y.numpy()[5, 7] == 3


def test_names_that_are_no_text_do_not_break_messages():
  broken = AFFINE.replace(b"Mul", b"M\xe7l")
  with pytest.raises(FormatError, match=r"\(M\?l"): OnnxRunner(broken)({"x": X})


def test_mistakes():
  r = OnnxRunner(AFFINE)
  with pytest.raises(ShapeError, match="expected size 3 of axis 1"): r({"x": np.ones((2, 4), np.float32)})
  with pytest.raises(ValueError, match='got no input "x"'): r({})
  with pytest.raises(FormatError, match="this is no ONNX model"): OnnxRunner(b"\xff\xff\xff")
  with pytest.raises(FormatError, match="there is no version of it"):
    OnnxRunner(model([node("Fry", ["x"], ["y"])], [value("x", [1])], [value("y", [1])]))({"x": [1.0]})


def test_captured_calls_replay():
  r = OnnxRunner(AFFINE)
  jit = TinyJit(lambda x: r({"x": x})["y"].realize())
  for i in range(5): np.testing.assert_allclose(jit(Tensor(X + i).realize()).numpy(), (X + i) * W + W)
  assert jit.cnt >= 2


def branching(condition_type="int64", then_shape=(2, 3), else_shape=(2, 3)):
  """y = x + x where c > 5, else -x."""
  then = graph([node("Add", ["x", "x"], ["r"])], [], [value("r", then_shape)])
  other = graph([node("Neg", ["x"], ["r"])], [], [value("r", else_shape)])
  attributes = (5, graph_attr("then_branch", then)), (5, graph_attr("else_branch", other))
  nodes = [node("Greater", ["c", "k"], ["b"]), pb((1, "b"), (2, "y"), (4, "If"), *attributes)]
  inputs = [value("x", [2, 3]), value("c", [], condition_type)]
  return OnnxRunner(model(nodes, inputs, [value("y", ["m", "n"])], [constant("k", np.array(5))]))


def test_a_captured_branch_follows_its_condition():
  r = branching()
  jit = TinyJit(lambda x, c: r({"x": x, "c": c})["y"].realize())
  for i, c in enumerate([9, 9, 1, 1, 9, 1, 2, 7, 7, 2]):
    got = jit(Tensor(X + i).realize(), Tensor(c).clone().realize())
    np.testing.assert_array_equal(got.numpy(), (X + i) * (2 if c > 5 else -1))


def test_a_captured_branch_follows_views_computed_conditions_and_state():
  r = branching()
  state = Tensor([1]).contiguous().realize()
  captured = {"view": TinyJit(lambda x, c: r({"x": x, "c": c[1]})["y"].realize()),
              "computed": TinyJit(lambda x, c: r({"x": x, "c": c.sum() - 1})["y"].realize()),
              "state": TinyJit(lambda x: r({"x": x, "c": state[0]})["y"].realize())}
  for i, c in enumerate([9, 1, 1, 9, 9, 1, 2, 7, 7, 2]):
    expected = (X + i) * (2 if c > 5 else -1)
    x, given = Tensor(X + i).realize(), Tensor([1, c, 0]).realize()
    np.testing.assert_array_equal(captured["view"](x, given).numpy(), expected)
    np.testing.assert_array_equal(captured["computed"](x, given).numpy(), expected)
    state.assign(Tensor([c]))  # pending: the replay computes it first
    np.testing.assert_array_equal(captured["state"](x).numpy(), expected)


def test_threads_share_a_captured_branch():
  r, wrong = branching(), []
  shared = TinyJit(lambda x, c: r({"x": x, "c": c})["y"].realize())
  def work(seed):
    for c in np.random.default_rng(seed).integers(0, 10, 30).tolist():
      got = shared(Tensor(X).realize(), Tensor(c).clone().realize()).numpy()
      if not np.array_equal(got, X * (2 if c > 5 else -1)): wrong.append(c)
  threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
  for t in threads: t.start()
  for t in threads: t.join()
  assert not wrong


def test_branches_of_different_shapes_cannot_be_captured():
  r = branching(else_shape=(6,))
  jit = TinyJit(lambda x, c: r({"x": x, "c": c})["y"].realize())
  with pytest.raises(JitError, match="the branches give output 0 in different shapes"):
    for _ in range(3): jit(Tensor(X).realize(), Tensor(9).clone().realize())


def test_operators_as_functions():
  x = Tensor([10., 20, 30])
  assert onnx_ops["Gather"](x, Tensor([2, 0])).tolist() == [30, 10]
  assert onnx_ops["Gather"](x, [2, 0], axis=0).tolist() == [30, 10]
  assert onnx_ops["Pad"](Tensor([[1., 2]]), [0, 1, 0, 1], constant_value=5.0).tolist() == [[5, 1, 2, 5]]
  assert onnx_ops["Clip"](x, max=15.0).tolist() == [10, 15, 15]
  values, indices = onnx_ops["TopK"](x, [2])
  assert values.tolist() == [30, 20] and indices.tolist() == [2, 1]
  assert len(onnx_ops["Split"](x, num_outputs=3, outputs=3)) == 3
  gelu = onnx_ops["Gelu"]
  assert gelu.domain == "" and gelu[OpSetId(Domain.MICROSOFT_CONTRIB_OPS, 1)].domain == "com.microsoft"
  np.testing.assert_allclose(onnx_ops["LeakyRelu"](Tensor([-2., 1]), alpha=0.5).numpy(), [-1, 1])
  with pytest.raises(KeyError): onnx_ops["Fry"]
  with pytest.raises(KeyError): gelu[OpSetId(Domain.ONNX_ML, 1)]
  with pytest.raises(TypeError, match="attribute axis"): onnx_ops["Gather"](x, [0], axis=object())
  with pytest.raises(ValueError, match="lists of different lengths as in1"): onnx_ops["Gather"](x, [[0, 1], [2]])


def test_every_operator_has_a_signature():
  from tinygrad_cpp.nn.onnx_ops import _signatures
  lacks = {(d, n) for d, n, _ in _core.onnx_operators() if d != "ai.onnx.preview"} - set(_signatures())
  assert lacks == {("", "SimplifiedLayerNormalization")}  # of com.microsoft, which exporters write without its domain


def test_the_parser_gives_dictionaries(tmp_path):
  path = tmp_path / "m.onnx"
  path.write_bytes(AFFINE)
  parsed = OnnxPBParser(path).parse()
  assert [n["op_type"] for n in parsed["graph"]["node"]] == [n.op for n in OnnxRunner(AFFINE).graph_nodes]
  first = parsed["graph"]["node"][0]["parsed_node"]
  assert first == OnnxRunner(AFFINE).graph_nodes[0] and first.opset_id.domain == Domain.ONNX
  assert parsed["graph"]["input"][0]["parsed_type"] == OnnxRunner(AFFINE).graph_inputs["x"]
  tensors = {t["name"]: t["parsed_tensor"].numpy() for t in parsed["graph"]["initializer"]}
  np.testing.assert_array_equal(tensors["w"], W)
  assert OnnxPBParser(Tensor(AFFINE)).parse()["graph"]["output"][0]["name"] == "y"


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_the_parser_refuses_what_is_cut_off(cut):
  with pytest.raises(FormatError): OnnxPBParser(Tensor(AFFINE[:-cut])).parse()


def test_the_parser_refuses_deep_nesting():
  body = b""
  for _ in range(200): body = field(1, field(5, field(6, body)))
  with pytest.raises(FormatError, match="inside of more than 64 others"): OnnxPBParser(Tensor(field(7, body))).parse()


def test_a_captured_call_cannot_read_data():
  r = OnnxRunner(model([node("NonZero", ["x"], ["y"])], [value("x", [3])], [value("y", [1, "n"], "int64")]))
  assert r({"x": np.array([0, 5, 6], np.float32)})["y"].tolist() == [[1, 2]]
  jit = TinyJit(lambda x: r({"x": x})["y"].realize())
  with pytest.raises(JitError, match="a function that is being captured"):
    for i in range(3): jit(Tensor([1.0 * i, 2, 0]).realize())


def test_half_and_gradients():
  assert OnnxRunner(AFFINE, dtype=dtypes.float16)({"x": X})["y"].dtype == dtypes.float16
  r = OnnxRunner(AFFINE, trainable=True)
  w = r.parameters()["w"]
  r({"x": X})["y"].sum().gradient(w)
  np.testing.assert_allclose(r({"x": X})["y"].sum().gradient(w)[0].numpy(), X.sum(0) + 2)


def test_texts():
  r = OnnxRunner(model([node("StringConcat", ["a", "b"], ["y"])], [value("a", ["n"], "str"), value("b", [1], "str")],
                       [value("y", ["n"], "str")]))
  got = r({"a": np.array(["x", "ü"], dtype=object), "b": ["!"]})["y"]
  assert got.dtype == object and got.tolist() == ["x!", "ü!"]


def test_debug_prints_nodes(capfd):
  OnnxRunner(AFFINE)({"x": X}, debug=1)
  assert "Mul" in capfd.readouterr().out


# ---- operators whose meaning depends on the version, against NumPy ----
def run(nodes, constants=(), version=21, **inputs):
  ins = [value(k, v.shape, v.dtype.name) for k, v in inputs.items()]
  given = [constant(k, v) for k, v in dict(constants).items()]
  return OnnxRunner(model(nodes, ins, [pb((1, "y"))], given, version))(inputs)["y"].numpy()


def test_softmax_before_13_flattens():
  x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
  e = np.exp(x)
  softmax = [node("Softmax", ["x"], ["y"])]
  np.testing.assert_allclose(run(softmax, version=11, x=x), e / e.sum((1, 2), keepdims=True), rtol=1e-5)
  np.testing.assert_allclose(run(softmax, version=13, x=x), e / e.sum(2, keepdims=True), rtol=1e-5)


def test_axes_became_inputs():
  old = run([node("ReduceSum", ["x"], ["y"], axes=[1], keepdims=0)], version=11, x=X)
  new = run([node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)], {"axes": np.array([1], np.int64)}, x=X)
  np.testing.assert_array_equal(old, X.sum(1))
  np.testing.assert_array_equal(new, X.sum(1))


def test_division_rounds_to_zero():
  x = np.array([-7, 7], np.int64)
  np.testing.assert_array_equal(run([node("Div", ["x", "d"], ["y"])], {"d": np.array(2, np.int64)}, x=x), [-3, 3])


def test_quantized_products_are_exact():
  a = np.random.default_rng(0).integers(0, 256, (4, 70), dtype=np.uint8)
  b = np.random.default_rng(1).integers(-128, 128, (70, 5), dtype=np.int8)
  zero = {"za": np.array(131, np.uint8), "zb": np.array([1, 2, 3, 4, -5], np.int8), "b": b}
  got = run([node("MatMulInteger", ["x", "b", "za", "zb"], ["y"])], zero, x=a)
  np.testing.assert_array_equal(got, (a.astype(np.int32) - 131) @ (b.astype(np.int32) - zero["zb"]))
  assert got.dtype == np.int32


def test_lstm_of_two_directions_and_lengths():
  rng = np.random.default_rng(3)
  x, n, h = rng.normal(size=(5, 2, 3)).astype(np.float32), np.array([5, 3], np.int64), 4
  w, r = (rng.normal(size=s).astype(np.float32) for s in ((2, 4 * h, 3), (2, 4 * h, h)))
  b = rng.normal(size=(2, 8 * h)).astype(np.float32)
  nodes = [node("Cast", ["n"], ["k"], to=6), pb(*[(1, i) for i in ("x", "w", "r", "b", "k")], (2, "y"), (4, "LSTM"),
                                                 (5, attr("hidden_size", h)), (5, attr("direction", "bidirectional")))]
  got = run(nodes, {"w": w, "r": r, "b": b}, x=x, n=n)
  want = np.zeros((5, 2, 2, h), np.float32)
  sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
  for d in range(2):
    for row in range(2):
      hidden, cell = np.zeros(h), np.zeros(h)
      for t in range(n[row]) if d == 0 else reversed(range(n[row])):
        i, o, f, c = np.split(x[t, row] @ w[d].T + hidden @ r[d].T + b[d, :4 * h] + b[d, 4 * h:], 4)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(c)
        hidden = sigmoid(o) * np.tanh(cell)
        want[t, d, row] = hidden
  np.testing.assert_allclose(got, want, atol=1e-5)


def test_trees_and_labels():
  trees = [(5, attr("nodes_treeids", [0, 0, 0])), (5, attr("nodes_nodeids", [0, 1, 2])),
           (5, attr("nodes_featureids", [1, 0, 0])),
           (5, pb((1, "nodes_values"), (7, struct.pack("<3f", 0.5, 0, 0)), (20, 6))),
           (5, attr("nodes_truenodeids", [1, 0, 0])), (5, attr("nodes_falsenodeids", [2, 0, 0])),
           (5, pb((1, "nodes_modes"), (9, "BRANCH_LEQ"), (9, "LEAF"), (9, "LEAF"), (20, 8))),
           (5, attr("target_treeids", [0, 0])), (5, attr("target_nodeids", [1, 2])), (5, attr("target_ids", [0, 0])),
           (5, pb((1, "target_weights"), (7, struct.pack("<2f", 10, 20)), (20, 6))), (5, attr("n_targets", 1))]
  nodes = [pb((1, "x"), (2, "y"), (4, "TreeEnsembleRegressor"), (7, "ai.onnx.ml"), *trees)]
  np.testing.assert_array_equal(run(nodes, x=np.array([[9, 0.5], [9, 0.6]], np.float32)), [[10], [20]])


# ---- what the package onnx tests ----
LEFT_OUT = {
  "test_bernoulli*": "draws random numbers",
  **{f"test_image_decoder_decode_{k}_rgb": f"{k} files are not read" for k in ("jpeg2k", "tiff")},
  "test_*_bf16*": "the reference rounds each step to bfloat16",
  "test_attention_4d_causal_fp16*": "the reference rounds each step to float16",
  "test_dft_inverse*": "the reference has noise in place of zeros",
  "test_maxunpool_export_with_output_shape": "places count the shape that is asked for, as PyTorch and ONNX Runtime do",
  "test_resize_downsample_scales_*_align_corners": "divides by the size of the result, as PyTorch and ONNX Runtime do",
}


@needs_onnx
def test_node_tests():
  """In a process of their own: the package's cases take 1 GB."""
  worker = pathlib.Path(__file__).with_name("onnx_node_tests.py")
  out = subprocess.run([sys.executable, worker, *LEFT_OUT], capture_output=True, text=True)
  assert out.returncode == 0, out.stdout[-4000:] + out.stderr[-2000:]


def test_the_page_lists_the_operators():
  tool = ROOT / "tools" / "onnx_operators.py"
  out = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True)
  assert out.returncode == 0, out.stdout + out.stderr
  assert len(_core.onnx_operators()) > 200


def test_a_limit_returns_the_outputs_of_a_node(monkeypatch):
  from tinygrad_cpp.helpers import getenv
  r = OnnxRunner(AFFINE)
  monkeypatch.setenv("ONNXLIMIT", "0")
  getenv.cache_clear()
  np.testing.assert_array_equal(r({"x": X})["m"].numpy(), X * W)
  monkeypatch.delenv("ONNXLIMIT")
  getenv.cache_clear()
  assert list(r({"x": X})) == ["y"]
