"""GGUF files and GGML's blocks against the gguf package."""
import struct

import numpy as np
import pytest

from tinygrad_cpp import FormatError, Tensor, dtypes, nn
from tinygrad_cpp.llm.gguf import (GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType, ggml_data_to_tensor,
                                   ggml_quantize, gguf_load, gguf_save)

try:
  import gguf
except ImportError:
  gguf = None
needs_gguf = pytest.mark.skipif(gguf is None, reason="the package gguf, the reference, is not installed")

# where float16 scales are in a block
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ3_XXS": [0], "IQ1_S": [0],
          "IQ4_NL": [0], "IQ3_S": [0], "IQ2_S": [0], "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64], "Q1_0": [0]}
QUANTIZED = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4"]


def random_blocks(name, count, seed=0):
  """Random bytes with finite scales."""
  elements, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
  raw = np.random.default_rng(seed).integers(0, 256, (count, size), dtype=np.uint8)
  for at in HALVES.get(name, []): raw[:, at + 1] &= 0xbb  # the exponent of a half is at most 29
  if name == "IQ1_M": raw[:, 55] &= 0xbf
  if name == "MXFP4": raw[:, 0] %= 250
  if name in ("F16",): raw[:, 1] &= 0xbb
  if name in ("F32", "F64", "BF16"): raw[:, -1] &= 0xbf
  if name in ("Q8_1", "Q8_K"): raw[:, 3] &= 0xbf
  return raw


@needs_gguf
def test_types_and_sizes_are_those_of_the_reference():
  ours = {t.name: (int(t), *GGML_QUANT_SIZES[t]) for t in GGMLQuantizationType}
  theirs = {t.name: (int(t), *gguf.GGML_QUANT_SIZES[t]) for t in gguf.GGMLQuantizationType}
  assert ours == theirs


@needs_gguf
@pytest.mark.parametrize("name", [t.name for t in GGMLQuantizationType])
def test_values_are_those_of_the_reference_bit_for_bit(name):
  elements, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
  raw = random_blocks(name, 300)
  got = ggml_data_to_tensor(Tensor(raw.reshape(-1)), 300 * elements, GGMLQuantizationType[name]).numpy()
  try: want = gguf.dequantize(raw, gguf.GGMLQuantizationType[name]).reshape(-1)
  except NotImplementedError: want = own_reference(name, raw)
  if name in ("F16", "BF16"): got = got.astype(np.float32)  # the reference widens what we keep
  assert got.dtype == want.dtype and np.isfinite(want).all()
  assert got.tobytes() == want.tobytes()


def own_reference(name, raw):
  """What the reference has no function for, as the layout of the blocks says."""
  if name == "Q8_1": return (raw[:, :4].copy().view(np.float32) * raw[:, 8:].view(np.int8)).reshape(-1)
  if name == "Q8_K": return (raw[:, :4].copy().view(np.float32) * raw[:, 4:260].view(np.int8)).reshape(-1)
  if name == "Q1_0":
    bits = np.unpackbits(raw[:, 2:], axis=1, bitorder="little").astype(np.float32)
    return (raw[:, :2].copy().view(np.float16).astype(np.float32) * (bits * 2 - 1)).reshape(-1)
  return raw.reshape(-1).view({"F64": np.float64, "I8": np.int8, "I16": np.int16, "I32": np.int32,
                               "I64": np.int64}[name])


@needs_gguf
@pytest.mark.parametrize("name", [t.name for t in GGMLQuantizationType if t.name not in ("I8", "I16", "I32", "I64")])
def test_any_scale_gives_what_the_reference_gives(name):
  """Infinite scales and NaN, too: equal values, and NaN in the same places."""
  elements, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
  raw = np.random.default_rng(1).integers(0, 256, (500, size), dtype=np.uint8)
  with np.errstate(all="ignore"):
    try: want = gguf.dequantize(raw, gguf.GGMLQuantizationType[name]).reshape(-1)
    except NotImplementedError: want = own_reference(name, raw)
  got = ggml_data_to_tensor(Tensor(raw.reshape(-1)), 500 * elements, GGMLQuantizationType[name]).numpy()
  np.testing.assert_array_equal(got.astype(want.dtype), want)


@needs_gguf
@pytest.mark.parametrize("name", [t.name for t in GGMLQuantizationType if not t.name.startswith(("I8", "I16", "I32"))
                                  and t.name not in ("I64", "F64", "Q8_1", "Q8_K", "Q1_0")])
def test_products_with_packed_weights(name):
  """The values are unpacked in the kernel of the product."""
  elements, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
  rows, columns = 264, 512
  raw = random_blocks(name, rows * columns // elements, 2)
  for at in HALVES.get(name, []): raw[:, at + 1] = raw[:, at + 1] & 0x83 | 0x28  # +-1/32 to 1/16
  if name == "MXFP4": raw[:, 0] = raw[:, 0] % 8 + 120
  if name == "IQ1_M": raw[:, 55] = raw[:, 55] & 0x8f | 0x20
  if name == "F16": raw[:, 1] = raw[:, 1] & 0x83 | 0x38
  if name in ("F32", "BF16"): raw[:, -1] = raw[:, -1] & 0x80 | 0x3f
  w = gguf.dequantize(raw, gguf.GGMLQuantizationType[name]).reshape(rows, columns).astype(np.float64)
  ours = ggml_data_to_tensor(Tensor(raw.reshape(-1)), rows * columns, GGMLQuantizationType[name]).reshape(rows, columns)
  for batch in (1, 3, 40):
    x = np.random.default_rng(3).standard_normal((batch, columns)).astype(np.float32)
    got = Tensor(x).matmul(ours.float().T).numpy()
    np.testing.assert_array_less(np.abs(got - x @ w.T), 2e-6 * (np.abs(x) @ np.abs(w.T)) + 1e-12)


@needs_gguf
@pytest.mark.parametrize("name", QUANTIZED)
@pytest.mark.parametrize("kind", ["normal", "ties", "zeros", "large"])
def test_packing_is_that_of_the_reference_byte_for_byte(name, kind):
  x = np.random.default_rng(4).standard_normal((20, 512)).astype(np.float32)
  if kind == "ties": x = np.round(x * 4) / 4
  if kind == "zeros": x[::2] = 0
  if kind == "large": x *= 1000
  want = gguf.quantize(x, gguf.GGMLQuantizationType[name])
  got = ggml_quantize(Tensor(x), GGMLQuantizationType[name]).numpy()
  assert got.tobytes() == want.tobytes()


def test_packing_refuses():
  with pytest.raises(ValueError, match="not finite"):
    ggml_quantize(Tensor([float("inf")] * 32), GGMLQuantizationType.Q4_0)
  with pytest.raises(ValueError, match="only read"): ggml_quantize(Tensor.zeros(256), GGMLQuantizationType.Q4_K)
  with pytest.raises(ValueError, match="rows of 33"): ggml_quantize(Tensor.zeros(33), GGMLQuantizationType.Q4_0)
  with pytest.raises(ValueError, match="type 99"): ggml_data_to_tensor(Tensor([0], dtype=dtypes.uint8), 1, 99)


# ---- files ----

@needs_gguf
def test_files_of_the_reference(tmp_path):
  path, rng = tmp_path / "model.gguf", np.random.default_rng(5)
  w = gguf.GGUFWriter(path, "test")
  w.add_uint8("u8", 255)
  w.add_int8("i8", -128)
  w.add_uint16("u16", 65535)
  w.add_int16("i16", -32768)
  w.add_uint32("u32", 2**32 - 1)
  w.add_int32("i32", -2**31)
  w.add_float32("f32", 0.5)
  w.add_bool("yes", True)
  w.add_string("text", "größe 日本")
  w.add_uint64("u64", 2**64 - 1)
  w.add_int64("i64", -2**63)
  w.add_float64("f64", 0.1)
  w.add_array("ints", [1, -2, 3])
  w.add_array("texts", ["", "a", "ü"])
  w.add_array("floats", [0.5, 1.5])
  w.add_array("flags", [True, False])
  values = rng.standard_normal((8, 64)).astype(np.float32)
  w.add_tensor("f32.weight", values)
  w.add_tensor("f16.weight", values.astype(np.float16))
  w.add_tensor("ids", np.arange(7, dtype=np.int32))
  w.add_tensor("q.weight", gguf.quantize(values, gguf.GGMLQuantizationType.Q8_0),
               raw_dtype=gguf.GGMLQuantizationType.Q8_0)
  w.write_header_to_file()
  w.write_kv_data_to_file()
  w.write_tensors_to_file()
  w.close()
  for source in (path, str(path), Tensor(path), Tensor(path.read_bytes())):
    kv, tensors = gguf_load(source)
    assert kv == {"general.architecture": "test", "u8": 255, "i8": -128, "u16": 65535, "i16": -32768,
                  "u32": 2**32 - 1, "i32": -2**31, "f32": 0.5, "yes": True, "text": "größe 日本", "u64": 2**64 - 1,
                  "i64": -2**63, "f64": 0.1, "ints": [1, -2, 3], "texts": ["", "a", "ü"], "floats": [0.5, 1.5],
                  "flags": [True, False]}
    assert kv["yes"] is True
    assert {k: (v.shape, v.dtype) for k, v in tensors.items()} == {
      "f32.weight": ((8, 64), dtypes.float32), "f16.weight": ((8, 64), dtypes.float16),
      "ids": ((7,), dtypes.int32), "q.weight": ((8, 64), dtypes.float32)}
    np.testing.assert_equal(tensors["f32.weight"].numpy(), values)
    np.testing.assert_equal(tensors["f16.weight"].numpy(), values.astype(np.float16))
    np.testing.assert_equal(tensors["ids"].numpy(), np.arange(7))
    want = gguf.dequantize(gguf.quantize(values, gguf.GGMLQuantizationType.Q8_0), gguf.GGMLQuantizationType.Q8_0)
    np.testing.assert_equal(tensors["q.weight"].numpy(), want)


@needs_gguf
@pytest.mark.parametrize("alignment", [32, 64, 4096])
def test_the_reference_reads_what_is_written(tmp_path, alignment):
  path, x = tmp_path / "out.gguf", np.random.default_rng(6).standard_normal((3, 64)).astype(np.float32)
  kinds = {f"{k}.weight": GGMLQuantizationType[k] for k in QUANTIZED if k not in ("TQ1_0", "TQ2_0")}
  V = GGUFValueType
  pairs = {"general.architecture": "llama", "n": 7, "low": -7, "long": 2**40, "x": 0.5, "yes": True,
           "list": ["a", "ü"], "typed": (V.UINT16, 3), "typed.list": (V.UINT8, [1, 2]), "wide": (V.FLOAT64, 0.1)}
  more = {"ids": Tensor([1, 2, 3]).cast(dtypes.int64), "one": Tensor(2.5, dtype=dtypes.float32)}
  gguf_save({k: Tensor(x) for k in kinds} | more, path, pairs, kinds, alignment)
  r = gguf.GGUFReader(path)
  fields = {k: f for k, f in r.fields.items() if not k.startswith("GGUF.")}
  assert r.alignment == alignment
  assert (fields.pop("general.alignment").contents() if alignment != 32 else 32) == alignment
  assert {k: f.contents() for k, f in fields.items()} == {k: v[1] if isinstance(v, tuple) else v
                                                          for k, v in pairs.items()}
  assert fields["typed"].types == [gguf.GGUFValueType.UINT16]
  assert fields["typed.list"].types == [gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT8]
  for t in r.tensors:
    if t.name not in kinds: continue
    kind = gguf.GGMLQuantizationType[kinds[t.name].name]
    assert t.tensor_type == kind and t.data_offset % alignment == 0
    assert t.data.tobytes() == gguf.quantize(x, kind).tobytes()
  kv, tensors = gguf_load(path)
  assert tensors["ids"].tolist() == [1, 2, 3] and tensors["one"].item() == 2.5


def test_types_by_name(tmp_path):
  path, x = tmp_path / "a.gguf", Tensor([[i / 8 for i in range(64)]])
  gguf_save({"q": x, "f": x}, path, types={"q": "Q8_0"})
  by_name = path.read_bytes()
  gguf_save({"q": x, "f": x}, path, types={"q": GGMLQuantizationType.Q8_0})
  assert path.read_bytes() == by_name
  with pytest.raises(ValueError, match=r"\[gguf_save\] got type 'Q8' for q, expected one of"):
    gguf_save({"q": x}, path, types="Q8")


def test_files_come_back_and_are_replaced(tmp_path):
  path = tmp_path / "a.gguf"
  gguf_save({"w": Tensor([[1.0, 2.0]])}, path)
  before = gguf_load(path)[1]["w"]
  gguf_save({"w": before + 1}, path, {"k": [1, 2]})  # over the file that is being read
  kv, tensors = gguf_load(path)
  assert kv == {"k": [1, 2]} and tensors["w"].tolist() == [[2, 3]] and before.tolist() == [[1, 2]]
  assert list(tmp_path.iterdir()) == [path]
  with pytest.raises(TypeError): gguf_save({"w": Tensor([1.0])}, path, types=GGMLQuantizationType.I32)
  with pytest.raises(TypeError): gguf_save({"w": Tensor([True])}, path)
  with pytest.raises(ValueError): gguf_save({"": Tensor([1.0])}, path)
  with pytest.raises(ValueError): gguf_save({}, path, {"x": (GGUFValueType.UINT8, 256)})
  with pytest.raises(ValueError): gguf_save({}, path, {"x": [1, "a"]})
  assert gguf_load(path)[0] == {"k": [1, 2]}


def test_packed_blocks_are_written_as_they_are(tmp_path):
  path, raw = tmp_path / "a.gguf", random_blocks("Q4_K", 6).reshape(3, 288)
  gguf_save({"w": Tensor(raw)}, path, types=GGMLQuantizationType.Q4_K)
  w = gguf_load(path)[1]["w"]
  assert w.shape == (3, 512)
  np.testing.assert_equal(w.numpy().reshape(-1),
                          ggml_data_to_tensor(Tensor(raw.reshape(-1)), 1536, GGMLQuantizationType.Q4_K).numpy())
  with pytest.raises(ValueError, match="rows of 287"):
    gguf_save({"w": Tensor(raw[:, :287])}, path, types=GGMLQuantizationType.Q4_K)


def split(path, number, count, tensors, **more):
  gguf_save(tensors, path, {"split.no": (GGUFValueType.UINT16, number), "split.count": (GGUFValueType.UINT16, count),
                            **more})


def test_models_in_several_files(tmp_path):
  name = lambda i: tmp_path / f"m-{i:05d}-of-00003.gguf"
  for i in range(3): split(name(i + 1), i, 3, {f"w{i}": Tensor([float(i)])}, **{"split.tensors.count": 3})
  kv, tensors = gguf_load(name(1))
  assert kv["split.count"] == 3 and {k: v.tolist() for k, v in tensors.items()} == {"w0": [0], "w1": [1], "w2": [2]}
  with pytest.raises(ValueError, match="expected the first"): gguf_load(name(2))
  with pytest.raises(ValueError, match="in memory"): gguf_load(Tensor(name(1).read_bytes()))
  (tmp_path / "m.gguf").write_bytes(name(1).read_bytes())
  with pytest.raises(ValueError, match="a name that ends with"): gguf_load(tmp_path / "m.gguf")
  split(name(3), 1, 3, {"w2": Tensor([2.0])})
  with pytest.raises(FormatError, match="split.no"): gguf_load(name(1))
  split(name(3), 2, 3, {"w1": Tensor([2.0])})
  with pytest.raises(FormatError, match="w1"): gguf_load(name(1))
  split(name(3), 2, 3, {"w2": Tensor([2.0]), "w3": Tensor([2.0])})
  with pytest.raises(FormatError, match="split.tensors.count"): gguf_load(name(1))
  name(3).unlink()
  with pytest.raises(FileNotFoundError): gguf_load(name(1))


def test_packed_weights_stay_packed_in_a_model(tmp_path):
  path = tmp_path / "m.gguf"
  gguf_save({"weight": Tensor.rand(64, 256)}, path, types=GGMLQuantizationType.Q4_0)
  layer = nn.Linear(256, 64, bias=False)
  weight = gguf_load(path)[1]["weight"]
  nn.state.load_state_dict(layer, {"weight": weight}, verbose=False)
  assert layer.weight.dtype == dtypes.float32
  held = sum(int(np.prod(u.shape)) * u.dtype.itemsize for u in layer.weight.uop.toposort() if u.op.name == "BUFFER")
  assert held == 64 * 256 // 32 * 18, "the values were widened"
  np.testing.assert_equal(layer.weight.numpy(), weight.numpy())


def test_corrupt_files_are_refused():
  def text(s): return struct.pack("<Q", len(s)) + s.encode()
  head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a")
  for raw, match in ((b"GGUX", "magic"), (head[:20], "byte 16"), (head + struct.pack("<I", 13), r"byte 33 \(a\)"),
                     (head + struct.pack("<IIQ", 9, 8, 1 << 60), r"byte 41 \(a\)")):
    with pytest.raises(FormatError, match=match): gguf_load(Tensor(raw))
