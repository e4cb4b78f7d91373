"""One recording of a compiled graph: where it reads, where it writes, and what becomes of its outputs.

In:     a call's inputs.
Out:    `Recording`: `stays(inputs)`, `is_lent()`, `replay(inputs, stream)`.
Holds:  the recording's memory lives as long as it does; nobody outside ever holds a tensor in it but private outputs, whose
        memory's users are counted before it is written again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.autograd.views import overlaps_itself
from pliant.records import dataclass
from pliant.runtime.cuda.load import addresses_check
from pliant.runtime.cuda.recorder import Recorder
from pliant.runtime.cuda.roles import Roles, misalignment
from pliant.runtime.load import reads_lists
from pliant.torch_adapter import copy_all, copy_uncounted, storage_of, storage_users

Output = Callable[[Sequence[Any]], Any]  # from the call's inputs


class Recording:
    """The work of one call, to be done again on others' inputs of the same sizes."""

    def __init__(
        self,
        call: Callable[[list[Any]], list[Any]],
        roles: Roles,
        static: frozenset[int],
        recorder: Recorder,
        inputs: Sequence[Any],
    ) -> None:
        tensors = {k: t for k, t in enumerate(inputs) if isinstance(t, torch.Tensor)}
        _check_aliases(tensors, roles.written, static)
        self.static = frozenset(k for k in tensors if k in static)
        self._places = sorted(self.static)
        self._addresses = [tensors[k].data_ptr() for k in self._places]
        self.stays = self._stays if not reads_lists() else addresses_check(self._places, self._addresses)
        with torch.inference_mode(False), torch.no_grad():
            self.held = {k: _room_like(t) for k, t in tensors.items() if k not in static}
        self._windows = {k: _Window(t) for k, t in self.held.items()}
        self._copied_in = [self._windows[k].of(t) for k, t in self.held.items()]
        self.written = [k for k in self.held if k in roles.written]
        self._copied_out = [self._windows[k].of(self.held[k]) for k in self.written]
        given = [self.held.get(k, value) for k, value in enumerate(inputs)]
        generators = [g for g in inputs if isinstance(g, torch.Generator) and g.device.type == "cuda"]
        outputs, self.run = recorder.record(lambda: call(list(given)), generators)
        self.outputs = _Outputs(outputs, given, roles.private)
        self.streams: set[int] = set()

    def _stays(self, inputs: Sequence[Any]) -> bool:
        """Whether the inputs that are read where they lay lie there."""
        return [inputs[k].data_ptr() for k in self._places] == self._addresses

    def moved(self, inputs: Sequence[Any]) -> frozenset[int]:
        return frozenset(k for k, at in zip(self._places, self._addresses) if inputs[k].data_ptr() != at)

    def is_lent(self) -> bool:
        """Whether somebody holds memory that a replay writes."""
        return self.outputs.are_lent()

    def replay(self, inputs: list[Any], stream: int) -> list[Any]:
        """Do the work on these inputs; the list is emptied."""
        self._note_stream(stream)
        given = list(inputs)
        inputs.clear()
        with torch.no_grad():
            copy_all(self._copied_in, [window.of(given[k]) for k, window in self._windows.items()])
            self.run()
            if self.written:
                copy_uncounted([self._windows[k].of(given[k]) for k in self.written], self._copied_out)
            return self.outputs.of(given)

    def _note_stream(self, stream: int) -> None:
        """Memory that is let go of may be given away once the streams that use it have come so far."""
        if stream not in self.streams:
            self.streams.add(stream)
            for tensor in self.held.values():
                if tensor.is_cuda:
                    tensor.record_stream(torch.cuda.current_stream(tensor.device))


def _check_aliases(tensors: dict[int, torch.Tensor], written: frozenset[int], static: frozenset[int]) -> None:
    """A held input is a copy: others in the memory of a written one would not see the writes, or it not theirs."""
    for k in written & tensors.keys():
        for other, t in tensors.items():
            if other != k and not {k, other} <= static and _share_memory(t, tensors[k]):
                raise ValueError("an input that is written shares memory with another one")


def _share_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether one begins before the other ends."""
    (first, end), (other, last) = ((t.data_ptr(), t.data_ptr() + _span(t) * t.element_size()) for t in (a, b))
    return storage_of(a) == storage_of(b) and first < last and other < end


# ---- inputs that are held


def _room_like(t: torch.Tensor) -> torch.Tensor:
    """Memory for a copy, with the tensor's sizes, strides and alignment."""
    skipped = misalignment(t) // t.element_size()
    return torch.empty(skipped + _span(t), dtype=t.dtype, device=t.device).as_strided(t.shape, t.stride(), skipped)


def _span(t: torch.Tensor) -> int:
    """Elements from the first to the last."""
    return 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride())) if t.numel() else 0


class _Window:
    """What is copied of tensors of one geometry: their elements, each once."""

    __slots__ = ("_geometry",)

    def __init__(self, t: torch.Tensor) -> None:
        self._geometry: tuple[list[int], list[int]] | None = None
        if overlaps_itself(t):
            once = [1 if s == 0 else n for n, s in zip(t.shape, t.stride())]
            twice = overlaps_itself(t.as_strided(once, t.stride()))
            self._geometry = ([_span(t)], [1]) if twice else (once, list(t.stride()))

    def of(self, t: torch.Tensor) -> torch.Tensor:
        return t if self._geometry is None else t.as_strided(*self._geometry)


# ---- outputs


@dataclass(frozen=True, slots=True)
class _Geometry:
    """Where a tensor lies in its storage."""

    size: torch.Size
    stride: tuple[int, ...]
    offset: int

    @staticmethod
    def of(t: torch.Tensor) -> _Geometry:
        return _Geometry(t.shape, t.stride(), int(t.storage_offset()))


class _Outputs:
    """Of a recording: what is returned of them for a call's inputs."""

    def __init__(self, recorded: Sequence[Any], given: Sequence[Any], private: frozenset[int]) -> None:
        storages = {storage_of(t): k for k, t in enumerate(given) if isinstance(t, torch.Tensor)}
        tensors = {k: t for k, t in enumerate(recorded) if isinstance(t, torch.Tensor)}
        own = {k: t for k, t in tensors.items() if storage_of(t) not in storages}
        shown = {storage_of(t) for k, t in own.items() if k not in private}
        self._plan: list[Output] = []
        self._copies: list[_Copy] = []
        lent: dict[int, torch.Tensor] = {}
        first = {id(t): k for k, t in reversed(tensors.items())}
        self._again = [(k, first[id(t)]) for k, t in tensors.items() if first[id(t)] != k]  # one tensor, returned twice
        for k, value in enumerate(recorded):
            if k not in tensors:
                self._plan.append(_always(value))
            elif first[id(value)] != k:
                self._plan.append(_always(None))
            elif k not in own:
                place = storages[storage_of(value)]
                self._plan.append(_in_input(place, value, given[place]))
            elif storage_of(value) in shown:
                self._plan.append(self._copied(value))
            else:
                lent[storage_of(value)] = value
                self._plan.append(_alias_of(value))
        for copy in self._copies:
            copy.finish()
        self._lent = list(lent)
        self._users = [storage_users(s) for s in self._lent]

    def _copied(self, value: torch.Tensor) -> Output:
        """One copy for all outputs in one storage."""
        copy = next((c for c in self._copies if c.storage == storage_of(value)), None)
        if copy is None:
            copy = _Copy(value)
            self._copies.append(copy)
        return copy.add(value)

    def are_lent(self) -> bool:
        return any(storage_users(s) != n for s, n in zip(self._lent, self._users))

    def of(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of a call."""
        targets, sources = [], []
        for copy in self._copies:
            target, source = copy.begin()
            targets.append(target)
            sources.append(source)
        copy_uncounted(targets, sources)  # they are new to the caller, whose tensors have not been written
        found = [output(inputs) for output in self._plan]
        for k, before in self._again:
            found[k] = found[before]
        for copy in self._copies:
            copy.end()
        return found


class _Copy:
    """Outputs that lie in one storage, copied together: of a single one its elements, else all bytes."""

    def __init__(self, value: torch.Tensor) -> None:
        self.storage = storage_of(value)
        self.members, self.source, self.is_single = [value], value, True
        self.made: torch.Tensor | None = None  # during a call

    def add(self, value: torch.Tensor) -> Output:
        if value is not self.members[0]:
            self.members.append(value)
        geometry, dtype = _Geometry.of(value), value.dtype
        return lambda inputs: self._member(geometry, dtype)

    def finish(self) -> None:
        """All members are known."""
        first = self.members[0]
        self.is_single = len(self.members) == 1 and not overlaps_itself(first)
        if not self.is_single:
            self.source = torch.empty(0, dtype=torch.uint8, device=first.device).set_(first.untyped_storage())

    def begin(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Memory for the copy, and what is copied."""
        source = self.source
        self.made = torch.empty_strided(source.shape, source.stride(), dtype=source.dtype, device=source.device)
        return self.made, source

    def _member(self, geometry: _Geometry, dtype: torch.dtype) -> torch.Tensor:
        assert self.made is not None
        if self.is_single:
            return self.made
        empty = torch.empty(0, dtype=dtype, device=self.made.device)
        return empty.set_(self.made.untyped_storage(), geometry.offset, geometry.size, geometry.stride)

    def end(self) -> None:
        self.made = None


def _always(value: Any) -> Output:
    return lambda inputs: value


def _in_input(place: int, value: torch.Tensor, given: torch.Tensor) -> Output:
    """An output in the memory of an input, or that input itself."""
    if value is given:
        return lambda inputs: inputs[place]
    lies = _Geometry.of(value)
    dtype, shift = value.dtype, lies.offset * value.element_size() - given.storage_offset() * given.element_size()

    def view(inputs: Sequence[Any]) -> torch.Tensor:
        one: torch.Tensor = inputs[place]
        start = (one.storage_offset() * one.element_size() + shift) // dtype.itemsize
        if one.dtype is dtype:
            return one.as_strided(lies.size, lies.stride, start)
        empty = torch.empty(0, dtype=dtype, device=one.device)
        return empty.set_(one.untyped_storage(), start, lies.size, lies.stride)

    return view


def _alias_of(value: torch.Tensor) -> Output:
    return lambda inputs: value.detach()
