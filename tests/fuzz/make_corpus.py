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
