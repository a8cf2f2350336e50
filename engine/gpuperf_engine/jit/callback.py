"""Calls of Python from compiled code, without losing exceptions.

A signal handler may raise before the first instruction of a function that C calls. ctypes prints such an exception and returns 0,
which compiled code cannot distinguish from a result. Here it is stored, so that the caller of compiled code can raise it. An
exception that is already pending (a destructor may launch) is saved and restored.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np

from .host_arrays import address_of
from .llvm import Library, compile_object, link

__all__ = ["Callback"]

#: ``record``: a Python function, and a list for exceptions that it raises
_TEXT = """
define i32 @call_back(ptr %record, i64 %first, i64 %second) {{
entry:
  %error = alloca ptr
  %value = alloca ptr
  %trace = alloca ptr
  %state = call i32 inttoptr (i64 {PyGILState_Ensure} to ptr)()
  call void inttoptr (i64 {PyErr_Fetch} to ptr)(ptr %error, ptr %value, ptr %trace)
  %error_was = load ptr, ptr %error
  %value_was = load ptr, ptr %value
  %trace_was = load ptr, ptr %trace
  %function = load ptr, ptr %record
  %result = call ptr (ptr, ptr, ...) inttoptr (i64 {PyObject_CallFunction} to ptr)(
    ptr %function, ptr @types, i64 %first, i64 %second)
  %lost = icmp eq ptr %result, null
  br i1 %lost, label %raised, label %done
done:
  call void inttoptr (i64 {Py_DecRef} to ptr)(ptr %result)
  br label %leave
raised:
  call void inttoptr (i64 {PyErr_Fetch} to ptr)(ptr %error, ptr %value, ptr %trace)
  call void inttoptr (i64 {PyErr_NormalizeException} to ptr)(ptr %error, ptr %value, ptr %trace)
  %raised_value = load ptr, ptr %value
  %raised_trace = load ptr, ptr %trace
  %traced = icmp ne ptr %raised_trace, null
  br i1 %traced, label %with_trace, label %keep
with_trace:
  %set = call i32 inttoptr (i64 {PyException_SetTraceback} to ptr)(ptr %raised_value, ptr %raised_trace)
  br label %keep
keep:
  %list_at = getelementptr ptr, ptr %record, i64 1
  %list = load ptr, ptr %list_at
  %kept = call i32 inttoptr (i64 {PyList_Append} to ptr)(ptr %list, ptr %raised_value)
  %raised_type = load ptr, ptr %error
  call void inttoptr (i64 {Py_DecRef} to ptr)(ptr %raised_type)
  call void inttoptr (i64 {Py_DecRef} to ptr)(ptr %raised_value)
  call void inttoptr (i64 {Py_DecRef} to ptr)(ptr %raised_trace)
  br label %leave
leave:
  call void inttoptr (i64 {PyErr_Restore} to ptr)(ptr %error_was, ptr %value_was, ptr %trace_was)
  call void inttoptr (i64 {PyGILState_Release} to ptr)(i32 %state)
  %answer = zext i1 %lost to i32
  ret i32 %answer
}}
@types = private constant [3 x i8] c"LL\\00"
"""
_OF_PYTHON = (
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyErr_Fetch",
    "PyErr_Restore",
    "PyErr_NormalizeException",
    "PyException_SetTraceback",
    "PyObject_CallFunction",
    "PyList_Append",
    "Py_DecRef",
)


class Callback:
    """``function`` receives two numbers. ``record`` is the first argument of the C function at ``address``, before these; the object
    must exist as long as it may be called."""

    def __init__(self, function: Callable[[int, int], object]) -> None:
        #: exceptions that it raised
        self.raised: list[BaseException] = []
        self._function = function
        self._record = np.array([id(function), id(self.raised)], np.uint64)
        self.record = address_of(self._record)
        self.address: int = _library().addresses["call_back"]


@cache
def _library() -> Library:
    known = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in _OF_PYTHON}
    return link([compile_object(_TEXT.format(**known), 0)], ("call_back",), {})
