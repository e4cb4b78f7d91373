"""What entries on disk depend on besides guards: what is constant within a process and may differ in the next.

In:     a compilation, the callable, how it is called.
Out:    `circumstances_of(...)`: what may be another in a moment. `NotKept` for what cannot be told. `key_of(circumstances)`:
        the store's key, with what stays as it is while the process runs.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from pliant.cache.key import Key, machine, make_key
from pliant.dispatch.dispatcher import Compilation
from pliant.dispatch.roots import CallableRoot, ResumeRoot, Root
from pliant.entries.content import Content, NotKept, content, digest_of, module_of
from pliant.entries.own_sources import source_digest
from pliant.guards.settings import KERNEL_SETTINGS, Settings, precisions
from pliant.runtime.compilers import CompilerNotFound, find_compiler
from pliant.runtime.load import reads_lists, takes_tensors
from pliant.torch_adapter import VERSION, gradient_bytes_at_a_time, mkldnn_enabled, python_kernels_of_aten
from pliant.wrappers.vector_math import vector_math

Parts = dict[str, object]


def key_of(circumstances: Parts) -> Key:
    """The key of a call's entries, without the part that tells them apart."""
    native = takes_tensors(), reads_lists(), vector_math()
    called = digest_of(circumstances["called"])
    return make_key(maker=None, native=native, **(circumstances | {"called": called}), **_versions())


def circumstances_of(compilation: Compilation, root: Root, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Parts:
    """What is called and how, and the settings that hold for it."""
    options = compilation.options()
    if kernels := python_kernels_of_aten():
        raise NotKept("own-kernels", f"the program has kernels of its own for {', '.join(kernels[:3])}")
    return {
        "called": _content(root.fn) if isinstance(root, CallableRoot) else _content_of_rest(root),
        "arguments": f"{len(args)} {list(kwargs)}",
        "fullgraph": compilation.fullgraph,
        "dynamic": compilation.dynamic,
        "config": options.code_key,
        "patterns": digest_of(_patterns(compilation)),
        "threads": torch.get_num_threads(),
        "gradient_bytes": gradient_bytes_at_a_time(),
        "settings": Settings().values[1:],  # the grad mode has a guard
        **_backends(),
    }


def _patterns(compilation: Compilation) -> Content:
    if not compilation.patterns:
        return []
    from pliant.entries.own_patterns import pattern_content  # which few programs give

    return list(map(pattern_content, compilation.patterns))


def _content(root: Any) -> Content:
    """What is called: a function, a method, or an object with a class that can be called."""
    if isinstance(root, types.FunctionType):
        return content(root)
    if isinstance(root, types.MethodType):
        return ["method", content(root.__func__), content(type(root.__self__))]
    if isinstance(root, torch.nn.Module):
        return ["instance", content(type(root))]
    if isinstance(root, functools.partial):  # of which all is fixed
        return content(root)
    if type(root) not in (types.BuiltinFunctionType, type):
        return [content(root), content(type(root))]
    raise NotKept("no-name", f"a {type(root).__qualname__} is called")


def _content_of_rest(root: ResumeRoot) -> Content:
    """What follows a break: where it begins, in what code."""
    from pliant.entries.breaks import place_of

    point, module = root.point, module_of(root.globals)
    if module is None:
        raise NotKept("no-name", f"the namespace of {root.name} is no module's")
    return ["rest", root.name, module, *place_of(point), content(point.code)]


@functools.cache
def _versions() -> Parts:
    return {
        "pliant": source_digest(),
        "torch": f"{VERSION} {torch.version.git_version}",
        "python": sys.version,
        "machine": machine(),
    }


def compiler_of(compilation: Compilation) -> str:
    """The C compiler of the compilation's kernels; "" if there is none."""
    return _compiler(compilation.options().build.compiler)


def takes_any_compilers(compilation: Compilation) -> bool:
    """Whether kernels of other compilers will do: where there is none, or one for want of another."""
    wanted = compilation.options().build.compiler
    return not _compiler(wanted) or find_compiler(wanted).stands_in


@functools.cache
def _compiler(wanted: str) -> str:
    try:
        return find_compiler(wanted).identity
    except CompilerNotFound:
        return ""


def _gpus() -> object:
    """The GPUs that the program uses, and what their kernels depend on; nothing of CUDA is started to ask."""
    if not torch.cuda.is_available():
        return False
    from pliant.runtime.cuda import driver

    if not driver.is_initialized():
        return True
    return driver.version(), _described(torch.cuda.device_count()), [setting.read() for setting in KERNEL_SETTINGS]


@functools.cache
def _described(count: int) -> tuple[str, ...]:
    return tuple(str(torch.cuda.get_device_properties(k)) for k in range(count))


def _backends() -> Parts:
    """Settings of PyTorch that operators' formulas and our rules may read."""
    return {
        "mkldnn": mkldnn_enabled(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "precision": precisions(),
        "gpus": _gpus(),
        "digits": sys.get_int_max_str_digits(),
    }
