"""What the cases of upstream.py share: the table of cases, and Harness, which makes models and data and logs values."""
import contextlib
import importlib
import importlib.util
import inspect
import io
import math
import sys
import types
import zlib
from pathlib import Path

import numpy as np

CASES = {}
AFTER_STEP = ("a loss read after the step: tinygrad computes it with the new parameters, "
              "the module gives the value before the step, as PyTorch")


class Case:
    def __init__(self, run, what, env, differs, broken):
        self.run, self.what, self.env, self.differs, self.broken = run, what, env, differs, broken
        self.source = inspect.getsource(run) + inspect.getsource(Harness)


def case(file, what, env=None, differs=None, broken=""):
    """Names the function that runs `file`. differs: values that differ, by the beginning of their name, and why;
    broken: why tinygrad itself fails."""
    def named(run):
        CASES[file] = Case(run, what, env or {}, differs or {}, broken)
        return run
    return named


class Harness:
    """What the cases share: values that depend on names alone, and log()."""

    def __init__(self, checkout, values):
        import tinygrad
        from tinygrad import Context, Tensor, dtypes, nn
        self.checkout, self.values, self.tg, self.Tensor = checkout, values, tinygrad, Tensor
        self.nn, self.dtypes, self.Context = nn, dtypes, Context
        Tensor.manual_seed(1)
        np.random.seed(1)

    def log(self, name, value, tolerance=1e-3):
        assert name not in self.values, name
        if isinstance(value, self.Tensor):
            value = (value.float() if value.dtype in (self.dtypes.half, self.dtypes.bfloat16) else value).numpy()
        value = np.asarray(value)
        if value.size > 20000:
            value = value.ravel()[::value.size // 10000]
        self.values[name] = (value, tolerance)

    def normal(self, *shape, seed=0, scale=1.0):
        return self.Tensor((np.random.RandomState(seed).standard_normal(shape) * scale).astype(np.float32)).realize()

    def uniform(self, *shape, seed=0):
        return self.Tensor(np.random.RandomState(seed).uniform(0, 1, shape).astype(np.float32)).realize()

    def integers(self, high, *shape, seed=0):
        return self.Tensor(np.random.RandomState(seed).randint(high, size=shape).astype(np.int32)).realize()

    def load(self, file):
        """Imports a file of the checkout."""
        if "." not in file[:-3]:
            return importlib.import_module(file[:-3].replace("/", "."))
        spec = importlib.util.spec_from_file_location("loaded_" + Path(file).stem, f"{self.checkout}/{file}")
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        sys.path.insert(0, str(Path(self.checkout, file).parent))
        spec.loader.exec_module(module)
        return module

    def weights(self, model, gain=1.0):
        """A value for each parameter of floats: it depends on its name and shape."""
        values = {}
        for name, t in self.nn.state.get_state_dict(model).items():
            if not self.dtypes.is_float(t.dtype) or "running" in name or "freqs" in name:
                continue
            shape = tuple(t.shape)
            v = np.random.RandomState(zlib.crc32(name.encode()) % 10007).standard_normal(shape).astype(np.float32)
            v = v * np.float32(gain / math.sqrt(math.prod(shape[1:]))) if len(shape) > 1 else np.float32(
                    "bias" not in name) + v * np.float32(0.1)
            values[name] = self.Tensor(v).cast(t.dtype)
        return values

    def fill(self, model, gain=1.0):
        self.nn.state.load_state_dict(model, self.weights(model, gain), strict=False, verbose=False)
        return model

    def train(self, model, loss, steps=2, lr=0.01, tolerance=1e-3):
        """Steps of SGD: the losses, the gradients of the first step, the parameters after the last."""
        state = {n: t for n, t in self.nn.state.get_state_dict(model).items() if t.is_param
                 and self.dtypes.is_float(t.dtype)}
        opt = self.nn.optim.SGD(list({id(t): t for t in state.values()}.values()), lr=lr)
        for step in range(steps):
            with self.Context(TRAINING=1):
                opt.zero_grad()
                value = loss()
                value.backward()
                self.log(f"loss {step}", value.item(), tolerance)
                if step == 0:
                    for name, t in state.items():
                        if t.grad is not None:
                            self.log(f"gradient {name}", t.grad, 3 * tolerance)
                opt.step()
        for name, t in state.items():
            self.log(f"parameter {name}", t, tolerance)

    def images(self, train=64, test=32, shape=(1, 28, 28)):
        """Images and labels in place of a data set."""
        draw = np.random.RandomState(5)
        make = lambda n: (draw.randint(256, size=(n, *shape)).astype(np.uint8),
                          draw.randint(10, size=n).astype(np.uint8))
        return [self.Tensor(a) for a in (*make(train), *make(test))]

    def main(self, file, argv=(), data=None, replace=(), **modules):
        """Runs a program as __main__ and gives its globals and what it printed. data takes the place of nn.datasets;
        replace: (old, new) in the source."""
        datasets = importlib.import_module("tinygrad.nn.datasets")
        if data is not None:
            datasets.mnist = datasets.cifar = lambda *a, **kw: data
        path = f"{self.checkout}/{file}"
        source = Path(path).read_text()
        for old, new in replace:
            assert old in source, old
            source = source.replace(old, new)
        sys.argv = [path, *argv]
        module = types.ModuleType("__main__")
        module.__file__ = path
        printed, before = io.StringIO(), sys.modules["__main__"]
        sys.modules["__main__"] = module
        sys.path.insert(0, str(Path(path).parent))
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(source, path, "exec"), vars(module))
        finally:
            sys.modules["__main__"] = before
        return vars(module), printed.getvalue()

    def log_parameters(self, model, tolerance=1e-3, prefix=""):
        for name, t in self.nn.state.get_state_dict(model).items():
            if self.dtypes.is_float(t.dtype):
                self.log(f"parameter {prefix}{name}", t, tolerance)
