"""Memory limits, Ctrl-C, counters and the profile."""
import json, os, signal, subprocess, sys, textwrap, threading, time

import pytest

from tinygrad_cpp import Cancelled, Context, GlobalCounters, OutOfMemoryError, Tensor, TinyJit, _core


# A job that a shell starts in the background inherits an ignored SIGINT, for which Python installs no handler.
signal.signal(signal.SIGINT, signal.default_int_handler)


def interrupted(work, after=0.2):
    """Seconds from a Ctrl-C until KeyboardInterrupt came out of work()."""
    sent = []

    def send():
        time.sleep(after)
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            work()
            time.sleep(5)
        return time.perf_counter() - sent[0]
    finally:
        thread.join()


def long_chain(n=400, steps=3000):
    a = (Tensor.eye(n) * 0.5).contiguous().realize()
    t = a
    for _ in range(steps):
        t = t.matmul(a).contiguous()
    return t


def test_ctrl_c_during_a_long_run():
    with Context(EAGER=0):
        t = long_chain()
        assert interrupted(t.realize) < 1.0
        assert not t.is_realized
    assert (Tensor([1.0, 2.0]) + 1).tolist() == [2, 3]
    with Context(EAGER=0):
        assert interrupted(lambda: long_chain().numpy()) < 1.0


def test_ctrl_c_inside_of_a_captured_function():
    f = TinyJit(lambda x: (x + long_chain(steps=1500).sum()).realize())
    with Context(EAGER=0):
        assert interrupted(lambda: f(Tensor([1.0]).realize())) < 1.5
    g = TinyJit(lambda x: (x * 2).realize())
    for i in range(4):
        assert g(Tensor([float(i)]).realize()).item() == 2 * i


def test_other_handlers_and_threads_are_left_alone():
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    try:
        threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
        assert long_chain(64, 600).sum().item() >= 0
        time.sleep(0.1)
        assert seen == [1]
    finally:
        signal.signal(signal.SIGINT, before)
    results = []
    thread = threading.Thread(target=lambda: results.append((Tensor([1.0]) + 1).item()))
    thread.start(), thread.join()
    assert results == [2]
    assert signal.getsignal(signal.SIGINT) is before
    assert issubclass(Cancelled, RuntimeError)


def test_memory_limit_is_a_memory_error():
    a = Tensor([1.0] * 1000).realize()
    with Context(MEMORY_LIMIT=64):
        with pytest.raises(MemoryError, match=r"the limit is 67.1 MB(.|\n)*live tensors(.|\n)*\(1000,\)"):
            (a.sum() + Tensor.ones(1024, 1024, 32)).contiguous().realize()
        with pytest.raises(OutOfMemoryError):
            Tensor.ones(1024, 1024, 32).contiguous().realize()
        assert (a + 1).sum().item() == 2000
    stats = _core.memory_stats()
    assert stats["used"] >= 4000 and stats["peak"] >= stats["used"] and stats["allocations"] > 0


def test_counters():
    GlobalCounters.reset()
    (Tensor.ones(64, 64).contiguous().realize() @ Tensor.ones(64, 64).contiguous().realize()).realize()
    assert GlobalCounters.kernel_count >= 1 and GlobalCounters.global_ops >= 2 * 64**3 and GlobalCounters.global_mem > 0
    assert GlobalCounters.run_sum_s > 0 and GlobalCounters.compile_sum_s > 0
    GlobalCounters.reset()
    assert GlobalCounters.kernel_count == 0 == GlobalCounters.run_sum_s


def test_profile(tmp_path):
    path = tmp_path / "trace.json"
    code = textwrap.dedent("""
        from tinygrad_cpp import Tensor
        (Tensor([1.0, 2.0]) * 3).exp().sum().item()
    """)
    env = {**os.environ, "PROFILE": "1", "PROFILE_FILE": str(path), "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=120)
    events = json.loads(path.read_text())["traceEvents"]
    assert {"host", "compile"} <= {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert any(e["ph"] == "X" and e["dur"] > 0 for e in events)
    with Context(PROFILE=1):
        (Tensor([1.0, 2.0]) * 3.5).sum().item()
    assert any(e["name"] == "run" for e in json.loads(_core.profile_json())["traceEvents"])
    _core.profile_clear()


def test_loops_that_nobody_realizes():
    with Context(PENDING_NODES=1000):
        x = Tensor([1.0, 2.0]).realize()
        for _ in range(5000):
            x = x + 1
        assert x.tolist() == [5001, 5002]


def test_a_new_number_in_every_step():
    """One kernel reads the number after a few steps: nothing is compiled any more, and nothing grows."""
    def resident():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    x = (Tensor.arange(2048).reshape(32, 64) % 5).float().contiguous().realize()
    total = x.sum().item()
    for i in range(50):
        assert (x * (1000 + i)).sum().item() == total * (1000 + i)
    before = resident()
    for i in range(50, 2500):
        (x * (1000 + i)).sum().item()
    assert (x * 2777).sum().item() == total * 2777
    assert resident() - before < 4 << 20
