"""Records what NumPy gives for index expressions, as cases of index_test.cpp: python3 index_reference.py >
index_reference.inc

Integers are applied before arrays (as PyTorch does): an integer beside arrays does not move axes."""
import itertools
import random

import numpy as np

random.seed(7)
S = slice
A = lambda *v: np.array(v)


def cpp(i):
    """As C++ writes it."""
    if i is None:
        return "None"
    if i is Ellipsis:
        return "Ellipsis"
    if isinstance(i, slice):
        b = ["None" if v is None else str(v) for v in (i.start, i.stop, i.step)]
        if b == ["None"] * 3: return "Slice()"
        return f"Slice({b[0]}, {b[1]})" if i.step is None else f"Slice({', '.join(b)})"
    if isinstance(i, np.ndarray):
        return f"Tensor({nested(i.tolist())})"
    return str(i)


def nested(v):
    return "{" + ", ".join(nested(k) if isinstance(k, list) else str(k).lower() for k in v) + "}"


def ints_first(x, index):
    """The view without the integers, and the rest of the index."""
    used = sum(i.ndim if isinstance(i, np.ndarray) and i.dtype == bool else 1 for i in index if i is not None
               and i is not Ellipsis)
    full, rest = [], []
    for i in index:
        if i is Ellipsis:
            full += [S(None)] * (x.ndim - used)
            rest += [S(None)] * (x.ndim - used)
        elif isinstance(i, int):
            full.append(i)
        elif i is None:
            rest.append(None)
        else:
            k = i.ndim if isinstance(i, np.ndarray) and i.dtype == bool else 1
            full += [S(None)] * k
            rest.append(i)
    return x[tuple(full) + (Ellipsis,)], tuple(rest)


def random_index(shape):
    shared = random.choice([(), (2,), (3,), (2, 2), (1, 2)])
    out = []
    for n in shape:
        c = random.random()
        if c < 0.15:
            out.append(random.randrange(-n, n))
        elif c < 0.55:
            out.append(S(random.choice([None, random.randint(-n - 1, n + 1)]),
                         random.choice([None, random.randint(-n - 1, n + 1)]),
                         random.choice([None, 1, 2, 3, -1, -2, -3])))
        elif c < 0.8:
            a = np.array([random.randrange(-n, n) for _ in range(int(np.prod(shared)))]).reshape(shared)
            if a.ndim:
                out.append(a)
            else:
                out.append(S(None))
        else:
            out.append(S(None))
        if random.random() < 0.12:
            out.append(None)
    if random.random() < 0.3:
        out = out[:random.randrange(1, len(out) + 1)]
        if random.random() < 0.5:
            out.append(Ellipsis)
    return tuple(out)


mask = np.array([[True, False, True, False], [False, False, True, True], [False, True, False, False]])
named = [
    ((3, 4), (1,)), ((3, 4), (-1, -4)), ((3, 4), (S(None), -1)), ((3, 4), (Ellipsis,)),
    ((3, 4), (None, Ellipsis, None)),
    ((3, 4), (S(None, None, -1), S(1, None, 2))), ((3, 4), (S(5, 1, -1),)), ((3, 4), (S(2, 1),)),
    ((5,), (S(4, 0, -3),)), ((5,), (S(None, None, 7),)),
    ((3, 4), (A(2, 0, -1),)), ((3, 4), (S(None), A(3, 3))), ((3, 4), (A(0, 2), A(1, -1))),
    ((3, 4), (A(0, 2).reshape(2, 1), A(1, 3))),
    ((2, 3, 4), (A(0, 1), S(None), A(2, 3))), ((2, 3, 4), (S(None), A(0, 2), A(1, 1))),
    ((2, 3, 4), (A(1, 0), 2, A(3, 0))),
    ((2, 3, 4), (0, S(None), A(1, 2, 3))), ((2, 3, 4, 2), (S(None), A(0, 1), S(0, 4, 2), A(1, 0))),
    ((2, 3, 4), (S(None), A(2, 0), None, A(1, 3))),
    ((3, 4), (mask,)), ((3, 4), (mask[:, 0], S(1, 3))), ((3, 4), (S(None), mask[0])), ((2, 3, 4), (1, mask)),
    ((3, 4, 2), (mask, S(None, None, -1))),
    ((3, 4), (np.zeros((3,), bool),)), ((3, 4), (S(0, 0), A(0, 1))),
]
cases = named + [(s, random_index(s))
                 for s in itertools.islice(itertools.cycle([(6,), (3, 5), (4, 3), (2, 3, 4), (3, 2, 2, 3)]), 30)]

reads, writes = [], []
for shape, index in cases:
    x = np.arange(int(np.prod(shape))).reshape(shape)
    view, rest = ints_first(x, index)
    want = np.asarray(view[rest])
    args = ", ".join(cpp(i) for i in index)
    reads.append(f"read({nested(list(shape))}, {nested(list(want.shape))}, {nested(want.flatten().tolist())},\n     "
                 f"[](const Tensor& x) {{ return x({args}); }});")
    y, z = x.copy(), x.copy()
    ints_first(y, index)[0][rest] = -7
    ints_first(z, index)[0][rest] = -1 - np.arange(want.size).reshape(want.shape)
    writes.append(f"write({nested(list(shape))}, {nested(list(want.shape))}, {nested(y.flatten().tolist())}, "
                  f"{nested(z.flatten().tolist())},\n"
                  f"      [](const Tensor& x) {{ return x.at({args}); }});")
print("#ifdef TG_READS", *reads, "#else", *writes, "#endif", sep="\n")
