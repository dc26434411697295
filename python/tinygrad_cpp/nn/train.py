"""Around an optimizer: clipping and accumulation of gradients, averages of weights, mixed precision, gradient
checks."""
from .._core.train import Ema, GradAccumulator, LossScaler, MasterWeights  # noqa: F401
from .._core.train import cast_parameters, clip_grad_norm, clip_grad_value  # noqa: F401
from .._core.train import gradcheck, jacobian, numerical_jacobian  # noqa: F401
