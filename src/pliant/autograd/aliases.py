"""What a fake tensor stands for while its program becomes functional: a place in a base's storage.

In:     the tensors a traced program makes.
Out:    `Base` (a storage, whose value is a graph node and a version) and `Alias` (a tensor: the base seen through view
        steps).
Holds:  two tensors share memory exactly if their aliases share a base; an alias's node is its value at `version` of
        the base.
Reads on: `functionalize.py`.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from pliant.autograd.views import ViewStep, version
from pliant.errors import InternalError
from pliant.records import dataclass

if TYPE_CHECKING:
    from pliant.graph.fake_tensor import FakeTensor

_aten = torch.ops.aten
# Views that change nothing but the autograd relation: they share the value, so no node is recorded for them.
IDENTITY_VIEWS: frozenset[Any] = frozenset({_aten.detach.default, _aten.alias.default, _aten.lift_fresh.default})
# Views that are conjugated or negated when they are read: what computes their elements, which the graph has instead.
COMPUTED: dict[Any, Any] = {_aten._conj.default: _aten._conj_physical.default, _aten._neg_view.default: _aten.neg.default}


def is_identity(step: ViewStep) -> bool:
    """Whether the view shares the value of what it is a view of."""
    return step.func in IDENTITY_VIEWS


@dataclass(slots=True, eq=False)
class Base:
    """A storage. `fake`: the first tensor on it, whose autograd history covers the whole storage. `input`: its
    position.
    """

    node: fx.Node
    fake: FakeTensor
    version: int = 0
    input: int | None = None
    counted: int = 0  # the version since the last write that the tensor's own version shows: not through `.data`
    inference: bool = False  # made in a block of inference mode


@dataclass(slots=True, eq=False)
class Alias:
    """A tensor: the base itself (`parent` is None), or `step` applied to another alias."""

    base: Base
    parent: Alias | None
    step: ViewStep | None
    fake: FakeTensor
    node: fx.Node
    version: int
    born: int = 0  # the version of the base when it was made
    in_place: bool = False  # the tensor that it is a view of became this one

    def count_alone(self) -> None:
        """Its writes do not show in the version of what it is a view of."""
        assert self.step is not None
        self.step = dataclasses.replace(self.step, counted=False)

    def is_detached_of_base(self) -> bool:
        """Whether it was made by `detach` of a base without a history that nothing was done to since."""
        step, base = self.step, self.base
        if step is None or step.func is not _aten.detach.default or self.parent is not base.fake.node:
            return False
        return base.input is None and not base.version and not base.fake.requires_grad

    def become_base(self) -> None:
        """From now on it is the base's own tensor."""
        self.base.fake, self.parent, self.step = self.fake, None, None

    def steps(self) -> tuple[ViewStep, ...]:
        """The views that lead from the base's own tensor to this one."""
        found: list[ViewStep] = []
        alias = self
        while alias.parent is not None:
            assert alias.step is not None
            alone = not alias.step.counted
            found.append(dataclasses.replace(alias.step, writes=version(alias.fake)) if alone else alias.step)
            alias = alias.parent
        return tuple(reversed(found))

    def root(self) -> Alias:
        """The alias of the base's own tensor."""
        alias = self
        while alias.parent is not None:
            alias = alias.parent
        return alias


def alias_of(fake: FakeTensor) -> Alias:
    """The place that a tensor of this trace stands for."""
    alias = fake.node
    if type(alias) is not Alias:
        raise InternalError("a fake tensor of another trace reached this one", kind="functionalize")
    return alias
