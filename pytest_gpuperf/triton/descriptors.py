"""Tensor descriptors as kernel arguments: expanded to their parts as by the launcher of the installed Triton. Imports Triton."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from triton.backends import driver as backend_driver
from triton.backends.nvidia import driver as nvidia_driver

from .arguments import Signature

__all__ = ["expand_signature", "with_tensor_maps"]

#: since Triton 3.8 descriptors may be nested in tuples, and all backends share the functions
_ANYWHERE = hasattr(backend_driver, "expand_signature")


def expand_signature(
    signature: Mapping[str | int, Signature | str], tensor_maps: Sequence[Mapping[str, object]] | None
) -> Signature:
    """The types of a kernel's parameters, with descriptors expanded. ``tensor_maps``: Triton's metadata of the descriptors that are
    passed as tensor maps."""
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
    """``launch``, wrapped so that descriptors in its last argument, the kernel's arguments, are expanded."""
    wrapped: Callable[..., None]
    if _ANYWHERE:
        wrapped = backend_driver.wrap_handle_tensordesc_impl(
            launch, signature, tensor_maps, nvidia_driver.make_tensordesc_arg
        )
    else:
        wrapped = nvidia_driver.wrap_handle_tensordesc(launch, signature, tensor_maps)
    return wrapped
