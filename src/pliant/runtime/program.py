"""What runs a compiled graph, made of its wrapper's text and of built code.

In:     the text, what its names stand for, the place of the kernels in the store.
Out:    `wrapper_of(...)`: the function of the list of inputs; `Library`: built code and the names of its entries.
Holds:  the same in the process that compiled the graph and in any that finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pliant.records import dataclass
from pliant.runtime import random_draws
from pliant.runtime.build import built
from pliant.runtime.load import NativeEntry, load
from pliant.torch_adapter import OpOverload
from pliant.wrappers.vector_math import vector_math
from pliant.wrappers.wrapper import WrapperCode, compile_wrapper


@dataclass(frozen=True, slots=True)
class Library:
    """Built code: its place in the store, the names of its entries."""

    digest: str
    entries: list[str]
    threaded: bool

    def functions(self) -> dict[str, NativeEntry]:
        """Its entries, loaded; first what it may take functions from, as when its text was written. NoKernels if the
        store has it no more."""
        path = built(self.digest)
        vector_math()
        found = load(path, self.entries, threaded=self.threaded)
        return dict(zip(self.entries, found, strict=True))


class KeptCode(Protocol):
    """Code that the store has: its entries, loaded, by name."""

    def functions(self) -> dict[str, NativeEntry]: ...


def wrapper_of(
    name: str, source: str, names: dict[str, Any], ranges: dict[str, str], *kept: KeptCode
) -> Callable[[list[Any]], list[Any]]:
    """The function of a wrapper's text with its code as the store has it; `names` are without its entries."""
    entries = {name: entry for code in kept for name, entry in code.functions().items()}
    return wrapped(WrapperCode(source, {**names, **entries}), name, ranges)


def wrapped(wrapper: WrapperCode, name: str, ranges: Mapping[str, str]) -> Callable[[list[Any]], list[Any]]:
    """The function of the text."""
    if any(isinstance(value, OpOverload) and value.namespace == "pliant" for value in wrapper.names.values()):
        from pliant.runtime import packed_weights

        packed_weights.bind(wrapper.names)
    random_draws.bind(wrapper.names)
    return compile_wrapper(wrapper, name, ranges)
