#!/usr/bin/env python3
"""Writes the seed inputs of the fuzz targets beside this file: corpus/TARGET/good_* parse, corpus/TARGET/bad_* must
raise FormatError."""
import gzip
import io
import json
import os
import struct
import tarfile

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
put("gguf", "good_tensors", gguf(values, w + [("q", (32,), 8, 32), ("none", (0, 5), 1, 96)], bytes(32) + q8 + bytes(30)))
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
