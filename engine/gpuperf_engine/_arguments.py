"""Arguments of public functions: whether they are of the types that their annotations name."""

from __future__ import annotations

import ast
import collections.abc
import inspect
import numbers
import os
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np

from .errors import ArgumentError

__all__ = ["takes_annotated", "wrong_type"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Fits = Callable[[object], bool]

#: of which nothing is asked
_ANYTHING = frozenset(("Any", "object"))
_CLASSES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "bytes": (bytes, bytearray, memoryview),
    "int": (numbers.Integral,),
    "bool": (numbers.Integral, np.bool_),
    "float": (numbers.Real,),
    "Path": (os.PathLike,),
}
_CONTAINERS: dict[str, type] = {
    name: getattr(collections.abc, name) for name in ("Collection", "Iterable", "Mapping", "Sequence")
}
#: what an object must have to be one of a protocol
_PROTOCOLS = {"Pattern": "find", "Program": "events"}
_LONGEST = 60


def takes_annotated(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function, but that arguments of other types than its annotations name are an ``ArgumentError``.

    A class is known by its name, so that it need not be imported. What is only iterable is not looked into.
    """
    signature = inspect.signature(function)
    checks = {
        name: (_fits(ast.parse(parameter.annotation, mode="eval").body), parameter.annotation)
        for name, parameter in signature.parameters.items()
        if isinstance(parameter.annotation, str)
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }

    @wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if name in checks and not checks[name][0](value):
                raise wrong_type(function.__name__, name, value, checks[name][1])
        return function(*args, **kwargs)

    return checked


def wrong_type(function: str, name: str, value: object, accepted: str) -> ArgumentError:
    """The error for an argument of a type that is not accepted."""
    shown = " ".join(repr(value).split())
    shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]} …"
    kind = type(value).__name__
    return ArgumentError(
        f"{name}={shown} is {'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}",
        hint=f"{function} takes as {name}: {accepted}",
    )


def _fits(annotation: ast.expr) -> _Fits:
    """Whether an object is what an annotation says."""
    if isinstance(annotation, ast.BinOp):
        either = _fits(annotation.left), _fits(annotation.right)
        return lambda value: either[0](value) or either[1](value)
    if isinstance(annotation, ast.Constant):
        return lambda value: value is annotation.value
    if isinstance(annotation, ast.Subscript):
        return _contains(annotation)
    assert isinstance(annotation, ast.Name), ast.dump(annotation)
    name = annotation.id
    if name in _ANYTHING:
        return lambda value: True
    if name in _CLASSES:
        return lambda value: isinstance(value, _CLASSES[name])
    if name in _PROTOCOLS:
        return lambda value: hasattr(value, _PROTOCOLS[name]) and not isinstance(value, (str, bytes))
    return lambda value: any(base.__name__ == name for base in type(value).__mro__)


def _contains(annotation: ast.Subscript) -> _Fits:
    """Whether an object is a container of such elements, of a mapping such values. Text is none of texts."""
    assert isinstance(annotation.value, ast.Name)
    container, inner = _CONTAINERS[annotation.value.id], annotation.slice
    element = _fits(inner.elts[-1] if isinstance(inner, ast.Tuple) else inner)

    def fits(value: object) -> bool:
        if not isinstance(value, container) or isinstance(value, (str, bytes, bytearray)):
            return False
        if isinstance(value, collections.abc.Mapping) and container is not collections.abc.Iterable:
            return container is collections.abc.Mapping and all(map(element, value.values()))
        return not isinstance(value, (list, tuple, set, frozenset, dict)) or all(map(element, value))

    return fits
