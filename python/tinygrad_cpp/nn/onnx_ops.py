"""Operators of ONNX as functions of tensors: onnx_ops["Gather"](x, indices, axis=1)."""
from __future__ import annotations
import functools, struct
from typing import Any, Iterable
from .. import _core
from ..tensor import Tensor
from .onnx import Domain, OnnxRunner, OpSetId
from .onnx_proto import field, model, varint

# By domain: the operators, each with the number of its outputs where that is not 1, and the names of its inputs; * any
# number of them.
_SIGNATURES: dict[str, str] = {
  "": """
    Abs X; Acos input; Acosh input; Add A B; AffineGrid theta size; And A B; ArgMax data; ArgMin data; Asin input;
    Asinh input; Atan input; Atanh input; Attention:4 Q K V attn_mask past_key past_value nonpad_kv_seqlen;
    AveragePool X; BatchNormalization X scale B input_mean input_var; Bernoulli input; BitCast input; BitShift X Y;
    BitwiseAnd A B; BitwiseNot X; BitwiseOr A B; BitwiseXor A B; BlackmanWindow size; Cast input; CastLike input
    target_type; CausalConvWithState:2 input weight bias past_state; Ceil X; Celu X; CenterCropPad input_data shape;
    Clip input min max; Col2Im input image_shape block_shape; Compress input condition; Concat inputs*;
    ConcatFromSequence input_sequence; Constant; ConstantOfShape input; Conv X W B; ConvInteger x w x_zero_point
    w_zero_point; ConvTranspose X W B; Cos input; Cosh input; CumProd x axis; CumSum x axis; DFT input dft_length
    axis; DeformConv X W offset B mask; DepthToSpace input; DequantizeLinear x x_scale x_zero_point; Det X; Div A B;
    Dropout:2 data ratio training_mode; DynamicQuantizeLinear:3 x; Einsum Inputs*; Elu X; Equal A B; Erf input; Exp
    input; Expand input shape; EyeLike input; Flatten input; Floor X; GRU:2 X W R B sequence_lens initial_h; Gather
    data indices; GatherElements data indices; GatherND data indices; Gelu X; Gemm A B C; GlobalAveragePool X;
    GlobalLpPool X; GlobalMaxPool X; Greater A B; GreaterOrEqual A B; GridSample X grid; GroupNormalization X scale
    bias; HammingWindow size; HannWindow size; HardSigmoid X; HardSwish X; Hardmax input; Identity input; If cond;
    ImageDecoder encoded_stream; InstanceNormalization input scale B; IsInf X; IsNaN X; LRN X; LSTM:3 X W R B
    sequence_lens initial_h initial_c P; LayerNormalization:3 X Scale B; LeakyRelu X; Less A B; LessOrEqual A B;
    LinearAttention:2 query key value past_state decay beta; Log input; LogSoftmax input; Loop M cond v_initial*;
    LpNormalization input; LpPool X; MatMul A B; MatMulInteger A B a_zero_point b_zero_point; Max data_0*; MaxPool:2
    X; MaxRoiPool X rois; MaxUnpool X I output_shape; Mean data_0*; MeanVarianceNormalization X; MelWeightMatrix
    num_mel_bins dft_length sample_rate lower_edge_hertz upper_edge_hertz; Min data_0*; Mish X; Mod A B; Mul A B;
    Multinomial input; Neg X; NegativeLogLikelihoodLoss input target weight; NonMaxSuppression boxes scores
    max_output_boxes_per_class iou_threshold score_threshold; NonZero X; Not X; OneHot indices depth values; Optional
    input; OptionalGetElement input; OptionalHasElement input; Or A B; PRelu X slope; Pad data pads constant_value
    axes; Pow X Y; QLinearConv x x_scale x_zero_point w w_scale w_zero_point y_scale y_zero_point B; QLinearMatMul a
    a_scale a_zero_point b b_scale b_zero_point y_scale y_zero_point; QuantizeLinear x y_scale y_zero_point;
    RMSNormalization X scale; RNN:2 X W R B sequence_lens initial_h; RandomNormal; RandomNormalLike input;
    RandomUniform; RandomUniformLike input; Range start limit delta; Reciprocal X; ReduceL1 data axes; ReduceL2 data
    axes; ReduceLogSum data axes; ReduceLogSumExp data axes; ReduceMax data axes; ReduceMean data axes; ReduceMin data
    axes; ReduceProd data axes; ReduceSum data axes; ReduceSumSquare data axes; RegexFullMatch X; Relu X; Reshape data
    shape; Resize X roi scales sizes; ReverseSequence input sequence_lens; RoiAlign X rois batch_indices;
    RotaryEmbedding X cos_cache sin_cache position_ids; Round X; STFT signal frame_step window frame_length; Scan
    initial_state_and_scan_inputs*; Scatter data indices updates; ScatterElements data indices updates; ScatterND data
    indices updates; Selu X; SequenceAt input_sequence position; SequenceConstruct inputs*; SequenceEmpty;
    SequenceErase input_sequence position; SequenceInsert input_sequence tensor position; SequenceLength
    input_sequence; SequenceMap input_sequence additional_inputs*; Shape data; Shrink input; Sigmoid X; Sign input;
    Sin input; Sinh input; Size data; Slice data starts ends axes steps; Softmax input; SoftmaxCrossEntropyLoss:2
    scores labels weights; Softplus X; Softsign input; SpaceToDepth input; Split input split; SplitToSequence input
    split; Sqrt X; Squeeze data axes; StringConcat X Y; StringNormalizer X; StringSplit:2 X; Sub A B; Sum data_0*;
    SwiGLU A B; Swish X; Tan input; Tanh input; TensorScatter past_cache update write_indices; TfIdfVectorizer X;
    ThresholdedRelu X; Tile input repeats; TopK:2 X K; Transpose data; Trilu input k; Unique:4 X; Unsqueeze data axes;
    Upsample X scales; Where condition X Y; Xor A B""",
  "ai.onnx.ml": """
    ArrayFeatureExtractor X Y; Binarizer X; CastMap X; CategoryMapper X; DictVectorizer X; FeatureVectorizer X*;
    Imputer X; LabelEncoder X; LinearClassifier:2 X; LinearRegressor X; Normalizer X; OneHotEncoder X; SVMClassifier:2
    X; SVMRegressor X; Scaler X; TreeEnsemble X; TreeEnsembleClassifier:2 X; TreeEnsembleRegressor X; ZipMap X""",
  "ai.onnx.preview.training": """
    Adagrad R T inputs*; Adam R T inputs*; Gradient Inputs*; Momentum R T inputs*""",
  "com.microsoft": """
    Attention:2 input weights bias mask_index past attention_bias past_sequence_length; BiasGelu A B; DequantizeLinear
    x x_scale x_zero_point; DynamicQuantizeMatMul A B b_scale b_zero_point bias; EmbedLayerNormalization:3 input_ids
    segment_ids word_embedding position_embedding segment_embedding gamma beta mask position_ids; FastGelu X bias;
    FusedConv X W B Z; FusedMatMul A B; Gelu X; GroupQueryAttention:3 query key value past_key past_value seqlens_k
    total_sequence_length cos_cache sin_cache; MatMulIntegerToFloat A B a_scale b_scale a_zero_point b_zero_point
    bias; MatMulNBits A B scales zero_points g_idx bias; MultiHeadAttention:3 query key value bias key_padding_mask
    attention_bias past_key past_value; QLinearAdd A A_scale A_zero_point B B_scale B_zero_point C_scale C_zero_point;
    QLinearConcat Y_scale Y_zero_point inputs*; QLinearGlobalAveragePool X x_scale x_zero_point y_scale y_zero_point;
    QLinearLeakyRelu X X_scale X_zero_point Y_scale Y_zero_point; QLinearMul A A_scale A_zero_point B B_scale
    B_zero_point C_scale C_zero_point; QLinearSigmoid X X_scale X_zero_point Y_scale Y_zero_point; QuantizeLinear x
    y_scale y_zero_point; QuickGelu X; RotaryEmbedding input position_ids cos_cache sin_cache;
    SimplifiedLayerNormalization X scale; SkipLayerNormalization:4 input skip gamma beta bias;
    SkipSimplifiedLayerNormalization:4 input skip gamma bias; Trilu X k"""}


@functools.cache
def _signatures() -> dict[tuple[str, str], tuple[int, list[str]]]:
  out = {}
  for domain, rows in _SIGNATURES.items():
    for row in rows.split(";"):
      name, *inputs = row.split()
      name, _, outputs = name.partition(":")
      out[domain, name] = (int(outputs or 1), inputs)
  return out


def _attribute(name: str, value: Any) -> bytes:
  """An AttributeProto."""
  def number(v: float) -> bytes: return varint(int(v))
  head, values = field(1, name), list(value) if isinstance(value, (list, tuple)) else None
  kinds = {type(v) for v in ([value] if values is None else values)} - {bool}
  if kinds <= {int}:
    content = varint(3 << 3) + number(value) if values is None else b"".join(varint(8 << 3) + number(v) for v in values)
    kind = 2 if values is None else 7
  elif kinds <= {int, float}:
    def packed(f: int, v: float) -> bytes: return varint(f << 3 | 5) + struct.pack("<f", v)
    content = packed(2, value) if values is None else b"".join(packed(7, v) for v in values)
    kind = 1 if values is None else 6
  elif kinds == {str}:
    content = field(4, value) if values is None else b"".join(field(9, v) for v in values)
    kind = 3 if values is None else 8
  else: raise TypeError(f"[onnx] got {value!r} for attribute {name}, expected numbers or texts")
  return field(5, head + content + varint(20 << 3) + varint(kind))


def _constant(name: str, value: Any) -> bytes:
  """A TensorProto of a number or nested lists of them: int64, float32 or bool."""
  shape, flat = [], [value]
  while flat and isinstance(flat[0], (list, tuple)):
    if len({len(v) for v in flat}) > 1: raise ValueError(f"[onnx] got lists of different lengths as {name}")
    shape.append(len(flat[0]))
    flat = [x for v in flat for x in v]
  if flat == [value] and isinstance(value, (list, tuple)): shape, flat = [0], []
  if all(isinstance(v, bool) for v in flat) and flat: kind, data = 9, bytes(flat)
  elif all(isinstance(v, int) for v in flat): kind, data = 7, struct.pack(f"<{len(flat)}q", *flat)
  else: kind, data = 1, struct.pack(f"<{len(flat)}f", *flat)
  dims = b"".join(varint(1 << 3) + varint(n) for n in shape)
  return dims + varint(2 << 3) + varint(kind) + field(8, name) + field(9, data)


@functools.lru_cache(256)
def _runner(domain: str, op: str, version: int, inputs: tuple[tuple[str, str], ...], constants: bytes,
            attributes: bytes, outputs: int, device: str | None) -> OnnxRunner:
  names = [f"out{i}" for i in range(outputs)]
  node = b"".join(field(1, name) for name, _ in inputs) + b"".join(field(2, n) for n in names)
  node += field(4, op) + attributes + field(7, domain)
  graph = field(1, node) + constants + b"".join(field(11, field(1, n)) for n, kind in inputs if kind == "tensor")
  return OnnxRunner(model(graph + b"".join(field(12, field(1, n)) for n in names), domain, version), device=device)


class OnnxOperator:
  """An operator as a function. Inputs are given in their order or by name: tensors; numbers and lists, which the graph
  has as constants; None for one that is left out. Other keywords are attributes. Returns a tensor, or a tuple where the
  operator has several outputs; `outputs` says how many of them. op[OpSetId(domain, version)] is the same of another
  domain or version."""
  def __init__(self, domain: str, name: str, version: int):
    self.domain, self.name, self.version = domain, name, version
    self.outputs, self.inputs = _signatures()[domain, name]

  def __repr__(self) -> str: return f"OnnxOperator({self.domain or 'ai.onnx'}.{self.name} {self.version})"

  def __getitem__(self, opset: OpSetId) -> OnnxOperator:
    domain = "" if opset.domain == Domain.ONNX else str(getattr(opset.domain, "value", opset.domain))
    if (domain, self.name) not in _signatures(): raise KeyError(opset)
    return OnnxOperator(domain, self.name, opset.version)

  def _arrange(self, given: tuple[Any, ...], keywords: dict[str, Any]) -> list[Any]:
    """The inputs in their order; takes those that are named out of the keywords."""
    values, names = list(given), [n for n in self.inputs if not n.endswith("*")]
    for i, name in enumerate(names):
      if name not in keywords: continue
      values += [None] * (i + 1 - len(values))
      values[i] = keywords.pop(name)
    return values

  def __call__(self, *given: Any, outputs: int | None = None, **attributes: Any) -> Any:
    values, tensors, constants, inputs = self._arrange(given, attributes), {}, b"", []
    for i, value in enumerate(values):
      name = f"in{i}" if value is not None else ""
      inputs.append((name, "tensor" if isinstance(value, Tensor) else ""))
      if isinstance(value, Tensor): tensors[name] = value
      elif value is not None: constants += field(5, _constant(name, value))
    count = self.outputs if outputs is None else outputs
    device = next((t.device for t in tensors.values() if isinstance(t.device, str)), None)
    encoded = b"".join(_attribute(n, v) for n, v in sorted(attributes.items()))
    got = _runner(self.domain, self.name, self.version, tuple(inputs), constants, encoded, count, device)(tensors)
    return tuple(got.values()) if count > 1 else next(iter(got.values()))


class _Operators(dict[str, OnnxOperator]):
  """The operators by name, of the default domain where several have one of the name, in their newest version."""
  def __init__(self) -> None:
    newest: dict[str, int] = {}
    rows: Iterable[tuple[str, str, int]] = _core.onnx_operators()
    for domain, _, since in rows: newest[domain] = max(newest.get(domain, 1), since)
    for domain, name, _ in sorted(rows, reverse=True):
      if (domain, name) in _signatures(): self[name] = OnnxOperator(domain, name, newest[domain])


onnx_ops = _Operators()
