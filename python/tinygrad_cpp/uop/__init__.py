"""The graph everything is made of: its operations and their groups."""
from .._enums import GroupOp, Ops  # noqa: F401
