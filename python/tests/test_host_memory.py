"""Memory that leaves the library and memory that comes in: exports pin storage, copies and read-only memory are never
written to, DLPack follows the array API."""
import ctypes
import gc
import pickle
import threading

import numpy as np
import pytest

from tinygrad_cpp import Device, Tensor, TinyJit, dtypes, nn
from tinygrad_cpp.device import Buffer

N = 1000


def filled(v, n=N):
    return Tensor.full((n,), v).contiguous().realize()


def next_tensors(n=N):
    """What the allocator gives out next."""
    return [filled(100.0 + i, n) for i in range(4)]


# ---- exports ----
CHANGES = {
    "replace": lambda t: t.replace(filled(0.0)),
    "load_state_dict": lambda t: nn.state.load_state_dict({"w": t}, {"w": filled(0.0)}, verbose=False),
    "shard_": lambda t: t.shard_(("CPU:1", "CPU:2"), axis=0).realize(),
    "to_": lambda t: t.to_("CPU:1").realize(),
    "pickled contents": lambda t: __import__("tinygrad_cpp")._core._set_tensor_contents(t, bytes(4 * N)),
}
EXPORTS = {
    "memoryview": memoryview,
    "np.asarray": lambda t: np.asarray(memoryview(t)),
    "np.from_dlpack": np.from_dlpack,
    "PickleBuffer": lambda t: np.frombuffer(pickled_buffers(t)[0], np.float32),
}


def get_buffer(x, flags):
    """Asks for a buffer as C does."""
    view, api = ctypes.create_string_buffer(256), ctypes.pythonapi
    api.PyObject_GetBuffer.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
    api.PyObject_GetBuffer(x, view, flags)
    api.PyBuffer_Release.argtypes, api.PyBuffer_Release.restype = [ctypes.c_void_p], None
    api.PyBuffer_Release(view)


def pickled_buffers(t):
    out = []
    pickle.dumps(t, protocol=5, buffer_callback=out.append)
    return out


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("export", EXPORTS)
def test_exports_pin_storage(change, export):
    t = filled(7.0)
    seen = EXPORTS[export](t)
    CHANGES[change](t)
    keep = next_tensors()
    if change == "load_state_dict":  # written in place where no other tensor shows the storage
        assert set(np.asarray(seen).tolist()) <= {0.0, 7.0}
    else:
        assert (np.asarray(seen) == 7.0).all()
    del t
    keep += next_tensors()
    assert set(np.asarray(seen).tolist()) <= {0.0, 7.0}


def test_half_of_a_model_leaves_exports_alone():
    model = nn.Linear(8, 8)
    before = model.weight.numpy()
    seen = np.asarray(memoryview(model.weight.realize()))
    for p in nn.state.get_parameters(model):
        p.replace(p.half().realize())
    keep = next_tensors(64)
    np.testing.assert_array_equal(seen, before)
    assert keep


def test_storage_is_writable_and_copies_are_not():
    t = filled(1.0, 4)
    m = memoryview(t)
    assert not m.readonly
    m[1] = 5
    assert t.tolist() == [1, 5, 1, 1] and (t * 2).tolist() == [2, 10, 2, 2]
    assert not memoryview(t.reshape(2, 2)).readonly
    for copy in (Tensor.ones(3), Tensor(2.5), t[1:3], t.reshape(2, 2).T,
                 t.shard(("CPU:1", "CPU:2"), axis=0).realize()):
        m = memoryview(copy)
        assert m.readonly
        with pytest.raises(TypeError):
            m[(0,) * m.ndim] = 1
        with pytest.raises(BufferError, match=r"\[memoryview\] got a request for writable memory"):
            get_buffer(copy, 1)


def test_a_second_read_leaves_the_first_alone():
    n = 20000
    t = Tensor.arange(n).float().realize()
    for x in (t.shard(("CPU:1", "CPU:2"), axis=0).realize(), t[::2], t * 1, Tensor.full((n,), 3.0)):
        m = memoryview(x)
        before = m.tolist()
        x.tolist()
        memoryview(x)
        junk = [bytearray(b"\xff") * m.nbytes for _ in range(8)]
        assert m.tolist() == before and junk


def test_exports_of_a_captured_result_stay():
    step = TinyJit(lambda x: (x * 2).realize())
    seen = []
    for i in range(8):
        x = filled(float(i))
        seen.append((np.from_dlpack(step(x)), memoryview(step(x)), 2.0 * i))
    for a, m, value in seen:
        assert (a == value).all() and m[0] == value and m[N - 1] == value


def test_requests_of_the_buffer_protocol():
    t = Tensor.arange(6).float().reshape(2, 3).contiguous().realize()
    m = memoryview(t)
    assert (m.format, m.itemsize, m.shape, m.strides, m.nbytes) == ("f", 4, (2, 3), (12, 4), 24)
    assert m.c_contiguous and not m.f_contiguous
    assert bytes(t) == np.arange(6, dtype=np.float32).tobytes()
    for flags in (0, 0x1, 0x8, 0x18, 0x38, 0x98):  # simple, writable, with shape, strides, row-major, either order
        get_buffer(t, flags)
    with pytest.raises(BufferError, match=r"\[memoryview\] got a request for column-major memory"):
        get_buffer(t, 0x58)
    with pytest.raises(TypeError, match="cast to float32"):
        memoryview(t.bfloat16())
    assert memoryview(Tensor.zeros(0, 3)).nbytes == 0
    with pytest.raises(ValueError, match=r"\[__array__\] got copy=False"):
        t.bfloat16().__array__(copy=False)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "float16", "bfloat16", "fp8e4m3", "float32"])
@pytest.mark.parametrize("protocol", range(2, 6))
def test_pickles_of_every_type(dtype, protocol):
    t = Tensor([1, 0, 1]).cast(getattr(dtypes, dtype)).contiguous().realize()
    for x in (t, t[:0].contiguous(), t[1:]):
        y = pickle.loads(pickle.dumps(x, protocol=protocol))
        assert y.dtype is x.dtype and y.shape == x.shape and y.tolist() == x.tolist()
    buffers = pickled_buffers(t)
    assert len(buffers) == 1 and buffers[0].raw().nbytes == t.nbytes()


def test_raw_buffers():
    b = Buffer("CPU", 4, dtypes.float32).allocate()
    b.copyin(memoryview(np.arange(4, dtype=np.float32)))
    m = b.as_memoryview(force_zero_copy=True)
    b.deallocate()  # has no effect while the memory is seen
    keep = [Buffer("CPU", 4, dtypes.float32).allocate() for _ in range(4)]
    assert np.frombuffer(m, np.float32).tolist() == [0, 1, 2, 3] and keep
    del b
    gc.collect()
    assert np.frombuffer(m, np.float32).tolist() == [0, 1, 2, 3]
    foreign = bytearray(8)
    m = Buffer("CPU", 2, dtypes.float32, opaque=memoryview(foreign)).as_memoryview(force_zero_copy=True)
    with pytest.raises(BufferError):
        foreign.clear()  # it is seen
    m[0] = 1
    assert foreign[0] == 1
    with pytest.raises(ValueError, match=r"\[copy_in\] got a buffer of 4 bytes over memory of somebody else"):
        Buffer("CPU", 4, dtypes.uint8, opaque=memoryview(b"abcd")).copyin(memoryview(b"efgh"))
    with pytest.raises(ValueError, match=r"\[buffer\] got 4 bytes for 5 elements"):
        Buffer("CPU", 5, dtypes.uint8, opaque=memoryview(b"abcd"))


# ---- imports ----
def test_read_only_arrays_are_imported_without_a_copy_and_never_written(tmp_path):
    text = bytes([97, 98, 99, 100])
    t = Tensor.from_dlpack(np.frombuffer(text, np.uint8))
    view = t[1:3]
    t += 1
    assert t.tolist() == [98, 99, 100, 101] and view.tolist() == [99, 100]
    assert text == bytes([97, 98, 99, 100])

    x = np.arange(4, dtype=np.float32)
    fixed = x.view()
    fixed.flags.writeable = False
    t = Tensor.from_dlpack(fixed)
    x[0] = 7  # by its owner
    assert t.tolist() == [7, 1, 2, 3] and memoryview(t).readonly
    t[1] = 9
    assert t.tolist() == [7, 9, 2, 3] and x.tolist() == [7, 1, 2, 3] and not memoryview(t).readonly

    path = tmp_path / "x"
    np.arange(8, dtype=np.float32).tofile(path)
    mapped = np.memmap(path, dtype=np.float32, mode="r")
    t = Tensor.from_dlpack(mapped)
    assert (t + 1).tolist() == list(range(1, 9))
    t.assign(Tensor.zeros(8)).realize()
    assert t.tolist() == [0] * 8 and np.fromfile(path, np.float32).tolist() == list(range(8))


def test_tensors_of_arrays_are_copies():
    x = np.arange(4, dtype=np.float32)
    x.flags.writeable = False
    t = Tensor(x)
    t += 1
    assert t.tolist() == [1, 2, 3, 4] and x.tolist() == [0, 1, 2, 3]
    text = b"abcd"
    t = Tensor(text)
    t += 1
    assert t.tolist() == [98, 99, 100, 101] and text == b"abcd"


def test_a_read_only_import_in_a_captured_function():
    @TinyJit
    def add(x):
        x += 1
        return (x * 2).realize()
    text = np.frombuffer(np.ones(4, np.float32).tobytes(), np.float32)
    for _ in range(4):
        x = Tensor.from_dlpack(text)
        assert add(x).tolist() == [4] * 4 and x.tolist() == [2] * 4 and text.tolist() == [1] * 4


def test_round_trips_share_and_protect():
    x = np.zeros(4, np.float32)
    back = np.from_dlpack(Tensor.from_dlpack(x))
    back[0] = 3
    assert x[0] == 3
    x.flags.writeable = False
    again = np.from_dlpack(Tensor.from_dlpack(x))
    assert not again.flags.writeable
    with pytest.raises(ValueError):
        again[0] = 1


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    _fields_ = [("array", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class ManagedVersioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("array", DLTensor)]


class Foreign:
    """An array of a library that fills the structures by hand."""

    def __init__(self, memory, code=2, bits=32, lanes=1, shape=None, strides=None, offset=0, device=1, version=None,
                 flags=0):
        self.memory, self.version = memory, version
        shape = (len(memory) * 8 // bits,) if shape is None else shape
        self.shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        self.strides = None if strides is None else (ctypes.c_int64 * len(strides))(*strides)
        array = DLTensor(ctypes.addressof(ctypes.c_char.from_buffer(memory)), device, 0, len(shape), code, bits, lanes,
                         self.shape, self.strides, offset)
        self.managed = Managed(array, None, None) if version is None else ManagedVersioned(*version, None, None, flags,
                                                                                           array)

    def __dlpack__(self, **kwargs):
        if self.version is None and kwargs:
            raise TypeError("no keywords")
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        name = b"dltensor" if self.version is None else b"dltensor_versioned"
        return new(ctypes.addressof(self.managed), name, None)

    def __dlpack_device__(self): return (1, 0)


INT, UINT, FLOAT, OPAQUE, BFLOAT, COMPLEX, BOOL = range(7)


@pytest.mark.parametrize("code,bits,dtype", [
    (INT, 8, "int8"), (INT, 16, "int16"), (INT, 32, "int32"), (INT, 64, "int64"), (UINT, 8, "uint8"),
    (UINT, 16, "uint16"), (UINT, 32, "uint32"), (UINT, 64, "uint64"), (FLOAT, 16, "float16"), (FLOAT, 32, "float32"),
    (FLOAT, 64, "float64"), (BFLOAT, 16, "bfloat16"), (BOOL, 8, "bool"), (10, 8, "fp8e4m3"), (12, 8, "fp8e5m2")])
def test_dlpack_types(code, bits, dtype):
    source = Foreign(bytearray(16), code, bits)
    t = Tensor.from_dlpack(source)
    assert t.dtype is getattr(dtypes, dtype) and t.shape == (128 // bits,) and t.tolist() == [0] * (128 // bits)
    capsule = t.__dlpack__()
    assert Tensor.from_dlpack(capsule).dtype is t.dtype


@pytest.mark.parametrize("code,bits,lanes", [
    (INT, 4, 1), (INT, 1, 1), (INT, 128, 1), (UINT, 4, 1), (UINT, 128, 1), (FLOAT, 8, 1), (FLOAT, 128, 1),
    (BOOL, 1, 1), (BFLOAT, 32, 1), (COMPLEX, 64, 1), (OPAQUE, 64, 1), (17, 4, 1), (7, 8, 1), (INT, 32, 4)])
def test_dlpack_types_that_tensors_do_not_have(code, bits, lanes):
    with pytest.raises(TypeError, match=rf"\[from_dlpack\] got an element type of code {code}, {bits} bits and "
                                        rf"{lanes} lanes, expected bool, an integer or a float"):
        Tensor.from_dlpack(Foreign(bytearray(64), code, bits, lanes))


def test_dlpack_layouts():
    memory = bytearray(np.arange(8, dtype=np.float32).tobytes())
    assert Tensor.from_dlpack(Foreign(memory, shape=(2, 3))).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert Tensor.from_dlpack(Foreign(memory, shape=(2, 3), strides=(1, 2), offset=8)).tolist() == [[2, 4, 6],
                                                                                                    [3, 5, 7]]
    assert Tensor.from_dlpack(Foreign(memory, shape=(3,), strides=(-2,), offset=24)).tolist() == [6, 4, 2]
    assert Tensor.from_dlpack(Foreign(memory, shape=())).item() == 0
    assert Tensor.from_dlpack(Foreign(memory, shape=(2, 0))).shape == (2, 0)
    unaligned = bytearray(1) + bytearray(np.arange(4, dtype=np.float32).tobytes())
    assert Tensor.from_dlpack(Foreign(unaligned, shape=(4,), offset=1)).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("source,error,message", [
    (lambda: Foreign(bytearray(8), shape=(-1,)), BufferError, "a negative size"),
    (lambda: Foreign(bytearray(8), device=2), RuntimeError, "got an array on a device, expected host memory"),
    (lambda: Foreign(bytearray(8), version=(2, 0)), BufferError, r"got version 2.0 of DLPack, expected 1"),
])
def test_malformed_dlpack(source, error, message):
    with pytest.raises(error, match=message):
        Tensor.from_dlpack(source())


def test_capsules_are_taken_once():
    capsule = np.zeros(4, np.float32).__dlpack__()
    Tensor.from_dlpack(capsule)
    with pytest.raises(BufferError, match=r"\[from_dlpack\] got a capsule that was used before"):
        Tensor.from_dlpack(capsule)


def test_versioned_imports():
    memory = bytearray(8)
    t = Tensor.from_dlpack(Foreign(memory, UINT, 8, version=(1, 0), flags=1))  # read-only
    t += 1
    assert t.tolist() == [1] * 8 and memory == bytes(8)
    t = Tensor.from_dlpack(Foreign(memory, UINT, 8, version=(1, 3)))
    t.assign(t + 1).realize()
    assert memory == bytes([1] * 8)


def test_dlpack_copies_when_it_is_asked_to():
    x = np.zeros(4, np.float32)
    t, copy = Tensor.from_dlpack(x, copy=False), Tensor.from_dlpack(x, copy=True)
    x[0] = 1
    assert t.tolist() == [1, 0, 0, 0] and copy.tolist() == [0] * 4
    for gaps in (x[::2], x[::-1]):
        with pytest.raises(BufferError, match=r"\[from_dlpack\] got copy=False"):
            Tensor.from_dlpack(gaps, copy=False)
    assert Tensor.from_dlpack(x, device="CPU:1").device == "CPU:1"
    assert Tensor.from_dlpack(x, device="CPU", copy=False).device == "CPU"

    t = filled(3.0, 4)
    shared, copied = np.from_dlpack(t, copy=False), np.from_dlpack(t, copy=True)
    t.assign(Tensor.ones(4)).realize()
    assert shared.tolist() == [1] * 4 and copied.tolist() == [3] * 4
    copied[0] = 5
    for literal in (Tensor.ones(4), t[::2]):
        with pytest.raises(BufferError, match=r"\[dlpack\] got copy=False"):
            np.from_dlpack(literal, copy=False)
        alone = np.from_dlpack(literal)
        alone[0] = 9  # a copy belongs to whoever asked for it
        assert literal.tolist()[0] == 1


def test_dlpack_arguments():
    t = filled(1.0, 4)
    assert t.__dlpack_device__() == (1, 0)
    assert "dltensor_versioned" in repr(t.__dlpack__(max_version=(1, 0)))
    for old in ({}, {"max_version": None}, {"max_version": (0, 8)}):
        assert '"dltensor"' in repr(t.__dlpack__(**old))
    t.__dlpack__(dl_device=(1, 0), stream=None)
    with pytest.raises(BufferError, match=r"\[dlpack\] got device \(2, 0\)"):
        t.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match=r"\[dlpack\] got a stream"):
        t.__dlpack__(stream=1)
    fixed = np.zeros(4, np.float32)
    fixed.flags.writeable = False
    fixed = Tensor.from_dlpack(fixed)
    with pytest.raises(BufferError, match=r"\[dlpack\] got copy=False"):
        fixed.__dlpack__(copy=False)  # no flag says that it is read-only
    Tensor.from_dlpack(fixed.__dlpack__()).assign(Tensor.ones(4)).realize()
    assert fixed.tolist() == [0] * 4


def test_capsules_that_nobody_takes_are_freed():
    t = filled(1.0, 1 << 16)
    before = Device["CPU"] and t.nbytes()
    for _ in range(50):
        t.__dlpack__()
        t.__dlpack__(max_version=(1, 0))
        Tensor.ones(1 << 16).__dlpack__()
    assert before and t.tolist()[0] == 1


# ---- threads ----
def test_threads_that_read_while_one_writes():
    t = filled(0.0, 100_000)
    done, wrong = threading.Event(), []

    def read():
        while not done.is_set():
            for a in (t.numpy(), np.array(t.tolist()[:1000]), np.frombuffer(t.data(), np.float32)):
                if (a != a[0]).any(): wrong.append(a)
    threads = [threading.Thread(target=read) for _ in range(3)]
    for th in threads: th.start()
    for _ in range(30):
        t.assign(t + 1).realize()
    done.set()
    for th in threads: th.join()
    assert not wrong and t.tolist()[0] == 30
