"""Optimisations of a kernel, for KernelInfo(opts_to_apply=(Opt(OptOps.UPCAST, 0, 4),))."""
from ..uop.ops import Opt, OptOps  # noqa: F401
