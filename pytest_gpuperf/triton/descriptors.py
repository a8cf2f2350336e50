"""Tensor descriptors that a program passes to a kernel, as its launcher in the installed version of Triton takes them apart. Imports
Triton."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from triton.backends import driver as backend_driver
from triton.backends.nvidia import driver as nvidia_driver

from .arguments import Signature

__all__ = ["expand_signature", "with_tensor_maps"]

#: since Triton 3.8 they may be in tuples, and the functions are those of all backends
_ANYWHERE = hasattr(backend_driver, "expand_signature")


def expand_signature(
    signature: Mapping[str | int, Signature | str], tensor_maps: Sequence[Mapping[str, object]] | None
) -> Signature:
    """The types of a kernel's parameters in the place of descriptors. ``tensor_maps``: what Triton knows of those that it made tensor
    maps of."""
    types = signature.values()
    if _ANYWHERE:
        expanded: Signature = backend_driver.expand_signature(types, tensor_maps, "nvTmaDesc")
    else:
        expanded = nvidia_driver.expand_signature(types, tensor_maps)
    return expanded


def with_tensor_maps(
    launch: Callable[..., None],
    signature: Mapping[str | int, Signature | str],
    tensor_maps: Sequence[Mapping[str, object]] | None,
) -> Callable[..., None]:
    """``launch``, whose last argument is the kernel's arguments, given these with descriptors taken apart."""
    wrapped: Callable[..., None]
    if _ANYWHERE:
        wrapped = backend_driver.wrap_handle_tensordesc_impl(
            launch, signature, tensor_maps, nvidia_driver.make_tensordesc_arg
        )
    else:
        wrapped = nvidia_driver.wrap_handle_tensordesc(launch, signature, tensor_maps)
    return wrapped
