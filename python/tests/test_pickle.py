"""Pickles and files of tensors, graphs and captured functions: in this process and in a fresh one."""
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import tinygrad_cpp as tg
from tinygrad_cpp import Tensor, TinyJit, Variable, dtypes, load_jit, nn


def fresh(code, *args):
    """What a new process prints."""
    run = subprocess.run([sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, timeout=120,
                         env=os.environ)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def captured():
    w = Tensor([10.0, 20.0]).realize()

    @TinyJit
    def f(x, scale=1):
        return {"y": x * w * scale, "both": (x + 1, [x.sum()])}

    for i in range(3):
        f(Tensor([float(i), 1.0]))
    return f


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "int64", "bool", "fp8e4m3"])
@pytest.mark.parametrize("protocol", [2, 5])
def test_tensors(dtype, protocol):
    for t in (Tensor([[0, 1], [1, 0]]).cast(dtype), Tensor(1).cast(dtype), Tensor.zeros(0, 3).cast(dtype)):
        c = pickle.loads(pickle.dumps(t, protocol=protocol))
        assert c.shape == t.shape and c.dtype is t.dtype and c.tolist() == t.tolist()


def test_contents_out_of_band():
    t, buffers = Tensor.arange(1000).float().realize(), []
    data = pickle.dumps(t, protocol=5, buffer_callback=buffers.append)
    assert len(data) < 1000 and sum(b.raw().nbytes for b in buffers) == 4000
    assert pickle.loads(data, buffers=buffers).tolist() == t.tolist()


def test_a_model_in_a_fresh_process(tmp_path):
    model = nn.Linear(4, 3)
    (tmp_path / "m.pkl").write_bytes(pickle.dumps((model, model(Tensor.ones(1, 4)).tolist())))
    code = """
import pickle, sys
from tinygrad_cpp import Tensor
m, y = pickle.load(open(sys.argv[1], 'rb'))
print(m(Tensor.ones(1, 4)).tolist() == y)
"""
    assert fresh(code, tmp_path / "m.pkl") == "True"


def test_graphs_with_memory():
    t = Tensor([1.0, 2.0, 3.0]).contiguous().realize()
    u = pickle.loads(pickle.dumps((t + 1).uop))
    assert Tensor(u).tolist() == [2, 3, 4]
    t.assign(Tensor.zeros(3)).realize()
    assert Tensor(u).tolist() == [2, 3, 4]
    linear = (t + 2).schedule_linear()
    assert pickle.loads(pickle.dumps(linear)).src[-1].src[0] == linear.src[-1].src[0]


def test_captured_functions():
    f = captured()
    for g in (pickle.loads(pickle.dumps(f)),
              pickle.loads(pickle.dumps(f.captured)) and TinyJit(None, pickle.loads(pickle.dumps(f.captured)))):
        r = g(Tensor([1.0, 2.0]))
        assert r["y"].tolist() == [10, 40] and isinstance(r["both"], tuple) and r["both"][1][0].item() == 3
    with pytest.raises(tg.JitError, match="before it was captured"):
        pickle.dumps(TinyJit(lambda x: x + 1))


def test_captured_functions_in_a_fresh_process(tmp_path):
    captured().save(tmp_path / "f.jit")
    (tmp_path / "f.pkl").write_bytes(pickle.dumps(captured()))
    code = """
import pickle, sys
from tinygrad_cpp import GlobalCounters, Tensor, load_jit
for f in (load_jit(sys.argv[1]), pickle.load(open(sys.argv[2], "rb"))):
    r = f(Tensor([1.0, 2.0]))
    print(r["y"].tolist(), r["both"][0].tolist(), r["both"][1][0].item())
"""
    assert fresh(code, tmp_path / "f.jit", tmp_path / "f.pkl").splitlines() == ["[10.0, 40.0] [2.0, 3.0] 3.0"] * 2


def test_state_by_name(tmp_path):
    model = nn.Linear(4, 3)
    f = TinyJit(lambda x: model(x).relu())
    x = Tensor([[1.0, 2.0, 3.0, 4.0]])
    for _ in range(2):
        f(x.clone())
    want = f(x.clone()).numpy()
    state = nn.state.get_state_dict(model)
    f.save(tmp_path / "f.jit", state=state)
    nn.state.safe_save(state, str(tmp_path / "w.safetensors"))
    g = load_jit(tmp_path / "f.jit", state=nn.state.safe_load(str(tmp_path / "w.safetensors")))
    np.testing.assert_array_equal(g(x.clone()).numpy(), want)
    with pytest.raises(ValueError, match="weight|bias"):
        load_jit(tmp_path / "f.jit")


def test_loaded_functions_check_their_arguments(tmp_path):
    v = Variable("n", 1, 4)
    f = TinyJit(lambda x, n, flag=False: x[:n].sum() * 2)
    x = Tensor.arange(4).float().contiguous().realize()
    for i in (1, 2, 3):
        f(x, v.bind(i))
    g = pickle.loads(pickle.dumps(f))
    assert g(x, v.bind(4)).item() == 12 and g(x, v.bind(2)).item() == 2
    for wrong in (lambda: g(x), lambda: g(Tensor([1.0, 2.0]), v.bind(1)), lambda: g(x.int().realize(), v.bind(1))):
        with pytest.raises(tg.JitError):
            wrong()
    with pytest.raises(AssertionError):
        g.reset()


def test_damaged_files(tmp_path):
    path = tmp_path / "f.jit"
    captured().save(path)
    whole = path.read_bytes()
    for data in (b"", whole[:100], whole[:-1], whole[:200] + bytes([whole[200] ^ 1]) + whole[201:],
                 whole[:-70] + b"x" + whole[-69:]):
        path.write_bytes(data)
        with pytest.raises(tg.FormatError):
            load_jit(path)
    with pytest.raises(tg.FileError):
        load_jit(tmp_path / "nothing.jit")


def test_renderers_and_dtypes():
    r = tg.Device.default.renderer
    assert pickle.loads(pickle.dumps(r)).target == r.target
    assert pickle.loads(pickle.dumps(dtypes.float32)) is dtypes.float32
