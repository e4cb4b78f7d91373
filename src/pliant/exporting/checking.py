"""The check of a call's arguments, as generated Python, and what is said where it fails.

In:     a `Program`, the tensors and other leaves of a call.
Out:    the tensors laid out as the program wants them, or a `ConstraintError` with everything that is wrong.
Holds:  each symbol is read where an input has it as its size; every other size, every range and every fact that the
        program was exported under is checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from pliant.errors import ConstraintError
from pliant.exporting.program import Input, Program
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.tensor_spec import TensorSpec, keys_of
from pliant.guards.facts import separate
from pliant.symbolic.expr import Constant, Expr, FloorDiv, Mod, Select, Symbol, lit
from pliant.symbolic.facts import Facts
from pliant.symbolic.printer import to_python
from pliant.symbolic.shape_env import ShapeEnv
from pliant.symbolic.traverse import evaluate, rebuild, substitute

_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter, torch.nn.Buffer))
_STORAGE = (torch.ops.aten.as_strided.default, torch.ops.aten.as_strided_copy.default)


class Checks:
    """The check of one program."""

    def __init__(self, program: Program) -> None:
        nodes = program.placeholders
        self.program = program
        self.inputs = [(one, nodes[i].meta["val"]) for i, one in program.user_inputs()]
        self.homes = homes_of([fake.spec for _, fake in self.inputs])
        self.facts = facts_of(program.shape_env)
        self.constants = dict(program.form.constants)
        places = {one.leaf: place for place, (one, _) in enumerate(self.inputs)}
        self.one = [tuple(places[leaf] for leaf in group) for group in program.form.one]
        self.apart = [tuple(places[leaf] for leaf in pair) for pair in program.form.apart]
        self.at_start = any(node.target in _STORAGE for node in program.graph.nodes)
        self._prepare = self._generated()

    def prepared(self, given: Sequence[Any], leaves: Sequence[Any]) -> list[torch.Tensor]:
        """The tensors to run on."""
        if all(_same(leaves[i], value) for i, value in self.constants.items()):
            found = self._prepare(*given)
            if found is not None:
                return found
        raise self.error(given, leaves)

    # ---- the check
    def _generated(self) -> Callable[..., list[torch.Tensor] | None]:
        names = [f"t{i}" for i in range(len(self.inputs))]
        scope: dict[str, Any] = {"plain": _PLAIN, "strided": torch.strided, "laid_out": _laid_out, "math": math}
        body = list(self._lines(names, scope))
        text = "\n    ".join([f"def prepare({', '.join(names)}):", *body, f"return [{', '.join(names)}]"])
        exec(compile(text, "<the check of an exported program>", "exec"), scope)
        prepare: Callable[..., list[torch.Tensor] | None] = scope["prepare"]
        return prepare

    def _lines(self, names: list[str], scope: dict[str, Any]) -> Iterator[str]:
        for name, (_, fake) in zip(names, self.inputs, strict=True):
            scope[f"dtype_{name}"], scope[f"device_{name}"] = fake.dtype_, fake.device_
            conditions = [f"type({name}) in plain", f"{name}.dtype is dtype_{name}", f"{name}.device == device_{name}",
                          f"{name}.dim() == {len(fake.size_)}", f"{name}.layout is strided",
                          f"not {name}.is_conj()", f"not {name}.is_neg()"]  # fmt: skip
            yield f"if not ({' and '.join(conditions)}): return None"
        told = [f"{names[group[0]]} is {names[other]}" for group in self.one for other in group[1:]]
        told += [f"{names[a]} is not {names[b]}" for a, b in self.apart]
        if told:
            yield f"if not ({' and '.join(told)}): return None"
        yield from self._memory(names, scope)
        for symbol, (place, dim) in self.homes.items():
            yield f"{symbol} = {names[place]}.size({dim})"
        conditions = [to_python(fact) for fact in self.facts]
        for name, (_, fake) in zip(names, self.inputs, strict=True):
            sizes = [to_python(lit(size)) for size in keys_of(fake.size_)]
            if sizes:
                conditions.append(f"{name}.shape == ({', '.join(sizes)},)")
        if conditions:
            yield f"if not ({' and '.join(f'({one})' for one in conditions)}): return None"
        for name, (_, fake) in zip(names, self.inputs, strict=True):
            yield from self._layout(name, fake)

    def _memory(self, names: list[str], scope: dict[str, Any]) -> Iterator[str]:
        """The program reads no argument of which it writes the memory by another."""
        scope.update(separate=separate, none_held=frozenset())
        for mine, others in written_apart(self.program):
            yield f"if not separate(({names[mine]},), ({', '.join(names[place] for place in others)},), none_held): return None"

    def _layout(self, name: str, fake: FakeTensor) -> Iterator[str]:
        strides = [to_python(lit(stride)) for stride in keys_of(fake.stride_)]
        if not strides:
            return
        text = f"({', '.join(strides)},)"
        wrong = f"{name}.stride() != {text}"
        if self.at_start:
            wrong += f" or {name}.storage_offset()"
        yield f"if {wrong}: {name} = laid_out({name}, {text})"

    # ---- what is wrong
    def error(self, given: Sequence[Any], leaves: Sequence[Any]) -> ConstraintError:
        wrong = list(self._wrong(given, leaves))
        return ConstraintError(
            "the arguments are not what the program was exported for", kind="arguments", why="\n".join(wrong),
            do="pass such arguments, or export with other `dynamic_shapes`", doc="docs/export.md#calling",
        )  # fmt: skip

    def _wrong(self, given: Sequence[Any], leaves: Sequence[Any]) -> Iterator[str]:
        for place, value in self.constants.items():
            if not _same(leaves[place], value):
                now = "a tensor" if isinstance(leaves[place], torch.Tensor) else repr(leaves[place])
                yield f"argument {place} is {now}, and was {value!r} at export: such values are constants"
        wrong = [text for (one, fake), tensor in zip(self.inputs, given) for text in _misfits(one, fake, tensor)]
        wrong += [] if wrong else self._wrong_memory(given)
        yield from wrong
        if not wrong:
            yield from self._wrong_sizes(given)

    def _wrong_memory(self, given: Sequence[torch.Tensor]) -> Iterator[str]:
        names = [one.target for one, _ in self.inputs]
        for group in self.one:
            if any(given[group[0]] is not given[place] for place in group):
                yield f"{', '.join(names[place] for place in group)} were one tensor at export, which the model asks, and are several"
        for a, b in self.apart:
            if given[a] is given[b]:
                yield f"{names[a]} and {names[b]} were two tensors at export, which the model asks, and are one"
        for mine, others in written_apart(self.program):
            for place in others:
                if not separate((given[mine],), (given[place],), frozenset()):
                    yield f"{names[mine]}, which the program writes, shares memory with {names[place]}"

    def _wrong_sizes(self, given: Sequence[torch.Tensor]) -> Iterator[str]:
        values = {s: given[place].size(dim) for s, (place, dim) in self.homes.items()}
        names = self.program.names
        for (one, fake), tensor in zip(self.inputs, given, strict=True):
            for dim, size in enumerate(keys_of(fake.size_)):
                wanted = evaluate(lit(size), values)
                if tensor.size(dim) != wanted:
                    text = to_python(lit(size), names)
                    much = f"{wanted}" if text == str(wanted) else f"{text}, which is {wanted}"
                    yield f"{one.target}.size({dim}) is {tensor.size(dim)}, not {much}"
        for fact in self.facts:
            if not _holds(fact, values):
                have = ", ".join(sorted(f"{names.get(s, s)} is {values[s]}" for s in fact.free))
                yield f"{to_python(fact, names)} does not hold: {have}"


def _holds(fact: Expr, values: Mapping[Symbol, int]) -> bool:
    try:
        return bool(evaluate(fact, values))
    except ZeroDivisionError:  # another fact says of it that it is not 0, and does not hold
        return False


def written_apart(program: Program) -> Iterator[tuple[int, list[int]]]:
    """The place of each argument that calls write, among those that are tensors, and of those that must not share its memory."""
    given = [one for _, one in program.user_inputs()]
    for place, one in enumerate(given):
        group = next((group for group in program.form.one if one.leaf in group), (one.leaf,))
        others = [i for i, other in enumerate(given) if other.leaf not in group]
        if one.mutated and others:
            yield place, others


def homes_of(specs: Sequence[TensorSpec]) -> dict[Symbol, tuple[int, int]]:
    """For each symbol the tensor and the dimension whose size it is."""
    found: dict[Symbol, tuple[int, int]] = {}
    for place, spec in enumerate(specs):
        for dim, size in enumerate(spec.size_key):
            if isinstance(size, Symbol):
                found.setdefault(size, (place, dim))
    return found


def facts_of(env: ShapeEnv) -> list[Expr]:
    """What must hold of the symbols that the call binds: a range for each, then what ranges do not say, each behind what it
    divides by, which is not 0. They are checked in this order."""
    ranges = Facts()
    guards = [guard.expr for guard in env.final_guards()]
    found: list[Expr] = []
    for symbol in dict.fromkeys(s for e in guards for s in sorted(e.free, key=str)):
        r = env.facts.range_of(symbol)
        ranges.set_range(symbol, r)
        if env.simplify(symbol) is symbol:
            found += [symbol.ge(r.lo)] if r.lo > 0 else []
            found += [symbol.le(r.hi)] if not math.isinf(r.hi) else []
    known = {s: env.simplify(s) for e in guards for s in e.free}
    rest = [substitute(e, known) for e in guards if not ranges.prove_fully(e)]
    for e in rest:
        divisors = [d.ne(0) for d in divisors_of(e) if not ranges.prove_fully(d.ne(0))]
        found += [one for one in (*divisors, e) if not isinstance(one, Constant)]
    return list(dict.fromkeys(found))


def divisors_of(e: Expr) -> list[Expr]:
    """What is divided by wherever the fact is evaluated, inner divisions first."""
    found: list[Expr] = []

    def visit(part: Expr) -> Expr:
        if isinstance(part, FloorDiv | Mod):
            found.append(part.args[1])
        return part if isinstance(part, Select) else rebuild(part, visit)

    visit(e)
    return found[::-1]


def _misfits(one: Input, fake: FakeTensor, tensor: Any) -> Iterator[str]:
    if type(tensor) not in _PLAIN:
        yield f"{one.target} is a {type(tensor).__name__}, not a tensor"
        return
    if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
        yield f"{one.target} is not a plain dense tensor"
    for what, found, wanted in (
        ("dtype", tensor.dtype, fake.dtype_), ("device", tensor.device, fake.device_),
        ("rank", tensor.dim(), len(fake.size_)),
    ):  # fmt: skip
        if found != wanted:
            yield f"{one.target} has the {what} {found}, not {wanted}"


def _same(found: Any, value: Any) -> bool:
    """Whether they are one constant: zeros have signs, `nan` is itself."""
    if type(found) is not type(value):
        return False
    return repr(found) == repr(value) if type(value) in (float, complex) else bool(found == value)


def _laid_out(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    made = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor.detach())
