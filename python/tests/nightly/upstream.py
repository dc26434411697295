"""tinygrad's own examples and model classes under the module, each compared with tinygrad itself.

    PYTHONPATH=build/dev/python python python/tests/nightly/upstream.py --checkout TINYGRAD           # all of them
    ... gpt2 'models/resnet'                            # the files whose path has one of the words
    ... --keep FOLDER                                   # keep tinygrad's values there: they are computed once for each
    checkout ... --table docs/upstream_examples.md               # write the table

TINYGRAD is a clone of https://github.com/tinygrad/tinygrad; without one (the option or $TINYGRAD_CHECKOUT) nothing is
run. upstream_cases.py says what is run of each file, with weights and data made here: nothing is fetched. Each file
runs in a process of its own, once with `import tinygrad` giving the module and once with the checkout's package, and
gives named values to be compared. The exit status is 1 if a file does not run or differs for a reason that
upstream_cases.py does not list. Packages that an example imports and that are not installed are stand-ins, which fail
where they are used.
"""
import argparse
import ast
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
import traceback
import types
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDERS = ("examples", "extra/models")
THIRD_PARTY = ("blobfile boto3 botocore bottle cv2 ftfy gymnasium influxdb_client_3 librosa nibabel onnx onnxruntime "
               "pandas pyaudio pycocotools sentencepiece soundfile tensorflow tf2onnx tiktoken torchvision tqdm "
               "transformers ultralytics").split()


# ---- a child: one file under one of the packages ----

class Standin(types.ModuleType):
    """A package that is not installed: whatever is taken from it is a class that cannot be made."""
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

        def refuse(*args, **kw):
            raise ModuleNotFoundError(f"needs the package {self.__name__.split('.')[0]}")
        return type(name, (), {"__init__": refuse})


class Standins(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        root = name.split(".")[0]
        installed = "." in name and not isinstance(sys.modules.get(root), Standin)  # it lacks a part of its own
        wanted = root in THIRD_PARTY and not installed
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if wanted else None

    def create_module(self, spec):
        return Standin(spec.name)

    def exec_module(self, module):
        pass


def child(options):
    import upstream_cases
    case = upstream_cases.CASES[options.child]
    os.environ.update(case.env)
    if options.package == "ours":
        importlib.import_module("tinygrad_cpp.as_tinygrad")
    sys.path.insert(1, options.checkout)
    sys.meta_path.append(Standins())
    result = {"values": {}}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.argv = [options.child]
        try:
            case.run(upstream_cases.Harness(options.checkout, result["values"]))
        except BaseException as e:
            where = traceback.extract_tb(e.__traceback__)[-1]
            result["error"] = f"{type(e).__name__}: {e}".split("\n")[0][:300]
            result["traceback"] = traceback.format_exc()
            result["where"] = f"{where.filename}:{where.lineno}"
        os.chdir("/")
    package = sys.modules.get("tinygrad")
    ours = package is not None and package.__name__ == "tinygrad_cpp"
    if package is not None and ours != (options.package == "ours"):
        result["error"] = f"the package under test is {package.__file__}"
    Path(options.out).write_bytes(pickle.dumps(result))


# ---- the parent ----

def run_child(file, package, options, dev=None):
    """What the file gives under one package: {"values": ..., "error": ...}."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "values"
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        if package == "theirs":
            # its check of graphs refuses sums of halves under LLVM
            env.update(PYTHONPATH=os.pathsep.join([options.checkout, *options.path]), DEV=dev, SPEC="0")
        else:
            env["PYTHONPATH"] = os.pathsep.join([*options.path, env.get("PYTHONPATH", "")])
        command = [sys.executable, __file__, "--child", file, "--package", package, "--checkout", options.checkout,
                   "--out", str(out)]
        try:
            p = subprocess.run(command, env=env, timeout=options.seconds, capture_output=True, text=True, check=False)
        except subprocess.TimeoutExpired:
            return {"values": {}, "error": f"takes more than {options.seconds:.0f} s"}
        if not out.exists():
            return {"values": {}, "error": f"ends with status {p.returncode}: {p.stderr[-300:]}"}
        return pickle.loads(out.read_bytes())


def run_theirs(file, options):
    """tinygrad's own values on the first device that runs the file: its LLVM renderer lacks operations on halves, an
    old clang lacks types."""
    for dev in options.dev.split(","):
        result = run_child(file, "theirs", options, dev)
        if "error" not in result:
            break
    return result


def theirs(file, options, commit, source):
    """tinygrad's own values, from the folder of an earlier run if there is one."""
    if not options.keep:
        return run_theirs(file, options)
    key = hashlib.sha256(f"{commit} {options.dev} {file} {source}".encode()).hexdigest()[:16]
    kept = Path(options.keep) / f"{file.replace('/', '.')}.{key}"
    if kept.exists():
        return pickle.loads(kept.read_bytes())
    if options.kept_only:
        return {"values": {}, "error": "not compared yet"}
    result = run_theirs(file, options)
    if "error" not in result:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(pickle.dumps(result))
    return result


def difference(got, want):
    """What differs between two values, or None: floats agree to a part of the largest one."""
    import numpy as np
    (g, tolerance, _), (w, _, floor) = got, want
    g, w = np.asarray(g), np.asarray(w)
    if g.shape != w.shape:
        return f"shape {g.shape}, expected {w.shape}"
    if w.dtype.kind != "f":
        return None if np.array_equal(g, w) else f"{g.ravel()[:6].tolist()}, expected {w.ravel()[:6].tolist()}"
    finite = np.isfinite(w)
    if not np.array_equal(finite, np.isfinite(g)) or not np.array_equal(w[~finite], g[~finite], equal_nan=True):
        return f"infinite or NaN elsewhere: {g.ravel()[:6].tolist()}, expected {w.ravel()[:6].tolist()}"
    if not finite.any():
        return None
    scale = max(float(np.abs(w[finite]).max()), floor)
    error = float(np.abs(g[finite].astype(np.float64) - w[finite]).max())
    if error <= tolerance * scale: return None
    return f"{error / scale:.1e} of the largest: {g.ravel()[:6].tolist()}, expected {w.ravel()[:6].tolist()}"


def compare(ours, wanted):
    """Differences of the values by name. The gradients of one model share a scale, as do its parameters: one whose true
    value is 0 is rounding alone."""
    import numpy as np
    kind = lambda name: name.split(" ")[0]
    largest = {k: max([float(np.abs(v).max(initial=0)) for n, (v, *_) in wanted.items() if kind(n) == k], default=0.0)
               for k in ("gradient", "parameter")}
    found = {}
    for name in [*wanted, *(n for n in ours if n not in wanted)]:
        if name not in ours or name not in wanted:
            found[name] = "not given by " + ("the module" if name in wanted else "tinygrad")
        elif d := difference((*ours[name], 0), (*wanted[name], 1e-3 * largest.get(kind(name), 0.0))):
            found[name] = d
    return found


def names_of(file):
    """The modules and names of tinygrad that a file imports, at its top or within a function."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level and node.module.split(".")[
                0] == "tinygrad":
            for a in node.names:
                yield node.module, a.name
        elif isinstance(node, ast.Import):
            yield from ((a.name, None) for a in node.names if a.name.split(".")[0] == "tinygrad")


def missing_names(file):
    missing = []
    for module, name in names_of(file):
        ours = "tinygrad_cpp" + module[len("tinygrad"):]
        try:
            m = importlib.import_module(ours)
            if name and name != "*" and not hasattr(m, name):
                importlib.import_module(f"{ours}.{name}")
        except ImportError:
            try:
                importlib.import_module(ours)
                missing.append(f"{module}.{name}")
            except ImportError:
                missing.append(module)
    return sorted(set(missing))


def judge(file, case, options, commit, source):
    """The row of one file: result, what ran, why not; and whether it is as listed."""
    start = time.time()
    ours = run_child(file, "ours", options)
    seconds = time.time() - start
    if "error" in ours:
        if options.verbose:
            print(ours.get("traceback", ""))
        return ("does not run", ours["error"], False)
    wanted = theirs(file, options, commit, source)
    if wanted.get("error") == "not compared yet":
        return ("runs", "not compared yet: tinygrad's own values were not computed", False)
    if "error" in wanted:
        if options.verbose and not case.broken:
            print(wanted.get("traceback", ""))
        listed = case.broken
        return ("runs", f"tinygrad itself does not: {listed or wanted['error']}", bool(listed))
    found = compare(ours["values"], wanted["values"])
    unlisted = {n: d for n, d in found.items() if not any(n.startswith(k) for k in case.differs)}
    for n, d in list(unlisted.items())[:8]:
        print(f"    {n}: {d}", flush=True)
    gone = [k for k in case.differs if not any(n.startswith(k) for n in found)]
    if gone:
        print(f"    no longer different, take it off the list: {', '.join(gone)}")
    if unlisted:
        return ("differs", f"{len(unlisted)} of {len(wanted['values'])} values", False)
    equal = f"{len(wanted['values']) - len(found)} values equal"
    print(f"    {equal}; {seconds:.1f} s", flush=True)
    if found:
        return ("differs", "; ".join(f"`{k}`: {v}" for k, v in case.differs.items()) + f"; {equal}", not gone)
    return ("runs", equal, not gone)


def table(rows, commit):
    count = lambda r: sum(1 for row in rows if row[1] == r)
    lines = [
        "# tinygrad's examples under the module", "",
        "`ninja nightly_upstream` runs every file of tinygrad's `examples/` and `extra/models/` with `import "
        "tinygrad` giving `tinygrad_cpp`, on small data and",
        "models made by the test, and compares the values with those of tinygrad itself: outputs, gradients, "
        "parameters after a step of an optimizer.",
        "`python/tests/nightly/upstream.py --table` writes this table.", "",
        f"tinygrad {commit[:12]}: {count('runs')} of {len(rows)} files run, with equal values unless the note says "
        f"otherwise, {count('differs')} give other values for the reason in the note, "
        f"{count('does not run')} do not run.", "",
        "| file | result | what ran | note |", "|---|---|---|---|"]
    return "\n".join(lines + [f"| {file} | {result} | {what} | {note} |" for file, result, what, note in rows]) + "\n"


def parent(options):
    import upstream_cases
    commit = subprocess.run(["git", "-C", options.checkout, "rev-parse", "HEAD"], capture_output=True, text=True,
                            check=False).stdout.strip() or "of unknown version"
    files = sorted(str(f.relative_to(options.checkout)) for d in FOLDERS
                   for f in (Path(options.checkout) / d).rglob("*.py") if f.stat().st_size)
    rows, bad = [], []
    for file in files:
        if options.words and not any(w in file for w in options.words):
            continue
        print(file, flush=True)
        missing = missing_names(Path(options.checkout) / file)
        lacks = f"; names that the module lacks: {', '.join(missing)}" if missing else ""
        case = upstream_cases.CASES.get(file)
        if case:
            result, note, listed = judge(file, case, options, commit, case.source)
            if result == "runs" and missing:
                note += lacks
            what = case.what
        elif file in upstream_cases.NOT_RUN:
            result, what, note, listed = "does not run", "", upstream_cases.NOT_RUN[file] + lacks, True
        else:
            result, what, note, listed = "does not run", "", "no case in upstream_cases.py yet" + lacks, False
        rows.append((file, result, what, note))
        if not listed:
            bad.append(file)
        print(f"    {result}: {note}", flush=True)
    if options.table:
        Path(options.table).write_text(table(rows, commit))
    print(json.dumps({r: sum(1 for row in rows if row[1] == r) for r in ("runs", "differs", "does not run")}))
    if bad:
        print("not as listed: " + ", ".join(bad))
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--checkout", default=os.environ.get("TINYGRAD_CHECKOUT", ""))
    parser.add_argument("--keep")
    parser.add_argument("--kept-only", action="store_true", help="compare with values that are kept alone")
    parser.add_argument("--table")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--dev", default="CPU:LLVM,CPU", help="the devices that tinygrad's own run tries in turn")
    parser.add_argument("--path", action="append", default=[], help="a folder of further packages, for both runs")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--child")
    parser.add_argument("--package", choices=["ours", "theirs"])
    parser.add_argument("--out")
    options = parser.parse_args()
    if not options.checkout:
        print("skipped: it needs a clone of https://github.com/tinygrad/tinygrad; give its folder as --checkout or in "
              "TINYGRAD_CHECKOUT")
        return 0
    options.checkout = os.path.abspath(options.checkout)
    return child(options) if options.child else parent(options)


if __name__ == "__main__":
    sys.exit(main())
