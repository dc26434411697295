"""The messages of ONNX files as dictionaries, for programs that look into a file: OnnxPBParser. Models are run by
OnnxRunner, which reads files by itself."""
from __future__ import annotations
import mmap, os, pathlib, struct
from typing import Any, Iterator
from .. import _core
from .._core import FormatError
from ..tensor import Tensor

MOST_LEVELS = 64  # messages inside of each other

# By message: number of a field -> its name and kind. A kind that ends with * may occur several times.
_MESSAGES: dict[str, dict[int, tuple[str, str]]] = {
  "ModelProto": {1: ("ir_version", "int"), 2: ("producer_name", "text"), 3: ("producer_version", "text"),
                 4: ("domain", "text"), 5: ("model_version", "int"), 6: ("doc_string", "text"),
                 7: ("graph", "GraphProto"), 8: ("opset_import", "OperatorSetIdProto*"),
                 14: ("metadata_props", "StringStringEntryProto*")},
  "GraphProto": {1: ("node", "NodeProto*"), 2: ("name", "text"), 5: ("initializer", "TensorProto*"),
                 10: ("doc_string", "text"), 11: ("input", "ValueInfoProto*"), 12: ("output", "ValueInfoProto*"),
                 13: ("value_info", "ValueInfoProto*")},
  "NodeProto": {1: ("input", "text*"), 2: ("output", "text*"), 3: ("name", "text"), 4: ("op_type", "text"),
                5: ("attribute", "AttributeProto*"), 6: ("doc_string", "text"), 7: ("domain", "text")},
  "AttributeProto": {1: ("name", "text"), 2: ("f", "float"), 3: ("i", "int"), 4: ("s", "text"), 5: ("t", "TensorProto"),
                     6: ("g", "GraphProto"), 7: ("floats", "float*"), 8: ("ints", "int*"), 9: ("strings", "text*"),
                     20: ("type", "int")},
  "TensorProto": {1: ("dims", "int*"), 2: ("data_type", "int"), 4: ("float_data", "float*"), 5: ("int32_data", "int*"),
                  6: ("string_data", "bytes*"), 7: ("int64_data", "int*"), 8: ("name", "text"),
                  9: ("raw_data", "bytes"), 10: ("double_data", "double*"), 11: ("uint64_data", "int*"),
                  13: ("external_data", "StringStringEntryProto*"), 14: ("data_location", "int")},
  "ValueInfoProto": {1: ("name", "text"), 2: ("type", "TypeProto"), 3: ("doc_string", "text")},
  "TypeProto": {1: ("tensor_type", "TypeProtoTensor"), 4: ("sequence_type", "TypeProtoWrapper"),
                9: ("optional_type", "TypeProtoWrapper")},
  "TypeProtoTensor": {1: ("elem_type", "int"), 2: ("shape", "TensorShapeProto")},
  "TypeProtoWrapper": {1: ("elem_type", "TypeProto")},
  "TensorShapeProto": {1: ("dim", "TensorShapeProtoDimension*")},
  "TensorShapeProtoDimension": {1: ("dim_value", "int"), 2: ("dim_param", "text")},
  "StringStringEntryProto": {1: ("key", "text"), 2: ("value", "text")},
  "OperatorSetIdProto": {1: ("domain", "text"), 2: ("version", "int")}}


class PBReader:
  """Reads the wire format of Protocol Buffers (https://protobuf.dev/programming-guides/encoding) from bytes."""
  def __init__(self, data: Any):
    self.data, self.len, self._at = memoryview(data), len(data), 0

  def tell(self) -> int: return self._at
  def read(self, count: int) -> memoryview:
    if count > (left := self.len - self._at):
      raise FormatError(f"[onnx] got a field of {count} bytes at byte {self._at}, expected at most {left}")
    self._at += count
    return self.data[self._at - count:self._at]
  def decode_varint(self) -> int:
    result = 0
    for shift in range(0, 70, 7):
      byte = self.read(1)[0]
      result |= (byte & 0x7F) << shift
      if byte < 0x80: return result
    raise FormatError(f"[onnx] got a number of more than 10 bytes at byte {self._at}")
  def read_int64(self) -> int:
    value = self.decode_varint() & 0xFFFFFFFFFFFFFFFF
    return value - (1 << 64) if value >> 63 else value
  def read_delimited(self) -> memoryview: return self.read(self.decode_varint())
  def skip_field(self, wire_type: int) -> None:
    """Skips a field whose tag has been read."""
    if wire_type == 0: self.decode_varint()
    elif wire_type == 1: self.read(8)
    elif wire_type == 2: self.read_delimited()
    elif wire_type == 5: self.read(4)
    else: raise FormatError(f"[onnx] got wire type {wire_type} at byte {self._at}, expected 0, 1, 2 or 5")


def field(number: int, content: bytes | str) -> bytes:
  """A field of bytes, a text or a message."""
  content = content.encode() if isinstance(content, str) else content
  return varint(number << 3 | 2) + varint(len(content)) + content


def varint(n: int) -> bytes:
  out, n = bytearray(), n & 0xFFFFFFFFFFFFFFFF
  while n >= 0x80:
    out.append(n & 0x7F | 0x80)
    n >>= 7
  return bytes(out) + bytes([n])


def model(graph: bytes, domain: str = "", version: int = 1) -> bytes:
  """The bytes of a model of this graph for a version of one domain."""
  return varint(1 << 3) + varint(10) + field(8, field(1, domain) + varint(2 << 3) + varint(version)) + field(7, graph)


def _tensor(content: bytes, folder: str) -> Any:
  """The tensor of a TensorProto, texts as a list."""
  of = Tensor(model(field(5, content)))
  read = _core.OnnxModel.from_tensor(of, device=None, dtype=None, trainable=False, folder=folder)
  return next(iter(read.initializers().values()))


_FIXED = {"float": ("<f", 4), "double": ("<d", 8)}


class OnnxPBParser:
  """Parses a file, or a tensor of its bytes, into dictionaries by the names of the messages' fields. Nodes have their
  OnnxNode under "parsed_node", inputs and outputs their OnnxValue under "parsed_type", constants their tensor under
  "parsed_tensor". A subclass may replace _parse_MESSAGE, e.g. _parse_ModelProto to read a few fields alone.

  load_external_data: whether constants in other files have tensors. FormatError for a damaged file."""
  def __init__(self, inp: Tensor | str | pathlib.Path, load_external_data: bool = True):
    self.load_external_data, self.file_path, self._level = load_external_data, None, 0
    if isinstance(inp, Tensor):
      self.reader = PBReader(inp.data())
      if isinstance(inp.device, str) and inp.device.startswith("DISK:"): self.file_path = pathlib.Path(inp.device[5:])
    else:
      self.file_path = pathlib.Path(inp)
      with open(self.file_path, "rb") as f:
        empty = os.fstat(f.fileno()).st_size == 0
        self.reader = PBReader(b"" if empty else mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ))

  def parse(self) -> dict[str, Any]: return self._parse_ModelProto()

  def _parse_message(self, end: int) -> Iterator[tuple[int, int]]:
    """Yields number and wire type of each field; the caller reads or skips it."""
    while self.reader.tell() < end:
      tag = self.reader.decode_varint()
      yield tag >> 3, tag & 7

  def _end(self) -> int:
    size = self.reader.decode_varint()
    if size > self.reader.len - self.reader.tell():
      raise FormatError(f"[onnx] got a message of {size} bytes at byte {self.reader.tell()}, more than the file has")
    return self.reader.tell() + size

  def _parse(self, message: str, end: int | None = None) -> dict[str, Any]:
    fields, end = _MESSAGES[message], self._end() if end is None else end
    out: dict[str, Any] = {name: [] for name, kind in fields.values() if kind.endswith("*")}
    self._level += 1
    if self._level > MOST_LEVELS: raise FormatError(f"[onnx] got messages inside of more than {MOST_LEVELS} others")
    for number, wire in self._parse_message(end):
      if number not in fields:
        self.reader.skip_field(wire)
        continue
      name, kind = fields[number]
      if not kind.endswith("*"): out[name] = self._value(kind, wire)
      else: out[name] += self._values(kind[:-1], wire)
    self._level -= 1
    return out

  def _values(self, kind: str, wire: int) -> list[Any]:
    """The values of a field that may occur several times: numbers may be packed."""
    if kind not in ("int", "float", "double") or wire != 2: return [self._value(kind, wire)]
    end, out = self._end(), []
    while self.reader.tell() < end: out.append(self._value(kind, 0 if kind == "int" else 5 if kind == "float" else 1))
    return out

  def _value(self, kind: str, wire: int) -> Any:
    if wire != {"int": 0, "float": 5, "double": 1}.get(kind, 2):
      raise FormatError(f"[onnx] got wire type {wire} for a field that is {kind} at byte {self.reader.tell()}")
    if kind == "int": return self.reader.read_int64()
    if kind in _FIXED: return struct.unpack(_FIXED[kind][0], self.reader.read(_FIXED[kind][1]))[0]
    if kind == "text": return bytes(self.reader.read_delimited()).decode("utf-8", "surrogateescape")
    if kind == "bytes": return self.reader.read_delimited()
    return getattr(self, f"_parse_{kind}")()

  def _parse_ModelProto(self) -> dict[str, Any]:
    from .onnx import Domain, OnnxNode, OpSetId
    out = self._parse("ModelProto", self.reader.len)
    versions = {o.get("domain", ""): o.get("version", 1) for o in out["opset_import"]}
    for n in out.get("graph", {}).get("node", []):
      attributes = {a["name"]: self._attribute(a) for a in n["attribute"] if "name" in a}
      domain = n.get("domain", "")
      n["parsed_node"] = OnnxNode(n.get("op_type", ""), OpSetId(Domain.from_onnx(domain), versions.get(domain, 1)),
                                  tuple(n["input"]), tuple(n["output"]), attributes)
    return out

  @staticmethod
  def _attribute(a: dict[str, Any]) -> Any:
    name = {1: "f", 2: "i", 3: "s", 4: "t", 5: "g", 6: "floats", 7: "ints", 8: "strings"}.get(a.get("type", 0), "")
    value = a.get(name)
    return tuple(value) if isinstance(value, list) else value["parsed_tensor"] if name == "t" and value else value

  def _parse_TensorProto(self) -> dict[str, Any]:
    end = self._end()
    start = self.reader.tell()
    out = self._parse("TensorProto", end)
    folder = self.file_path.parent if self.file_path is not None and self.load_external_data else None
    if out.get("data_location", 0) == 0 or folder is not None:
      out["parsed_tensor"] = _tensor(bytes(self.reader.data[start:end]), str(folder or ""))
    return out

  def _parse_ValueInfoProto(self) -> dict[str, Any]:
    from .onnx import OnnxValue, _DTYPES
    out = self._parse("ValueInfoProto")
    kind, optional, sequence = out.get("type", {}), False, False
    while "tensor_type" not in kind and (inner := kind.get("optional_type", kind.get("sequence_type"))) is not None:
      optional, sequence = optional or "optional_type" in kind, sequence or "sequence_type" in kind
      kind = inner.get("elem_type", {})
    if (t := kind.get("tensor_type")) is not None:
      sizes = t.get("shape", {}).get("dim") if "shape" in t else None
      shape = None if sizes is None else tuple(d.get("dim_param") or d.get("dim_value", "") for d in sizes)
      out["parsed_type"] = OnnxValue(shape, _DTYPES.get(t.get("elem_type", 0)), optional, sequence)
    else: out["parsed_type"] = None
    return out


def _plain(message: str) -> Any:
  def parse(self: OnnxPBParser) -> dict[str, Any]: return self._parse(message)
  return parse


for _name in _MESSAGES:
  if not hasattr(OnnxPBParser, f"_parse_{_name}"): setattr(OnnxPBParser, f"_parse_{_name}", _plain(_name))
