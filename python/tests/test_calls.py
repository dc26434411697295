"""Pending graphs as calls, functions of hardware, content addressed storage."""
import hashlib
import json
import socketserver
import threading

import numpy as np
import pytest

import tinygrad_cpp as tg
from tinygrad_cpp import Tensor, Variable, dtypes
from tinygrad_cpp.nn.state import fs_load, fs_store


# ---- callify ----
def test_callify_keeps_values_and_gradients():
    a, b = Tensor([1.0, 2.0, 3.0]), Tensor([4.0, 5.0, 6.0])
    c, d = a + b, a * b
    assert c.callify(d) is c
    assert (c * 2).tolist() == [10, 14, 18] and d.tolist() == [4, 10, 18]
    out = (a * a).sum()
    out.callify().backward()
    assert a.grad.tolist() == [2, 4, 6]


def test_callify_of_what_needs_no_call():
    const, stored = Tensor(2.0) + Tensor(3.0), Tensor([1.0]).contiguous().realize()
    assert const.callify().item() == 5 and stored.callify().tolist() == [1]
    x = Tensor.zeros(2).contiguous().realize()
    x.assign(x + 1)
    y = x * 2
    assert y.callify().tolist() == [2, 2] and x.tolist() == [1, 1]
    z = y + 1
    z.callify()
    z.callify()
    assert z.tolist() == [3, 3]


# ---- decode_hevc_frame ----
def test_decode_hevc_frame_needs_hardware():
    chunk, state, pos = Tensor.empty(64, dtype=dtypes.uint8), Tensor.empty(16, dtype=dtypes.uint8), Variable("pos", 0,
            100)
    frame = chunk.decode_hevc_frame(pos.bind(3), (8, 8), state, [Tensor.empty(8, 8, dtype=dtypes.uint8)])
    assert frame.shape == (8, 8) and frame.dtype is dtypes.uint8
    with pytest.raises(tg.DeviceError, match="no video decoder"):
        frame.realize()
    with pytest.raises(ValueError, match="bound variable"):
        chunk.decode_hevc_frame(pos, (8, 8), state)
    with pytest.raises(tg.ShapeError, match="reference frame"):
        chunk.decode_hevc_frame(pos.bind(1), (8, 8), state, [state])
    with pytest.raises(TypeError, match=r"\[decode_hevc_frame\] got no state"):
        chunk.decode_hevc_frame(pos.bind(1), (8, 8))


# ---- fs_store, fs_load ----
CHUNK = 1 << 20


def reference_address(data):
    """The address of bytes, by the definition of the format."""
    shake = lambda b: hashlib.shake_128(b).digest(16)  # noqa: E731
    while True:
        data += bytes(-len(data) % CHUNK)
        chunks = [data[i:i + CHUNK] for i in range(0, len(data), CHUNK)]
        data = b"".join(shake(b"".join(shake(c[i:i + 4096]) for i in range(0, CHUNK, 4096))) for c in chunks)
        if len(chunks) == 1:
            return data


class Server(socketserver.StreamRequestHandler):
    chunks = {}

    def handle(self):
        while line := self.rfile.readline().split():
            if line[0] == b"INFO":
                self.wfile.write(json.dumps({"a": ["a", "127.0.0.1:%d" % self.server.server_address[1]]}).encode()
                                 + b"\r\n")
            elif line[0] == b"STORE_IN":
                data = self.rfile.read(int(line[1]))
                for i in range(0, len(data), CHUNK):
                    address = reference_address(data[i:i + CHUNK])
                    self.chunks[address] = data[i:i + CHUNK]
                    self.wfile.write(address)
            elif line[0] == b"LOAD_IN":
                self.wfile.write(json.dumps(["a"] * (len(self.rfile.read(int(line[1]))) // 16)).encode() + b"\r\n")
            elif line[0] == b"CHUNK_OUT":
                self.wfile.write(self.chunks.get(self.rfile.read(16), bytes(CHUNK))[:int(line[1])])
            self.wfile.flush()


@pytest.fixture(params=["folder", "server"])
def store(request, tmp_path, monkeypatch):
    if request.param == "folder":
        monkeypatch.setenv("TINYFS_ENDPOINT", str(tmp_path / "chunks"))
        yield request.param
        return
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Server)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("TINYFS_ENDPOINT", "127.0.0.1:%d" % server.server_address[1])
    yield request.param
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("size", [1, 300, CHUNK, 2 * CHUNK + 77])
def test_storage_by_contents(store, size):
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    h = fs_store(Tensor(data)).realize()
    assert h.shape == (16,) and h.dtype is dtypes.uint8
    assert bytes(h.data()) == reference_address(data.tobytes())
    np.testing.assert_array_equal(fs_load(h, size).numpy(), data)


def test_storage_of_other_types_and_errors(store):
    t = Tensor([1.0, 2.0, 3.0])
    assert fs_load(fs_store(t), 12).bitcast(dtypes.float32).tolist() == [1, 2, 3]
    with pytest.raises((tg.FileError, tg.FormatError)):
        fs_load(Tensor([7] * 16, dtype=dtypes.uint8), 5)
    with pytest.raises(tg.DTypeError):
        fs_load(Tensor([7] * 16), 5)
    with pytest.raises(tg.ShapeError):
        fs_load(Tensor([7] * 3, dtype=dtypes.uint8), 5)


def test_no_store(monkeypatch):
    monkeypatch.setenv("TINYFS_ENDPOINT", "127.0.0.1:1")
    with pytest.raises(tg.FileError, match="TINYFS_ENDPOINT"):
        fs_store(Tensor([1.0]))


# ---- kernels in C ----
def test_kernels_in_c():
    from tinygrad_cpp.uop.ops import KernelInfo, Ops, UOp
    text = "void copy(int* restrict out, int* restrict in) { for (int i = 0; i < 4; i++) out[i] = in[i]; }"
    binary = tg.Device["CPU"].renderer.compiler.compile(text)
    assert UOp(Ops.BINARY, arg=binary).arg == binary

    def copy(out, x):
        sink = UOp.sink(out, x, arg=KernelInfo(name="copy"))
        return UOp(Ops.PROGRAM, src=(sink, UOp(Ops.LINEAR, src=tuple(sink.toposort())), UOp(Ops.SOURCE, arg=text),
                                     UOp(Ops.BINARY, arg=binary)))

    x = Tensor.arange(4, device="CPU").clone().realize()
    assert Tensor.custom_kernel(Tensor.empty_like(x), x + 1, fxn=copy)[0].tolist() == [1, 2, 3, 4]

    def broken(out):
        return UOp(Ops.PROGRAM, src=(UOp.sink(out, arg=KernelInfo(name="f")), UOp(Ops.SOURCE, arg="no C")))
    with pytest.raises(tg.CompileError, match="in kernel f, made by custom_kernel"):
        Tensor.empty(4, device="CPU").custom_kernel(fxn=broken)[0].realize()
