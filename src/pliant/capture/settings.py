"""Global settings of PyTorch that a program changes while it runs: autocast, attention kernels, grad mode.

In:     the setters that the trace calls (rows of the table of handlers).
Out:    nodes that call them; `Settings`, a snapshot, to restore what was set before the trace and to say what it left changed.
Holds:  after a capture every setting is what it was. A graph that ends inside a block leaves settings as it found them; the
        code behind it sets them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.table import Rows
from pliant.capture.value_kinds import concrete
from pliant.torch_adapter import ATTENTION_SETTINGS, CUDNN_SETTINGS, PRECISION_SETTING, set_grad_enabled

if TYPE_CHECKING:
    from pliant.capture.tracer import Tracer


@dataclass(frozen=True, slots=True)
class _Setting:
    """`setter(*key, value)` stores what `getter(*key)` reads."""

    getter: Callable[..., Any]
    setter: Callable[..., Any]
    key: tuple[Any, ...] = ()


def _nesting() -> int:
    """How deep autocast blocks are nested: leaving the outermost one forgets cast weights."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


def _set_nesting(depth: int) -> None:
    """Enter or leave autocast blocks until the depth is this."""
    now = _nesting()
    for _ in range(depth - now):
        torch.autocast_increment_nesting()
    for _ in range(now - depth):
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()


def _for_an_absent_device() -> Iterator[_Setting]:
    """Choices of kernels on GPUs: where there is one they would have to hold while the compiled graph runs."""
    if torch.version.cuda is not None and torch.cuda.is_available():
        return
    for getter, setter in CUDNN_SETTINGS:
        yield _Setting(getter, setter)
    yield _Setting(*PRECISION_SETTING, ("cuda", "all"))


_SETTINGS = (
    _Setting(torch.is_grad_enabled, set_grad_enabled),
    *(_Setting(torch.is_autocast_enabled, torch.set_autocast_enabled, (d,)) for d in ("cpu", "cuda")),
    *(_Setting(torch.get_autocast_dtype, torch.set_autocast_dtype, (d,)) for d in ("cpu", "cuda")),
    _Setting(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    _Setting(_nesting, _set_nesting),
    *(_Setting(getter, setter) for getter, setter in ATTENTION_SETTINGS),
    *_for_an_absent_device(),
)
_ROWS = {(one.getter, one.key): row for row, one in enumerate(_SETTINGS)}
_NESTED = (torch.autocast_increment_nesting, torch.autocast_decrement_nesting, torch.clear_autocast_cache)

Call = tuple[Callable[..., Any], tuple[Any, ...]]


class Settings:
    """All settings as they are now."""

    def __init__(self) -> None:
        self.values = [one.getter(*one.key) for one in _SETTINGS]

    @property
    def grad_enabled(self) -> bool:
        return bool(self.values[0])

    def is_read(self, getter: Callable[..., Any], key: tuple[Any, ...], answer: Any) -> bool | None:
        """Whether the answer is the setting as it is here; None if the getter reads no setting that a program changes."""
        row = _ROWS.get((getter, key))
        return None if row is None else bool(self.values[row] == answer)

    def calls_from(self, other: Settings) -> list[Call]:
        """The calls that make settings that were as in `other` what they are here."""
        pairs = zip(_SETTINGS, self.values, other.values, strict=True)
        return [(one.setter, (*one.key, value)) for one, value, was in pairs if value != was]

    def restore(self) -> None:
        for setter, arguments in self.calls_from(Settings()):
            setter(*arguments)


class Casts:
    """To which dtypes parameters may have been cast since the outermost block of autocast was entered. Until it is left
    PyTorch keeps each cast, and takes it whatever dtype an inner block asks for.
    """

    def __init__(self) -> None:
        self.kept: set[tuple[str, Any]] = set()
        if _nesting():
            self.note()
        self.from_before = frozenset(self.kept)  # PyTorch has those that eager code made, compiled code leaves none

    def note(self) -> None:
        self.kept |= {(d, torch.get_autocast_dtype(d)) for d in ("cpu", "cuda") if torch.is_autocast_enabled(d)}

    def after(self, function: Callable[..., Any]) -> None:
        if function is torch.autocast_increment_nesting:
            self.note()
        elif function is torch.clear_autocast_cache or function is torch.autocast_decrement_nesting and not _nesting():
            self.kept.clear()
            self.from_before = frozenset()

    @property
    def are_mixed(self) -> bool:
        """Whether what is kept decides about dtypes: a graph break would lose it."""
        return len({device for device, _ in self.kept}) < len(self.kept)

    @property
    def meet_others(self) -> bool:
        """Whether casts that were kept before the trace may decide about dtypes: the graph would not know them."""
        return bool(self.from_before) and self.are_mixed


def _recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    def handler(t: Tracer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = tuple(map(concrete, args)), {name: concrete(value) for name, value in kwargs.items()}
        t.recorder.graph.call_function(function, args, kwargs)
        t.recorder.count += 1
        result = function(*args, **kwargs)
        t.casts.after(function)
        if t.casts.meet_others:
            raise GraphBreak("mutated-global-state", "autocast to a dtype in a block of another")
        return result

    return handler


ROWS = Rows()
for _function in {*_NESTED, *(one.setter for one in _SETTINGS if one.setter is not _set_nesting)}:
    ROWS.callables[_function] = _recorded(_function)
