"""The devices that llama.cpp finds, by name: llama-cpp-python has no function for them, but brings the library."""

from __future__ import annotations

import ctypes
from typing import Any

import llama_cpp
from llama_cpp import _ggml


def device_names() -> list[str]:
    """The names of all devices, in llama.cpp's order; the CPU is one of them."""
    return list(_devices())


def device_list(names: list[str]) -> Any:
    """The devices of these names as llama.cpp takes them: an array of pointers that ends with NULL."""
    found = _devices()
    return (ctypes.c_void_p * (len(names) + 1))(*(found[name] for name in names), None)


def _devices() -> dict[str, int]:
    llama_cpp.llama_backend_init()
    library = _ggml.libggml
    for name, result, arguments in (
        ("ggml_backend_dev_count", ctypes.c_size_t, []),
        ("ggml_backend_dev_get", ctypes.c_void_p, [ctypes.c_size_t]),
        ("ggml_backend_dev_name", ctypes.c_char_p, [ctypes.c_void_p]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    pointers = [library.ggml_backend_dev_get(at) for at in range(library.ggml_backend_dev_count())]
    return {library.ggml_backend_dev_name(pointer).decode(): pointer for pointer in pointers}
