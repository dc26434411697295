#!/usr/bin/env python3
"""Runs the PyTorch twins and writes what they log into recorded/: needs torch, which the tests do not.

record.py [NAME ...]   all of them without a name"""

import json
import runpy
import sys
from pathlib import Path

import numpy as np

import common

FOLDER = Path(__file__).resolve().parent


def shortened(value):
    """Keeps 9 digits of floats: more than float32 has."""
    if value.dtype.kind == "f":
        if not np.isfinite(value).all():
            sys.exit(f"a recorded value is not finite: {value}")
        value = np.vectorize(lambda x: float(f"{x:.9g}"), otypes=[float])(value)
    return value.tolist()


for twin in [FOLDER / "torch_twins" / f"{name}.py" for name in sys.argv[1:]] or sorted(
    (FOLDER / "torch_twins").glob("*.py")
):
    values = []
    common.sink = lambda name, value, rtol, atol: values.append([name, shortened(value)])
    runpy.run_path(str(twin), run_name="__main__")
    lines = ",\n".join(json.dumps(v) for v in values)
    (FOLDER / "recorded" / f"{twin.stem}.json").write_text(f"[\n{lines}\n]\n")
    print(f"{twin.stem}: {len(values)} values")
