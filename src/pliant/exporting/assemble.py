"""From a capture to an exported program.

In:     the trace of a model's call, the joint stage's graph of it, the example.
Out:    a `Program`.
Holds:  what a call of the model changes is named: buffers and arguments get new values; anything else that it would
        change is an `ExportError`. Every tensor that the graph takes is a parameter, a buffer, a constant or an argument.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import torch
from torch import fx
from torch.utils import _pytree as pytree

from pliant.autograd.joint import JointGraph
from pliant.autograd.places import FromInput, FromResult, Literal, Output, SameAs, ViewOf
from pliant.autograd.views import ViewStep
from pliant.capture.trace import CallEffect, Effect, Extend, ReplaceContents, Return, SetItem, Trace
from pliant.capture.varying_values import Text, plain_class
from pliant.dispatch.running_frames import called_from
from pliant.entries.constants import is_constant
from pliant.errors import ExportError
from pliant.exporting.checking import divisors_of
from pliant.exporting.dims import leaves_of
from pliant.exporting.example import Example
from pliant.exporting.nested import nest
from pliant.exporting.program import BUFFER, CONSTANT, PARAMETER, USER, CallForm, Input, Program
from pliant.exporting.segments import tell_lengths
from pliant.exporting.settled import told
from pliant.exporting.symbols import Sizes
from pliant.exporting.trees import flattened
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.passes.cse import cse
from pliant.graph.passes.dce import dce
from pliant.graph.passes.separate import separate
from pliant.graph.unbacked import assume, check, is_unbacked, unlearnt
from pliant.guards.sources import DrawSource
from pliant.source import SourceLocation
from pliant.symbolic.expr import Expr, Symbol
from pliant.symbolic.printer import to_python
from pliant.torch_adapter import append_node

_aten = torch.ops.aten
_KINDS = (PARAMETER, BUFFER, CONSTANT, USER)
_STATES = ("seed", "getstate", "setstate")  # what does more than draw
_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_PREFIX = {PARAMETER: "p_", BUFFER: "b_", CONSTANT: "c_", USER: ""}


def program_of(
    example: Example, traced: Trace, joint: JointGraph, sizes: Sizes, names: Mapping[Symbol, str], notes: Sequence[str],
    left: Sequence[SetItem] = (),
) -> Program:
    """The program of one capture. `left`: attributes that the program does not set."""
    return _Assembly(example, traced, joint, sizes, left).program(names, notes)


class _Assembly:
    def __init__(self, example: Example, traced: Trace, joint: JointGraph, sizes: Sizes, left: Sequence[SetItem]) -> None:
        self.example, self.traced, self.joint, self.sizes, self.left = example, traced, joint, sizes, left
        self.graph, self.captured = joint.graph, joint.captured
        self.known: dict[int, int] = {}  # by id of a tensor its first place among the leaves
        for place, leaf in enumerate(example.leaves):
            self.known.setdefault(id(leaf), place)
        self.owned = dict(_state_of(example.fn))
        self.homes: dict[int, tuple[str, str]] = {}  # by id of the tensor: its kind and the first of its names
        for owned, (kind, tensor) in self.owned.items():
            self.homes.setdefault(id(tensor), (kind, owned))
        self.tensors: dict[fx.Node, torch.Tensor] = {}  # what placeholders stand for
        self.inputs: dict[fx.Node, Input] = {}
        self.assigned: dict[str, int] = {}  # buffers that get an output of the captured graph as their value
        self.results: list[Any] = list(joint.results)
        self.said: list[str] = []

    def program(self, names: Mapping[Symbol, str], notes: Sequence[str]) -> Program:
        self._take_effects(self.traced.effects)
        new_values = self._take_writes()
        before = self._place_inputs()
        self._add_unused()
        outputs, tree, objects = self._outputs()
        self._take_assigned(new_values)
        order = self._in_order()
        places = {node: place for place, node in enumerate(order)}
        moved = {i: places[node] for i, node in enumerate(before) if node in self.inputs}
        self._finish([new_values[node] for node in order if node in new_values])
        self._check_assumed(names)
        self._take_outside(any(node in new_values for node in order))
        inputs = tuple(dataclasses.replace(self.inputs[n], name=n.name, mutated=n in new_values) for n in order)
        state = {self.inputs[n].target: self._held(n, n in new_values) for n in order if self.inputs[n].leaf is None}
        name = re.sub(r"\W+", "_", getattr(self.example.fn, "__name__", type(self.example.fn).__name__)).strip("_")
        return Program(
            name or "program", self.graph, self.captured.shape_env, inputs, tuple(moved_output(one, moved) for one in outputs),
            state, self._form(tree, objects), names, tuple(dict.fromkeys((*notes, *self.said))),
        )  # fmt: skip

    # ---- what the call changes
    def _take_effects(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            buffer = self._assigned_buffer(effect)
            if buffer is None and self._is_no_change(effect):
                continue
            if effect in self.left:
                self.said.append(told(effect, self.traced))
                continue
            if buffer is None and isinstance(effect, CallEffect) and effect.tells and not _shows_values(effect):
                self.said.append(f"`{_called(effect)}` is not called")
                continue
            if buffer is None:
                raise changes(effect, self.traced)
            self.assigned[buffer] = self.traced.outputs[id(effect.value)]  # type: ignore[union-attr]

    def _is_no_change(self, effect: Effect) -> bool:
        """Whether it stores what is there already: something was set and set back, or written in place and stored."""
        if isinstance(effect, (Extend, ReplaceContents)):
            return _adds_nothing(effect)
        if not isinstance(effect, SetItem):
            return False
        before = effect.obj.get(effect.key, effect)
        reals = (one.example for one in self.captured.inputs if one.fake is effect.value)
        return before is effect.value or any(before is real for real in reals)

    def _assigned_buffer(self, effect: Effect) -> str | None:
        """The buffer that the effect gives another tensor, if that is what it does."""
        if not isinstance(effect, SetItem) or id(effect.value) not in self.traced.outputs:
            return None
        for prefix, module in _modules(self.example.fn):
            if module._buffers is effect.obj and isinstance(module._buffers.get(effect.key), torch.Tensor):
                return f"{prefix}.{effect.key}" if prefix else str(effect.key)
        return None

    def _take_writes(self) -> dict[fx.Node, fx.Node]:
        """The new value of each placeholder that the graph writes; the writes are gone."""
        found: dict[fx.Node, fx.Node] = {}
        for node in list(self.graph.find_nodes(op="call_function", target=_aten.copy_.default)):
            target: Any = node.args[0]
            found[target] = node.args[1]
            node.replace_all_uses_with(target)
            self.graph.erase_node(node)
        return found

    def _take_assigned(self, new_values: dict[fx.Node, fx.Node]) -> None:
        homes = {one.target: node for node, one in self.inputs.items()}
        tensors = {name: tensor for name, (_, tensor) in self.owned.items()}
        for name, position in self.assigned.items():
            value = self._value_of(position)
            old = homes.get(name) or self._new_buffer(name, tensors[name])
            found: FakeTensor | None = value.meta["val"] if value is not None else None
            fits = found is not None and list(found.size_) == list(tensors[name].shape) and found.dtype_ is tensors[name].dtype
            if value is None or not fits:
                raise ExportError(
                    f"the model gives its buffer `{name}` another kind of value", kind="effect",
                    why="it is a view of another tensor, or has another size or dtype than before",
                    do=f"write it in place: `{name}.copy_(...)`; or call the model once before, if only its first call does that",
                )  # fmt: skip
            new_values[old] = value

    def _value_of(self, position: int) -> fx.Node | None:
        output = self.joint.plan.outputs[position]
        value = self.results[output.position] if isinstance(output, FromResult) else None
        return value if isinstance(value, fx.Node) else None

    def _new_buffer(self, name: str, tensor: torch.Tensor) -> fx.Node:
        mode = self._mode()
        return self._placeholder(Input("", BUFFER, name), mode.from_real(tensor.detach()), tensor)

    def _mode(self) -> Any:
        from pliant.graph.fake_mode import FakeMode

        nodes = (n.meta.get("val") for n in self.graph.nodes)
        found = next((value.fake_mode for value in nodes if isinstance(value, FakeTensor)), None)
        return found or FakeMode(self.captured.shape_env, allow_unbacked=True)

    # ---- inputs
    def _place_inputs(self) -> list[fx.Node]:
        """What each placeholder is; in the order that the plan of outputs counts by."""
        primals = list(self.joint.primals)
        given = [*((one.kind, one.example, one.source.describe(), one.source) for one in self.captured.inputs),
                 *(("tensor", tensor, "constant", None) for tensor in self.joint.constants)]  # fmt: skip
        for node, (kind, example, text, source) in zip(primals, given, strict=True):
            if kind != "tensor" or isinstance(source, DrawSource):
                if node.users and isinstance(source, DrawSource):
                    raise _draws()
                if node.users:
                    raise ExportError(f"the number `{text}` varies", kind="number", why="numbers of a call are constants")
                self.graph.erase_node(node)
                continue
            self.tensors[node], self.inputs[node] = example, self._input(example, text)
        return primals

    def _input(self, example: torch.Tensor, text: str) -> Input:
        place = self.known.get(id(example))
        if place is not None:
            return Input("", USER, self._path(place), place)
        if id(example) in self.homes:
            kind, name = self.homes[id(example)]
            return Input("", kind, name)
        target = base = re.sub(r"\W+", "_", text).strip("_") or "constant"
        taken = {one.target for one in self.inputs.values()} | set(self.owned)
        number = 0
        while target in taken:
            number += 1
            target = f"{base}_{number}"
        return Input("", CONSTANT, target)

    def _path(self, place: int) -> str:
        leaf = self.example.leaves[place]
        found = self._paths.get(id(leaf), [])
        earlier = sum(one is leaf for one in self.example.leaves[:place]) if len(found) > 1 else 0
        return found[earlier] if earlier < len(found) else f"argument {place}"

    @cached_property
    def _paths(self) -> dict[int, list[str]]:
        """By id of a leaf how its places among the arguments are reached, in order."""
        found: dict[int, list[str]] = {}
        for name, value in self.example.arguments.items():
            for path, one in leaves_of(value):
                found.setdefault(id(one), []).append(name + path)
        return found

    def _add_unused(self) -> None:
        """Arguments that the graph does not read are placeholders too: their sizes are checked, and tell symbols."""
        used = {one.leaf for one in self.inputs.values()}
        for place, leaf in enumerate(self.example.leaves):
            if isinstance(leaf, torch.Tensor) and place not in used:
                env = self.captured.shape_env
                if self.sizes.env is not env:
                    self.sizes.start(env)
                sizes = [env.wrap(env.simplify(self.sizes.exprs[id(leaf), d])) if (id(leaf), d) in self.sizes.exprs else n
                         for d, n in enumerate(leaf.shape)]  # fmt: skip
                fake = self._mode().from_real(leaf, sizes=sizes, strides=_row_major(sizes))
                self._placeholder(Input("", USER, self._path(place), place), fake, leaf)

    def _placeholder(self, one: Input, fake: FakeTensor, tensor: torch.Tensor) -> fx.Node:
        with self.graph.inserting_before(next(iter(self.graph.nodes))):
            node = self.graph.placeholder("unused")
        node.meta.update(val=fake, stage="forward")
        self.inputs[node], self.tensors[node] = one, tensor
        return node

    def _in_order(self) -> list[fx.Node]:
        """The placeholders, moved to the front and named."""
        order = sorted(self.inputs, key=lambda n: (_KINDS.index(self.inputs[n].kind), self.inputs[n].leaf or 0))
        first = next((n for n in self.graph.nodes if n.op != "placeholder"), None)
        assert first is not None  # the output
        for node in order:
            first.prepend(node)
        taken: set[str] = {n.name for n in self.graph.nodes if n.op != "placeholder"}
        for node in order:
            one = self.inputs[node]
            base = name = _PREFIX[one.kind] + re.sub(r"\W+", "_", one.target).strip("_")
            number = 0
            while name in taken or not name.isidentifier() or name in _RESERVED:
                number += 1
                name = f"{base}_{number}" if base.isidentifier() else f"x_{number}"
            taken.add(name)
            node.name = node.target = name
        return order

    def _held(self, node: fx.Node, mutated: bool) -> torch.Tensor:
        """The model's own tensor; of what calls change a copy, so that the model does not."""
        tensor = self.tensors[node].detach()
        return tensor.clone() if mutated else tensor

    # ---- outputs
    def _outputs(self) -> tuple[list[Output], pytree.TreeSpec, tuple[type, ...]]:
        assert isinstance(self.traced.end, Return)
        leaves, tree, objects = flattened(self.traced.end.value, self.traced.origins)
        first: dict[int, int] = {}  # by its place among the captured graph's outputs, that of the first leaf that it is
        places = [first.setdefault(self._captured_place(leaf), i) for i, leaf in enumerate(leaves)]
        made = [self._output(leaf) for leaf in leaves]
        same = [place < i and isinstance(made[i], ViewOf) for i, place in enumerate(places)]
        return [SameAs(place) if again else one for place, again, one in zip(places, same, made)], tree, objects

    def _captured_place(self, leaf: Any) -> int:
        """Negative of what is none of its outputs."""
        place = self.traced.outputs.get(id(leaf))
        if place is None:
            return -1 - id(leaf)
        output = self.joint.plan.outputs[place]
        return output.output if isinstance(output, SameAs) else place

    def _output(self, leaf: Any) -> Output:
        position = self.traced.outputs.get(id(leaf))
        if position is not None:
            return self._standing_alone(self.joint.plan.outputs[position])
        if isinstance(leaf, FakeTensor):
            for i, one in enumerate(self.captured.inputs):
                if one.fake is leaf:
                    return FromInput(i)
        if isinstance(leaf, _NUMBERS):
            self.results.append(leaf)
            return FromResult(len(self.results) - 1)
        if is_constant(leaf):
            return Literal(leaf)
        name = plain_class(leaf).__qualname__
        raise ExportError(
            f"the model returns a {name}", kind="result",
            why="results are tensors, numbers and constants in tuples, lists, dictionaries, objects with attributes alone, and "
            "classes that are registered with torch.utils._pytree",
            do=f"return its tensors, or register the class: torch.utils._pytree.register_pytree_node({name}, "
            "to_parts_and_context, from_parts_and_context, serialized_type_name=...)",
        )  # fmt: skip

    def _standing_alone(self, output: Output) -> Output:
        """The output, not told by its place among the captured graph's: the result's leaves are in another order."""
        if isinstance(output, SameAs):
            return self._standing_alone(self.joint.plan.outputs[output.output])
        if isinstance(output, ViewOf) and isinstance(output.source, SameAs):
            source = self._standing_alone(self.joint.plan.outputs[output.source.output])
            if isinstance(source, ViewOf):
                return ViewOf(source.source, (*source.steps, *output.steps), output.leaf)
            assert isinstance(source, (FromInput, FromResult))
            return ViewOf(source, output.steps, output.leaf)
        return output

    # ---- the end
    def _finish(self, new_values: list[fx.Node]) -> None:
        output = next(iter(self.graph.find_nodes(op="output")))
        output.args = ((*self.results, *new_values),)
        cse(self.graph)
        dce(self.graph)
        separate(self.graph, range(len(self.results)))
        for node in self.graph.nodes:
            origin = node.meta.pop("origin", None)
            where = origin.meta.get("origin") if isinstance(origin, fx.Node) else None
            node.meta = {k: v for k, v in node.meta.items() if k in ("val", "stage", "binds")}
            node.meta["stage"] = "forward"
            if isinstance(where, SourceLocation):
                node.meta["where"] = where
        tell_lengths(self.graph)
        nest(self.graph, self.captured.shape_env)

    def _take_outside(self, writes: bool) -> None:
        """Leave out what concerns others than the program: random numbers that it does not use, a lock around what only
        reads what the program has of its own."""
        if self.traced.draws:
            if any(one.method in _STATES for one in self.traced.draws) or self._uses_drawn():
                raise _draws()
            self.said.append("random numbers of Python's or NumPy's generators that nothing uses are not drawn")
        if self.traced.lock is not None:
            if writes:
                raise _uses("a lock")
            self.said.append("a lock that the model holds meanwhile is not taken: the program writes nothing")
        if self.traced.told:
            raise _uses("requires_grad_() of its arguments")

    def _uses_drawn(self) -> bool:
        """Whether a number that was drawn is in the graph, or in what it asks of sizes."""
        env = self.captured.shape_env
        drawn = {symbol for symbol, (source, *_) in env.sources.items() if isinstance(source, DrawSource)}
        found = set[Symbol]().union(*(guard.expr.free for guard in env.final_guards()))
        for value in pytree.tree_leaves([(n.args, n.kwargs, n.meta.get("val")) for n in self.graph.nodes]):
            numbers = value.size_ + value.stride_ if isinstance(value, FakeTensor) else (value,)
            found.update(*(env.expr_of(one).free for one in numbers if isinstance(one, _NUMBERS)))
        return not drawn.isdisjoint(found)

    def _check_assumed(self, names: Mapping[Symbol, str]) -> None:
        """A program has no eager function to run where what it took for granted does not hold: that is an error of the call."""
        env = self.captured.shape_env
        for node in self.graph.find_nodes(op="call_function", target=assume):
            condition, _, where = cast(tuple[Any, ...], node.args)
            fact = unlearnt(condition) if isinstance(condition, torch.SymBool) else env.expr_of(condition)
            for one in divisors_of(fact):
                if any(map(env.is_unbacked, one.free)):  # what it divides by is known when it runs
                    with self.graph.inserting_before(node):
                        args = _checked(env.as_written(one.ne(0)), one.ne(0), names, where)
                        append_node(self.graph, "call_function", check, args, {}, "check").meta.update(node.meta)
            node.target, node.args = check, _checked(condition, fact, names, where)

    def _form(self, tree: pytree.TreeSpec, objects: tuple[type, ...]) -> CallForm:
        constants = {i: leaf for i, leaf in enumerate(self.example.leaves) if not isinstance(leaf, torch.Tensor)}
        args, _ = self.example.call
        names = tuple(self.example.arguments)[: len(args)]
        return CallForm(self.example.tree, tree, names, constants, objects, self.example.one(), self._apart())

    def _apart(self) -> tuple[tuple[int, int], ...]:
        """The arguments that the model found to be two tensors."""
        pairs = ((self.known.get(a), self.known.get(b)) for a, b in self.sizes.apart)
        return tuple(sorted({(min(a, b), max(a, b)) for a, b in pairs if a is not None and b is not None}))


def _checked(condition: Any, fact: Expr, names: Mapping[Symbol, str], where: object) -> tuple[Any, ...]:
    """The arguments of a check that a fact holds."""
    return condition, "RuntimeError", f"the program holds only where {to_python(fact, names)}\n  {where}".rstrip()


def _adds_nothing(effect: Extend | ReplaceContents) -> bool:
    """Of constants to a set that has them, such as a buffer's name among those that are not saved."""
    added = effect.values if isinstance(effect, Extend) else effect.contents
    if type(effect.obj) is not set or not all(map(is_constant, added)):
        return False
    return effect.obj.issuperset(added) if isinstance(effect, Extend) else effect.obj == added


_RESERVED = frozenset(("aten", "torch", "math", "forward"))


def _row_major(sizes: Sequence[Any]) -> tuple[Any, ...]:
    from pliant.graph.tensor_spec import row_major_strides

    return row_major_strides(sizes)


def _modules(fn: Any) -> Iterator[tuple[str, torch.nn.Module]]:
    return iter(fn.named_modules()) if isinstance(fn, torch.nn.Module) else iter(())


def _state_of(fn: Callable[..., Any]) -> Iterator[tuple[str, tuple[str, torch.Tensor]]]:
    """Parameters and buffers by name: kind and tensor."""
    if isinstance(fn, torch.nn.Module):
        for name, parameter in fn.named_parameters():
            yield name, (PARAMETER, parameter)
        for name, buffer in fn.named_buffers():
            yield name, (BUFFER, buffer)


def _shows_values(effect: CallEffect) -> bool:
    """Whether the message tells what tensors hold. Sizes are told by the call. The place that it is called from is no part of it."""
    shown = effect.args[3:] if effect.function is called_from else effect.args
    return any(map(_is_value, pytree.tree_leaves((shown, effect.kwargs))))


def _is_value(shown: Any) -> bool:
    if isinstance(shown, Text):
        return any(_is_value(part.number) for part in shown.parts)
    return isinstance(shown, FakeTensor) or is_unbacked(shown)


def _called(effect: CallEffect) -> str:
    """What is called, by its name; of what is called from the program's place, that."""
    function = effect.args[2] if effect.function is called_from else effect.function
    return getattr(function, "__qualname__", str(function))


def changes(effect: Effect, traced: Trace) -> ExportError:
    """The error of a model that does more than compute tensors."""
    return ExportError(_told(effect, traced), kind="effect", why="the exported program computes tensors alone", do=_FIRST)


def _uses(what: str) -> ExportError:
    return ExportError(f"the model uses {what}", kind="effect", why="a graph of tensors has none", do=_FIRST)


def _draws() -> ExportError:
    return ExportError(
        "the model uses random numbers of Python's or NumPy's generators", kind="effect", why="a graph of tensors has none",
        do=f"draw them by PyTorch, as with torch.rand(()); or {_FIRST}",
    )  # fmt: skip


_FIRST = "call the model once before it is exported, if only its first call does that; or change it, or export a part of it"


def _told(effect: Effect, traced: Trace) -> str:
    """What the model would do beside computing tensors."""
    if isinstance(effect, CallEffect):
        return f"the model calls `{_called(effect)}` for its effect"
    obj = getattr(effect, "obj", None)
    origin = traced.origins.get(id(obj))
    what = origin[1].describe() if origin is not None else type(obj).__qualname__
    name = getattr(effect, "name", None) or getattr(effect, "key", None)
    return f"the model changes `{what}`" + (f" (`{name}`)" if name is not None else "")


def moved_output(output: Output, places: Mapping[int, int]) -> Output:
    """The output by the places of inputs in the finished graph."""
    match output:
        case FromInput(position):
            return FromInput(places[position])
        case ViewOf(FromInput(position), steps, leaf):
            return ViewOf(FromInput(places[position]), tuple(_recorded_nowhere(s) for s in steps), leaf)
        case ViewOf(source, steps, leaf):
            return ViewOf(source, tuple(_recorded_nowhere(s) for s in steps), leaf)
    return output


def _recorded_nowhere(step: ViewStep) -> ViewStep:
    return dataclasses.replace(step, grad_enabled=False)
