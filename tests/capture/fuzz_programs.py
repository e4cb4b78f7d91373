"""Random programs, each run eagerly and compiled: results, mutations, printed text and exceptions must agree.

`python -m tests.capture.fuzz_programs --count 5000 --first 0` prints each disagreement with its program.
`--seed N --file out.py` writes one program.
"""

import argparse
import ast
import contextlib
import copy
import itertools
import linecache
import random
import types
import warnings
from pathlib import Path

import numpy
import torch
from tests.capture.constructs.harness import observe, same, same_class
from tests.capture.fuzz_prelude import PRELUDE
from tests.capture.fuzz_statements import CAUGHT, FAILING, THEMES
from tests.capture.fuzz_themes import CHANGES, NAMED
from tests.capture.fuzz_themes import PRELUDE as PRELUDE_OF_THEMES

import pliant

PARAMETERS = "x, y, z, d, items, more, flag, count"
STATE = "a, b, n, log, text"
TESTS = (
    "n % 2",
    "x.shape[0] > 3",
    "len(items) > 2",
    "a.dim() == 2 and n",
    "x.shape[0] % 2 == 0",
    "'k1' in d",
    "a.sum() > 0",
    "flag",
    "flag is None",
    "items is more",
    "isinstance(flag, str) or n > 3",
    "(k := len(log)) % 3 and k",
    "any(v == n for v in items)",
    "noisy(log, 'test', n > 2) and not noisy(log, 'second', n % 2)",
)
LOOPS = (
    "range(3)",
    "list(items)[:3]",
    "range(min(x.shape[0], 3))",
    "enumerate('ab')",
    "zip(range(2), 'ab')",
    "sorted(d, key=str)[:2]",
    "gen(n, 2)",
    "careful(log, 2)",
    "Countdown(2)",
    "(v for v in (1, 2) if v != n)",
    "reversed([1, n])",
    "x[:2]",
    "list(d.items())[:2]",
    "map(str, range(2))",
)
CONTEXTS = (
    "scope(log, 's')",
    "Box(n)",
    "contextlib.suppress(KeyError, IndexError)",
    "torch.no_grad()",
    "contextlib.nullcontext()",
    "Quiet(log, ValueError, RuntimeError)",
    "Translating()",
    "setting('mode', n), scope(log, 't')",
    "contextlib.ExitStack()",
)
# How a generator of the program is used.
CONSUMERS = (
    "log.append([shown(v) for v in {}])",
    "log.append(len(list({})))",
    "log.append(len((*{},)))",
    "for v in {}: log.append(shown(v))",
    "it = {}; log.append(shown(next(it, 'end'))); it.close()",
    "it = {}; log.append(shown(next(it, 'end'))); log.append(len(list(it)))",
    "it = {}; log.append(shown(next(it, 0))); log.append([shown(v) for v in zip(it, range(2))])",
    "n += sum(1 for _ in {})",
    "log.append(any(shown(v) == n for v in {}))",
    "log.append(dict(enumerate(map(shown, {}))))",
    "def deeper():\n    r = yield from {}\n    log.append(('value', shown(r)))\nlog.append([shown(v) for v in deeper()])",
    "it = {}\ntry:\n    next(it); log.append(shown(it.throw(KeyError('thrown'))))\nexcept (KeyError, StopIteration) as e:\n    log.append(repr(e))",
    "it = {}\ntry:\n    next(it); log.append(shown(it.send(5)))\nexcept StopIteration as e:\n    log.append(shown(e.value))",
)


class Generator:
    """Writes one program from a seed."""

    def __init__(self, seed: int, theme: str = "") -> None:
        self.random = random.Random(seed)
        self.theme = NAMED.get(theme, ())
        self.names = itertools.count()
        self.functions: list[str] = []
        self.generators: list[str] = []
        self.yields = False

    def choose(self, table: tuple[str, ...]) -> str:
        return self.random.choice(table).replace("@K", str(self.random.randint(1, 4)))

    def block(self, depth: int, indent: str, loop: bool) -> list[str]:
        return [line for _ in range(self.random.randint(1, 4)) for line in self.statement(depth, indent, loop)]

    def statement(self, depth: int, indent: str, loop: bool) -> list[str]:
        if depth == 0 or self.random.random() < 0.6:
            return [indent + line for line in self.simple(loop).split("\n")]
        inner = indent + "    "
        make = self.random.choice((self.branch, self.loop, self.handled, self.context))
        return make(depth - 1, indent, inner, loop)

    def simple(self, loop: bool) -> str:
        chance = self.random.random()
        if loop and chance < 0.08:
            return self.random.choice(("if n % 2: break", "if len(log) % 3: continue"))
        if self.yields and chance < 0.3:
            return self.random.choice(("yield a", "yield n", "log.append((yield n))", "yield from gen(a, 2)"))
        if chance < 0.35 and (self.functions or self.generators):
            return self.use()
        if chance > 0.97:
            return f"if n > 5: return {STATE}"
        if chance > 0.94:
            return self.choose(FAILING)
        return self.choose(self.theme if self.theme and chance < 0.8 else self.random.choice(THEMES))

    def use(self) -> str:
        name = self.random.choice(self.functions + self.generators)
        call = f"{name}({PARAMETERS}, {STATE})"
        return f"a, b, n, *_ = {call}" if name in self.functions else self.random.choice(CONSUMERS).format(call)

    def branch(self, depth: int, indent: str, inner: str, loop: bool) -> list[str]:
        lines = [f"{indent}if {self.choose(TESTS)}:", *self.block(depth, inner, loop)]
        if self.random.random() < 0.3:
            lines += [f"{indent}elif {self.choose(TESTS)}:", *self.block(depth, inner, loop)]
        return [*lines, f"{indent}else:", *self.block(depth, inner, loop)]

    def loop(self, depth: int, indent: str, inner: str, loop: bool) -> list[str]:
        end = [f"{indent}else:", f"{inner}log.append('else')"] if self.random.random() < 0.3 else []
        if self.random.random() < 0.2:
            turn = f"turn{next(self.names)}"
            head = [f"{indent}{turn} = 0", f"{indent}while {turn} < 2:", f"{inner}{turn} += 1"]
        else:
            head = [f"{indent}for i in {self.choose(LOOPS)}:", f"{inner}i = i if isinstance(i, int) else len(i)"]
        return [*head, *self.block(depth, inner, True), *end]

    def handled(self, depth: int, indent: str, inner: str, loop: bool) -> list[str]:
        name = f"e{next(self.names)}"
        body = self.block(depth, inner, loop)
        if self.random.random() < 0.5:
            body.append(inner + self.choose(FAILING))
        lines = [f"{indent}try:", *body]
        for _ in range(self.random.choice((1, 1, 2))):
            lines += [
                f"{indent}except {self.random.choice(CAUGHT)} as {name}:",
                f"{inner}log.append((type({name}).__name__, str({name}), type({name}.__context__).__name__))",
                *self.block(depth, inner, loop),
            ]
        if self.random.random() < 0.2:
            lines += [f"{indent}else:", *self.block(depth, inner, loop)]
        if self.random.random() < 0.4:
            lines += [f"{indent}finally:", f"{inner}log.append('finally')", *self._finally_end(inner, loop)]
        return lines

    def _finally_end(self, inner: str, loop: bool) -> list[str]:
        chance = self.random.random()
        if chance < 0.1:
            return [f"{inner}return {STATE}"]
        if loop and chance < 0.3:
            return [inner + self.random.choice(("break", "continue"))]
        return self.block(0, inner, loop) if chance < 0.6 else []

    def context(self, depth: int, indent: str, inner: str, loop: bool) -> list[str]:
        fail = [inner + self.choose(FAILING)] if self.random.random() < 0.4 else []
        return [f"{indent}with {self.choose(CONTEXTS)}:", *self.block(depth, inner, loop), *fail]

    def function(self, name: str, parameters: str, first: tuple[str, ...], depth: int) -> list[str]:
        lines = [line for _ in range(self.random.randint(2, 6)) for line in self.statement(depth, "    ", False)]
        return [
            f"def {name}({parameters}):",
            "    global COUNT, FRESH",
            *(f"    {line}" for line in first),
            "    i = 0",
            "    def counter():",
            "        nonlocal n",
            "        n += 1",
            "        return n",
            *lines,
            f"    return {STATE}{', d, items' if depth == 3 else ''}",
            "",
        ]

    def program(self, breaks_in_methods: bool = False) -> str:
        lines = [_with_breaks(self.random.getrandbits(32)) if breaks_in_methods else PRELUDE]
        lines += [PRELUDE_OF_THEMES] if self.theme else []
        for number in range(self.random.choice((0, 0, 1, 2))):
            lines += self.function(f"h{number}", f"{PARAMETERS}, {STATE}", (), 1)
            self.functions.append(f"h{number}")
        for number in range(self.random.choice((0, 0, 1, 2))):
            self.yields = True
            lines += self.function(f"g{number}", f"{PARAMETERS}, {STATE}", ("if n > 1e9: yield",), 1)
            self.yields = False
            self.generators.append(f"g{number}")
        start = ("a, b, n, log, text = x + 0, y * 1, 1, [], []",)
        return "\n".join([*lines, *self.function("f", PARAMETERS, start, 3)])


def _with_breaks(seed: int) -> str:
    """The prelude with calls of `brk` in its methods and generators, before and behind what they do."""
    chance, tree = random.Random(seed), ast.parse(PRELUDE)
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name != "brk"):
        for statements in (function.body, *(n.body for n in ast.walk(function) if isinstance(n, (ast.For, ast.With)))):
            for place in (len(statements), 0):
                if chance.random() < 0.2:
                    statements.insert(place, ast.parse("brk()").body[0])
    return "def brk(): return None\n" + ast.unparse(ast.fix_missing_locations(tree))


def load(source: str, name: str) -> types.ModuleType:
    """A fresh module of the program."""
    module = types.ModuleType(name)
    file = f"<{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    exec(compile(source, file, "exec"), module.__dict__)
    return module


COUNTS = ((3, 4, 5, 2), (2, 2, 7, 3), (1, 0, -3, 4))
KINDS = (None, None, numpy.int64, numpy.float64, numpy.float32, numpy.int32)  # of the number
LENGTHS = ((0, 0, 0, 0), (0, 1, 2, 1), (2, 0, 5, 3))  # of the list, beyond 3, and of the dict, beyond 1
FLAGS = ((None, None, None, None), (None, True, True, None), (2, 3, 3.5, "s"), (False, True, "ab", 0), (1, 1, 1, 1))


def _arguments(rows: int, seed: int, call: int):
    generator = torch.Generator().manual_seed(seed + call)
    x, y = torch.randn(rows, 3, generator=generator), torch.randn(rows, 3, generator=generator)
    items = [1, 2, rows] + [3] * LENGTHS[seed % 11 % 3][call]
    ways = seed // 3 % 7  # how much is shared; from call to call it changes, or not
    turn = call if ways % 2 else 0
    z = (x, y, torch.ones(rows, 3))[(seed + turn) % 3]
    more = (items, [7])[(seed + turn) % 2]
    y = x if ways in (3, 4) and (ways == 3 or call % 2) else y
    number = COUNTS[seed % 7 % 3][call]
    kind = KINDS[seed // 5 % len(KINDS)]
    d = {"k1": 1} | {f"m{i}": i for i in range(LENGTHS[seed % 13 % 3][call])}
    if seed % 17 % 4 == call:
        d["late"] = 3
    return x, y, z, d, items, more, FLAGS[seed % 5][call], number if kind is None else kind(number)


def _change_between(module: types.ModuleType, seed: int, call: int) -> None:
    """Names that are not there at first are, and go again."""
    there = (seed % 4 == 1) <= call < (4 if seed % 2 else 2) if seed % 3 else call > 0
    for owner in (vars(module), vars(module.BOX), module.STATE, vars(module.DYN), vars(module.MOD)):
        owner["LATE" if owner is vars(module) else "late"] = 3
        if not there:
            del owner["LATE" if owner is vars(module) else "late"]
    if there:
        module.Base.late = 4
    elif "late" in vars(module.Base):
        del module.Base.late


# What `brk()` and `opaque(value)` are in the compiled program. In eager they do nothing.
BREAKS = (
    (lambda: None, lambda v: v),
    (pliant.graph_break, pliant.disable(lambda v: v)),
    (pliant.disable(lambda: None), lambda v: (pliant.graph_break(), v)[1]),
)


def _state(module: types.ModuleType):
    return dict(module.STATE), module.COUNT, module.READ(), vars(module.BOX), vars(module.DYN), module.Num.made, module.Base.registry


def difference(got, want, path: str = "", depth: int = 6) -> str:
    """The first place where two observations differ, with what stands there; empty if they are the same."""
    if same(got, want):
        return ""
    parts = ()
    if depth and same_class(type(got), type(want)):
        if isinstance(got, (list, tuple)) and len(got) == len(want):
            parts = ((f"{path}[{i}]", a, b) for i, (a, b) in enumerate(zip(got, want)))
        elif isinstance(got, dict) and list(got) == list(want):
            parts = ((f"{path}[{k!r}]", got[k], want[k]) for k in got)
        elif hasattr(got, "__dict__"):
            parts = ((path + ".", vars(got), vars(want)),)
    inner = next(filter(None, (difference(a, b, p, depth - 1) for p, a, b in parts)), "")
    return inner or f"at {path}:\n got {got!r}\nwant {want!r}\n"


def program_of(seed: int, theme: str = "") -> str:
    return Generator(seed, theme).program(breaks_in_methods=seed % 6 in (1, 2))


def disagreement(seed: int, backend: str = "eager", source: str = "", theme: str = "") -> str:
    """What differs between eager and compiled for this seed, or for another program in its place; empty if nothing."""
    source = source or program_of(seed, theme)
    eager, other = load(source, "program"), load(source, "program")
    pliant.reset()
    other.brk, other.opaque = BREAKS[seed % 3]
    compiled = pliant.compile(other.f, backend=backend)
    for call, rows in enumerate((4, 4, 5, 2)):
        arguments = _arguments(rows, seed, call)
        _change_between(eager, seed, call)
        _change_between(other, seed, call)
        if theme:
            _change_theme(eager, seed, call)
            _change_theme(other, seed, call)
        want = _seen(observe(eager.f, copy.deepcopy(arguments)))
        with warnings.catch_warnings(action="ignore", category=pliant.PliantWarning):  # too many compilations
            got = _seen(observe(compiled, copy.deepcopy(arguments)))
        found = difference(got, want) or difference(_state(other), _state(eager), "state")
        found = found or difference(_aftermath(got), _aftermath(want), "written by the caller")
        if found:
            return f"seed {seed}, call {call}, {found}"
    return ""


def _change_theme(module: types.ModuleType, seed: int, call: int) -> None:
    """One change before the second or third call, taken back before the next; in some programs another one then."""
    for at, (do, undo) in ((1 + seed % 2, CHANGES[seed % len(CHANGES)]), (2, CHANGES[seed // 7 % len(CHANGES)])):
        if call in (at, at + 1):
            with contextlib.suppress(AttributeError, KeyError):  # the other change, or the program, did it already
                exec(do if call == at else undo, {"m": module})


def _tensors(value, found: list, seen: set) -> list:
    """The tensors and arrays in a nest of containers, each object once."""
    if id(value) not in seen:
        seen.add(id(value))
        if isinstance(value, (torch.Tensor, numpy.ndarray)):
            found.append(value)
        elif isinstance(value, (list, tuple, dict)):
            for inner in value.values() if isinstance(value, dict) else value:
                _tensors(inner, found, seen)
    return found


def _aftermath(observed):
    """What the caller sees of memory that is shared: it writes into each tensor and looks at all of them."""
    found = [t for t in _tensors(observed, [], set()) if isinstance(t, numpy.ndarray) or t.layout is torch.strided]
    seen = [t.stride() if isinstance(t, torch.Tensor) else t.shape for t in found]
    for one in found:
        try:
            with torch.no_grad():
                one += 1
        except (RuntimeError, TypeError, ValueError) as error:  # places that share memory, truths
            seen.append(type(error).__name__)
        seen.append([t.sum().item() for t in found])
    return seen


def _seen(observed):
    """Errors of torch's own checks are compared by type: which check speaks first is not promised."""
    result, text, arguments = observed
    torch_error = result[0] == "raised" and result[1] is RuntimeError
    return (result[:2] if torch_error else result), text, arguments


def main() -> None:
    """Run many seeds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--theme", default="", choices=("", *NAMED), help="draw most statements from this theme")
    parser.add_argument("--file", type=Path, help="write the program of the first seed here and do not run it")
    options = parser.parse_args()
    if options.file is not None:
        options.file.write_text(program_of(options.first, options.theme))
        return
    bad = []
    with pliant.config.patch(strict=True):
        for seed in range(options.first, options.first + options.count):
            try:
                found = disagreement(seed, options.backend, theme=options.theme)
            except Exception as error:  # a crash of the compiler itself
                found = f"seed {seed}: {type(error).__name__}: {error}"
            if found:
                bad.append(seed)
                print(found[:3000], flush=True)
            if (seed - options.first) % 500 == 499:
                print(f"{seed - options.first + 1} seeds, {len(bad)} disagree", flush=True)
    print(f"{len(bad)} of {options.count} disagree: {bad}")


if __name__ == "__main__":
    main()
