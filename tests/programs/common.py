"""What the programs and their PyTorch twins share: the numbers they start from, and log(), which is told every
value that is compared."""

import math
import sys
import zlib

import numpy as np

RTOL, ATOL = 1e-4, 1e-6  # a few dozen float32 operations in another order; a program that needs more says why
sink = None  # run.py and record.py put a function here; a program started alone prints


def normal(*shape, seed=0):
    """Gives normal numbers that are the same with every version of NumPy: the stream of RandomState is frozen."""
    return np.random.RandomState(seed).standard_normal(shape).astype(np.float32)


def uniform(*shape, seed=0, low=0.0, high=1.0):
    return np.random.RandomState(seed).uniform(low, high, shape).astype(np.float32)


def integers(high, *shape, seed=0):
    return np.random.RandomState(seed).randint(high, size=shape).astype(np.int32)


def initial(state):
    """Gives start values for a state dict of either library: they depend on name and shape alone. Running statistics
    stay at 0 and 1."""
    values = {}
    for name, tensor in state.items():
        shape, last = tuple(tensor.shape), name.rsplit(".", 1)[-1]
        if last in ("running_mean", "num_batches_tracked"):
            values[name] = np.zeros(shape, np.float32 if last == "running_mean" else np.int64)
        elif last == "running_var":
            values[name] = np.ones(shape, np.float32)
        else:
            draw = normal(*shape, seed=zlib.crc32(name.encode()) % 10007)
            values[name] = (
                draw / np.float32(math.sqrt(math.prod(shape[1:])))
                if len(shape) > 1
                else (last == "weight") + np.float32(0.1) * draw
            )
    return values


def random_steps(seed, count):
    """Gives steps of a random program: the kind of a step and three numbers that choose its operands."""
    draw = np.random.RandomState(seed)
    kinds = "leaf compute compute compute slice read read backward backward gradient inspect zero halve update step "
    kinds = (kinds + "detach copy average").split()
    return [("leaf", 0, 0, 0), ("leaf", 0, 0, 1)] + [
        (kinds[draw.randint(len(kinds))], *draw.randint(1000, size=3).tolist()) for _ in range(count)
    ]


def log(name, value, rtol=RTOL, atol=ATOL):
    """Takes a number, a string or an array: floats agree if |got - want| <= rtol * max|want| + atol, all else if it
    is equal."""
    value = np.asarray(value)
    if value.dtype.kind == "f":
        value = value.astype(np.float64)
    if sink is None:
        print(name, value.tolist())
    else:
        sink(name, value, rtol, atol)


def error_of(got, want, rtol, atol):
    """Says what is wrong with a value, or None."""
    want = np.asarray(want)
    if got.shape != want.shape:
        return f"shape {got.shape}, recorded {want.shape}"
    if got.dtype.kind != "f" or want.dtype.kind not in "fi":
        return None if np.array_equal(got, want) else f"{got.tolist()}, recorded {want.tolist()}"
    if not np.isfinite(got).all():
        return f"{got.tolist()}, recorded {want.tolist()}"
    difference = np.abs(got - want).max(initial=0)
    if difference <= rtol * np.abs(want).max(initial=0) + atol:
        return None
    return f"{np.round(got, 7).tolist()}, recorded {want.tolist()} (differs by {difference:.3g})"


if __name__ == "__main__":
    sys.exit("run.py runs the programs")
