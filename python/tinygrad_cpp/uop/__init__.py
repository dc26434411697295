"""The graph."""
from .ops import UOp  # noqa: F401
