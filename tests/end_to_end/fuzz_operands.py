"""Random programs over operands of every kind: dtypes, layouts, empty and special values, numbers of Python and NumPy.

A program is a function of three tensors, a number, a dict and a module. It computes, reduces, views, writes in place and
into `out`, draws random numbers, asks tensors for facts and changes what it was given, and graph breaks are among it. It
is called with other sizes, 0 and 1 too, and perhaps with one tensor twice. Compared with eager are values (each bit on
every second seed, where `numerics` is "eager-bitwise"), dtypes, strides, shared memory, which tensors were written, what
was noted, the random state, and the kind of an error with what was done before it.

    python -m tests.end_to_end.fuzz_operands --first 0 --count 500 [--backend aot_eager] [--show]
"""

# ruff: noqa: E501
from __future__ import annotations

import contextlib
import itertools
import random
import re
import textwrap
import warnings
from typing import Any
from unittest import mock

import numpy
import torch
from tests.autograd.fuzz_training_eager import Shaken, spread, within
from tests.capture.fuzz_command import run_seeds
from tests.capture.fuzz_programs import load
from tests.end_to_end import fuzz_operands_rows as rows

import pliant

SIZES = (4, 6, 4, 1, 0, 5)
PRELUDE = """
import numpy as np
import torch
import torch.nn.functional as F
import pliant
cl, LOG = torch.channels_last, []
"""
FLOATS = (0.0, -0.0, 1.5, -2.5, float("inf"), float("-inf"), float("nan"), 1e-40, 0.5, -0.3, 300.0, 3.0, -1.0, 1.0)
INTEGERS = (0, 1, -1, 2, 3, 7, -128, 127, 100, -5)
DTYPES = {
    **dict.fromkeys("double float half bfloat16 cfloat cdouble".split(), FLOATS),
    **dict.fromkeys("bool uint8 int8 short int long".split(), INTEGERS),
}
OFTEN = ("float", "float", "double", "long", "int", "bool", "half", "bfloat16")
LAYOUTS = (  # of a shape of `n` and a number; `{D}` is the dtype
    "V((n, 3), {D}, {s})", "V((n, 3), {D}, {s})", "V((3, n), {D}, {s}).t()", "V((n, 6), {D}, {s})[:, ::2]", "V((n + 2, 3), {D}, {s})[1:n + 1]",
    "V((n, 1), {D}, {s})", "V((3,), {D}, {s})", "V((), {D}, {s})", "V((1, 3), {D}, {s})", "V((n, 3), {D}, {s}).as_strided((n, 3), (1, 1))",
    "V((2, 3, n, 3), {D}, {s}).to(memory_format=cl)", "V((2, 3, n, 3), {D}, {s})", "V((n, 0), {D}, {s})", "V((n,), {D}, {s})", "V((3,), {D}, {s}).expand(n, 3)",
    "V((2, n, 3), {D}, {s})[1]", "V((2, n, 3), {D}, {s}).transpose(0, 2)", "V((n, 3, 2), {D}, {s})[..., 0]", "V((1, 3, n, 1), {D}, {s}).to(memory_format=cl)",
)  # fmt: skip


def V(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Values of all kinds, or ordinary ones only, at every third place of a seed."""
    chance = random.Random(seed)
    name = str(dtype).removeprefix("torch.")
    kinds = FLOATS if dtype.is_floating_point or dtype.is_complex else INTEGERS
    plain = [one for one in kinds if one == one and abs(one) < 5 and (abs(one) > 0.1 or one == 0)] if seed % 3 else kinds
    count = int(numpy.prod(shape))
    numbers = [chance.choice(plain) for _ in range(count)]
    if dtype.is_complex:
        numbers = [complex(one, chance.choice(plain)) for one in numbers]
    if name == "uint8":
        numbers = [int(one) % 256 for one in numbers]
    return torch.tensor(numbers, dtype=dtype).reshape(shape)


class Module(torch.nn.Module):
    """Layers that train and evaluate otherwise, a buffer that programs write, and one that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop, self.linear = torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.4), torch.nn.Linear(3, 3)
        self.register_buffer("seen", torch.zeros(3))
        self.register_buffer("calls", torch.tensor(0), persistent=False)
        self.notes: list[Any] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.calls += 1
            self.seen.add_(x.detach().sum(0))
        return self.drop(self.norm(x)) if self.training else self.linear(x)


class Maker:
    """Draws statements, and keeps those that eager runs."""

    def __init__(self, seed: int) -> None:
        self.random, self.count, self.seed = random.Random(seed), 0, seed
        self.layouts = [self._operand() for _ in range(3)]
        self.space = vars(load(PRELUDE, "operands"))
        self.space.update(given(self.layouts, seed, SIZES[0], 0))
        self.tensors = ["x", "y", "z"]
        torch.manual_seed(seed)

    def _operand(self) -> str:
        dtype = self.random.choice(OFTEN if self.random.random() < 0.6 else list(DTYPES))
        return self.random.choice(LAYOUTS).replace("{D}", f"torch.{dtype}").replace("{s}", str(self.random.randrange(1000)))

    def value(self, name: str) -> torch.Tensor:
        return self.space[name]

    def tensor(self) -> str:
        return self.random.choice(self.tensors[-4:] if self.random.random() < 0.5 else self.tensors)

    def filled(self, text: str) -> str:
        t = self.tensor()
        rank = self.value(t).dim()
        for _ in range(3):
            text = re.sub(r"\$(\w+)", lambda m: self.random.choice(rows.KINDS[m[1]]), text)
        filling = {"t": t, "s": self.tensor(), "r": self.tensor(), "d": self.random.randrange(-rank, rank) if rank else 0,
                   "v": f"v{self.count}", "w": f"w{self.count}", "k": self.random.randrange(3), "n": self.count}  # fmt: skip
        return re.sub(r"\{(\w)\}", lambda m: str(filling[m[1]]), text)

    def statement(self) -> str | None:
        """One that runs; rarely one that fails is kept, inside of `try`."""
        self.count += 1
        text = self.filled(self.random.choice(self.random.choices(*zip(*rows.STATEMENTS))[0]))
        if re.match(r"(\w+) = \1\n", text):
            return None
        tried = self.random.random() < 0.04
        if tried and "\n" not in text:
            made = re.match(r"\w+(?= = )", text)
            text = f"try:\n    {text}{f'; LOG.append({made[0]})' if made else ''}\nexcept Exception as e:\n    LOG.append(type(e).__name__)"
        try:
            with Warned():
                exec(text, self.space)
        except Exception:
            return None
        self.tensors += [one for one in (f"v{self.count}", f"w{self.count}") if isinstance(self.space.get(one), torch.Tensor)]
        return text

    def program(self) -> str:
        wanted, lines = self.random.randrange(2, 11), []
        for _ in range(wanted * 12):
            text = self.statement()
            if text is not None:
                lines.append(text)
                wanted -= 1
            if not wanted:
                break
        if self.random.random() < 0.2:
            lines.insert(self.random.randrange(len(lines) + 1), "pliant.graph_break()")
        if self.random.random() < 0.1:
            lines = ["with torch.no_grad():\n" + textwrap.indent("\n".join(lines), "    ")]
        made = [one for one in self.tensors if self.random.random() < 0.7]
        body = textwrap.indent("\n".join(lines), "    ") + "\n"
        return f"{PRELUDE}# {self.layouts}\ndef f(x, y, z, n, k, d, m):\n{body}    return {', '.join(made) or 'x'},\n"


class Warned(warnings.catch_warnings):
    def __enter__(self) -> Any:
        found = super().__enter__()
        warnings.simplefilter("ignore")
        return found


def given(layouts: list[str], seed: int, n: int, call: int) -> dict[str, Any]:
    """Fresh arguments."""
    space = {"V": V, "torch": torch, "n": n, "cl": torch.channels_last}
    x, y, z = (eval(one, space) for one in layouts)
    if seed % 5 == 0 and call % 3 == 1:
        z = x
    if seed % 7 == 0 and call % 3 == 2 and x.dim():
        y = x[:1]
    numbers = ((2, 3, 5), (0.5, -1.5, 2.0), (True, False, True), (2, 2, 2))[seed % 4]
    torch.manual_seed(seed)
    return {"x": x, "y": y, "z": z, "n": n, "k": numbers[call % 3], "d": {"a": x, "b": [1]}, "m": Module()}


def facts(t: Any) -> Any:
    """What is seen of a value, but its elements."""
    if not isinstance(t, torch.Tensor):
        with mock.patch.object(torch.Tensor, "__repr__", lambda _: "tensor"):  # in containers, whose tensors are compared as such
            return repr(t)
    tight = [(size, stride) for size, stride in zip(t.shape, t.stride()) if size > 1] if t.numel() else "empty"
    return (type(t).__name__, t.dtype, tuple(t.shape), tight, t.is_conj(), t.is_neg(), t.requires_grad, t.is_leaf, t.storage_offset() if t.numel() else 0)


def shared(tensors: list[torch.Tensor]) -> list[Any]:
    """Which are one, and which share memory, and where."""
    found = []
    for (i, a), (j, b) in itertools.combinations(enumerate(tensors), 2):
        if a is b:
            found.append((i, "is", j))
        elif a.numel() and b.numel() and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr():
            found.append((i, "shares with", j, a.storage_offset() - b.storage_offset()))
    return found


def observed(function: Any, log: list[Any], layouts: list[str], seed: int, n: int, call: int) -> dict[str, Any]:
    """All that a call shows, by what it is."""
    log.clear()
    arguments = given(layouts, seed, n, call)
    before = [arguments[one]._version for one in "xyz"]
    torch.manual_seed(seed + call)
    results: tuple[Any, ...] = ()
    try:
        results = function(**arguments)
        error = None
    except Exception as caught:
        error = type(caught).__name__
    state = torch.get_rng_state()
    module = arguments.pop("m")
    written = [arguments[one]._version != old and arguments[one].numel() > 0 for one, old in zip("xyz", before)]
    noted = [*log, *module.notes]
    everything = [*arguments.values(), *results, *(one for value in arguments["d"].values() for one in (value if isinstance(value, list) else [value])), *noted]
    tensors = [one for one in everything if isinstance(one, torch.Tensor)]
    owned = [*module.state_dict().values(), module.calls]
    return {
        "error": error, "facts": [*map(facts, everything), list(arguments["d"]), module.training, sorted(dict(module.named_buffers()))],
        "shared": shared(tensors), "written": written, "random state": state,
        "values": [one.detach().resolve_conj().resolve_neg().clone() for one in (*tensors, *owned)],
    }  # fmt: skip


def bits(t: torch.Tensor) -> torch.Tensor:
    """Equal where tensors are equal with the signs of zeros, NaNs alike."""
    t = torch.view_as_real(t) if t.is_complex() else t
    return torch.stack([t.nan_to_num(7.25, 8.25, 9.25).double(), t.isnan().double(), t.signbit().double() * ~t.isnan()]) if t.dtype.is_floating_point else t


TOLERANCES = {torch.float32: 2e-5, torch.complex64: 2e-5, torch.float64: 1e-10, torch.complex128: 1e-10, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def near(mine: torch.Tensor, theirs: torch.Tensor) -> bool:
    if theirs.dtype not in TOLERANCES:
        return torch.equal(mine, theirs)
    tolerance = TOLERANCES[theirs.dtype]
    return torch.allclose(mine, theirs, tolerance, tolerance, equal_nan=True)


def differs(mine: dict[str, Any], theirs: dict[str, Any], exact: bool, shaken: Any, filled: Any) -> str | None:
    """What is not the same, if anything. `shaken`: gives what eager shows where its operators round otherwise; `filled`: where
    new memory is not as it comes."""
    for what in ("error", "facts", "shared", "written"):
        if mine[what] != theirs[what]:
            if what == "facts" and not exact and any("float" in one and "tensor" not in one for one in map(str, theirs[what]) if one.startswith("float")):
                continue
            pairs = [(a, b) for a, b in itertools.zip_longest(mine[what] or (), theirs[what] or ()) if a != b] if what != "error" else (mine[what], theirs[what])
            return f"{what}: {pairs} (compiled, eager)"
    if not torch.equal(mine["random state"], theirs["random state"]):
        return "random state"
    for place, (a, b) in enumerate(zip(mine["values"], theirs["values"])):
        same = torch.equal(bits(a), bits(b)) if exact else near(a, b)
        defined = same or torch.equal(bits(b), bits(filled()["values"][place]))
        if not same and defined and (exact or not _by_rounding(a, b, place, shaken)):
            return f"value {place} of {b.dtype}:\n  {a.tolist()}\n  {b.tolist()} (eager)"
    return None


def _by_rounding(mine: torch.Tensor, theirs: torch.Tensor, place: int, shaken: Any) -> bool:
    others = [one["values"][place] for one in shaken() if len(one["values"]) > place]
    if mine.dtype not in TOLERANCES:
        return any(not torch.equal(one, theirs) for one in others)
    finite = [one.isfinite() == theirs.isfinite() for one in others if one.shape == theirs.shape]
    if any(not one.all() for one in finite):
        return True
    return within(mine, theirs, spread(theirs, others), near)


def disagreement(seed: int, backend: str = "pliant", source: str = "", layouts: list[str] | None = None) -> str:
    """What differs from eager for this seed, or for another program in its place; empty if nothing."""
    maker = Maker(seed)
    source = source or maker.program()
    layouts = layouts or maker.layouts
    exact = bool(seed % 2)
    plain, other = load(source, "operands"), load(source, "operands")
    pliant.reset()
    with Warned():
        compiled = pliant.compile(other.f, backend=backend, options={"numerics": "eager-bitwise" if exact else "default"})
        for call, n in enumerate(SIZES):

            def shaken(call: int = call, n: int = n) -> Any:
                for chance in range(3):
                    with Shaken(chance), contextlib.suppress(Exception):
                        yield observed(plain.f, plain.LOG, layouts, seed, n, call)

            def filled(call: int = call, n: int = n) -> Any:
                torch.use_deterministic_algorithms(True, warn_only=True)
                try:
                    return observed(plain.f, plain.LOG, layouts, seed, n, call)
                finally:
                    torch.use_deterministic_algorithms(False)

            theirs = observed(plain.f, plain.LOG, layouts, seed, n, call)
            mine = observed(compiled, other.LOG, layouts, seed, n, call)
            if ".data = " in source:  # eager counts writes of other memory
                mine["written"] = theirs["written"]
            found = differs(mine, theirs, exact, shaken, filled)
            if found is not None:
                return f"# ---- seed {seed}, call {call}, n = {n}: {found}\n{source.removeprefix(PRELUDE)}"
    return ""


if __name__ == "__main__":
    run_seeds(disagreement, backend="pliant")
