"""llama.cpp's products of quantized matrices, through ggml's C functions: `llama` is the wheel xllamacpp, made for
processors of every age, whose extension module exports them; `llama_native` is the package llama-cpp-python, built from
its sources for this processor. ggml rounds the vector to 8 bits first."""
import ctypes, importlib.metadata, importlib.util, pathlib
from ctypes import POINTER, c_bool, c_int, c_int64, c_size_t, c_uint32, c_void_p
import numpy as np
import inputs
from worker import Work

TYPES = {"q4_0": 2, "q8_0": 8}
F32 = 0


class InitParams(ctypes.Structure): _fields_ = [("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool)]
class PoolParams(ctypes.Structure):
  _fields_ = [("cpumask", c_bool * 512), ("n_threads", c_int), ("prio", c_int), ("poll", c_uint32),
              ("strict_cpu", c_bool), ("paused", c_bool), ("room", c_int * 16)]
class Plan(ctypes.Structure):
  _fields_ = [("work_size", c_size_t), ("work_data", c_void_p), ("n_threads", c_int), ("threadpool", c_void_p),
              ("abort", c_void_p), ("abort_data", c_void_p),
              ("room", c_int * 16)]


# Peer: package, module, and its libraries that hold ggml, each after those it needs.
LIBRARIES = {"llama": ("xllamacpp", "xllamacpp", ["xllamacpp*.so"]),
             "llama_native": ("llama-cpp-python", "llama_cpp",
                              ["lib/libggml-base.so", "lib/libggml-cpu.so", "lib/libggml.so"])}


def _folder(module: str) -> pathlib.Path:
  found = importlib.util.find_spec(module)
  if found is None or found.origin is None: raise ModuleNotFoundError(f"No module named {module!r}")
  return pathlib.Path(found.origin).parent


def _functions(name: str) -> ctypes.CDLL:
  """ggml's functions, found through the last of the peer's libraries (a handle searches those it depends on too)."""
  _, module, patterns = LIBRARIES[name]
  folder = _folder(module)
  for pattern in patterns: lib = ctypes.CDLL(str(next(folder.glob(pattern))), mode=ctypes.RTLD_GLOBAL)
  for name, result, arguments in (
      ("ggml_init", c_void_p, [InitParams]), ("ggml_new_tensor_2d", c_void_p, [c_void_p, c_int, c_int64, c_int64]),
      ("ggml_get_data", c_void_p, [c_void_p]),
      ("ggml_mul_mat", c_void_p, [c_void_p] * 3), ("ggml_new_graph", c_void_p, [c_void_p]),
      ("ggml_build_forward_expand", None, [c_void_p] * 2),
      ("ggml_threadpool_params_init", None, [POINTER(PoolParams), c_int]),
      ("ggml_threadpool_new", c_void_p, [POINTER(PoolParams)]),
      ("ggml_graph_plan", Plan, [c_void_p, c_int, c_void_p]), ("ggml_graph_compute", c_int, [c_void_p, POINTER(Plan)]),
      ("ggml_free", None, [c_void_p]),
      ("ggml_cpu_init", None, []), ("ggml_cpu_has_avx512", c_int, []), ("ggml_nbytes", c_size_t, [c_void_p])):
    f = getattr(lib, name)
    f.restype, f.argtypes = result, arguments
  return lib


class Product:
  """blocks @ vector; ggml's context owns all arrays and is freed with this."""
  def __init__(self, lib: ctypes.CDLL, kind: int, blocks: np.ndarray, v: np.ndarray, threads: int, pool: int):
    self.lib = lib
    self.context = lib.ggml_init(InitParams(blocks.nbytes + (1 << 24), None, False))
    a, x = lib.ggml_new_tensor_2d(self.context, kind, v.size, blocks.shape[0]), lib.ggml_new_tensor_2d(self.context,
        F32, v.size, 1)
    if lib.ggml_nbytes(a) != blocks.nbytes: raise ValueError(f"ggml has {lib.ggml_nbytes(a)} bytes for {blocks.nbytes}")
    ctypes.memmove(lib.ggml_get_data(a), blocks.ctypes.data, blocks.nbytes)
    ctypes.memmove(lib.ggml_get_data(x), v.ctypes.data, v.nbytes)
    y = lib.ggml_mul_mat(self.context, a, x)
    self.graph = lib.ggml_new_graph(self.context)
    lib.ggml_build_forward_expand(self.graph, y)
    self.plan = lib.ggml_graph_plan(self.graph, threads, pool)
    self.work = np.empty(max(self.plan.work_size, 1), np.uint8)
    self.plan.work_data = self.work.ctypes.data
    self.out = np.ctypeslib.as_array((ctypes.c_float * blocks.shape[0]).from_address(lib.ggml_get_data(y)))
  def __call__(self) -> None:
    if status := self.lib.ggml_graph_compute(self.graph, ctypes.byref(self.plan)):
      raise RuntimeError(f"ggml_graph_compute returned {status}")
  def __del__(self): self.lib.ggml_free(self.context)


class Peer:
  def __init__(self, name: str, threads: int):
    self.lib, self.threads = _functions(name), threads
    self.lib.ggml_cpu_init()
    vectors = "AVX-512" if self.lib.ggml_cpu_has_avx512() else "no AVX-512"
    self.version = f"{importlib.metadata.version(LIBRARIES[name][0])} ({vectors})"
    params = PoolParams()
    self.lib.ggml_threadpool_params_init(ctypes.byref(params), threads)
    params.poll = 0  # threads wait without spinning
    self.pool = self.lib.ggml_threadpool_new(ctypes.byref(params))

  def gemv_quantized(self, row) -> Work:
    blocks, v = inputs.operands(row)
    product = Product(self.lib, TYPES[row.args["format"]], blocks, v, self.threads, self.pool)
    return Work(product, lambda: [product.out.copy()])
