#!/usr/bin/env python3
"""Runs programs under the module tinygrad_cpp and compares each value they log with the one their PyTorch twin logged.

run.py NAME        one program, in this process
run.py [NAME ...]  several (all of them without a name), each in a process of its own"""

import json
import runpy
import subprocess
import sys
import traceback
from pathlib import Path

import common

FOLDER = Path(__file__).resolve().parent
PROGRAMS = sorted(f.stem for f in FOLDER.glob("*.py") if f.stem not in ("common", "run", "record"))


def run(name):
    recorded = json.loads((FOLDER / "recorded" / f"{name}.json").read_text())
    wrong, count = [], 0

    def compare(key, value, rtol, atol):
        nonlocal count
        if count >= len(recorded):
            wrong.append(f"{key}: one value more than recorded")
        elif recorded[count][0] != key:
            wrong.append(f"{key}: recorded as {recorded[count][0]}")
        elif error := common.error_of(value, recorded[count][1], rtol, atol):
            wrong.append(f"value {count}, {key}: {error}")
        count += 1

    common.sink = compare
    sys.argv = [str(FOLDER / f"{name}.py")]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except Exception:
        traceback.print_exc()
        wrong.append("the program did not run to its end")
    if count < len(recorded):
        wrong.append(f"{count} values of {len(recorded)}")
    print("\n".join(f"{name}: {w}" for w in wrong) if wrong else f"{name}: {count} values as recorded")
    return 1 if wrong else 0


def main(names):
    if len(names) == 1:
        return run(names[0])
    failed = [
        name for name in names or PROGRAMS if subprocess.run([sys.executable, __file__, name], check=False).returncode
    ]
    print(
        f"{len(names or PROGRAMS) - len(failed)} of {len(names or PROGRAMS)} programs right"
        + (f"; wrong: {', '.join(failed)}" if failed else "")
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
