"""Attention that a program writes out, found.

In:     a recorded program.
Out:    `find_attention(recorded)`: what `attend` is to replace.
Holds:  the program sees the result alone: no weights, no scores. Nothing is drawn, masks have no gradients, and where the operator is
        slower than what is written out (`pays`) it stays. A near miss is an event that says why.
Reads on: `scores.py`, `axes.py`, `attend.py`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import fx

from pliant import config, torch_adapter
from pliant.autograd.partition.cost import hinted
from pliant.debug import events
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.tensor_spec import key_of
from pliant.patterns import attention_cost
from pliant.patterns.attend import Use, attend
from pliant.patterns.axes import UNIT, WHOLE, Labels, after, before, is_view
from pliant.patterns.recorded import Recorded
from pliant.patterns.rewriting import Found, Left
from pliant.patterns.scores import Step, steps_to
from pliant.patterns.substitution import laid_out, order_in_memory
from pliant.records import dataclass

_aten = torch.ops.aten
_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def find_attention(recorded: Recorded) -> Iterator[Found]:
    """In the order of the graph."""
    for node in list(recorded.graph.find_nodes(op="call_function", target=_aten._softmax.default)):
        try:
            found = _found(recorded, node)
        except Left as left:
            where = node.meta["origin"].meta.get("origin")
            events.record("pattern_left", name="attention", where=where, why=str(left))
        else:
            if found is not None:
                yield found


def _found(recorded: Recorded, softmax: fx.Node) -> Found | None:
    scores: Any = softmax.args[0]
    rank = len(scores.meta["val"].size_)
    if not rank or softmax.args[1] % rank != rank - 1:  # type: ignore[operator]
        return None
    steps = steps_to(scores)
    if steps is None:
        return None
    chain = _weights(softmax)
    if chain is None:
        return None
    return _Attention(recorded, steps, softmax, chain).found()


def _weights(softmax: fx.Node) -> list[fx.Node] | None:
    """The calls from the softmax to the product with the values, which is the last."""
    chain: list[fx.Node] = []
    node = softmax
    while True:
        users = [user for user in node.users if is_view(user) or user.target in (_aten.bmm.default, _aten._to_copy.default)]
        product = next((user for user in users if user.target is _aten.bmm.default and user.args[0] is node), None)
        following = product or next((user for user in users if user.target is not _aten.bmm.default), None)
        if following is None:
            between = [user for user in node.users if user.target in (_aten.mul.Tensor, _aten.native_dropout.default)]
            if between:
                raise Left(f"its weights go through `{between[0].target}`, as those of dropout do")
            return None
        chain.append(following)
        if product is not None:
            return chain
        node = following


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """A value of the program's, and what its dimensions are."""

    node: fx.Node
    labels: Labels

    @property
    def sizes(self) -> tuple[Any, ...]:
        sizes: tuple[Any, ...] = self.node.meta["val"].size_
        return sizes

    @property
    def parts(self) -> list[str]:
        return sorted(label for label in self.labels if label.isdigit())


class _Attention:
    """One that was found, by its calls."""

    def __init__(self, recorded: Recorded, steps: list[Step], softmax: fx.Node, chain: list[fx.Node]) -> None:
        self.recorded, self.steps, self.softmax, self.chain = recorded, steps, softmax, chain
        self.product, self.last = steps[0].node, chain[-1]
        first: Any = self.product.args[-2:]
        self.query = self._operand(first[0], (WHOLE, "l", "d"))
        self.key = self._operand(first[1], (WHOLE, "d", "s"))
        self.value = self._operand(self.last.args[1], (WHOLE, "s", "d"))
        self.masked: list[Seen] = []  # the scores, where they are masked
        self.nodes = [step.node for step in steps] + [softmax, *chain]

    # ---- what it is
    def found(self) -> Found:
        self._check_types()
        result = self._result()
        inside = [*self.nodes, *self._between(result.node)]
        self._check_closed(set(inside) - {result.node}, inside)
        masks, uses, scale = self._masks()
        if any(kind == "fill" for kind, *_ in uses) and config.get().autograd.rewrite_attention != "finite":
            raise Left('its mask fills scores in, which may be infinite (option rewrite_attention="finite")')
        operands = [self.query, self.key, self.value]
        heads = _heads([*operands, result, *self.masked])
        order = order_in_memory(result.node.meta["val"])
        if order is None:
            raise Left("its result is laid out in another way than it can be given")
        self._check_cost()
        options = {
            "arranged": (*map(_arrangement, operands, ("lsd",) * 3), *[_arrangement(one, "ls") for one in masks]),
            "heads": heads, "scale": scale, "uses": tuple(uses),
            "hidden_rows": self._hidden_rows(uses),
            "result": _axes_of(result), "flat": WHOLE in result.labels, "order": order,
        }  # fmt: skip
        return Found("attention", [one.node for one in (*operands, *masks)], [result.node], inside, attention, options)

    def _operand(self, node: Any, labels: Labels) -> Seen:
        """The tensor of the program that an operand of a product is a view of, or a copy."""
        found = seen = Seen(node, labels)
        while is_view(seen.node):
            source: Any = seen.node.args[0]
            known = before(seen.node, seen.labels)
            if known is None or len([one for one in known if one.isdigit()]) > 2:
                break
            seen = Seen(source, known)
            if source in self.recorded.given:
                found = seen
        return found if found.node in self.recorded.given else seen

    def _result(self) -> Seen:
        """The first tensor of the program that the last product is seen as."""
        seen = Seen(self.last, (WHOLE, "l", "d"))
        while seen.node not in self.recorded.given:
            users = list(seen.node.users)
            known = after(users[0], seen.labels) if len(users) == 1 and is_view(users[0]) else None
            if known is None:
                raise Left("its result is no tensor of the program's own")
            seen = Seen(users[0], known)
        if len(seen.parts) > 2:
            raise Left("its batch has several dimensions")
        return seen

    def _between(self, result: fx.Node) -> list[fx.Node]:
        found: list[fx.Node] = []
        node = result
        while node is not self.last:
            found.append(node)
            node = node.args[0]  # type: ignore[assignment]
        return found

    # ---- what it must be
    def _check_types(self) -> None:
        fakes: list[FakeTensor] = [one.node.meta["val"] for one in (self.query, self.key, self.value)]
        if any(fake.device_.type != "cpu" for fake in fakes):
            raise Left("only the CPU's operator is known")
        if fakes[0].dtype_ not in _FLOATS or any(fake.dtype_ is not fakes[0].dtype_ for fake in (*fakes, self.last.meta["val"])):
            raise Left("its tensors are of different types")
        if key_of(_size(self.query, "d")) != key_of(_size(self.value, "d")):
            raise Left("its values are not as wide as its keys")
        if not torch_adapter.flash_attention_enabled():
            raise Left("the program switched the operator off")

    def _check_closed(self, between: set[fx.Node], inside: Collection[fx.Node]) -> None:
        for node in between:
            if node in self.recorded.kept or not set(inside).issuperset(node.users):
                raise Left("its weights, or its scores, are used elsewhere")

    def _masks(self) -> tuple[list[Seen], list[Any], float]:
        scale, masks, uses = 1.0, list[Seen](), list[Any]()
        seen = Seen(self.product, (WHOLE, "l", "s"))
        for step in self.steps:
            if step.kind == "view":
                labels = after(step.node, seen.labels)
                if labels is None:
                    raise Left("its scores are seen in another shape")
                seen = Seen(step.node, labels)
            elif step.kind == "scale":
                if uses or step.value <= 0:
                    raise Left("its scores are scaled after they are masked")
                scale *= step.value
            elif step.mask is not None:
                masks.append(self._mask(step.mask, seen))
                self.masked.append(seen)
                uses.append((step.kind, step.value, step.keeps))
        self._check_weights(seen.labels)
        return masks, uses, scale

    def _hidden_rows(self, uses: list[Use]) -> str:
        """What rows are made of whose keys are all masked: see `attend`."""
        kinds = {(kind, value) for kind, value, _ in uses}
        filled = [value for kind, value in kinds if kind == "fill"]
        if filled and self.last in self.recorded.followed:
            if len(kinds) > 1:
                raise Left("it is masked in several ways, and gradients are asked for")
            return "nan-values" if filled[0] == -math.inf else "values"
        return "nan" if any(kind == "add" or value == -math.inf for kind, value in kinds) else ""

    def _check_weights(self, labels: Labels | None) -> None:
        """Whether the softmax is over the keys, and its result a factor as it is."""
        if labels is None or labels[-1] not in ("s", UNIT):
            raise Left("its softmax is over another dimension")
        for node in self.chain[:-1]:
            labels = after(node, labels) if labels is not None and is_view(node) else labels
        if labels is None or [one for one in labels if one != UNIT] != [one for one in (WHOLE, "l", "s") if one in labels]:
            raise Left("its weights are seen in another shape")

    def _mask(self, mask: fx.Node, scores: Seen) -> Seen:
        fake: FakeTensor = mask.meta["val"]
        own = self.query.node.meta["val"].dtype_
        if fake.dtype_ not in (own, torch.float32, torch.bool):
            raise Left("its mask is of another type")
        if own is torch.float16:
            raise Left("its scores are masked in float16, in which what hides them is rounded")
        if mask in self.recorded.followed:
            raise Left("the gradient of its mask is asked for")
        rank = len(fake.size_)
        labels = scores.labels[len(scores.labels) - rank :] if rank else ()
        spread = [key_of(size) == 1 for size in fake.size_]
        return Seen(mask, tuple([UNIT if one else label for one, label in zip(spread, labels)]))

    def _check_cost(self) -> None:
        whole, rows, columns = (hinted(size) for size in self.product.meta["val"].size_)
        if not attention_cost.pays(self.product.meta["val"].device_, whole * rows * columns, self.last in self.recorded.followed):
            raise Left("it is faster as it is written out, at these sizes")


def attention(*tensors: torch.Tensor, order: tuple[int, ...] | None, **how: Any) -> torch.Tensor:
    """`attend`, laid out as the program's result was."""
    return laid_out(attend(*tensors, **how), order)


def _size(seen: Seen, label: str) -> Any:
    return seen.sizes[seen.labels.index(label)] if label in seen.labels else 1


def _heads(all_: list[Seen]) -> int:
    """The size of the second part of what is batch and heads, where some have it in parts and some as one."""
    sizes = [_size(one, "1") for one in all_ if "1" in one.labels]
    if not sizes or all(WHOLE not in one.labels for one in all_):
        return 1
    if any(type(size) is not int or size != sizes[0] for size in sizes):
        raise Left("its heads are as many as varies, or are told in different ways")
    return int(sizes[0])


def _arrangement(seen: Seen, names: str) -> tuple[int, ...]:
    """Where the axes are, as `attend` takes it."""
    places = {label: d for d, label in enumerate(seen.labels) if label != UNIT}
    row, column = ("l" if "l" in places else "s"), ("d" if "d" in names else "s")
    leading = [places.get("0", -1), places.get("1", -1)] if "0" in places or "1" in places else [places.get(WHOLE, -1)]
    return *leading, places.get(row if row != column else "l", -1), places.get(column, -1)


def _axes_of(result: Seen) -> tuple[int, ...]:
    """For each dimension of the result the axis that it is."""
    axes = {WHOLE: 0, "l": 1, "d": 2} if WHOLE in result.labels else {"0": 0, "1": 1, "l": 2, "d": 3}
    return tuple([axes.get(label, -1) for label in result.labels])
