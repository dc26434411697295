#!/usr/bin/env python3
"""Writes the seed inputs of the fuzz targets beside this file: corpus/TARGET/good_* parse, corpus/TARGET/bad_* must
raise FormatError."""
import base64
import collections
import gzip
import io
import json
import os
import pickle
import struct
import tarfile
import zipfile
import zlib

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def put(target, name, data):
  os.makedirs(os.path.join(ROOT, target), exist_ok=True)
  with open(os.path.join(ROOT, target, name), "wb") as f:
    f.write(data)


def gz(data): return gzip.compress(data, 9, mtime=0)


def idx(code, shape, data=b""):
  return struct.pack(">HBB", 0, code, len(shape)) + b"".join(struct.pack(">I", d) for d in shape) + data


def tar(files, fmt=tarfile.USTAR_FORMAT):
  out = io.BytesIO()
  with tarfile.open(fileobj=out, mode="w", format=fmt) as t:
    for name, data in files:
      info = tarfile.TarInfo(name)
      info.size = len(data)
      t.addfile(info, io.BytesIO(data))
  return out.getvalue()


def fix_checksum(block):
  block = bytearray(block)
  block[148:156] = b" " * 8
  block[148:156] = b"%06o\0 " % sum(block[:512])
  return bytes(block)


def patch(data, at, new, checksum=True):
  data = bytearray(data)
  data[at:at + len(new)] = new
  return (fix_checksum(data[:512]) + bytes(data[512:])) if checksum else bytes(data)


# ---- idx ----
labels = idx(0x08, [5], bytes(range(5)))
put("idx", "good_u8", labels)
put("idx", "good_u8_gz", gz(labels))
put("idx", "good_3d", idx(0x08, [2, 3, 4], bytes(24)))
put("idx", "good_i16", idx(0x0B, [2], b"\x01\x02\xff\xfe"))
put("idx", "good_f64", idx(0x0E, [1], struct.pack(">d", 1.5)))
put("idx", "good_empty_dim", idx(0x0C, [0xffffffff, 0xffffffff, 0xffffffff, 0]))
put("idx", "bad_empty", b"")
put("idx", "bad_short_magic", b"\0\0\x08")
put("idx", "bad_magic", b"\1\0\x08\1\0\0\0\1\0")
put("idx", "bad_type", idx(0x0A, [1], b"\0"))
put("idx", "bad_no_dims", idx(0x08, []))
put("idx", "bad_many_dims", idx(0x08, [1] * 9, b"\0"))
put("idx", "bad_255_dims", b"\0\0\x08\xff" + b"\0\0\0\1" * 3)
put("idx", "bad_header_cut", idx(0x08, [2, 3, 4])[:11])
put("idx", "bad_body_cut", labels[:-1])
put("idx", "bad_trailing", labels + b"\0")
put("idx", "bad_huge", idx(0x08, [0x7fffffff, 28, 28], b"\0" * 16))
put("idx", "bad_overflow", idx(0x0E, [0xffffffff] * 8, b"\0" * 16))
put("idx", "bad_wraps_to_zero", idx(0x0E, [0x80000000, 0x40000000], b""))
put("idx", "bad_gz_cut", gz(labels)[:-5])
put("idx", "bad_gz_body_cut", gz(labels[:-1]))

# ---- gzip ----
put("gzip", "good_text", gz(b"hello " * 50))
put("gzip", "good_empty_member", gz(b""))
put("gzip", "good_two_members", gz(b"one") + gz(b"two"))
put("gzip", "bad_empty", b"")
put("gzip", "bad_magic", b"PK\3\4")
put("gzip", "bad_header_only", gz(b"hello")[:10])
put("gzip", "bad_cut", gz(b"hello " * 50)[:-9])
put("gzip", "bad_crc", gz(b"hello")[:-8] + b"\0\0\0\0" + gz(b"hello")[-4:])
put("gzip", "bad_length", gz(b"hello")[:-4] + b"\xff\xff\xff\x7f")
put("gzip", "bad_trailing", gz(b"hello") + b"garbage")
put("gzip", "bad_trailing_zeros", gz(b"hello") + bytes(512))
put("gzip", "bad_bomb", gz(bytes(4 << 20)))  # above the targets' limit of 1 MiB
put("gzip", "bad_block_type", gz(b"hello")[:10] + b"\xff" * 16)

# ---- tar ----
two = tar([("a.txt", b"alpha"), ("dir/b.bin", bytes(700))])
long_name = "d/" * 120 + "end"
put("tar", "good_ustar", two)
put("tar", "good_gnu_long", tar([(long_name, b"x")], tarfile.GNU_FORMAT))
put("tar", "good_pax_long", tar([("é" * 100, b"x")], tarfile.PAX_FORMAT))
put("tar", "good_no_end", two[:512 + 512])
put("tar", "good_empty", bytes(1024))
put("tar", "bad_empty", b"")
put("tar", "bad_short", two[:511])
put("tar", "bad_checksum", patch(two, 0, b"b", False))
put("tar", "bad_size_past_end", patch(two, 124, b"00777777777\0"))
put("tar", "bad_size_text", patch(two, 124, b"99999999999\0"))
put("tar", "bad_size_empty", patch(two, 124, b"\0" * 12))
put("tar", "bad_size_base256", patch(two, 124, b"\x80" + b"\xff" * 11))
put("tar", "bad_size_negative", patch(two, 124, b"\xff" * 12))
put("tar", "bad_content_cut", two[:512 + 3])
put("tar", "bad_tail", two[:1024] + b"tail")
pax = tar([("é" * 100, b"x")], tarfile.PAX_FORMAT)
put("tar", "bad_pax_length", patch(pax, 512, b"99999999 path=x\n", False))
put("tar", "bad_pax_zero_length", patch(pax, 512, b"0 path=x\n", False))
put("tar", "bad_pax_no_equals", patch(pax, 512, b"9 path x\n", False))
put("tar", "bad_pax_size", patch(pax, 512, b"19 size=9999999999\n"[:19], False))

# ---- cifar (one record a batch) ----
names = [f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6)] + ["cifar-10-batches-bin/test_batch.bin"]
batches = [(n, bytes([i]) + bytes([i * 16]) * 3072) for i, n in enumerate(names)]
put("cifar", "good_gz", gz(tar(batches)))
put("cifar", "bad_label", gz(tar([(n, b"\x0a" + d[1:]) for n, d in batches])))
put("cifar", "bad_missing", gz(tar(batches[:-1])))
put("cifar", "bad_short_batch", gz(tar([(n, d[:-1]) for n, d in batches])))
put("cifar", "bad_two_records", gz(tar([(n, d * 2) for n, d in batches])))
put("cifar", "bad_not_tar", gz(b"no tar at all"))

# ---- onnx ----
def pb(*fields):
  """A protobuf message: (number, value) with an integer, a float, a text or a message."""
  out = b""
  for number, v in fields:
    wire = 0 if isinstance(v, int) else 5 if isinstance(v, float) else 2
    out += varint(number << 3 | wire)
    if wire == 0: out += varint(v & (1 << 64) - 1)
    elif wire == 5: out += struct.pack("<f", v)
    else:
      b = v.encode() if isinstance(v, str) else v
      out += varint(len(b)) + b
  return out
def varint(v):
  out = b""
  while v >= 128: v, out = v >> 7, out + bytes([v & 127 | 128])
  return out + bytes([v])
def onnx_node(op, inputs, outputs, *attributes, **more):
  return pb(*[(1, i) for i in inputs], *[(2, o) for o in outputs], (4, op), *[(5, a) for a in attributes],
            *([(7, more["domain"])] if "domain" in more else []))
def onnx_value(name, *sizes, elem=1):
  dims = [(1, pb((1, s) if isinstance(s, int) else (2, s))) for s in sizes]
  return pb((1, name), (2, pb((1, pb((1, elem), (2, pb(*dims)))))))
def onnx_tensor(name, elem, dims, raw): return pb(*[(1, d) for d in dims], (2, elem), (8, name), (9, raw))
def onnx_model(*graph, more=()):
  return pb((1, 9), (2, "corpus"), (7, pb(*graph)), (8, pb((1, ""), (2, 20))), (14, pb((1, "k"), (2, "v"))), *more)
weight = onnx_tensor("w", 1, [2], struct.pack("<2f", 1, 2))
affine = [(1, onnx_node("Mul", ["x", "w"], ["m"])), (1, onnx_node("Add", ["m", "w"], ["y"])), (2, "g"), (5, weight),
          (11, onnx_value("x", "n", 2)), (12, onnx_value("y", "n", 2))]
branch = lambda name: pb((1, onnx_node("Relu", ["x"], [name])), (2, name), (12, onnx_value(name, 2)))
attributes = [pb((1, "f"), (2, 1.5), (20, 1)), pb((1, "s"), (4, "text"), (20, 3)), pb((1, "t"), (5, weight), (20, 4)),
              pb((1, "floats"), (7, struct.pack("<2f", 1, 2)), (20, 6)), pb((1, "ints"), (8, b"\1\2\3"), (20, 7)),
              pb((1, "strings"), (9, "a"), (9, "b"), (20, 8))]
put("onnx", "good_affine", onnx_model(*affine))
put("onnx", "good_branches", onnx_model(
    (1, onnx_node("If", ["c"], ["y"], pb((1, "then_branch"), (6, branch("a")), (20, 5)),
                  pb((1, "else_branch"), (6, branch("b")), (20, 5)))),
    (11, onnx_value("x", 2)), (11, onnx_value("c", elem=9)), (12, onnx_value("y", 2))))
put("onnx", "good_types", onnx_model(
    *affine, (5, pb((1, 3), (2, 22), (8, "int4"), (9, b"\x21\x03"))),
    (5, pb((1, 2), (2, 10), (5, b"\x80\x78\0"), (8, "half"))),
    (5, pb((1, 1), (2, 8), (6, "text"), (8, "texts"))), (5, pb((1, 2), (2, 7), (7, b"\1\2"), (8, "int64"))),
    (5, pb((1, 1), (2, 11), (8, "double"), (10, bytes(8)))),
    (11, pb((1, "sequence"), (2, pb((4, pb((1, pb((1, pb((1, 1)))))))))))))
put("onnx", "good_attributes", onnx_model(*affine[2:], (1, onnx_node("Identity", ["x"], ["y"], *attributes))))
put("onnx", "good_function", onnx_model(
    (1, onnx_node("F", ["x"], ["y"], domain="own")), (11, onnx_value("x", 2)), (12, onnx_value("y", 2)),
    more=[(25, pb((1, "F"), (4, "a"), (5, "b"), (7, onnx_node("Relu", ["a"], ["b"])), (9, pb((2, 20))), (10, "own")))]))
def onnx_ints(name, *v): return pb((1, name), *[(8, i) for i in v], (20, 7))
def onnx_int(name, v): return pb((1, name), (3, v), (20, 2))
def onnx_text(name, v): return pb((1, name), (4, v), (20, 3))
def onnx_floats(name, *v): return onnx_tensor(name, 1, [len(v)], struct.pack(f"<{len(v)}f", *v))
def onnx_int64s(name, *v): return onnx_tensor(name, 7, [len(v)], struct.pack(f"<{len(v)}q", *v))
def one_node(name, node, shape, *constants):
  put("onnx", name, onnx_model((1, node), *[(5, c) for c in constants], (11, onnx_value("x", *shape)),
                               (12, onnx_value("y"))))
one_node("good_conv", onnx_node("Conv", ["x", "k"], ["y"], onnx_ints("pads", 1, 1, 1, 1), onnx_ints("strides", 2, 2),
                                onnx_int("group", 1)), [1, 1, 4, 4], onnx_tensor("k", 1, [1, 1, 2, 2], bytes(16)))
one_node("good_pool", onnx_node("MaxPool", ["x"], ["y"], onnx_ints("kernel_shape", 2, 2), onnx_int("ceil_mode", 1)),
         [1, 1, 4, 4])
one_node("good_resize", onnx_node("Resize", ["x", "", "s"], ["y"], onnx_text("mode", "cubic"),
                                  onnx_int("antialias", 1)),
         [1, 1, 4, 4], onnx_floats("s", 1, 1, 2, 0.5))
one_node("good_slice", onnx_node("Slice", ["x", "a", "b", "c", "d"], ["y"]), [4, 4],
         *[onnx_int64s(k, v) for k, v in (("a", 3), ("b", 0), ("c", 1), ("d", -1))])
one_node("good_gather", onnx_node("GatherND", ["x", "i"], ["y"], onnx_int("batch_dims", 1)), [2, 3],
         onnx_tensor("i", 7, [2, 1], struct.pack("<2q", 0, -1)))
one_node("good_lstm", onnx_node("LSTM", ["x", "w", "r"], ["y"], onnx_int("hidden_size", 1)), [2, 1, 1],
         onnx_tensor("w", 1, [1, 4, 1], bytes(16)), onnx_tensor("r", 1, [1, 4, 1], bytes(16)))
one_node("good_region", onnx_node("RoiAlign", ["x", "r", "b"], ["y"], onnx_int("output_height", 2)), [1, 1, 4, 4],
         onnx_tensor("r", 1, [1, 4], struct.pack("<4f", 0, 0, 3, 3)), onnx_int64s("b", 0))
one_node("good_quantized", onnx_node("QuantizeLinear", ["x", "s", "z"], ["y"], onnx_int("axis", 0),
                                     onnx_int("block_size", 2)),
         [4, 2], onnx_tensor("s", 1, [2, 2], struct.pack("<4f", 1, 2, 3, 4)), onnx_tensor("z", 3, [2, 2], bytes(4)))
body = pb((1, onnx_node("Add", ["v", "w"], ["u"])), (1, onnx_node("Identity", ["c"], ["d"])), (2, "body"), (5, weight),
          (11, onnx_value("i", elem=7)), (11, onnx_value("c", elem=9)), (11, onnx_value("v", 2)),
          (12, onnx_value("d", elem=9)), (12, onnx_value("u", 2)))
one_node("good_loop", onnx_node("Loop", ["n", "", "x"], ["y"], pb((1, "body"), (6, body), (20, 5))), [2],
         onnx_int64s("n", 3))
put("onnx", "bad_wrapped_size", onnx_model(*affine[2:], (5, pb((1, 1 << 62), (2, 24), (8, "v")))))
put("onnx", "bad_texts_of_floats", onnx_model(*affine[2:], (5, pb((1, 1), (2, 1), (8, "v"), (9, bytes(4)), (6, "s")))))
def two_nodes(name, first, second, *constants):
  put("onnx", name, onnx_model((1, first), (1, second), *[(5, c) for c in constants], (11, onnx_value("x", 2)),
                               (12, onnx_value("y"))))
two_nodes("good_host_shape", onnx_node("Reshape", ["w", "s"], ["r"]), onnx_node("Add", ["r", "r"], ["y"]),
          onnx_int64s("w", 7), onnx_int64s("s", 1))
two_nodes("good_host_texts", onnx_node("StringConcat", ["w", "w"], ["r"]), onnx_node("Equal", ["r", "w"], ["y"]),
          pb((1, 1), (2, 8), (8, "w"), (6, "abc")))
two_nodes("good_host_index", onnx_node("Gather", ["w", "i"], ["r"]), onnx_node("Add", ["r", "r"], ["y"]),
          onnx_int64s("w", 7, 8), onnx_int64s("i", 0, 1, 1))
two_nodes("good_sequence", onnx_node("SequenceConstruct", ["x"], ["s"]), onnx_node("SequenceLength", ["s"], ["y"]))
two_nodes("good_grams", onnx_node("Cast", ["x"], ["i"], onnx_int("to", 7)), onnx_node(
    "TfIdfVectorizer", ["i"], ["y"], onnx_text("mode", "TF"), onnx_int("min_gram_length", 1),
    onnx_int("max_gram_length", 2), onnx_int("max_skip_count", 1), onnx_ints("ngram_counts", 0, 2),
    onnx_ints("ngram_indexes", 0, 1, 2), onnx_ints("pool_int64s", 0, 1, 0, 0)))
put("onnx", "bad_empty", b"")
put("onnx", "bad_no_graph", pb((1, 9)))
put("onnx", "bad_wire_type", pb((1, "nine"), (7, pb(*affine))))
put("onnx", "bad_truncated", onnx_model(*affine)[:-9])
put("onnx", "bad_raw_size", onnx_model(*affine[:3], (5, onnx_tensor("w", 1, [3], bytes(8)))))
put("onnx", "bad_element_type", onnx_model(*affine[:3], (5, onnx_tensor("w", 77, [2], bytes(8)))))
put("onnx", "bad_negative_size", onnx_model(*affine[:3], (5, onnx_tensor("w", 1, [-2], bytes(8)))))
put("onnx", "bad_huge_dims", onnx_model(*affine[:3], (5, onnx_tensor("w", 1, [1 << 62, 1 << 62], bytes(8)))))
put("onnx", "bad_outside", onnx_model(*affine[:3], (
    5, pb((1, 2), (2, 1), (8, "w"), (13, pb((1, "location"), (2, "../w"))), (14, 1)))))
put("onnx", "bad_twice", onnx_model(*affine, (1, onnx_node("Relu", ["x"], ["y"]))))
deep = branch("a")
for _ in range(40): deep = pb((1, onnx_node("If", ["c"], ["y"], pb((1, "then_branch"), (6, deep), (20, 5)))))
put("onnx", "bad_deep", pb((7, deep)))

# ---- safetensors ----
def safetensors(header, data=b""):
  text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
  return struct.pack("<Q", len(text)) + text + data


def tensor(dtype, shape, begin, end): return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


put("safetensors", "good_two",
    safetensors({"__metadata__": {"by": "x"}, "a": tensor("F32", [2], 0, 8), "b": tensor("U8", [], 8, 9)}, bytes(9)))
put("safetensors", "good_empty", safetensors({}))
put("safetensors", "good_no_elements", safetensors({"a": tensor("F16", [3, 0], 0, 0)}))
put("safetensors", "good_padded", safetensors(b'{"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}   ', bytes(8)))
put("safetensors", "bad_short", b"\x02\0\0")
put("safetensors", "bad_length", struct.pack("<Q", 1 << 62) + b"{}")
put("safetensors", "bad_length_past_end", struct.pack("<Q", 100) + b"{}")
put("safetensors", "bad_json", safetensors(b'{"a":'))
put("safetensors", "bad_not_object", safetensors(b"[1]"))
put("safetensors", "bad_nested", safetensors(b"[" * 5000 + b"]" * 5000))
put("safetensors", "bad_type", safetensors({"a": tensor("F33", [1], 0, 4)}, bytes(4)))
put("safetensors", "bad_past_end", safetensors({"a": tensor("F32", [2], 0, 8)}, bytes(4)))
put("safetensors", "bad_backwards", safetensors({"a": tensor("F32", [2], 8, 0)}, bytes(8)))
put("safetensors", "bad_overlap", safetensors({"a": tensor("U8", [3], 0, 3), "b": tensor("U8", [2], 2, 4)}, bytes(4)))
put("safetensors", "bad_shape", safetensors({"a": tensor("F32", [3], 0, 8)}, bytes(8)))
put("safetensors", "bad_shape_overflow", safetensors({"a": tensor("F32", [1 << 62, 4], 0, 0)}))
put("safetensors", "bad_shape_negative", safetensors({"a": tensor("U8", [-1, -4], 0, 4)}, bytes(4)))
put("safetensors", "bad_shape_float", safetensors({"a": tensor("U8", [4.0], 0, 4)}, bytes(4)))
put("safetensors", "bad_twice",
    safetensors(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', bytes(1)))
put("safetensors", "bad_no_offsets", safetensors({"a": {"dtype": "U8", "shape": [1]}}, bytes(1)))
put("safetensors", "bad_metadata", safetensors({"__metadata__": 3}))
put("safetensors", "bad_utf8", safetensors(b'{"\xff\xfe":{}}'))


# ---- gguf ----
def text(s):
  s = s if isinstance(s, bytes) else s.encode()
  return struct.pack("<Q", len(s)) + s


def gguf(pairs=(), tensors=(), data=b"", version=3, magic=b"GGUF", counts=None, align=32):
  """pairs: (key, type, bytes of the value); tensors: (name, axes, type, offset)."""
  out = magic + struct.pack("<IQQ", version, *(counts or (len(tensors), len(pairs))))
  for key, kind, value in pairs: out += text(key) + struct.pack("<I", kind) + value
  for name, axes, kind, at in tensors: out += text(name) + struct.pack(f"<I{len(axes)}QIQ", len(axes), *axes, kind, at)
  return out + bytes(-len(out) % align) + data if tensors else out


def array(kind, count, data=b""): return struct.pack("<IQ", kind, count) + data


values = [("u8", 0, b"\xff"), ("i8", 1, b"\xff"), ("u16", 2, b"\xff\xff"), ("i16", 3, b"\xff\xff"),
          ("u32", 4, b"\xff" * 4), ("i32", 5, b"\xff" * 4), ("f32", 6, struct.pack("<f", 0.5)), ("yes", 7, b"\1"),
          ("text", 8, text("a")), ("list", 9, array(5, 2, struct.pack("<ii", -1, 2))), ("u64", 10, b"\xff" * 8),
          ("i64", 11, b"\xff" * 8), ("f64", 12, struct.pack("<d", 0.25))]
texts = ("texts", 9, array(8, 2, text("a") + text("")))
nested = ("nested", 9, array(9, 2, array(0, 1, b"\7") + array(8, 1, text("x"))))
q8 = struct.pack("<e", 0.5) + bytes(range(32))
w = [("w", (3, 2), 0, 0)]
put("gguf", "good_values", gguf(values + [texts, nested]))
put("gguf", "good_tensors",
    gguf(values, w + [("q", (32,), 8, 32), ("none", (0, 5), 1, 96)], bytes(32) + q8 + bytes(30)))
put("gguf", "good_version_2", gguf([], [("s", (), 26, 0)], bytes(4), 2))
put("gguf", "good_alignment", gguf([("general.alignment", 4, struct.pack("<I", 64))], w, bytes(24), align=64))
put("gguf", "good_empty", gguf())
put("gguf", "good_gap", gguf([], [("b", (4,), 24, 64), ("a", (4,), 24, 0)], bytes(68)))
put("gguf", "bad_empty", b"")
put("gguf", "bad_magic", gguf(magic=b"GGUX"))
put("gguf", "bad_version_1", gguf(version=1))
put("gguf", "bad_version_4", gguf(version=4))
put("gguf", "bad_big_endian", gguf(version=3 << 24))
put("gguf", "bad_header_cut", gguf()[:20])
put("gguf", "bad_count_of_tensors", gguf(counts=(1 << 63, 0)))
put("gguf", "bad_count_of_pairs", gguf(counts=(0, (1 << 64) - 1)))
put("gguf", "bad_key_length", gguf(counts=(0, 1)) + struct.pack("<Q", (1 << 64) - 1) + bytes(20))  # CVE-2024-21802
put("gguf", "bad_key_empty", gguf([("", 0, b"\0")] + values))
put("gguf", "bad_key_control", gguf([("a\x1b[2J", 0, b"\0")] + values))
put("gguf", "bad_key_twice", gguf([("a", 0, b"\0"), ("a", 0, b"\0")] + values))
put("gguf", "bad_value_type", gguf([("a", 13, b"\0" * 8)]))
put("gguf", "bad_value_cut", gguf([("a", 10, b"\0" * 7)]))
put("gguf", "bad_bool", gguf([("a", 7, b"\2")] + values))
put("gguf", "bad_bool_in_list", gguf([("a", 9, array(7, 2, b"\1\xff"))] + values))
put("gguf", "bad_string_length", gguf([("a", 8, struct.pack("<Q", 1 << 62))] + values))
put("gguf", "bad_list_length", gguf([("a", 9, array(10, 1 << 61, bytes(16)))]))  # times 8 is 2^64
put("gguf", "bad_list_of_strings", gguf([("a", 9, array(8, 1 << 40, bytes(16)))]))  # CVE-2025-49847
put("gguf", "bad_list_type", gguf([("a", 9, array(77, 1, bytes(16)))]))
put("gguf", "bad_list_of_lists", gguf([("a", 9, array(9, 1 << 50, bytes(24)))]))  # gguf-py#27188: hangs
put("gguf", "bad_lists_too_deep", gguf([("a", 9, array(9, 1) * 5000 + array(0, 0))]))
put("gguf", "bad_alignment_0", gguf([("general.alignment", 4, bytes(4))], w, bytes(24)))
put("gguf", "bad_alignment_odd", gguf([("general.alignment", 4, struct.pack("<I", 33))], w, bytes(64)))
put("gguf", "bad_alignment_large", gguf([("general.alignment", 4, struct.pack("<I", 1 << 31))], w, bytes(64)))
put("gguf", "bad_alignment_type", gguf([("general.alignment", 8, text("32"))], w, bytes(64)))
put("gguf", "bad_name_length", gguf(counts=(1, 0)) + struct.pack("<Q", 1 << 60) + bytes(40))
put("gguf", "bad_name_twice", gguf([], w + [("w", (1,), 0, 32)], bytes(64)))
put("gguf", "bad_many_axes", gguf([], [("w", (1,) * 9, 0, 0)], bytes(64)))
put("gguf", "bad_count_of_axes", gguf(counts=(1, 0)) + text("w") + struct.pack("<I", 0xffffffff) + bytes(64))
put("gguf", "bad_axis_negative", gguf([], [("w", ((1 << 64) - 1, (1 << 64) - 4), 0, 0)], bytes(64)))
put("gguf", "bad_shape_wraps", gguf([], [("w", (1 << 32, 1 << 32), 0, 0)], bytes(64)))  # CVE-2025-53630
put("gguf", "bad_shape_wraps_bytes", gguf([], [("w", (1 << 62,), 0, 0)], bytes(64)))  # CVE-2026-27940
put("gguf", "bad_empty_shape_wraps", gguf([], [("w", (1 << 54, 1 << 50, 0), 0, 0)], bytes(64)))
put("gguf", "bad_tensor_type", gguf([], [("w", (4,), 42, 0)], bytes(64)))
put("gguf", "bad_tensor_type_withdrawn", gguf([], [("w", (32,), 4, 0)], bytes(64)))
put("gguf", "bad_row", gguf([], [("w", (33,), 8, 0)], bytes(64)))
put("gguf", "bad_rows_shorter_than_blocks", gguf([], [("w", (16, 2), 8, 0)], bytes(64)))
put("gguf", "bad_data_cut", gguf([], w, bytes(23)))  # CVE-2026-7482: reads past the end
put("gguf", "bad_no_data", gguf([], w, b"")[:-1])
put("gguf", "bad_offset", gguf([], [("w", (1,), 0, (1 << 64) - 32)], bytes(64)))  # the padding wraps
put("gguf", "bad_offset_misaligned", gguf([], [("w", (1,), 0, 4)], bytes(64)))
put("gguf", "bad_overlap", gguf([], [("a", (16,), 0, 0), ("b", (1,), 0, 32)], bytes(64)))
put("gguf", "bad_same_bytes", gguf([], [("a", (4,), 0, 0), ("b", (4,), 0, 0)], bytes(64)))


# ---- hyperparameters of decoders ----
def decoder(arch, tensors, layers=1, **keys):
  """A file with zeros for weights; shapes have the fastest axis first. None drops a key."""
  numbers = {"context_length": 64, "embedding_length": 16, "block_count": layers, "feed_forward_length": 24,
             "attention.head_count": 4, "attention.head_count_kv": 2}
  numbers |= {k.replace("__", "."): v for k, v in keys.items()}
  pairs, rows, at = [("general.architecture", 8, text(arch))], [], 0
  for key, v in numbers.items():
    key = f"{arch}.{key}"
    if isinstance(v, int): pairs.append((key, 11, struct.pack("<q", v)))
    elif isinstance(v, float): pairs.append((key, 6, struct.pack("<f", v)))
    elif isinstance(v, list): pairs.append((key, 9, array(11, len(v), b"".join(struct.pack("<q", i) for i in v))))
    elif isinstance(v, str): pairs.append((key, 8, text(v)))
  for name, shape in [("token_embd.weight", (16, 3)), *tensors]:
    rows.append((name, shape, 0, at))
    at += -(-4 * shape[0] * shape[1] // 32) * 32
  return gguf(pairs, rows, bytes(at))


def attention(layers=1, head=4):
  shapes = {"attn_q": (16, 4 * head), "attn_k": (16, 2 * head), "attn_v": (16, 2 * head), "attn_output": (4 * head, 16)}
  return {f"blk.{i}.{name}.weight": shape for i in range(layers) for name, shape in shapes.items()}


LATENT = {"blk.0.attn_kv_a_mqa.weight": (16, 10), "blk.0.attn_output.weight": (16, 16)}
RECURRENT = {"blk.0.ssm_out.weight": (16, 16), "blk.0.ssm_conv1d.weight": (3, 32)}
SSM = {"ssm__conv_kernel": 3, "ssm__state_size": 4, "ssm__group_count": 2, "ssm__time_step_rank": 4,
       "ssm__inner_size": 16}
for name, keys in {
  "good_plain": {},
  "good_yarn": {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0, "rope__freq_base": 1e6,
                "rope__scaling__original_context_length": 32},
  "good_experts": {"expert_count": 8, "expert_used_count": 2, "expert_group_count": 4, "expert_group_used_count": 2,
                   "expert_gating_func": 2, "leading_dense_block_count": 0},
  "good_windows": {"attention__sliding_window": 5, "attention__sliding_window_pattern": 2},
  "bad_no_heads": {"attention__head_count": 0},
  "bad_heads": {"attention__head_count_kv": 3},
  "bad_no_key_heads": {"attention__head_count_kv": 0},
  "bad_more_heads_than_values": {"attention__head_count": 64, "attention__head_count_kv": 64},
  "bad_blocks": {"block_count": 513},
  "bad_blocks_huge": {"block_count": 1 << 62},
  "bad_predicted_layers": {"nextn_predict_layers": 1},
  "bad_context": {"context_length": 1 << 40},
  "bad_key_length": {"attention__key_length": 1 << 20},
  "bad_rope_odd": {"rope__dimension_count": 3},
  "bad_rope_base": {"rope__freq_base": float("nan")},
  "bad_rope_kind": {"rope__scaling__type": "wide"},
  "bad_scale": {"attention__scale": float("inf")},
  "bad_network": {"feed_forward_length": None},
  "bad_experts_used": {"expert_count": 4, "expert_used_count": 5},
  "bad_groups": {"expert_count": 8, "expert_used_count": 2, "expert_group_count": 3},
  "bad_list_short": {"attention__head_count": [4, 4], "block_count": 3},
}.items(): put("model_config", name, decoder("llama", attention().items(), **keys))
put("model_config", "good_latent", decoder("deepseek2", LATENT.items(), attention__kv_lora_rank=8,
                                           rope__dimension_count=2, attention__key_length_mla=6,
                                           attention__value_length_mla=4))
put("model_config", "bad_latent_rank", decoder("deepseek2", LATENT.items(), attention__kv_lora_rank=1 << 20,
                                               rope__dimension_count=2))
put("model_config", "good_recurrent", decoder("qwen35", RECURRENT.items(), **SSM))
put("model_config", "bad_recurrent_state", decoder("qwen35", RECURRENT.items(), **SSM | {"ssm__state_size": 1 << 20}))
put("model_config", "bad_recurrent_groups", decoder("qwen35", RECURRENT.items(), **SSM | {"ssm__group_count": 3}))
put("model_config", "bad_architecture", decoder("mamba", attention().items()))

# ---- recordings: the records of a block ----
def leb(v):
  out = b""
  while v >= 0x80:
    out, v = out + bytes([v & 0x7F | 0x80]), v >> 7
  return out + bytes([v])


def record(kind, *fields):
  body = bytes([kind]) + b"".join(leb(len(f)) + f if isinstance(f, bytes) else leb(f) for f in fields)
  return leb(len(body)) + body


NAME, TOTAL, NODE, OPEN, CLOSE, VALUE, TEXT, GRAPH, REWRITE, EVENT, MEMORY = range(1, 12)
names = b"".join(record(NAME, i + 1, t) for i, t in enumerate([b"kernel", b"ADD", b"int32", b"CONST", b"CPU", b"rule"]))
node = [record(NODE, 1, 1, 4, 3, 0, 0, 0, b"1"), record(NODE, 1, 2, 4, 3, 0, 0, 0, b"2"),
        record(NODE, 1, 3, 2, 3, 0, 0, 2, 2, 1, b""), record(NODE, 1, 4, 2, 3, 0, 0, 2, 3, 2, b"")]
span = record(OPEN, 1, 0, 1, 1, 100) + record(VALUE, 1, 1, b"v") + record(TEXT, 1, 1, 1, b"text")
whole = names + b"".join(node) + span + record(GRAPH, 1, 1, 1, 1, 3) + record(REWRITE, 1, 6, 1, 1, 4, 5)
put("recording", "good_empty", b"")
put("recording", "good_whole", whole + record(EVENT, 5, 0, 1, 1, 110, 120, b"details") +
    record(MEMORY, 5, 1, 64, 200, 105) + record(MEMORY, 5, 1, 64, 199, 115) + record(CLOSE, 1, 130) +
    record(TOTAL, 6, 3, 1, 40))
put("recording", "good_rewrites_in_a_circle", whole + record(REWRITE, 1, 6, 1, 4, 1, 5))
put("recording", "good_rewrite_to_its_own_user", whole + record(REWRITE, 1, 6, 1, 2, 3, 5))
put("recording", "good_unknown_numbers", record(OPEN, 2**63, 2**64 - 1, 2**40, 9, 2**64 - 1) +
    record(GRAPH, 7, 7, 7, 2, 8, 9) + record(REWRITE, 7, 7, 7, 7, 7, 7) + record(MEMORY, 9, 9, 9, 2**64 - 1, 9))
put("recording", "good_rewrite_to_nothing", whole + record(REWRITE, 1, 6, 1, 3, 0, 5))
put("recording", "good_sums_beyond_64_bits", names + record(EVENT, 5, 0, 1, 1, 0, 2**62, b"") * 8 +
    record(MEMORY, 5, 1, 64, 2**64 - 2, 105) + record(MEMORY, 5, 1, 65, 2**64 - 2, 106))
put("recording", "good_unknown_kind", record(200, 1, 2, 3) + whole)
put("recording", "bad_length", b"\x7f" + whole[1:20])
put("recording", "bad_empty_record", b"\0")
put("recording", "bad_number", leb(12) + bytes([OPEN]) + b"\xff" * 11)
put("recording", "bad_text", record(NAME, 1)[:-1] + b"\1\x7f")
put("recording", "bad_count", record(GRAPH, 1, 1, 1, 2**40))
put("recording", "bad_source_after_its_user", record(NODE, 1, 1, 1, 1, 0, 0, 1, 5, b""))

# ---- captured functions (machine code, programs): changes (what, place, value) of a file that the target makes ----
for target in ("jit_file", "jit_interpreted"):
  put(target, "good_unchanged", b"")
  put(target, "bad_magic", b"\0\0\0\0")
  put(target, "bad_version", b"\0\x08\0\xff")
  put(target, "bad_operations", b"\1\x0c\0\xff")
  put(target, "bad_body_size", b"\0\x17\0\xff")
  put(target, "bad_cut", b"\2\x50\0\0")
  put(target, "bad_head_cut", b"\2\x20\0\0")

# ---- vocabularies of GGUF files, as lines ----
def vocabulary(name, *lines): put("vocabulary", name, "\n".join(lines).encode("utf-8", "surrogateescape"))


bpe = ["m gpt2", "p qwen2", *[f"t1 {c}" for c in "abcdehlorwxĠ1234'<>[]"], "t1 he", "t1 ll", "t1 hell", "t1 Ġw",
       "t3 <|end|>", "t4 CLS", "g h e", "g l l", "g he ll", "g Ġ w", "e 25"]
spm = ["m llama", "t2 <unk>", "s 0", "t3 <s>", "s 0", "t3 </s>", "s 0",
       *[x for b in range(256) for x in (f"t6 <0x{b:02X}>", "s 0")],
       *[x for i, t in enumerate("▁ a e l o H ▁H el lo ▁Hel".split()) for x in (f"t1 {t}", f"s -{i}")], "b 1", "e 2",
       "u 0"]
# a charsmap: a trie in which "x" has the value 0, and the text "y"
charsmap = "x " + (struct.pack("<I", 4 * 130) + b"".join(
  struct.pack("<I", {0: 1 << 10, 1 ^ 0x78: 0x78 | 1 << 8 | 2 << 10, 1 ^ 0x78 ^ 2: 1 << 31}.get(i,
    0)) for i in range(130)) + b"y\0").hex()
ugm = ["m t5", "t2 <unk>", "s 0", "t3 </s>", "s 0", "t1 ▁", "s -2", "t1 Hello", "s -1.5", "t1 ▁Hello", "s -1", "t4 <s>",
       "s 0",
       "u 0", "e 1"]
bert = ["m bert", *[f"t3 {t}" for t in ("[CLS]", "[SEP]", "[UNK]")], "t1 ▁hello", "t1 ▁w", "t1 orld", "t1 ▁1", "t1 2",
        "c 0", "e 1",
        "u 2"]
vocabulary("good_bpe", *bpe)
vocabulary("good_bpe_without_merges", *[x for x in bpe if x[0] != "g"])
vocabulary("good_spm", *spm)
vocabulary("good_spm_unused", *[x.replace("t1 el", "t5 el") for x in spm])
vocabulary("good_unigram", *ugm, charsmap)
vocabulary("good_bert", *bert)
vocabulary("good_duplicate_unused", *bpe, "t5 a", "t5 a")
vocabulary("bad_empty")
vocabulary("bad_model", "m rwkv", "t1 a")
vocabulary("bad_pre", "m gpt2", "p qwen-two", "t1 a")
vocabulary("bad_type", *bpe, "t9 x")
vocabulary("bad_duplicate", *bpe, "t1 he")
vocabulary("bad_duplicate_unigram", *ugm, "t1 ▁Hello", "s -3")
vocabulary("bad_merge_unknown", *bpe, "g q q")
vocabulary("bad_merge_result", *bpe, "g a b")
vocabulary("bad_merge_one", *bpe, "g abc")
vocabulary("bad_byte_minus", *spm, "t6 <0x-1>", "s 0")
vocabulary("bad_byte_long", *spm, "t6 <0x100>", "s 0")
vocabulary("bad_byte_twice", *spm, "t6 <0x41>", "s 0")
vocabulary("bad_scores", *spm, "s 1")
vocabulary("bad_nan", *[x if x != "s -1.5" else "s nan" for x in ugm])
vocabulary("bad_bos", *bpe, "b 99999")
vocabulary("bad_negative_id", *bpe, "b -7")
vocabulary("bad_utf8", *bpe, "t1 \udcff")
vocabulary("bad_no_unk", *[x for x in ugm if x[:2] not in ("t2", "u ")], "s 0")
vocabulary("bad_charsmap_size", *ugm, "x ffffffff00")
vocabulary("bad_charsmap_text", *ugm, charsmap + "ff")
vocabulary("bad_long_special", *bpe, "t3 " + "x" * 5000)


# ---- tokenizer.json ----
def tokenizer_json(name, doc): put("tokenizer_json", name,
                                   doc if isinstance(doc, bytes) else json.dumps(doc, ensure_ascii=False).encode())


def with_(doc, **changes): return {**doc, **changes}


letters = {c: i for i, c in enumerate("abcdehlorwxĠ1")}
hf_bpe = {"added_tokens": [{"id": 17, "content": "<s>", "special": True},
                           {"id": 18, "content": "CLS", "special": False, "lstrip": True,
                                                                             "rstrip": True, "single_word": True,
                                                                             "normalized": True}],
          "normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False,
                                                           "use_regex": True},
          "post_processor": {"type": "TemplateProcessing",
                             "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A"}}],
                             "special_tokens": {"<s>": {"id": "<s>", "ids": [17], "tokens": ["<s>"]}}},
          "decoder": {"type": "ByteLevel"},
          "model": {"type": "BPE", "vocab": {**letters, "he": 13, "ll": 14, "hell": 15, "Ġw": 16},
                    "merges": ["h e", "l l", ["he", "ll"], "Ġ w"]}}
hf_bert = {"added_tokens": [{"id": i, "content": t, "special": True} for i,
                            t in enumerate(("[UNK]", "[CLS]", "[SEP]"))],
           "normalizer": {"type": "Sequence", "normalizers": [{"type": "BertNormalizer", "clean_text": True,
             "handle_chinese_chars": True,
                                                               "strip_accents": None, "lowercase": True},
                                                              {"type": "Strip"}, {"type": "Nmt"},
                                                              {"type": "StripAccents"}]},
           "pre_tokenizer": {"type": "BertPreTokenizer"},
           "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
           "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
           "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                     "max_input_chars_per_word": 100,
                     "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "hello": 3, "w": 4, "##orld": 5}}}
hf_unigram = {"normalizer": {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"Regex": " {2,}"},
  "content": " "},
                                                                 {"type": "Prepend", "prepend": "▁"}]},
              "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True},
                {"type": "Split", "pattern": {"String": "1"}, "behavior": "MergedWithPrevious", "invert": False},
                {"type": "Digits", "individual_digits": True}, {"type": "Punctuation", "behavior": "Removed"}]},
              "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"},
                "content": " "}, {"type": "ByteFallback"},
                                                           {"type": "Fuse"},
                                                           {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
              "model": {"type": "Unigram", "unk_id": 0,
                        "vocab": [["<unk>", 0.0], ["▁", -2.5], ["▁Hello", -1.0], ["l", -4]], "byte_fallback": True}}
tokenizer_json("good_bpe", hf_bpe)
tokenizer_json("good_bert", hf_bert)
tokenizer_json("good_unigram", hf_unigram)
tokenizer_json("good_word_level", {"model": {"type": "WordLevel", "vocab": {"Hello": 0, "[UNK]": 1},
                                             "unk_token": "[UNK]"},
                                   "pre_tokenizer": {"type": "Whitespace"}})
tokenizer_json("bad_empty", b"")
tokenizer_json("bad_list", b"[]")
tokenizer_json("bad_deep", b"[" * 100000)
tokenizer_json("bad_no_model", {})
tokenizer_json("bad_normalizer", with_(hf_bpe, normalizer={"type": "Shout"}))
tokenizer_json("bad_pre_tokenizer", with_(hf_bpe, pre_tokenizer={"type": "UnicodeScripts"}))
tokenizer_json("bad_regex", with_(hf_bpe, pre_tokenizer={"type": "Split", "pattern": {"Regex": "(("},
                                                         "behavior": "Isolated"}))
tokenizer_json("bad_behavior", with_(hf_bpe, pre_tokenizer={"type": "Split", "pattern": {"Regex": "x"},
  "behavior": "Maybe"}))
tokenizer_json("bad_decoder", with_(hf_bpe, decoder={"type": "CTC"}))
tokenizer_json("bad_post_processor", with_(hf_bpe, post_processor={"type": "BertProcessing", "sep": ["x", 99],
  "cls": ["y", -1]}))
tokenizer_json("bad_merge", with_(hf_bpe, model={**hf_bpe["model"], "merges": ["h z"]}))
tokenizer_json("bad_id_negative", with_(hf_bpe, model={**hf_bpe["model"], "vocab": {"a": -1}}))
tokenizer_json("bad_id_huge", with_(hf_bpe, model={**hf_bpe["model"], "vocab": {"a": 1 << 40}}))
tokenizer_json("bad_id_twice", with_(hf_bpe, model={**hf_bpe["model"], "vocab": {"a": 0, "b": 0}}))
tokenizer_json("bad_unk", with_(hf_bert, model={**hf_bert["model"], "unk_token": "nothing"}))
tokenizer_json("bad_unk_id", with_(hf_unigram, model={**hf_unigram["model"], "unk_id": 4}))
tokenizer_json("bad_score", with_(hf_unigram, model={**hf_unigram["model"], "vocab": [["<unk>", 0], ["a", "b"]]}))
tokenizer_json("bad_charsmap", with_(hf_unigram, normalizer={"type": "Precompiled",
  "precompiled_charsmap": "/////wAA"}))
tokenizer_json("bad_base64", with_(hf_unigram, normalizer={"type": "Precompiled", "precompiled_charsmap": "?"}))
put("safetensors", "bad_gap", safetensors({"a": tensor("U8", [1], 0, 1), "b": tensor("U8", [1], 2, 3)}, bytes(3)))
put("safetensors", "bad_gap_at_begin", safetensors({"a": tensor("U8", [1], 1, 2)}, bytes(2)))
put("safetensors", "bad_trailing", safetensors({"a": tensor("U8", [1], 0, 1)}, bytes(2)))
put("safetensors", "bad_missing_type", safetensors({"a": tensor("F4", [2], 0, 1)}, bytes(1)))
put("safetensors", "bad_many_axes", safetensors({"a": tensor("U8", [1] * 65, 0, 1)}, bytes(1)))
put("safetensors", "bad_long_list",
    safetensors(b'{"a":{"dtype":"U8","data_offsets":[0,1],"shape":[' + b"1," * 3000 + b"1]}}", bytes(1)))
put("safetensors", "good_fnuz",
    safetensors({"a": tensor("F8_E4M3FNUZ", [2], 0, 2), "b": tensor("F8_E5M2FNUZ", [1], 2, 3)}, bytes(3)))

# ---- safetensors_index ----
def index(files): return json.dumps({"metadata": {"total_size": 8}, "weight_map": files}).encode()


put("safetensors_index", "good_two",
    index({"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}))
put("safetensors_index", "good_empty", index({}))
for name, file in (("parent", "../x"), ("dots", ".."), ("absolute", "/etc/passwd"), ("folder", "a/b"),
                   ("backslash", "..\\x"), ("drive", "C:x"), ("zero", "a\0b"), ("empty", ""), ("number", 3)):
  put("safetensors_index", f"bad_{name}", index({"a": file}))
put("safetensors_index", "bad_twice", b'{"weight_map":{"a":"x","a":"y"}}')
put("safetensors_index", "bad_no_map", b'{"metadata":{}}')
put("safetensors_index", "bad_nested", b'{"weight_map":' + b"[" * 5000 + b"]" * 5000 + b"}")


# ---- zip ----
def archive(files, method=zipfile.ZIP_STORED, comment=b""):
  out = io.BytesIO()
  with zipfile.ZipFile(out, "w") as z:
    z.comment = comment
    for name, data in files: z.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, method)
  return out.getvalue()


def at(data, mark, skip=0): return data.index(mark) + skip


def edit(data, where, new): return data[:where] + new + data[where + len(new):]


END, ENTRY, LOCAL = b"PK\5\6", b"PK\1\2", b"PK\3\4"
two_files = archive([("a.txt", b"alpha"), ("dir/b", b"beta" * 30)])
packed = archive([("a", b"alpha " * 50)], zipfile.ZIP_DEFLATED)
entry, end = at(two_files, ENTRY), at(two_files, END)
put("zip", "good_stored", two_files)
put("zip", "good_deflated", packed)
put("zip", "good_empty", archive([]))
put("zip", "good_comment", archive([("a", b"x")], comment=b"PK\5\6 in a comment"))
put("zip", "good_folder", archive([("d/", b""), ("d/a", b"x")]))
put("zip", "bad_empty", b"")
put("zip", "bad_cut", two_files[:-1])
put("zip", "bad_no_end", two_files[:end])
put("zip", "bad_disk", edit(two_files, end + 4, b"\1\0"))
put("zip", "bad_count", edit(two_files, end + 8, b"\3\0\3\0"))
put("zip", "bad_count_huge", edit(two_files, end + 8, b"\xff\xff\xff\xff"))
put("zip", "bad_directory_offset", edit(two_files, end + 16, b"\xff\xff\xff\x7f"))
put("zip", "bad_directory_size", edit(two_files, end + 12, b"\0\0\0\0"))
put("zip", "bad_prefix", b"#!/bin/sh\n" + two_files)
put("zip", "bad_local_offset", edit(two_files, entry + 42, b"\xf0\xff\xff\x7f"))
put("zip", "bad_local_mark", edit(two_files, 0, b"PK\3\5"))
put("zip", "bad_local_name", edit(two_files, 30, b"b"))
put("zip", "bad_local_name_length", edit(two_files, 26, b"\xff\xff"))
put("zip", "bad_local_method", edit(two_files, 8, b"\x08\0"))
put("zip", "bad_sizes", edit(two_files, entry + 20, b"\4\0\0\0"))
put("zip", "bad_size_huge", edit(edit(two_files, entry + 20, b"\xfe\xff\xff\xff"), entry + 24, b"\xfe\xff\xff\xff"))
put("zip", "bad_zip64_missing", edit(two_files, entry + 24, b"\xff\xff\xff\xff"))
put("zip", "bad_encrypted", edit(two_files, entry + 8, b"\1\0"))
put("zip", "bad_method", edit(two_files, entry + 10, b"\x0c\0"))
put("zip", "bad_entry_mark", edit(two_files, entry, b"PK\1\3"))
put("zip", "bad_name_length", edit(two_files, entry + 28, b"\xff\xff"))
put("zip", "bad_name_zero", two_files.replace(b"a.txt", b"a\0txt"))
put("zip", "bad_name_utf8", two_files.replace(b"a.txt", b"a\xfftxt"))
put("zip", "bad_twice", archive([("a", b"x"), ("b", b"x")]).replace(b"b", b"a"))
put("zip", "bad_overlap", edit(edit(two_files, entry + 20, b"\x28\0\0\0"), entry + 24, b"\x28\0\0\0"))
put("zip", "bad_ratio", edit(packed, at(packed, ENTRY, 24), b"\0\0\0\x10"))
# above the targets' limit
put("zip", "bad_bomb", archive([(str(i), bytes(1 << 19)) for i in range(4)], zipfile.ZIP_DEFLATED))


# ---- pictures and sound ----
def png(width, height, rows, color=2, depth=8):
  def chunk(kind, data): return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
  head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
  return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def wav(samples, channels=1, rate=8000, size=None, bits=16):
  form = struct.pack("<HHIIHH", 1, channels, rate, rate * channels * bits // 8, channels * bits // 8, bits)
  length = struct.pack("<I", len(samples) if size is None else size)
  body = b"WAVEfmt " + struct.pack("<I", 16) + form + b"data" + length
  return b"RIFF" + struct.pack("<I", len(body) + len(samples)) + body + samples


JPEG = base64.b64decode("""
/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABALDA4MChAODQ4SERATGCgaGBYWGDEjJR0oOjM9PDkzODdASFxOQERXRTc4UG1RV19iZ2hnPk1xeX
BkeFxlZ2P/2wBDARESEhgVGC8aGi9jQjhCY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2P/wAARCAAI
AAgDAREAAhEBAxEB/8QAHwAAAQUBAQEBAQEAAAAAAAAAAAECAwQFBgcICQoL/8QAtRAAAgEDAwIEAwUFBAQAAAF9AQIDAAQRBRIhMUEGE1FhBy
JxFDKBkaEII0KxwRVS0fAkM2JyggkKFhcYGRolJicoKSo0NTY3ODk6Q0RFRkdISUpTVFVWV1hZWmNkZWZnaGlqc3R1dnd4eXqDhIWGh4iJipKT
lJWWl5iZmqKjpKWmp6ipqrKztLW2t7i5usLDxMXGx8jJytLT1NXW19jZ2uHi4+Tl5ufo6erx8vP09fb3+Pn6/8QAHwEAAwEBAQEBAQEBAQAAAA
AAAAECAwQFBgcICQoL/8QAtREAAgECBAQDBAcFBAQAAQJ3AAECAxEEBSExBhJBUQdhcRMiMoEIFEKRobHBCSMzUvAVYnLRChYkNOEl8RcYGRom
JygpKjU2Nzg5OkNERUZHSElKU1RVVldYWVpjZGVmZ2hpanN0dXZ3eHl6goOEhYaHiImKkpOUlZaXmJmaoqOkpaanqKmqsrO0tba3uLm6wsPExc
bHyMnK0tPU1dbX2Nna4uPk5ebn6Onq8vP09fb3+Pn6/9oADAMBAAIRAxEAPwCFHrjwqMFlnkf/2Q==""")
RGB_ROWS = b"".join(b"\0" + bytes(range(12)) for _ in range(3))
put("image", "good_png", png(4, 3, RGB_ROWS))
put("image", "good_png_grey_16", png(2, 2, b"\0\1\2\3\4" * 2, color=0, depth=16))
put("image", "good_png_alpha", png(1, 2, b"\0\1\2\3\4" * 2, color=6))
put("image", "good_jpeg", JPEG)
put("image", "good_ppm", b"P6\n# comment\n2 1\n255\nabcdef")
put("image", "good_pgm", b"P5 2 1 3\n\1\3")
def bmp(width, height, bits, rest, offset=54, compression=0, colors=0):
  head = struct.pack("<IiiHHIIIIII", 40, width, height, 1, bits, compression, 0, 0, 0, colors, 0)
  return b"BM" + struct.pack("<III", 0, 0, offset) + head + rest


WEBP = base64.b64decode("UklGRjIAAABXRUJQVlA4TCYAAAAvAUAAAB8gECB48L9qQ0iQ0P2/V4EAwYj/S/Mf+OSo4AYMEf0PAQ==")
put("image", "good_bmp", bmp(2, 2, 24, bytes(range(16))))
put("image", "good_bmp_palette", bmp(3, -1, 4, bytes(8) + b"\x10\x10\0\0", 62, colors=2))
put("image", "good_bmp_masks", bmp(1, 1, 16, struct.pack("<IIII", 0xf800, 0x7e0, 0x1f, 0xffe0), 66, compression=3))
put("image", "any_webp", WEBP)  # a build without libwebp refuses it
put("image", "bad_bmp_huge", bmp(2**31 - 1, -2**31, 32, b""))
put("image", "bad_bmp_cut", bmp(20, 20, 24, bytes(100)))
put("image", "bad_bmp_mask", bmp(1, 1, 32, struct.pack("<IIII", 0xffffffff, 5, 0, 0), 66, compression=3))
put("image", "bad_webp_cut", WEBP[:40])
put("image", "bad_empty", b"")
put("image", "bad_text", b"hello")
put("image", "bad_png_cut", png(4, 3, RGB_ROWS)[:-30])
put("image", "bad_png_few_rows", png(4, 30, RGB_ROWS))
put("image", "bad_png_huge", png(2**31 - 1, 2**31 - 1, b""))
put("image", "bad_png_no_pixels", png(0, 5, b""))
put("image", "bad_jpeg_cut", JPEG[:-40])
put("image", "bad_jpeg_header", JPEG[:30])
put("image", "bad_ppm_huge", b"P6 99999 99999 255\n")
put("image", "bad_ppm_cut", b"P6 2 2 255\nabc")
put("sound", "good_wav", wav(struct.pack("<6h", 0, 9, -9, 32767, -32768, 1)))
put("sound", "good_wav_stereo", wav(struct.pack("<6h", 0, 9, -9, 32767, -32768, 1), channels=2))
put("sound", "good_wav_nothing", wav(b""))
put("sound", "bad_empty", b"")
put("sound", "bad_text", b"hello")
put("sound", "bad_wav_no_channels", wav(b"\0\0", channels=0))
put("sound", "bad_wav_header", wav(b"")[:30])
put("sound", "bad_mp3", b"ID3\3\0\0\0\0\0\0\xff\xfb\x90\0")


# ---- npy ----
def npy(header, data=b"", version=(1, 0), length=None):
  h = header.encode() if isinstance(header, str) else header
  size = len(h) if length is None else length
  return b"\x93NUMPY" + bytes(version) + struct.pack("<H" if version[0] == 1 else "<I", size) + h + data


def dictionary(descr="'<f4'", order="False", shape="(2,)"):
  return "{'descr': %s, 'fortran_order': %s, 'shape': %s, }\n" % (descr, order, shape)


put("npy", "good_f4", npy(dictionary(), bytes(8)))
put("npy", "good_version_2", npy(dictionary(), bytes(8), (2, 0)))
put("npy", "good_version_3", npy(dictionary(), bytes(8), (3, 0)))
put("npy", "good_fortran", npy(dictionary("'>i8'", "True", "(2, 3)"), bytes(48)))
put("npy", "good_scalar", npy(dictionary("'|b1'", "False", "()"), bytes(1)))
put("npy", "good_no_elements", npy(dictionary(shape="(4611686018427387904, 0, 4611686018427387904)")))
put("npy", "good_python_2", npy(dictionary(shape="(2L,)"), bytes(8)))
put("npy", "bad_empty", b"")
put("npy", "bad_magic", b"\x93NUMPX" + npy(dictionary(), bytes(8))[6:])
put("npy", "bad_version", npy(dictionary(), bytes(8), (4, 0)))
put("npy", "bad_length", npy(dictionary(), bytes(8), length=60000))
put("npy", "bad_length_2", npy(dictionary(), bytes(8), (2, 0), 0xffffffff))
put("npy", "bad_objects", npy(dictionary("'|O'"), bytes(16)))
put("npy", "bad_records", npy(dictionary("[('a', '<f4')]"), bytes(8)))
put("npy", "bad_text", npy(dictionary("'<U3'"), bytes(24)))
put("npy", "bad_complex", npy(dictionary("'<c8'"), bytes(16)))
put("npy", "bad_type", npy(dictionary("'<f3'"), bytes(8)))
put("npy", "bad_cut", npy(dictionary(), bytes(7)))
put("npy", "bad_trailing", npy(dictionary(), bytes(9)))
put("npy", "bad_overflow", npy(dictionary(shape="(4611686018427387904, 4)")))
put("npy", "bad_wraps", npy(dictionary(shape="(9223372036854775807, 2)"), bytes(8)))
put("npy", "bad_negative", npy(dictionary(shape="(-2,)"), bytes(8)))
put("npy", "bad_axes", npy(dictionary(shape="(" + "1," * 65 + ")"), bytes(4)))
put("npy", "bad_twice", npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", bytes(8)))
put("npy", "bad_key", npy("{'descr': '<f4', 'x': 1, 'fortran_order': False, 'shape': (2,)}", bytes(8)))
put("npy", "bad_missing_key", npy("{'descr': '<f4', 'fortran_order': False}", bytes(8)))
put("npy", "bad_call", npy("__import__('os').system('x')", bytes(8)))
put("npy", "bad_order", npy(dictionary(order="1"), bytes(8)))


# ---- pickle ----
def text(s): return b"X" + struct.pack("<I", len(s.encode())) + s.encode()


put("pickle", "good_plain",
    pickle.dumps([None, True, -1, 300, 70000, 2**70, 1.5, "x", b"y", (1, (2, 3), ()), {"k": [4]}], 2))
put("pickle", "good_protocol_5",
    pickle.dumps([None, "x" * 300, b"y" * 300, {1, 2}, frozenset({3}), bytearray(b"z")], 5))
put("pickle", "good_call", pickle.dumps(collections.OrderedDict(a=1), 2))
put("pickle", "good_shared", pickle.dumps([[1]] * 3, 2))
put("pickle", "bad_empty", b"")
put("pickle", "bad_no_stop", b"\x80\2N")
put("pickle", "bad_system", b"\x80\2cposix\nsystem\n" + text("id") + b"\x85R.")
put("pickle", "bad_eval_stack_global", b"\x80\4\x8c\x08builtins\x8c\4eval\x93\x8c\x011\x85R.")
put("pickle", "bad_close_name", b"\x80\2ccollections\nOrderedDict2\n)R.")
put("pickle", "bad_dotted_name", b"\x80\4\x8c\x0bcollections\x8c\x0eOrderedDict.os\x93.")
put("pickle", "bad_inst", b"\x80\2(iposix\nsystem\n.")
put("pickle", "bad_obj", b"\x80\2(cposix\nsystem\no.")
put("pickle", "bad_protocol_0", pickle.dumps([1], 0))
put("pickle", "bad_protocol_9", b"\x80\x09N.")
put("pickle", "bad_ext", b"\x80\2\x82\1.")
put("pickle", "bad_call_of_a_list", b"\x80\2])R.")
put("pickle", "bad_build_on_a_list", b"\x80\2]}b.")
put("pickle", "bad_underflow", b"\x80\2a.")
put("pickle", "bad_underflow_below_mark", b"\x80\2](Na.")
put("pickle", "bad_no_mark", b"\x80\2]e.")
put("pickle", "bad_left_over", b"\x80\2NN.")
put("pickle", "bad_memo", b"\x80\2h\1.")
put("pickle", "bad_memo_huge", b"\x80\2Nr\xff\xff\xff\xff.")
put("pickle", "bad_text_length", b"\x80\2X\xff\xff\xff\xffa.")
put("pickle", "bad_text_length_64", b"\x80\4\x8d" + b"\xff" * 8 + b"a.")
put("pickle", "bad_frame", b"\x80\4\x95" + b"\xff" * 8 + b"N.")
put("pickle", "bad_odd_dict", b"\x80\2}(Nu.")
put("pickle", "bad_key", b"\x80\2}]Ns.")
put("pickle", "bad_cycle", b"\x80\2]q\0h\0a.")
put("pickle", "bad_cycle_in_dict", b"\x80\2}q\0N]h\0as.")
put("pickle", "bad_nested", b"\x80\2" + b"]" * 5000 + b"a" * 4999 + b".")
put("pickle", "bad_nested_tuples", b"\x80\2N" + b"\x85" * 300 + b".")
put("pickle", "bad_name_without_end", b"\x80\2ccollections\nOrderedDict")

# ---- torch ----
STORAGE = b"(" + text("storage") + b"ctorch\n%sStorage\n" + text("0") + text("cpu") + b"K%ctQ"


def rebuilt(kind=b"Float", count=6, offset=0, size=(2, 3), stride=(3, 1), name=b"_rebuild_tensor_v2"):
  sizes = b"".join(b"J" + struct.pack("<i", n) for n in size)
  strides = b"".join(b"J" + struct.pack("<i", n) for n in stride)
  return (b"ctorch._utils\n" + name + b"\n(" + STORAGE % (kind, count) + b"J" + struct.pack("<i", offset) + b"(" +
          sizes + b"t(" + strides + b"t\x89ccollections\nOrderedDict\n)RtR")


def torch_zip(pickled, data=bytes(24), order=b"little"):
  return archive([("x/data.pkl", b"\x80\2" + pickled + b"."), ("x/byteorder", order), ("x/data/0", data)])


def torch_old(pickled, data=bytes(24), count=6, little=True):
  return (pickle.dumps(0x1950a86a20f9469cfc6c, 2) + pickle.dumps(1001, 2) + pickle.dumps({"little_endian": little}, 2) +
          b"\x80\2" + pickled + b"." + pickle.dumps(["0"], 2) + struct.pack("<q", count) + data)


put("torch", "good_zip", torch_zip(rebuilt()))
put("torch", "good_legacy", torch_old(rebuilt()))
put("torch", "good_permuted", torch_zip(rebuilt(size=(3, 2), stride=(1, 3))))
put("torch", "good_expanded", torch_zip(rebuilt(size=(100, 6), stride=(0, 1))))
put("torch", "good_empty", torch_zip(rebuilt(size=(0, 9), stride=(9, 1))))
put("torch", "good_dict", torch_zip(b"}" + text("a") + rebuilt() + b"s"))
put("torch", "bad_empty", b"")
put("torch", "bad_no_pickle", archive([("x/data/0", bytes(24))]))
put("torch", "bad_no_storage", torch_zip(rebuilt()).replace(b"x/data/0", b"x/data/1"))
put("torch", "bad_short_storage", torch_zip(rebuilt(), bytes(23)))
put("torch", "bad_outside", torch_zip(rebuilt(offset=1)))
put("torch", "bad_outside_by_stride", torch_zip(rebuilt(stride=(4, 1))))
put("torch", "bad_stride_overflow",
    torch_zip(rebuilt(size=(2147483647, 2147483647), stride=(2147483647, 2147483647))))
put("torch", "bad_negative_size", torch_zip(rebuilt(size=(-2, -3))))
put("torch", "bad_negative_stride", torch_zip(rebuilt(offset=5, stride=(-3, -1))))
put("torch", "bad_negative_offset", torch_zip(rebuilt(offset=-1)))
put("torch", "bad_strides", torch_zip(rebuilt(stride=(1,))))
put("torch", "bad_axes", torch_zip(rebuilt(size=(1,) * 65, stride=(1,) * 65)))
put("torch", "bad_kind", torch_zip(rebuilt(b"Texty")))
put("torch", "bad_quantized", torch_zip(rebuilt(b"QInt8")))
put("torch", "bad_quantized_tensor", torch_zip(rebuilt(name=b"_rebuild_qtensor")))
put("torch", "bad_arguments", torch_zip(b"ctorch._utils\n_rebuild_tensor_v2\n)R"))
put("torch", "bad_no_reference", torch_zip(b"ctorch._utils\n_rebuild_tensor\n(NJ\0\0\0\0))tR"))
put("torch", "bad_two_sizes", torch_zip(rebuilt() + rebuilt(count=5, size=(1, 1)) + b"\x86"))
put("torch", "bad_system", torch_zip(b"cposix\nsystem\n" + text("id") + b"\x85R"))
put("torch", "bad_byteorder", torch_zip(rebuilt()).replace(b"little", b"bigger"))
put("torch", "bad_legacy_order", torch_old(rebuilt(), little=False))
put("torch", "bad_legacy_count", torch_old(rebuilt(), count=5))
put("torch", "bad_legacy_count_huge", torch_old(rebuilt(), count=1 << 62))
put("torch", "bad_legacy_cut", torch_old(rebuilt())[:-1])
put("torch", "bad_legacy_keys", torch_old(rebuilt()).replace(pickle.dumps(["0"], 2), pickle.dumps(["7"], 2)))
put("torch", "bad_version", pickle.dumps(0x1950a86a20f9469cfc6c, 2) + pickle.dumps(1002, 2))
put("torch", "bad_from_type_of_itself", torch_zip(
  b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._tensor\n_rebuild_from_type_v2\nctorch\nTensor\n)}tR"))
put("torch", "bad_latin1", torch_zip(b"c_codecs\nencode\n" + text("\u20ac") + text("latin1") + b"\x86R"))
put("torch", "bad_codec", torch_zip(b"c_codecs\nencode\n" + text("x") + text("rot13") + b"\x86R"))
put("torch", "bad_opaque", torch_zip(
  b"}" + text("a") + rebuilt() + b"s" + text("b") + b"clib\nConfig\n)\x81q\x01}" + text("parent") + b"h\x01sbs"))
put("torch", "good_big_endian", torch_zip(rebuilt(), order=b"big"))
put("torch", "bad_opaque_root", torch_zip(b"clib\nNet\n)\x81}b"))
put("torch", "bad_bytes_in_big_endian", torch_zip(
  rebuilt(b"Untyped", 24, name=b"_rebuild_tensor_v3").replace(b")RtR", b")Rctorch\nfloat32\ntR"), order=b"big"))


def copies(function, arguments, calls):
  """A list of what many calls make of the same arguments, packed: copies of them take far more than the file."""
  pickled = b"c" + function + b"\nq\x010(" + arguments + b"tq\x020](" + b"h\x01h\x02R" * calls + b"e"
  return archive([("x/data.pkl", b"\x80\2" + pickled + b".")], zipfile.ZIP_DEFLATED)


LONG = 1 << 16
put("torch", "bad_copies_set", copies(b"builtins\nset", b"](" + b"N" * LONG + b"e", 160))
put("torch", "bad_copies_size", copies(b"torch\nSize", b"(" + b"N" * LONG + b"t", 160))
put("torch", "bad_copies_dictionary", copies(b"collections\nOrderedDict", b"}(" + b"NN" * LONG + b"u", 80))
put("torch", "bad_copies_pairs", copies(b"collections\nOrderedDict", b"](" + b"NN\x86" * LONG + b"e", 80))
put("torch", "bad_copies_text", copies(b"_codecs\nencode", text("x" * LONG) + text("latin1"), 600))

# ---- http ----
HOST = b"Host: localhost\r\n"
CHUNKED = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
put("http", "good_get", b"GET /v1/models?x=1 HTTP/1.1\r\n" + HOST + b"Accept: */*\r\n\r\n")
put("http", "good_post", b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nConnection: close\r\n\r\nabc")
put("http", "good_chunks", CHUNKED + b"3;a=b\r\nabc\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\n")
put("http", "good_old", b"GET / HTTP/1.0\r\n\r\n")
put("http", "bad_two_lengths",
    b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc")
put("http", "bad_list_of_lengths", b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 3, 3\r\n\r\nabc")
put("http", "bad_negative_length", b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n")
put("http", "bad_long_body", b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1001\r\n\r\n")
put("http", "bad_negative_chunk", CHUNKED + b"-1\r\n")
put("http", "bad_huge_chunk", CHUNKED + b"ffffffffffffffff\r\n")
put("http", "bad_many_chunks", CHUNKED + b"100\r\n" * 1 + b"x" * 256 + b"\r\n2e9\r\n")
put("http", "bad_extension", CHUNKED + b"1;" + b"x" * 5000)
put("http", "bad_many_headers", b"GET / HTTP/1.1\r\n" + HOST + b"X: y\r\n" * 70 + b"\r\n")
put("http", "bad_long_line", b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + HOST + b"\r\n")
put("http", "bad_folded", b"GET / HTTP/1.1\r\n" + HOST + b"X: y\r\n z\r\n\r\n")
put("http", "bad_bare_line_feed", b"GET / HTTP/1.1\n" + HOST + b"\n")
put("http", "bad_no_host", b"GET / HTTP/1.1\r\n\r\n")
put("http", "bad_tls", b"\x16\x03\x01\x02\0")

# ---- bodies of the API of language models: c(hat), t(ext), e(mbedding) ----
CHAT = b'c{"messages":[{"role":"user","content":%s}]%s}'
put("api_request", "good_chat", CHAT % (b'"hi"', b',"n":2,"stop":["a"],"seed":-1,"logit_bias":{"5":-100}'))
put("api_request", "good_parts", CHAT % (b'[{"type":"text","text":"hi"}]', b',"temperature":null'))
put("api_request", "good_schema", CHAT % (
  b'"hi"', b',"response_format":{"type":"json_schema","json_schema":{"name":"c","schema":{"type":"object"}}}'))
put("api_request", "good_text", b't{"prompt":["a",[1,2]],"max_tokens":3,"logprobs":1}')
put("api_request", "good_embedding", b'e{"input":["a","b"],"encoding_format":"base64"}')
put("api_request", "good_response", b'r{"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},'
    b'{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"1",'
    b'"output":"c"}],"tools":[{"type":"function","name":"f","parameters":{}}],"text":{"format":{"type":"text"}}}')
put("api_request", "good_message", b'm{"max_tokens":3,"system":"s","messages":[{"role":"user","content":"a"},'
    b'{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]},{"role":"user",'
    b'"content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"c"}]}]}],'
    b'"thinking":{"type":"enabled"}}')
put("api_request", "good_rerank", b'k{"query":"a","documents":["b",{"text":"c"}],"top_n":1}')
put("api_request", "bad_unknown", CHAT % (b'"hi"', b',"grammar":"x"'))
put("api_request", "bad_item", b'r{"input":[{"type":"item_reference","id":"x"}]}')
put("api_request", "bad_block", b'm{"max_tokens":3,"messages":[{"role":"user","content":[{"type":"image"}]}]}')
put("api_request", "bad_nested", b"c" + b"[" * 20000)
put("api_request", "bad_twice", b'c{"messages":[],"messages":[]}')
put("api_request", "bad_utf8", CHAT % (b'"\xff"', b""))
put("api_request", "bad_surrogate", CHAT % (b'"\\ud800"', b""))
put("api_request", "bad_infinite", CHAT % (b'"hi"', b',"temperature":1e999'))
put("api_request", "bad_temperature", CHAT % (b'"hi"', b',"temperature":-5'))
put("api_request", "bad_tokens", CHAT % (b'"hi"', b',"max_tokens":4611686018427387904'))
put("api_request", "bad_bias", CHAT % (b'"hi"', b',"logit_bias":{"300":1}'))
put("api_request", "bad_prompt", b't{"prompt":[1,-1]}')
put("api_request", "bad_many", b'e{"input":[' + b'"a",' * 3000 + b'"a"]}')

# ---- chat templates ----
put("chat_template", "good_empty", b"")
put("chat_template", "good_chatml",
    b"{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' ~ m.content ~ '<|im_end|>' }}{% endfor %}"
    b"{% if add_generation_prompt %}<|im_start|>assistant{% endif %}")
put("chat_template", "good_namespace",
    b"{%- set ns = namespace(a=0) -%}\n{%- for m in messages[1:] if m.role != 'x' -%}{% set ns.a = ns.a + "
    b"loop.index %}{{ loop.previtem.role if not loop.first }}{{ loop.cycle(1, 2) }}{%- if loop.last %}{% break %}{% "
        b"endif %}{%- endfor -%}{{ ns.a }}{{ ns }}")
put("chat_template", "good_macro",
    b"{% macro f(a, b=[1]) %}<{{ a | tojson(indent=2) }}{{ caller() }}{{ b[::-1] }}>{% endmacro %}"
    b"{% call f(tools) %}x{% endcall %}{% set x | upper | trim %} y {% endset %}{{ x }}")
put("chat_template", "good_recursive",
    b"{% for k, v in messages[2].tool_calls[0].function.arguments.items() recursive %}{{ k }}{{ loop.depth }}"
    b"{{ loop({'a': 1}.items()) if loop.depth < 3 }}{% endfor %}")
put("chat_template", "good_filters",
    b"{{ messages | selectattr('role', 'in', ['user', 'tool']) | map(attribute='content') | list | tojson }}"
    b"{{ messages | groupby('role') | length }}{{ '%5.2f|%-3d' % (1.5, 2) }}{{ '{:>5}{}'.format(1, 'a') }}{{ message"
        b"s | sort(attribute='role,x') | last }}"
    b"{{ 'a,b' .split(',') | join('-') | title | indent(2) | replace('a', 'b') }}{{ '0x1f' | int(0, 16) }}")
put("chat_template", "good_generation",
    b"{% for m in messages %}{% generation %}{{ m.role | safe + '<' }}{% endgeneration %}{% endfor %}{# c #}{% raw %"
    b"}{{{% endraw %}")
put("chat_template", "good_clock",
    b"{{ strftime_now('%Y %d %b') }}{{ range(5)[1:4:2] }}{{ bos_token }}{% filter upper %}a{% endfilter %}{% with a "
    b"= 1 %}{{ a }}{% endwith %}")
put("chat_template", "bad_statement", b"{% nope %}")
put("chat_template", "bad_open", b"{{ 'a")
put("chat_template", "bad_raised", b"{{ raise_exception('no') }}")
put("chat_template", "bad_utf8_name", b"{{ \xff }}")
put("chat_template", "bad_nested", b"{{ " + b"(" * 5000)
put("chat_template", "bad_blocks", b"{% if 1 %}" * 5000)
put("chat_template", "bad_signs", b"{{ " + b"not -" * 3000 + b"'a' }}")
put("chat_template", "bad_steps", b"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")
put("chat_template", "bad_doubling",
    b"{% set n = namespace(s='ab') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}")
put("chat_template", "bad_recursion", b"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}")
put("chat_template", "bad_loop_recursion", b"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}")
put("chat_template", "bad_self", b"{% set n = namespace() %}{% set n.n = n %}{{ n }}")
put("chat_template", "bad_wide_format", b"{{ '%999999999d' % 1 }}")
put("chat_template", "bad_brace_format", b"{{ '{0.__class__.__mro__}{:{:{:{}}}}'.format(1) }}")
put("chat_template", "bad_class", b"{{ ''.__class__.__mro__[1].__subclasses__() }}")

# ---- JSON schemas ----
put("json_schema", "good_true", b"true")
put("json_schema", "good_object",
    b'{"type":"object","properties":{"a":{"type":"integer","minimum":-3,"maximum":120},"b":{"type":"array","items":'
    b'{"enum":["x",null,1.5]},"minItems":1,"maxItems":3}},"required":["a","c"],"additionalProperties":{"type":"boole'
        b'an"}}')
put("json_schema", "good_text",
    b'{"anyOf":[{"type":"string","pattern":"^[a-f]{2,4}(x|yz)*$"},{"type":"string","minLength":2,"maxLength":5},{"fo'
    b'rmat":"date-time","type":"string"}]}')
put("json_schema", "good_recursive",
    b'{"$defs":{"t":{"type":"object","properties":{"n":{"anyOf":[{"$ref":"#/$defs/t"},{"type":"null"}]}},"required":'
    b'["n"],'
    b'"additionalProperties":false}},"$ref":"#/$defs/t"}')
put("json_schema", "good_patterns",
    b'{"type":"object","patternProperties":{"^s_":{"type":"string"},"_n$":{"type":"integer"}},"additionalProperties"'
    b':false,"maxItems":2}')
put("json_schema", "good_merged",
    b'{"allOf":[{"type":["number","null"],"minimum":0.25},{"exclusiveMaximum":7.5}],"oneOf":[{"type":"null"},{"type"'
    b':"number","multipleOf":1}]}'.replace(b',"multipleOf":1', b''))
put("json_schema", "good_prefix",
    b'{"type":"array","prefixItems":[{"const":1},{"type":"integer","multipleOf":7}],"items":{"const":"\\u00e4\\n"},"'
    b'minItems":2}')
put("json_schema", "bad_json", b'{"type":')
put("json_schema", "bad_keyword", b'{"properties":{"a":{"not":{}}}}')
put("json_schema", "bad_false", b"false")
put("json_schema", "bad_reference", b'{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"}}}')
put("json_schema", "bad_circle", b'{"$defs":{"a":{"allOf":[{"$ref":"#/$defs/a"}]}},"allOf":[{"$ref":"#/$defs/a"}]}')
put("json_schema", "bad_impossible", b'{"type":"object","required":["a"],"additionalProperties":false}')
put("json_schema", "bad_pattern", b'{"type":"string","pattern":"(a{1000}){1000}"}')
put("json_schema", "bad_slow_pattern", b'{"type":"string","pattern":"(a|b)*a(a|b){40}$"}')
put("json_schema", "bad_twice", b'{"type":"string","type":"null"}')
put("json_schema", "bad_nested", b'{"items":' * 200 + b"{}" + b"}" * 200)
put("json_schema", "bad_enum", b'{"enum":[1e400]}')
put("json_schema", "bad_alternatives", b'{"anyOf":[' + b",".join(b'{"pattern":"%c"}' % c for c in
    b"abcdefghijklmnopqrstuvwxyz") * 3 + b"]}")

# ---- replies: a letter for the form (a none, b hermes, ... l harmony) and the text ----
put("chat_reply", "good_text", b"a hello <think>no</think> ")
put("chat_reply", "good_hermes",
    b'bSure.<tool_call>{"name":"f","arguments":{"x":1}}</tool_call><tool_call>{oops</tool_call>')
put("chat_reply", "good_xml",
    b"c<tool_call><function=f><parameter=x>\n1\n</parameter></function></tool_call><function=g></function>")
put("chat_reply", "good_glm", b"d<think>a</think><tool_call>f<arg_key>x</arg_key><arg_value>1</arg_value></tool_call>")
put("chat_reply", "good_llama3", b'e {"name":"f","parameters":{"x":"a;b"}}; {"name":"g","parameters":{}}')
put("chat_reply", "good_llama3_tag", b'e<|python_tag|>{"name":"f","parameters":{}}<|eom_id|>')
put("chat_reply", "good_mistral", b'fa[TOOL_CALLS]f[CALL_ID]1[ARGS]{"x":1}[TOOL_CALLS]g[ARGS]{}')
put("chat_reply", "good_functionary", b'g>>>all\nHello>>>f\n{"x":1}>>>g\n{}<function=h>{}</function>')
put("chat_reply", "good_deepseek",
    "h<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜>x".encode())
put("chat_reply", "good_command_r",
    b'i<|START_ACTION|>[{"tool_name":"f","parameters":{}}]<|END_ACTION|>Action: ```json\n[]\n```')
put("chat_reply", "good_granite", b'j<|tool_call|>[{"name":"f","arguments":{}}]')
put("chat_reply", "good_kimi",
    b"k<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>")
put("chat_reply", "good_harmony",
    b'l<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>jso'
    b'n'
    b'<|message|>{"x":1}<|call|><|start|>assistant to=functions.g<|channel|>commentary<|message|>{}<|call|>')
put("chat_reply", "good_deep", b'b<tool_call>' + b'{"function":' * 80 + b"1" + b"}" * 80 + b"</tool_call>")
put("chat_reply", "bad_empty", b"")
put("chat_reply", "bad_no_form", b"m")
put("chat_reply", "bad_high", b"\xff")
put("chat_reply", "bad_space", b" ")
put("chat_reply", "bad_zero", b"\0<tool_call>")

# ---- darknet ----
NET = b"[net]\nwidth=416\n"
CONV = b"[convolutional]\nfilters=%d\nsize=3\nstride=1\npad=1\nactivation=leaky\n"
YOLO = b"[yolo]\nmask = 0,1\nanchors = 10,13,  16,30\nclasses=1\n"
put("darknet", "good_yolo", NET + b"# head\n" + CONV % 12 + YOLO)
put("darknet", "good_layers", b"; all kinds\r\n[network]\r\n" + CONV % 4 + b"[maxpool]\nsize=2\nstride=2\n" +
    b"[upsample]\nstride=2\n[shortcut]\nfrom=-3\nactivation=linear\n[route]\nlayers = -1, 0\n" + YOLO)
put("darknet", "bad_no_net", CONV % 4)
put("darknet", "bad_kind", NET + b"[rnn]\n")
put("darknet", "bad_no_value", NET + b"[yolo]\nmask\n")
put("darknet", "bad_huge", NET + CONV % 10**20)
put("darknet", "bad_later_layer", NET + CONV % 4 + b"[route]\nlayers=1\n")
put("darknet", "bad_mask", NET + YOLO.replace(b"0,1", b"0,2"))
put("darknet", "bad_anchor", NET + YOLO.replace(b"13", b"-13"))
put("darknet", "bad_activation", NET + (CONV % 4).replace(b"leaky", b"mish"))
