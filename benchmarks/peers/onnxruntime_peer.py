"""ONNX Runtime, CPU provider: graphs of standard operators, all arrays given at run time, results into given arrays."""
import numpy as np
import onnxruntime as ort
from onnx import helper, numpy_helper
import inputs
from worker import Work


class Graph:
  """Nodes, constants and names of a model under construction."""
  def __init__(self): self.nodes, self.constants = [], []
  def constant(self, value) -> str:
    self.constants.append(numpy_helper.from_array(np.asarray(value), f"c{len(self.constants)}"))
    return self.constants[-1].name
  def op(self, kind: str, *names: str, outputs: int = 1, **attributes):
    made = [f"t{len(self.nodes)}_{i}" for i in range(outputs)]
    self.nodes.append(helper.make_node(kind, names, made, **attributes))
    return made[0] if outputs == 1 else made


def attend(g: Graph, q: str, k: str, v: str, time: int, depth: int, causal: bool = True) -> str:
  """Attention over (batch, head, time, depth)."""
  scores = g.op("MatMul", g.op("Mul", q, g.constant(np.float32(depth ** -0.5))),
                g.op("Transpose", k, perm=[0, 1, 3, 2]))
  if causal: scores = g.op("Add", scores, g.constant(np.triu(np.full((time, time), -np.inf, np.float32), 1)))
  return g.op("MatMul", g.op("Softmax", scores, axis=-1), v)


class Peer:
  def __init__(self, name: str, threads: int):
    self.version, self.threads = ort.__version__, threads

  def _work(self, x: list[np.ndarray], shape: tuple[int, ...], build) -> Work:
    g = Graph()
    g.nodes.append(helper.make_node("Identity", [build(g, *(f"x{i}" for i in range(len(x))))], ["y"]))
    def info(name, s, kind=np.float32):
      return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), s)
    graph = helper.make_graph(g.nodes, "row", [info(f"x{i}", v.shape, v.dtype) for i, v in enumerate(x)],
                              [info("y", shape)], g.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    out, binding = np.empty(shape, np.float32), session.io_binding()
    for i, v in enumerate(x): binding.bind_cpu_input(f"x{i}", v)
    binding.bind_output("y", "cpu", 0, np.float32, shape, out.ctypes.data)
    def run(keep=(x, out)): session.run_with_iobinding(binding)  # a binding does not keep its arrays alive
    return Work(run, lambda: [out])

  def matmul(self, row) -> Work:
    x, a = inputs.operands(row), row.args
    if not (a["transpose_a"] or a["transpose_b"]):
      return self._work(x, x[0].shape[:-1] + x[1].shape[-1:], lambda g, p, q: g.op("MatMul", p, q))
    return self._work(x, (a["m"], a["n"]),
                      lambda g, p, q: g.op("Gemm", p, q, transA=int(a["transpose_a"]), transB=int(a["transpose_b"])))

  def gemv(self, row) -> Work:
    x = inputs.operands(row)
    return self._work(x, x[1].shape, lambda g, a, v: g.op("MatMul", a, v))

  def conv(self, row) -> Work:
    a = row.args
    return self._work(inputs.operands(row), a["y"],
                      lambda g, x, w: g.op("Conv", x, w, group=a["groups"], strides=[a["stride"]] * 2,
                                           pads=[a["padding"]] * 4,
                                                                         dilations=[a["dilation"]] * 2))

  def add_mul(self, row) -> Work:
    x = inputs.operands(row)
    return self._work(x, x[0].shape, lambda g, a, b, c: g.op("Add", g.op("Mul", a, b), c))

  def _map(self, row, kind, **attributes) -> Work:
    x = inputs.operands(row)
    return self._work(x, x[0].shape, lambda g, v: g.op(kind, v, **attributes))
  def exp(self, row) -> Work: return self._map(row, "Exp")
  def sin(self, row) -> Work: return self._map(row, "Sin")
  def gelu(self, row) -> Work: return self._map(row, "Gelu", approximate="tanh")
  def softmax(self, row) -> Work: return self._map(row, "Softmax", axis=-1)

  def layernorm(self, row) -> Work:
    x = inputs.operands(row)
    return self._work(x, x[0].shape,
                      lambda g, v: g.op("LayerNormalization", v, g.constant(np.ones(x[0].shape[-1:], np.float32)),
                                        epsilon=1e-5))

  def _reduce(self, row) -> Work:
    x, axis, kind = inputs.operands(row), row.args["axis"], {"sum": "ReduceSum", "max": "ReduceMax",
                                                             "mean": "ReduceMean"}[row.kind]
    return self._work(x, () if axis is None else x[0].shape[:1],
                      lambda g, v: g.op(kind, v, g.constant(np.array([axis or 0])), keepdims=0))
  sum = max = mean = _reduce

  def attention(self, row) -> Work:
    x = inputs.operands(row)
    return self._work(x, x[0].shape, lambda g, q, k, v: attend(g, q, k, v, *x[0].shape[2:]))

  def embedding(self, row) -> Work:
    x = inputs.operands(row)
    return self._work(x, x[1].shape + x[0].shape[1:], lambda g, table, words: g.op("Gather", table, words))

  def lstm(self, row) -> Work:
    x, n = inputs.operands(row), row.args["size"]
    def gates(w: np.ndarray) -> np.ndarray:  # ONNX has them in the order input, output, forget, cell
      i, f, c, o = np.split(w, 4)
      return np.concatenate([i, o, f, c])[None]
    shape = x[0].shape[:1] + (1,) + x[0].shape[1:2] + (n,)
    return self._work(x[:1], shape,
                      lambda g, v: g.op("LSTM", v, g.constant(gates(x[1])), g.constant(gates(x[2])), outputs=3,
                                        hidden_size=n)[0])

  def vit(self, row) -> Work: return self.gpt2(row, causal=False)

  def gpt2(self, row, causal=True) -> Work:
    x, values = inputs.operands(row)[0], inputs.gpt2_values()
    batch, time, channels = x.shape
    def build(g, v, *p):
      def linear(t, w, bias): return g.op("Add", g.op("MatMul", t, g.op("Transpose", w, perm=[1, 0])), bias)
      def norm(t, w, bias): return g.op("LayerNormalization", t, w, bias, epsilon=1e-5)
      split = g.constant(np.array([batch, time, inputs.HEADS, -1]))
      heads = [g.op("Transpose", g.op("Reshape", t, split), perm=[0, 2, 1, 3])
               for t in g.op("Split", linear(norm(v, p[0], p[1]), p[2], p[3]), axis=-1, num_outputs=3, outputs=3)]
      a = g.op("Transpose", attend(g, *heads, time, channels // inputs.HEADS, causal), perm=[0, 2, 1, 3])
      y = g.op("Add", v, linear(g.op("Reshape", a, g.constant(np.array(x.shape))), p[4], p[5]))
      return g.op("Add", y, linear(g.op("Gelu", linear(norm(y, p[6], p[7]), p[8], p[9]), approximate="tanh"), p[10],
                                   p[11]))
    return self._work([x], x.shape, lambda g, v: build(g, v, *(g.constant(w) for w in values)))
