"""Random training programs: a function of many actions on memory and autograd, and a caller that uses its results.

A program is text: `setup` makes the inputs for a size, `body` is what is compiled, `driver` is what the caller does with
the function, its inputs and its results. Statements are drawn at random and kept if eager runs them for two sizes, so
programs are valid by construction; the driver's may fail. After every statement of the driver all that a caller can see
is compared with eager: values, layouts, flags, shared memory, identities, gradients, what hooks saw, random state, errors.

    python -m tests.autograd.fuzz_training --first 0 --count 500 [--theme hooks] [--backend pliant] [--no-reduce]
    ... --backend pliant --device cuda --mode reduce-overhead    # where calls replay CUDA graphs
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import math
import random
import re
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from tests.autograd import fuzz_training_actions as actions
from tests.autograd.fuzz_training_eager import Shaken, in_one_function, same_number, spread, within, without_extra
from tests.autograd.fuzz_training_limits import FREED, LIMITS, VIEWED, WRITTEN, documented, keeps_no_copies
from tests.autograd.fuzz_training_space import space
from tests.autograd.fuzz_training_themes import NAMED, Theme

import pliant
from pliant.debug import events

SIZES = (4, 6, 5)
WARM_UPS = 4  # calls of each size after which what pays is recorded as a CUDA graph


@dataclass
class Where:
    """Where programs run. `mode`: of the compiler; `warm`: calls that nobody sees come first, as where it runs on a GPU."""

    device: str = "cpu"
    mode: str | None = None
    warm: bool = False


WHERE = Where()


Step = tuple[str, str, Any]  # a statement, what is seen after it, how it is


@dataclass
class Line:
    """A statement, or a block with its body."""

    text: str
    body: list[Line] | None = None

    def lines(self) -> Iterator[str]:
        yield self.text
        for one in self.body or ():
            yield from (f"    {line}" for line in one.lines())
        if self.body is not None and not self.body:
            yield "    pass"


@dataclass
class Program:
    setup: list[Line] = field(default_factory=list)
    body: list[Line] = field(default_factory=list)
    result: list[str] = field(default_factory=list)
    driver: list[Line] = field(default_factory=list)

    def make_text(self) -> str:
        return _function("make(n)", self.setup, "return dict(x=x, y=y, p=p, b=b, c=c, q=q)")

    def call_text(self) -> str:
        return _function("f(x, y, p, b, c)", self.body, f"return [{', '.join(self.result)}]")

    def text(self) -> str:
        driver = "\n".join(line for one in self.driver for line in one.lines())
        return f"{self.make_text()}\n{self.call_text()}\n{driver}\n"


def _function(head: str, body: list[Line], end: str) -> str:
    text = "\n".join([line for one in body for line in one.lines()] + [end])
    return f"def {head}:\n{textwrap.indent(text, '    ')}\n"


def _setup(rng: random.Random) -> list[Line]:
    dtype = rng.choices(["torch.float64", "torch.float32"], [9, 1])[0]
    lines = [
        f"torch.manual_seed(0)\nD = {dtype}",
        f"p = {rng.choice(actions.PS)}",
        f"x = q = {rng.choice(actions.MAKERS)}",
    ]
    if rng.random() < 0.3:
        lines[-1] = f"q = torch.rand(n, 3, dtype=D).requires_grad_()\nx = q{rng.choice(actions.OF_LEAF)}"
    lines.append(f"y = {rng.choice(actions.RELATED) if rng.random() < 0.35 else rng.choice(actions.MAKERS)}")
    lines.append(f"b = {rng.choice(actions.BS)}")
    lines.append(f"c = {rng.choice(actions.CS)}")
    if rng.random() < 0.15:
        lines.append("p.grad = torch.ones_like(p)")
    if rng.random() < 0.1:
        hook = rng.choice(["p.register_hook(noting('hp'))", "p.register_post_accumulate_grad_hook(noting_sum('pp'))",
                           "p.register_hook(noting_and_scaling('hp'))"])  # fmt: skip
        lines.append(hook)
    return [Line(line) for text in lines for line in text.split("\n")]


# ---------------------------------------------------------------------------------------------------- the body

KINDS = [
    (actions.VIEWS, 9),
    (actions.PAIRS, 2),
    (actions.WRITES, 7),
    (actions.METADATA, 1),
    (actions.COMPUTES, 10),
    (actions.ACTS, 1),
    (actions.BLOCKS, 1.2),
]


def _split(text: str) -> list[str]:
    return [one for line in text.split("\n") for one in line.split("|")]


_WRITES = _split(actions.WRITES)
_METADATA = _split(
    actions.METADATA
)  # of a view these are writes of all its base to eager, or leave it a view of where it was
_CHOICES = [
    (_split(text), weight, text in (actions.VIEWS, actions.COMPUTES), text is actions.BLOCKS) for text, weight in KINDS
]


def _writes_given(text: str) -> bool:
    """Whether a statement of a theme writes the tensor `{t}`."""
    return bool(re.match(r"(with [^:]*: )?\{t\}(\[[^=]*\]| [-+*]|\.[a-z.()]*_\()", text))


class Maker:
    """Draws statements and runs them in eager for two sizes as it goes."""

    def __init__(self, rng: random.Random, theme: Theme | None = None) -> None:
        self.rng, self.count, self.theme = rng, 0, theme
        self.program = Program(setup=_setup(rng))
        self.spaces = [space() for _ in SIZES[:2]]
        for names, n in zip(self.spaces, SIZES):
            exec(self.program.make_text(), names)
            names.update(names["make"](n))
        self.visible = ["x", "y", "p", "b", "c['u']"]
        self.visible += [f"c['w'][{i}]" for i in range(len(self.spaces[0]["c"]["w"]))]

    def runs(self, text: str) -> bool:
        try:
            for names in self.spaces:
                exec(text, names)
        except Exception:
            return False
        return True

    def tensors(self) -> list[str]:
        return [v for v in self.visible if isinstance(self.value(v), torch.Tensor)]

    def value(self, text: str) -> Any:
        try:
            return eval(text, self.spaces[0])
        except Exception:
            return None

    def tensor(self) -> str:
        found = self.tensors()
        return self.rng.choice(found[-4:] if self.rng.random() < 0.5 else found)

    def body(self, length: int, depth: int = 0) -> list[Line]:
        lines: list[Line] = []
        for _ in range(length):
            for _ in range(25):
                line = self.draw(depth)
                if line is not None:
                    lines.append(line)
                    break
        return lines

    def draw(self, depth: int) -> Line | None:
        if self.theme is not None and self.rng.random() < 0.7:
            text, names = self.rng.choice(self.theme.body), False
            block = text.endswith(":")
        else:
            choices, _, names, block = self.rng.choices(_CHOICES, [w for _, w, *_ in _CHOICES])[0]
            text = self.rng.choice(choices)
        if block:
            return self.block(text) if depth < 2 else None
        t = self.tensor()
        rank = self.value(t).dim()
        self.count += 1
        v, w = f"v{self.count}", f"w{self.count}"
        filled = text
        s, r = self.tensor(), self.tensor()
        filling = {"t": t, "s": s, "r": r, "d": self.rng.randrange(max(rank, 1)), "v": v, "w": w, "n": self.count}
        for key, one in filling.items():
            filled = filled.replace(f"{{{key}}}", str(one))
        if "torch.func" in text and torch.is_inference_mode_enabled():
            return None
        if names:
            filled = f"{v} = {filled}"
        if (text in _WRITES or _writes_given(text)) and self.overlaps(t, s, r) or "resize_" in text and self.value(t).numel() < 4:
            return None
        changed = s if "{s}.register_hook" in text else t
        of_view = (".data =" in text or "as_strided" in text or "_hook" in text or text in _METADATA) and self.value(
            changed
        )._is_view()  # eager itself crashes in register_hook of a view that has been written
        if of_view or filled.startswith("del ") and "[" in filled or not self.runs(filled):
            return None
        self.visible += [one for one in (v, w) if one in self.spaces[0]]
        return Line(filled)

    def overlaps(self, target: str, *read: str) -> bool:
        """Whether a write reads memory that it writes, but not element by element: what comes out is undefined."""
        written = self.value(target)
        for one in map(self.value, read):
            if one.untyped_storage().data_ptr() == written.untyped_storage().data_ptr() and one is not written:
                return True
        return False

    def block(self, head: str) -> Line | None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(eval(head[5:-1], self.spaces[0]))
            body = self.body(self.rng.randrange(1, 5), depth=1)
        return Line(head, body) if body else None

    def results(self) -> list[str]:
        known = [v for v in self.visible if self.value(v) is not None]
        late = [v for v in known[-6:] if self.rng.random() < 0.5]
        found = list(dict.fromkeys([*self.rng.sample(known, min(len(known), self.rng.randrange(1, 4))), *late]))
        last = [v for v in self.tensors() if _facts(self.value(v))["history"] is True]
        if last and not any(v in last for v in found):
            found.append(last[-1])
        if self.rng.random() < 0.15:
            found.append(self.rng.choice(found))
        return found


# ---------------------------------------------------------------------------------------------------- the driver

_IN_INFERENCE = re.compile(r"func|enable_grad|set_grad_enabled\(True\)|inference_mode\(False\)")


class Driver:
    """Draws what the caller does, by what eager gives it."""

    def __init__(self, maker: Maker) -> None:
        self.rng, self.program, self.theme = maker.rng, maker.program, maker.theme
        self.names = _ready(self.program, None)
        self.count = 0

    def run(self, length: int) -> list[Line]:
        lines = self.program.driver
        for text in ["w0 = make(4)", "o0 = call(f, w0)"]:
            _step(text, self.names)
            lines.append(Line(text))
        for _ in range(length):
            text = self.draw()
            if text is not None:
                _step(text, self.names)
                lines.append(Line(text))
        return lines

    def draw(self) -> str | None:
        rng = self.rng
        outputs = [k for k, v in self.names.items() if isinstance(v, list) and k[0] == "o" and k[1:].isdigit()]
        worlds = [k for k, v in self.names.items() if isinstance(v, dict) and k[0] == "w" and k[1:].isdigit()]
        if not outputs:
            return None
        o, w = rng.choice(outputs), rng.choice(worlds)
        values = self.names[o]
        tensors = [
            i for i, v in enumerate(values) if isinstance(v, torch.Tensor) and _facts(v)["history"] != "an error"
        ]
        live = [i for i in tensors if values[i].requires_grad]
        if not tensors:
            return None
        members = [f"{w}['{k}']" for k, v in self.names[w].items() if isinstance(v, torch.Tensor)]
        wanted = [f"{w}['{k}']" for k, v in self.names[w].items() if isinstance(v, torch.Tensor) and v.requires_grad]
        if not wanted:
            return None
        self.count += 1
        rows = _split(actions.CALLS) if rng.random() < 0.25 else _split(actions.DRIVES)
        if self.theme is not None and rng.random() < 0.6:
            rows = list(self.theme.driver)
        text = rng.choice(rows)
        if "inference_mode" in text and _IN_INFERENCE.search(self.program.call_text()):  # custom functions record there
            return None
        roots = rng.sample(live, rng.randrange(1, len(live) + 1)) if live else [0]
        filling = {
            "o": o, "w": w, "v": f"o{self.count}", "u": f"w{self.count}", "size": rng.choice(SIZES), "i": sorted(roots), "n": self.count,
            "k": rng.choice(live if live and rng.random() < 0.7 else tensors), "m": rng.choice(members),
            "l": f"[{', '.join(sorted(set(rng.choices(wanted, k=rng.randrange(1, 4)))))}]",
        }  # fmt: skip
        done = "".join(line.text for line in self.program.driver)
        if re.match(r"\{v\} = (grads|batched)", text) and "retain_grad" in self.program.call_text() + done:
            return None  # the results of a compiled function have one function of autograd's graph
        if ("mul_" in text or "add_" in text) and "retain_grad" in self.program.call_text() + done:
            return None  # PyTorch fails where the function has several results
        if "retain_grad" in text and any(one in done for one in ("mul_", "add_", "grads(", "batched(")):
            return None
        unseen = "{m}.data." in text, re.search(r"w\d+\['\w+'\]\.data\.", done)
        if unseen[0] and "create_graph" in done or unseen[1] and re.search("backward|grads|batched", text):
            return None  # what is computed again starts from the inputs as they are; nothing tells of such writes
        if "[{o}[{k}]]" in text and ("retain_grad" in done or "register_hook" in done):
            return None  # the results of a compiled function have one function of autograd's graph
        if "{o}[{k}].register_hook" in text and "create_graph" in done:
            return None  # further gradients call the hooks that were there when the gradient was asked for
        if ("{o}[{k}].retain_grad" in text or "register_hook" in text) and re.search(r"\[o\d+\[\d+\]\]", done):
            return None
        for key, one in filling.items():
            text = text.replace(f"{{{key}}}", str(one))
        if ".register_hook" in text and eval(text.split(".register")[0], self.names)._is_view():
            return None  # PyTorch crashes where another view was written before
        return text


def program_of(seed: int, theme: str = "") -> Program:
    rng = random.Random(f"{theme} {seed}" if theme else seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        maker = Maker(rng, NAMED.get(theme))
        maker.program.body = maker.body(rng.randrange(2, 13))
        maker.program.result = maker.results()
        Driver(maker).run(rng.randrange(2, 10))
    return maker.program


# ---------------------------------------------------------------------------------------------------- what is seen


def _ready(program: Program, backend: str | None) -> dict[str, Any]:
    given: set[str] = set()  # gradients, and what is computed from them alone
    from_gradients: set[str] = set()  # results of calls that were given some
    for name, value in (line.text.split(" = ", 1) for line in program.driver if re.match(r"o\d+ = ", line.text)):
        read = set(re.findall(r"o\d+", value))
        if re.match("grads|batched", value) or value[0] == "[" and given & read:
            given.add(name)
        elif read & (given | from_gradients):
            from_gradients.add(name)
    names = space() | {"__name__": "fuzzed", "GRADIENTS": given, "FROM_GRADIENTS": from_gradients}
    exec(program.make_text(), names)
    exec(compile(program.call_text(), "<fuzzed>", "exec"), names)
    if WHERE.device != "cpu":
        names["make"] = functools.partial(_made_there, names["make"])
    if backend is not None:
        names["f"] = pliant.compile(names["f"], backend=backend, mode=WHERE.mode)
        if WHERE.warm:
            _warm_up(names)
    return names


def _made_there(make: Callable[[int], Any], n: int) -> Any:
    with torch.device(WHERE.device):
        return make(n)


def _warm_up(names: dict[str, Any]) -> None:
    """Call the function and its backward on inputs that nobody sees."""
    state = _random_state()
    for n in [n for n in SIZES for _ in range(WARM_UPS)]:
        with contextlib.suppress(Exception):
            found = names["call"](names["f"], names["make"](n))
            torch.autograd.backward([t.abs().sum() for t in found if isinstance(t, torch.Tensor) and t.requires_grad])
        found = None
    names["LOG"].clear()
    _set_random_state(state)


def _random_state() -> list[torch.Tensor]:
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if WHERE.device == "cuda" else [])]


def _set_random_state(state: list[torch.Tensor]) -> None:
    torch.set_rng_state(state[0])
    if len(state) > 1:
        torch.cuda.set_rng_state(state[1])


def _step(text: str, names: dict[str, Any]) -> Any:
    try:
        exec(text, names)
    except Exception as error:
        error.__traceback__ = None
        return type(error).__name__, str(error)
    return None


def _seen(names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """All that a caller can see, by what it is of."""
    found: dict[str, Any] = {}
    for name, value in list(names.items()):
        if name[0] == "w" and name[1:].isdigit():
            found |= {f"{name}.{k}": v for k, v in value.items() if k != "c"}
            found |= {f"{name}.c{i}": v for i, v in enumerate(names["flat"](value["c"]))}
        elif name[0] == "o" and name[1:].isdigit():
            found |= {f"{name}[{i}]": v for i, v in enumerate(value)}
    yield "what there is", list(found)
    for name, value in found.items():
        if isinstance(value, torch.Tensor):
            facts = _facts(value)
            if name.split("[")[0] in names["GRADIENTS"] | names["FROM_GRADIENTS"]:
                del facts["stride"]  # eager promises nothing of them
            yield f"facts of {name}", facts
            yield f"value of {name}", _copy(value)
            yield f"gradient of {name}", _fact(lambda t: None if t.grad is None else _copy(t.grad), value)
        else:
            yield f"value of {name}", value
    tensors = {k: v for k, v in found.items() if isinstance(v, torch.Tensor)}
    yield "related", _relations(tensors)
    yield "bases", _bases({k: v for k, v in tensors.items() if k.split("[")[0] not in names["GRADIENTS"]})
    yield "hooks", list(names["LOG"])
    yield "random state", _random_state()


def _copy(value: torch.Tensor) -> torch.Tensor:
    return value.detach().clone()


FACTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "shape": lambda t: tuple(t.shape), "stride": lambda t: t.stride(), "dtype": lambda t: t.dtype, "conj": lambda t: t.is_conj(),
    "requires_grad": lambda t: t.requires_grad, "is_leaf": lambda t: t.is_leaf, "history": lambda t: t.grad_fn is not None,
    "inference": lambda t: t.is_inference(), "retains": lambda t: t.retains_grad, "kind": lambda t: type(t).__name__,
}  # fmt: skip


def _facts(t: torch.Tensor) -> dict[str, Any]:
    return {name: _fact(one, t) for name, one in FACTS.items()}


def _fact(one: Callable[[torch.Tensor], Any], t: torch.Tensor) -> Any:
    try:
        return one(t)
    except RuntimeError:  # a view that may not be looked at any more
        return "an error"


def _relations(tensors: dict[str, torch.Tensor]) -> list[Any]:
    found: list[Any] = []
    for (i, a), (j, b) in itertools.combinations(tensors.items(), 2):
        if a is b:
            found.append((i, "is", j))
        elif a.numel() and b.numel() and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr():
            found.append((i, "shares with", j, a.storage_offset() - b.storage_offset()))
    return found


# Eager counts them as writes of all the memory.
METADATA_WRITE = re.compile(r"[a-z]_\((0(, 1)?)?\)|resize_|set_|as_strided_")
HIDDEN = "a tensor that is not seen"


def _bases(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    names = {id(t): name for name, t in tensors.items()}
    return {k: None if t._base is None else names.get(id(t._base), HIDDEN) for k, t in tensors.items()}


def _saves_copies(names: dict[str, Any]) -> None:
    """Let `f` save copies, and no region run twice: gradients are those of the values that it was called with."""
    run = names["f"]

    def on_copies(*given: Any) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
            return run(*given)

    names["f"] = on_copies
    names["save_on_cpu"] = contextlib.nullcontext
    names["checkpoint"] = lambda region, *given, **options: region(*given)
    for name in ("backward", "grads", "batched"):
        names[name] = functools.partial(_retaining, names[name])


def _retaining(ask: Callable[..., Any], *given: Any, **options: Any) -> Any:
    return ask(*given, **{**options, "retain_graph": True})


def observe(program: Program, backend: str | None, copies: bool = False, joined: bool = False) -> Iterator[Step]:
    """(statement, what, how it is) in turn. `joined`: results have one function of autograd's graph."""
    names = _ready(program, backend)
    if copies:
        _saves_copies(names)
    if joined:
        names["f"] = in_one_function(names["f"])
    for line in program.driver:
        versions, noted = {k: v._version for k, v in _world(names)}, len(names["LOG"])
        error = _step(line.text, names)
        if re.match(r"o\d+ = (grads|batched)", line.text) and not any(one is not None for one in names.get(line.text.split()[0], ())):
            del names["LOG"][noted:]  # eager calls hooks of a root that leads to nothing, if it is the only one
        yield line.text, "error", error
        now = {k: v._version - versions.get(k, 0) for k, v in _world(names)}
        yield line.text, "written", {k: bool(v) for k, v in now.items()}
        for what, value in _seen(names):
            yield line.text, what, value


def _world(names: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in list(names.items()):
        if name[0] == "w" and name[1:].isdigit():
            tensors = {k: v for k, v in value.items() if isinstance(v, torch.Tensor) and not v.is_inference()}
            yield from ((f"{name}.{k}", v) for k, v in tensors.items())


def _alike(mine: Any, theirs: Any, loose: bool) -> bool:
    if isinstance(theirs, torch.Tensor) or isinstance(mine, torch.Tensor):
        if type(mine) is not type(theirs) or mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            return False
        tolerance = 3e-2 if loose else 2e-4 if theirs.dtype in (torch.float32, torch.complex64) else 1e-8
        return torch.allclose(mine, theirs, tolerance, tolerance, equal_nan=True)
    if isinstance(theirs, (list, tuple)):
        same = type(mine) is type(theirs) and len(mine) == len(theirs)
        return same and all(_alike(a, b, loose) for a, b in zip(mine, theirs))
    if isinstance(theirs, float) and isinstance(mine, float):  # what a hook noted of a gradient is a sum as well
        tolerance = 3e-2 if loose else 1e-8
        return math.isclose(mine, theirs, rel_tol=tolerance, abs_tol=tolerance) or mine != mine and theirs != theirs
    return bool(mine == theirs or mine != mine and theirs != theirs)


def _comparable(mine: Any, theirs: Any) -> Any:
    """Facts without those that eager refuses to tell, of views made and written in inference mode."""
    if isinstance(theirs, dict) and isinstance(mine, dict) and "history" in theirs:
        return {k: theirs[k] if theirs[k] == "an error" else v for k, v in mine.items()}
    return mine


def _shown(mine: Any, theirs: Any) -> str:
    if isinstance(theirs, dict) and isinstance(mine, dict):
        return str({k: f"{mine.get(k)} for {v}" for k, v in theirs.items() if mine.get(k) != v})
    if isinstance(theirs, list) and isinstance(mine, list) and theirs and isinstance(theirs[0], tuple):
        more = [m for m in mine if str(m) not in map(str, theirs)]
        less = [t for t in theirs if str(t) not in map(str, mine)]
        return f"{more} instead of {less}" if more or less else f"{len(mine)} for {len(theirs)}: order"
    return f"{mine} instead of {theirs}"


def disagreement(program: Program, backend: str = "aot_eager", copies: bool = False) -> tuple[str, str] | None:
    """(what, in full) of the first difference from eager; `copies`: from one that saves copies."""
    pliant.reset()
    runs = [observe(program, None, copies), observe(program, backend)]
    torch.manual_seed(5)
    states, step = [_random_state()] * 2, -1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while True:
            seen = []
            for number, run in enumerate(runs):
                _set_random_state(states[number])
                seen.append(_burst(run))
                states[number] = _random_state()
            if not seen[0]:
                return None
            for theirs, mine in zip(*seen):
                step += 1
                found = _difference(program, theirs, mine)
                if found == "copies":  # eager saved what its gradient does not depend on
                    return None if copies else disagreement(program, backend, copies=True)
                if found == "over" or copies and (WRITTEN in str(mine[2]) or FREED in str(mine[2])):
                    return None
                if found is not None and documented(program, theirs, mine):
                    return None
                if found is not None and not copies and keeps_no_copies(program, mine):
                    return disagreement(program, backend, copies=True)
                if found is not None and (_is_of_sharing(program, mine, step) or _is_of_rounding(program, theirs, mine, step, copies)):
                    if mine[1] == "error":  # behind it both differ
                        return None
                    continue
                if found is not None:
                    return found[0], f"`{mine[0]}`: {found[1]}"


def _difference(program: Program, theirs: Step, mine: Step) -> tuple[str, str] | str | None:
    """(what, in full) of how two observations differ; "over" if what follows need not be equal, "copies" if eager alone
    refuses a gradient since something was written."""
    (line, what, b), (_, other, a) = theirs, mine
    text = program.call_text()
    match what:
        case "error":
            return _difference_of_errors(line, a, b, re.findall(r"(o\d+) = (?:grads|batched)", program.text()))
        case "bases":
            b = {k: v for k, v in b.items() if v != HIDDEN and a[k] != HIDDEN}
            a = {k: a[k] for k in b}
            if ".data = " in text or METADATA_WRITE.search(text):
                return None
        case "hooks":  # one function of autograd's graph is called for all results
            a = without_extra(a, b, "np")
        case "written" if ".data = " in text or METADATA_WRITE.search(text):
            return None
    loose = "bfloat16" in text or LOW_PRECISION.search(program.text()) is not None
    if what == other and _alike(_comparable(a, b), b, loose):
        return None
    return what.split(" ")[0], f"{what}: {_shown(a, b)}"


LOW_PRECISION = re.compile(r"float32|float16|\.float\(\)|\.half\(\)|complex64")  # what is seen in float64 was rounded before


def _difference_of_errors(line: str, mine: Any, theirs: Any, gradients: list[str]) -> tuple[str, str] | str | None:
    if any(
        limit in str(theirs) for limit in LIMITS
    ):  # none of ours
        return "over"
    if mine is None and WRITTEN in str(theirs):
        return "copies"
    if mine is None and FREED in str(theirs) and any(f"({name}, " in line for name in gradients):  # each has a program of its own
        return "copies"
    if mine and "of a compiled function was written after the call" in mine[1]:
        return "over"  # refused: a further gradient needs values that eager does not keep either
    kinds = [one and one[0] for one in (mine, theirs)]
    if kinds[0] != kinds[1]:
        return f"error {kinds[0]} for {kinds[1]}", f"{mine} instead of {theirs}"
    # How far the engine got before an error is a matter of its order.
    return "over" if theirs and "call(f" not in line else None


def _is_of_sharing(program: Program, mine: Step, number: int) -> bool:
    """Whether an error is eager's too where results share one function: the engine passes through what was computed before
    the call for all of them."""
    refused = [one for one in (WRITTEN, FREED, VIEWED) if mine[1] == "error" and one in str(mine[2])]
    if not refused:
        return False
    torch.manual_seed(5)
    step = same_number(observe(program, None, joined=True), number)
    return step is not None and refused[0] in str(step[2])


def _is_of_rounding(program: Program, theirs: Step, mine: Step, number: int, copies: bool) -> bool:
    """Whether eager's own values would differ as far if its operators rounded otherwise."""
    if theirs[1] != mine[1] or theirs[1].split(" ")[0] not in ("value", "gradient", "hooks"):
        return False
    shaken = []
    for seed in range(3):
        torch.manual_seed(5)
        with Shaken(seed):
            step = same_number(observe(program, None, copies), number)
        if step is None or step[1] != theirs[1]:
            return False
        shaken.append(step[2])
    return within(mine[2], theirs[2], spread(theirs[2], shaken), lambda a, b: _alike(a, b, False))


def _burst(steps: Iterator[Step]) -> list[Step]:
    """What is seen of one statement."""
    found = []
    for step in steps:
        found.append(step)
        if step[1] == "random state":
            break
    return found


# ---------------------------------------------------------------------------------------------------- reducing


def reduced(program: Program, kind: str, backend: str) -> Program:
    """The program without what the difference does not need."""

    def fails() -> bool:
        try:
            found = disagreement(program, backend)
        except Exception:
            return False
        return found is not None and found[0] == kind

    def shrink(lines: list[Any], keep: int = 0) -> bool:
        smaller = False
        for place in reversed(range(keep, len(lines))):
            one = lines.pop(place)
            inner = getattr(one, "body", None)
            if fails():
                smaller = True
                continue
            if inner:
                lines[place:place] = inner
                if fails():
                    smaller = True
                    continue
                del lines[place : place + len(inner)]
            lines.insert(place, one)
            if inner:
                smaller = shrink(inner) or smaller
        return smaller

    while shrink(program.driver) | shrink(program.result) | shrink(program.body) | shrink(program.setup):
        pass
    return program


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--theme", default="", choices=("", *NAMED), help="draw most statements from this theme")
    parser.add_argument("--no-reduce", action="store_true")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--mode", default=None, help="mode of the compiler: reduce-overhead records CUDA graphs")
    parser.add_argument("--warm", action="store_true", help="calls that nobody sees come first")
    parser.add_argument("--for", type=float, default=math.inf, dest="seconds", help="start no program after so many")
    parser.add_argument("--show", action="store_true", help="print the programs")
    options = parser.parse_args()
    WHERE.device, WHERE.mode, WHERE.warm = options.device, options.mode, options.warm or options.device != "cpu"
    wrong = whole = steps = tried = recorded = 0
    end = time.monotonic() + options.seconds
    for seed in range(options.first, options.first + options.count):
        if time.monotonic() > end:
            break
        tried += 1
        program = program_of(seed, options.theme)
        if options.show:
            print(f"# {seed}\n{program.text()}")
        with events.collect("fallback", "graph_break", "skip") as fell, events.collect("cuda_graph") as graphs:
            found = disagreement(program, options.backend)
        whole, steps, recorded = whole + (not fell), steps + len(program.driver), recorded + len(graphs)
        if found is None:
            continue
        wrong += 1
        print(f"# ---- {seed}: {found[0]}: {found[1][:600]}", flush=True)
        if not options.no_reduce:
            print(textwrap.indent(reduced(program, found[0], options.backend).text(), "  "))
            print(f"  # {(disagreement(program, options.backend) or ('', 'gone'))[1][:600]}\n", flush=True)
    print(f"{tried} programs, {steps} statements of drivers, {whole} captured whole, {recorded} recorded, {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
