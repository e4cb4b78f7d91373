"""What calls of the graph give, run on real tensors: for a branch on the inputs at hand, or where only constants lead there.

In:     a node; the kind of run says what inputs are, and which calls may be run.
Out:    `NodeValues.value`: a tensor or number. `Unknown` where only running the graph tells.
Holds:  nothing of the program is changed. What a call gave is kept, as long as its tensor is not written.
"""

from __future__ import annotations

import abc
from typing import Any

import torch
from torch import fx

from pliant.capture.numbers import ranges
from pliant.capture.numbers.element_rules import Unknown
from pliant.capture.recording.regions import tensors_of
from pliant.capture.structures import several
from pliant.capture.value_kinds import is_symbolic
from pliant.graph.contracts import known_name
from pliant.graph.fake_tensor import CONSTANT_NUMEL, FakeTensor, is_fake
from pliant.graph.unbacked import written
from pliant.graph.writes import is_written
from pliant.interruptions import pass_on
from pliant.torch_adapter import DisableTorchFunction, below_python_dispatch

_LONGEST = 256  # calls on the way


class NodeValues(abc.ABC):
    """The values of nodes that one kind of run gives."""

    def __init__(self) -> None:
        self._found: dict[fx.Node, Any] = {}
        self._left = _LONGEST

    def value(self, node: fx.Node | None) -> Any:
        if node is None or not self._left:
            raise Unknown
        if node not in self._found:
            self._left -= 1
            self._found[node] = self.run(node)
        return self._found[node]

    @abc.abstractmethod
    def run(self, node: fx.Node) -> Any:
        """What the node gives."""

    def called(self, node: fx.Node) -> Any:
        """What the node's call gives for the values of its arguments."""
        if node.op not in ("call_method", "call_function") or not known_name(node):  # the program's own are not to be run
            raise Unknown
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), self.value)
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        return node.target(*args, **kwargs)  # type: ignore[operator]


class Constants(NodeValues):
    """Small tensors on the CPU that constants alone lead to, as in `torch.div(torch.tensor(n), 2)`; comparisons of drawn
    numbers that every draw answers in the same way; whether all elements of a filled tensor are true."""

    def __init__(self) -> None:
        super().__init__()
        self._computed: dict[int, FakeTensor] = {}  # by id: results of calls that draw and write nothing

    def note(self, result: Any) -> None:
        """The result of a call that only computes. What has a node already was given back: another call made it, and may have
        drawn it."""
        self._computed.update({id(one): one for one in several(result) if _is_small(one) and one.node is None})

    def is_noted(self, fake: FakeTensor) -> bool:
        return id(fake) in self._computed

    def forget(self, tensor: FakeTensor) -> None:
        """The tensor is another one from here on."""
        self._computed.pop(id(tensor), None)

    def forget_all(self) -> None:
        self._computed.clear()
        self._found.clear()

    def of(self, fake: FakeTensor) -> torch.Tensor | None:
        """The tensor that the fake stands for; None if it is not known."""
        if id(fake) not in self._computed:
            return None
        self._left = _LONGEST
        try:
            with torch.no_grad(), DisableTorchFunction(), below_python_dispatch():
                made: torch.Tensor = self.value(fake.node)
            return made
        except Exception as error:
            pass_on(error)
            return None

    def value(self, node: fx.Node | None) -> Any:
        made = None if node is None else node.meta.get("val")
        tensors = tensors_of(several(made))
        if not tensors or any(id(one) not in self._computed or is_written(one) for one in tensors):
            raise Unknown
        return super().value(node)

    def run(self, node: fx.Node) -> Any:
        made = node.meta["val"]
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda one: one.meta.get("val"))
        for known in (ranges.comparison, ranges.truth_of_elements):
            if (told := known(known_name(node), args, kwargs)) is not None:
                return torch.tensor(told)
        found = self.called(node)
        pairs = list(zip(several(made), several(found), strict=True))
        if not all(_is_as_told(fake, real) for fake, real in pairs if is_fake(fake)):
            raise Unknown  # under another mode of PyTorch it would give something else
        return found


def _is_as_told(fake: FakeTensor, real: torch.Tensor) -> bool:
    """Whether the trace was told of such a tensor; the values say how large it is where it was told of a size of data."""
    if real.dtype is not fake.dtype_ or real.dim() != len(fake.size_):
        return False
    return all(_is_of_data(told) or told == size for told, size in zip(fake.size_, real.shape, strict=True))


def _is_small(value: Any) -> bool:
    """Whether elements of such a tensor are looked for: numbers, and few integers (lengths, indices), as many as data says."""
    if not is_fake(value) or value.device_.type != "cpu":
        return False
    sizes = value.size_
    few = len(sizes) == 1 and not is_symbolic(sizes[0]) and sizes[0] <= CONSTANT_NUMEL
    return sizes == () or few or len(sizes) in (1, 2) and _is_of_data(sizes[0])


def _is_of_data(size: Any) -> bool:
    """Whether it was known from data alone when it was made."""
    return is_symbolic(size) and bool(size.node.shape_env.unbacked_symbols(written(size)))
