"""The interpreter that peers run in, with what is missing installed from PyPI, and the environment variables of a fair
comparison."""
import hashlib, os, pathlib, subprocess, sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# What each peer imports, and the packages that bring it.
MODULES = {"torch": {"torch": "torch", "numpy": "numpy"}, "torch_avx512": {"torch": "torch", "numpy": "numpy"},
           "torch_compile": {"torch": "torch", "numpy": "numpy"},
           "tinygrad": {"tinygrad": "tinygrad", "numpy": "numpy"},
           "onnxruntime": {"onnxruntime": "onnxruntime", "onnx": "onnx", "numpy": "numpy"},
           "numpy": {"numpy": "numpy"}, "mpi": {"numpy": "numpy"},
           "ddp": {"torch": "torch", "numpy": "numpy"},
           "zoo": {"torch": "torch", "numpy": "numpy", "torchvision": "torchvision", "transformers": "transformers",
                   "diffusers": "diffusers"},
           "llama": {"xllamacpp": "xllamacpp", "numpy": "numpy"},
           "llama_native": {"llama_cpp": "llama-cpp-python", "numpy": "numpy"}}
# PyTorch's own index has it without gigabytes of CUDA; PyPI serves where that cannot be reached.
INDEXES = {name: ["--index-url", "https://download.pytorch.org/whl/cpu"] for name in ("torch", "torchvision")}
# The wheel of llama.cpp is made for processors of every age; its source package is built for this one. Only ggml is
# called, none of its dependencies.
FROM_SOURCE = {"llama-cpp-python": (["--no-binary", "llama-cpp-python", "--no-deps"],
                                    {"CMAKE_ARGS": "-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF"})}
INSTALL_SECONDS = 2400


def lacking(python: str, modules: dict[str, str]) -> list[str]:
  """The modules that an interpreter does not find. The current folder does not count: this project's `tinygrad/` would
  pass for a module."""
  code = ("import importlib.util, sys; sys.path = [p for p in sys.path if p]; "
          "print(' '.join(m for m in sys.argv[1:] if importlib.util.find_spec(m) is None))")
  r = subprocess.run([python, "-c", code, *modules], capture_output=True, text=True, check=True)
  return r.stdout.split()


def site_packages(python: str) -> list[str]:
  r = subprocess.run([python, "-c",
                      "import site, sys; print('\\n'.join(p for p in sys.path if p.endswith('-packages')))"],
                      capture_output=True, text=True, check=True)
  return r.stdout.split("\n")[:-1]


def make_venv(base: str, folder: pathlib.Path) -> str:
  """An environment that sees the packages of `base` too, so that only what it lacks is installed."""
  python = folder / "bin" / "python"
  if not python.exists():
    subprocess.run([base, "-m", "venv", str(folder)], check=True)
    own = pathlib.Path(site_packages(str(python))[-1])
    (own / "base.pth").write_text("\n".join(site_packages(base)) + "\n")
  return str(python)


def interpreter(base: str, peers: list[str], folder: pathlib.Path | None, install: bool, say) -> str:
  """An interpreter for these peers. Packages that cannot be installed are named; their peers then say what they
  lack."""
  wanted = {m: p for peer in peers for m, p in MODULES[peer].items()}
  if folder is None:
    if not (missing := lacking(base, wanted)) or not install: return base
    folder = ROOT / "build" / f"compare-venv-{hashlib.sha256(base.encode()).hexdigest()[:8]}"
  python = make_venv(base, folder)
  missing = lacking(python, wanted)
  if not install: return python
  for module in missing:
    package, tried = wanted[module], folder / f"no-{wanted[module]}"
    if tried.exists():
      say(f"{package} could not be installed earlier (remove {tried} to try again)")
      continue
    say(f"installing {package} into {folder}")
    options, extra = FROM_SOURCE.get(package, ([], {}))
    for index in ([INDEXES[package]] if package in INDEXES else []) + [[]]:
      try:
        r = subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *index, *options,
                            package], capture_output=True, text=True,
                              timeout=INSTALL_SECONDS, env={**os.environ, **extra})
      except subprocess.TimeoutExpired:
        reason = f"took longer than {INSTALL_SECONDS} s"
        continue
      if r.returncode == 0: break
      reason = (r.stderr.strip().splitlines() or ["no message"])[-1][:200]
    else:
      say(f"{package}: {reason}")
      tried.write_text(reason + "\n")
  return python


def processor(field: str) -> str:
  """A line of /proc/cpuinfo, "" where there is none."""
  with open("/proc/cpuinfo") as f: return next((l.split(":", 1)[1].strip() for l in f if l.startswith(field)), "")


def openblas_kernels(flags: set[str]) -> dict[str, str]:
  """Names the kernels OpenBLAS should use: it does not know the newest processors, and takes those for AVX2 on a Zen
  5."""
  if "avx512_bf16" in flags: return {"OPENBLAS_CORETYPE": "Cooperlake"}
  return {"OPENBLAS_CORETYPE": "SkylakeX"} if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags else {}


def mkl_kernels(vendor: str, flags: set[str], folder: pathlib.Path) -> dict[str, str]:
  """Makes MKL use AVX-512 on processors of other makers: it asks a function of its own who made this one, which a
  library that is loaded before it can answer.
  Without a C compiler it runs what it chooses, and the peer's version says so."""
  library = folder / "mkl_takes_this_for_intel.so"
  if vendor == "GenuineIntel" or "avx512f" not in flags: return {}
  if not library.exists():
    folder.mkdir(parents=True, exist_ok=True)
    try:
      subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)],
                     input="int mkl_serv_intel_cpu_true(void) { return 1; }", text=True, check=True,
                        capture_output=True)
    except (OSError, subprocess.CalledProcessError): return {}
  return {"LD_PRELOAD": str(library)}


def variables(threads: int, peer: str = "", device: str = "CPU") -> dict[str, str]:
  """Programs of the processor see no accelerator. Every program has this many threads, which wait without spinning,
  and keeps the memory it has freed. Libraries that choose badly are told which kernels to use, whatever the machine's
  own settings for them are."""
  n, flags = str(threads), set(processor("flags").split())
  inherited = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
  told = mkl_kernels(processor("vendor_id"), flags, ROOT / "build") if peer == "torch_avx512" else {}
  return {**inherited, **openblas_kernels(flags), **told, "OMP_NUM_THREADS": n, "MKL_NUM_THREADS": n,
          "OPENBLAS_NUM_THREADS": n, "NUM_CPU_THREADS": n, "OMP_WAIT_POLICY": "passive",
          "KMP_BLOCKTIME": "0", "GOMP_SPINCOUNT": "0", "OPENBLAS_THREAD_TIMEOUT": "4",
          "MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
          "MALLOC_TOP_PAD_": str(1 << 26), "DEV": device, **({"CUDA_VISIBLE_DEVICES": ""} if device == "CPU" else {}),
          "TORCHINDUCTOR_CACHE_DIR": str(ROOT / "build" / "compare-inductor"),
          "PYTHONDONTWRITEBYTECODE": "1"}


def default_python() -> str: return os.environ.get("PYTHON") or sys.executable
