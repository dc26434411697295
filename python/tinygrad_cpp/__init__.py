"""tinygrad in C++, with tinygrad's names: `from tinygrad_cpp import Tensor, nn, TinyJit`."""
from ._core import __version__  # noqa: F401
from ._core import Error, ShapeError, DTypeError, DeviceError, FormatError, FileError  # noqa: F401
from ._core import CompileError, OutOfMemoryError, GradientError, JitError, Cancelled, PeerError  # noqa: F401
from .tensor import Tensor  # noqa: F401
from .dtype import dtypes  # noqa: F401
from .uop.ops import UOp
from .helpers import Context, GlobalCounters, fetch, getenv  # noqa: F401
from .device import Device  # noqa: F401
from .engine.jit import TinyJit, load_jit  # noqa: F401
from .function import function  # noqa: F401

from . import _display

_display.install()
Variable = UOp.variable
