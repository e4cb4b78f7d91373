"""Branches and loops on tensors' values as one operator of the graph: `pliant_control::run`.

In:     graph modules of the bodies; flat values: tensors and integers.
Out:    modules of the captured graph. On fakes their call records the operator, on real tensors it runs the bodies,
        each compiled as a function of its own where `compile_bodies` said how.
Holds:  what an operator returns shares no memory with what it is given. Gradients are a program of the same kind, which
        runs the bodies again with the random numbers they drew, so they can be differentiated to any order, or its own.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import fx

from pliant import background, torch_adapter
from pliant.graph.contracts import name_of_target
from pliant.graph.control_bodies import Body, Compile, content_of
from pliant.graph.generator_states import CPU_BYTES, GPU_BYTES, gpus_of, random_bytes, set_random_bytes
from pliant.graph.map_rules.kernels import where_sizes_vary
from pliant.graph.passes.purity import is_random

if TYPE_CHECKING:
    from pliant.graph.body_graph import BodyGraph

Values = Sequence[Any]
Tensors = tuple[torch.Tensor, ...]

class Program:
    """What the operator runs. `compute(values)` may be differentiated; `described(fakes)` is fakes of its results.

    `FIELDS`: what, beside its bodies, says all of it, where it is of a kind that files may hold.
    """

    FIELDS: tuple[str, ...] = ()
    keeps = False  # its last result stands for what its derivative needs of the forward

    def __init__(self, *bodies: fx.GraphModule) -> None:
        self._take(bodies)

    def _take(self, bodies: Sequence[fx.GraphModule | BodyGraph | Body], random: bool | None = None) -> None:
        self.number = next(_numbers)
        self.bodies = [one if isinstance(one, Body) else Body(one) for one in bodies]
        self.random = any(_draws(body.module) for body in self.bodies) if random is None else random
        self.gradients: dict[Any, Program] = {}
        _programs[self.number] = self

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any], bodies: Callable[[Any], Sequence[BodyGraph]]) -> Any:
        """The program of this kind with these `FIELDS`. `bodies`: made of the program, which has none yet."""
        made = cls.__new__(cls)
        vars(made).update(fields)
        made._take(bodies(made))
        return made

    @classmethod
    def of_text(cls, random: bool, values: Sequence[Any], bodies: Sequence[Body]) -> Program:
        """The program of this kind with such values of its `FIELDS`, whose bodies are text."""
        made = cls.__new__(cls)
        vars(made).update(zip(cls.FIELDS, values, strict=True))
        made._take(bodies, random)
        return made

    @property
    def operator(self) -> Any:
        """What runs it, of its number, tensors, numbers and places."""
        return (operators().run_random if self.random or self.keeps else operators().run).default

    @property
    def content(self) -> str | None:
        """All that it does, where that is known."""
        bodies = [None if one.text is None else content_of(one.text[0]) for one in self.bodies]
        fields = [getattr(self, name) for name in self.FIELDS]
        known = None not in bodies and not any(isinstance(one, Program) for one in fields)
        return repr([type(self).__name__, fields, bodies]) if known else None

    @property
    def has_name(self) -> bool:
        """Whether its number is the same in every process."""
        return self.number >= _OF_CONTENT

    def first_given(self, values: Values) -> list[Values]:
        """What each body takes, at its first step."""
        return []

    def compute(self, values: Values) -> Tensors:
        raise NotImplementedError

    def described(self, values: Values) -> Tensors:
        raise NotImplementedError

    def mapped(self, values: Values, in_dims: Sequence[int | None]) -> Values:
        """Its results below `vmap`."""
        return self.compute(values)

    def derivative(self, wanted: tuple[int, ...], given: tuple[int, ...], again: bool) -> Program:
        """Gradients of the values `wanted`, of those of the results `given`. `again`: which may be differentiated."""
        return Gradient(self, wanted, given)


_numbers = itertools.count()
_programs: dict[int, Program] = {}
_contents: dict[int, str] = {}
_OF_CONTENT = 1 << 62  # numbers that count programs stay below


def name_by_content(program: Program, content: str) -> None:
    """Give the program a number that is the same in every process. `content`: all that it does, as text."""
    digest = hashlib.sha256(content.encode()).hexdigest()
    number = _OF_CONTENT | int(digest[:15], 16)
    if _contents.setdefault(number, digest) != digest:
        raise ValueError("two programs have one number")
    _programs.pop(program.number, None)
    program.number = number
    _programs[number] = program


class Branch(Program):
    """values: a predicate, then those of both branches. `reads`: which of them each body takes."""

    FIELDS = ("reads",)

    def __init__(self, bodies: tuple[fx.GraphModule, fx.GraphModule], reads: tuple[list[int], list[int]]) -> None:
        super().__init__(*bodies)
        self.reads = reads

    def compute(self, values: Values) -> Tensors:
        return self._branch(0 if values[0] else 1, values[1:])

    def described(self, values: Values) -> Tensors:
        return self._branch(0, values[1:])

    def first_given(self, values: Values) -> list[Values]:
        return [[values[1 + i] for i in reads] for reads in self.reads]

    def mapped(self, values: Values, in_dims: Sequence[int | None]) -> Values:
        """Where the predicate may hold for some and not for others: both branches, as eager has it."""
        if in_dims[0] is None:
            return self.compute(values)
        one, other = (self._branch(which, values[1:]) for which in (0, 1))
        return tuple(torch.where(values[0], a, b) for a, b in zip(one, other, strict=True))

    def _branch(self, which: int, values: Values) -> Tensors:
        return tuple(self.bodies[which](*[values[i] for i in self.reads[which]]))


class While(Program):
    """values: `count` carried ones, then those that the condition and the body close over."""

    FIELDS = ("count", "reads")

    def __init__(
        self, condition: fx.GraphModule, body: fx.GraphModule, count: int, reads: tuple[list[int], list[int]]
    ) -> None:
        super().__init__(condition, body)
        self.count, self.reads = count, reads

    def compute(self, values: Values) -> Tensors:
        carried = tuple(values[: self.count])
        for_condition, for_body = self._closed(values)
        condition, body = self.bodies

        def goes_on() -> bool:
            with torch.no_grad():
                return bool(condition(*carried, *for_condition)[0])

        while goes_on():
            carried = tuple(body(*carried, *for_body))
        return carried

    def _closed(self, values: Values) -> list[Values]:
        return [[values[self.count + i] for i in reads] for reads in self.reads]

    def first_given(self, values: Values) -> list[Values]:
        return [[*values[: self.count], *closed] for closed in self._closed(values)]

    def described(self, values: Values) -> Tensors:
        return tuple(torch.empty_like(v) for v in values[: self.count])


class Scan(Program):
    """values: the carried ones, the scanned ones, then what the body closes over: (carried..., stacked results...)"""

    FIELDS = ("n_carried", "n_scanned", "dim", "reverse")

    def __init__(
        self, body: fx.GraphModule, n_carried: int, n_scanned: int, dim: int = 0, reverse: bool = False
    ) -> None:
        super().__init__(body)
        self.n_carried, self.n_scanned = n_carried, n_scanned
        self.dim, self.reverse = dim, reverse

    @property
    def body(self) -> Body:
        return self.bodies[0]

    def parts(self, values: Values) -> tuple[Values, Values, Values]:
        first, second = self.n_carried, self.n_carried + self.n_scanned
        return values[:first], values[first:second], values[second:]

    def compute(self, values: Values) -> Tensors:
        carried, scanned, closed = self.parts(values)
        made, slices = [], self.slices(scanned)
        for step in self.steps(len(slices)):
            results = self.body(*carried, *slices[step], *closed)
            carried = results[: self.n_carried]
            made.append(results[self.n_carried :])
        if self.reverse:
            made.reverse()
        return (*carried, *[torch.stack(column) for column in zip(*made, strict=True)])

    def slices(self, scanned: Values) -> list[Values]:
        """What each step gets. Slices lie as results of steps do, so that one compiled body serves all steps; the derivative
        of all slices is one call."""
        return list(zip(*[x.movedim(self.dim, 0).contiguous().unbind() for x in scanned], strict=True))

    def steps(self, length: int) -> Sequence[int]:
        return range(length - 1, -1, -1) if self.reverse else range(length)

    def first_slices(self, scanned: Values) -> list[Any]:
        """Fakes that lie as slices do."""
        return [x.new_empty([n for d, n in enumerate(x.shape) if d != self.dim]) for x in scanned]

    def first_given(self, values: Values) -> list[Values]:
        carried, scanned, closed = self.parts(values)
        return [[*carried, *self.first_slices(scanned), *closed]]

    def described(self, values: Values) -> Tensors:
        _, scanned, _ = self.parts(values)
        results = self.body(*self.first_given(values)[0])
        length = scanned[0].shape[self.dim]
        stacked = [r.new_empty((length, *r.shape)) for r in results[self.n_carried :]]
        return (*[torch.empty_like(c) for c in results[: self.n_carried]], *stacked)


class AssociativeScan(Scan):
    """values: the scanned ones, then what the body closes over; the body combines the result so far with a slice."""

    def compute(self, values: Values) -> Tensors:
        _, scanned, closed = self.parts(values)
        so_far: Values = ()
        made: list[Values] = []
        slices = self.slices(scanned)
        for step in self.steps(len(slices)):
            so_far = self.body(*so_far, *slices[step], *closed) if made else slices[step]
            made.append(so_far)
        if self.reverse:
            made.reverse()
        return tuple(torch.stack(column, self.dim) for column in zip(*made, strict=True))

    def first_given(self, values: Values) -> list[Values]:
        _, scanned, closed = self.parts(values)
        return [[*self.first_slices(scanned), *self.first_slices(scanned), *closed]]

    def described(self, values: Values) -> Tensors:
        return tuple(x.new_empty(x.shape) for x in self.parts(values)[1])


@contextmanager
def _random_state(state: torch.Tensor | None, gpus: Sequence[int]) -> Iterator[None]:
    """The generators' states within; None leaves them alone."""
    if state is None:
        yield
        return
    before = random_bytes(gpus)
    set_random_bytes(state, gpus)
    try:
        yield
    finally:
        set_random_bytes(before, gpus)


class _Mapped(Program):
    """`vmap` of a program."""

    FIELDS = ("program", "in_dims", "randomness")

    def __init__(self, program: Program, in_dims: tuple[int | None, ...], randomness: str) -> None:
        super().__init__()
        self.program, self.in_dims, self.randomness = program, in_dims, randomness
        self.random = program.random

    def compute(self, values: Values) -> Tensors:
        def one(*given: Any) -> Tensors:
            return tuple(self.program.mapped(given, self.in_dims))

        with where_sizes_vary(values):
            return tuple(torch.vmap(one, self.in_dims, randomness=self.randomness)(*values))

    def described(self, values: Values) -> Tensors:
        pairs = list(zip(values, self.in_dims, strict=True))
        results = self.program.described([v if dim is None else v.select(dim, 0) for v, dim in pairs])
        count = next(v.shape[dim] for v, dim in pairs if dim is not None)
        return tuple(r.new_empty((count, *r.shape)) for r in results)


class Gradient(Program):
    """values: those of `program`, a random state if it draws numbers, gradients of the results `given`: gradients."""

    FIELDS = ("program", "wanted", "given")

    def __init__(self, program: Program, wanted: tuple[int, ...], given: tuple[int, ...]) -> None:
        super().__init__()
        self.program, self.wanted, self.given = program, wanted, given

    def compute(self, values: Values) -> Tensors:
        again, count = torch.is_grad_enabled(), len(values) - len(self.given)
        inputs, tangents = list(values[:count]), values[count:]
        state = inputs.pop() if self.program.random else None
        with torch_adapter.recording(), _random_state(state, gpus_of(inputs)):
            for place in self.wanted:
                one = inputs[place]
                inputs[place] = one.view_as(one) if again and one.requires_grad else one.detach().requires_grad_()
            results = self.program.compute(inputs)
            roots = [(results[i], g) for i, g in zip(self.given, tangents, strict=True) if results[i].requires_grad]
            chosen = [inputs[place] for place in self.wanted]
            found: Sequence[Any] = [None] * len(chosen)
            if roots:
                outputs, weights = zip(*roots, strict=True)
                found = torch_adapter.gradients(
                    list(outputs), chosen, list(weights), retain_graph=again, create_graph=again
                )
        return tuple(torch.zeros_like(v) if g is None else g for v, g in zip(chosen, found, strict=True))

    def described(self, values: Values) -> Tensors:
        return tuple(torch.empty_like(values[place]) for place in self.wanted)


# ---- the operator
def _run(number: int, tensors: Sequence[torch.Tensor], numbers: Sequence[int], places: Sequence[int]) -> list[Any]:
    """On real tensors. `places`: for each value the position of its tensor, or -1 - that of its number."""
    program = _programs[number]
    state = [random_bytes(gpus_of(tensors))] if program.random else []
    results = program.compute([tensors[p] if p >= 0 else numbers[-1 - p] for p in places])
    seen = {t.untyped_storage().data_ptr() for t in tensors}
    return [_apart(result, seen) for result in results] + state


def _apart(result: torch.Tensor, seen: set[int]) -> torch.Tensor:
    """A result in memory of its own; the engine's zeros have none."""
    if result._is_zerotensor():
        return torch.zeros_like(result)
    result = result.resolve_conj().resolve_neg()
    pointer = result.untyped_storage().data_ptr()
    if pointer in seen:
        return result.clone()
    seen.add(pointer)
    return result


def _described(number: int, tensors: Sequence[Any], numbers: Sequence[Any], places: Sequence[int]) -> list[Any]:
    program = _programs[number]
    results = program.described([tensors[p] if p >= 0 else numbers[-1 - p] for p in places])
    bytes_of_state = CPU_BYTES + GPU_BYTES * len(gpus_of(tensors))
    state = [torch.empty(bytes_of_state, dtype=torch.uint8)] if program.random else []
    given = {id(t) for t in tensors}
    return [torch.empty_like(r) if id(r) in given else r for r in results] + state


_SCHEMA = "(int program, Tensor[] tensors, SymInt[] numbers, int[] places) -> Tensor[]"


def operators() -> Any:
    """The operators, defined at first use: describing one resolves the files of all modules that are loaded."""
    with _defining:
        return _defined()


_defining = background.lock()


@functools.cache
def _defined() -> Any:
    library: Any = torch.library.Library("pliant_control", "DEF")  # type: ignore[no-untyped-call]
    _libraries.append(library)
    library.define("run" + _SCHEMA)
    library.define("run_random" + _SCHEMA, tags=(torch.Tag.nondeterministic_seeded,))
    for name in ("run", "run_random"):
        library.impl(name, _run, "CompositeExplicitAutograd")
        torch.library.register_fake(f"pliant_control::{name}", _described, lib=library)
    return torch.ops.pliant_control


_libraries: list[Any] = []  # live as long as the process


def _call(program: Program, values: Values) -> list[Any]:
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    numbers = [v for v in values if not isinstance(v, torch.Tensor)]
    position = {id(v): i for i, v in enumerate(tensors)}
    count = itertools.count()
    places = [position[id(v)] if isinstance(v, torch.Tensor) else -1 - next(count) for v in values]
    return list(program.operator(program.number, tensors, numbers, places))


class _Apply(torch.autograd.Function):
    """The operator as one function of autograd, which transforms can take."""

    @staticmethod
    def forward(program: Program, *values: Any) -> tuple[Any, ...]:
        return tuple(_call(program, values))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        ctx.program, *values = inputs
        ctx.last = output[-1] if ctx.program.random or ctx.program.keeps else None
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[r for r in output if not (r.is_floating_point() or r.is_complex())])
        ctx.save_for_backward(*[v if isinstance(v, torch.Tensor) else None for v in values])
        ctx.numbers = [None if isinstance(v, torch.Tensor) else v for v in values]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        values = [s if s is not None else n for s, n in zip(ctx.saved_tensors, ctx.numbers, strict=True)]
        wanted = tuple(i for i, needs in enumerate(ctx.needs_input_grad[1:]) if needs)
        given = tuple(i for i, g in enumerate(gradients) if g is not None)
        program, again = ctx.program, torch.is_grad_enabled()
        gradient = program.gradients.get((wanted, given, again))
        if gradient is None:
            gradient = program.gradients[wanted, given, again] = program.derivative(wanted, given, again)
        last = [] if ctx.last is None or program.keeps and again else [ctx.last]
        found = iter(_Apply.apply(gradient, *values, *last, *[gradients[i] for i in given]))  # type: ignore[no-untyped-call]
        return (None, *[next(found) if i in wanted else None for i in range(len(values))])

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], program: Program, *values: Any) -> tuple[Any, Any]:
        key = (in_dims[1:], info.randomness)
        mapped = program.gradients.get(key)
        if mapped is None:
            mapped = program.gradients[key] = _Mapped(program, *key)
        results = _Apply.apply(mapped, *values)  # type: ignore[no-untyped-call]
        return results, tuple(None if program.random and r is results[-1] else 0 for r in results)


def run(program: Program, values: Values) -> tuple[Any, ...]:
    """The results of a program: on fakes the operator that gives them."""
    results = _Apply.apply(program, *values)  # type: ignore[no-untyped-call]
    return tuple(results[:-1] if program.random or program.keeps else results)


class ControlFlow(torch.nn.Module):
    """A program as a module of the captured graph, its bodies as submodules. Returns the tuple of its tensors."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        for number, body in enumerate(program.bodies):
            self.add_module(f"body_{number}", cast(fx.GraphModule, body.module))

    @property
    def content(self) -> str | None:
        """All that it does, where that is known."""
        return self.program.content

    def forward(self, *values: Any) -> tuple[Any, ...]:
        return run(self.program, values)


def program_of(node: fx.Node) -> Program | None:
    """What a node of an ATen graph runs, if it is the operator."""
    if getattr(node.target, "namespace", None) != "pliant_control":
        return None
    number: Any = node.args[0]
    return program_numbered(number)


def program_numbered(number: int) -> Program:
    """The program that the operator's first argument names."""
    return _programs[number]


def compile_bodies(module: fx.GraphModule, way: Compile) -> None:
    """Have the bodies of control flow in a captured graph compiled, when they first run."""
    for one in module.modules():
        if isinstance(one, ControlFlow):
            for body in one.program.bodies:
                body.compile(way)


def _draws(body: Any) -> bool:
    """Whether a body may draw random numbers: it holds a call that some operators of its name do."""
    return any(_is_random_call(node) for node in body.graph.nodes if node.op not in ("placeholder", "output"))


def _is_random_call(node: fx.Node) -> bool:
    if node.op == "call_module":
        return True  # not looked into: to keep the state of the generator is right for any
    if isinstance(node.target, torch_adapter.OpOverload):
        return is_random(node.target)
    name = name_of_target(node)
    if name.endswith(("dropout", "dropout_", "dropout1d", "dropout2d", "dropout3d", "attention", "rrelu")):
        return True
    packet = getattr(torch.ops.aten, name, None) if name.isidentifier() and not name.startswith("__") else None
    return packet is not None and any(is_random(getattr(packet, one)) for one in packet.overloads())
