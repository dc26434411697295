"""Nodes of the graph."""
from .._core import UOp  # noqa: F401
