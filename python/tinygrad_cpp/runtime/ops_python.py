"""How scalars are stored."""
from ..dtype import from_storage_scalar, to_storage_scalar  # noqa: F401
