"""Row-wise operations of matrices, as Triton kernels."""

from .rms_norm import rms_norm
from .softmax import softmax

__all__ = ["rms_norm", "softmax"]
