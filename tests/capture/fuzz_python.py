"""Random Python programs from a grammar (`fuzz_grammar`): what they show, return, raise and leave is Python's.

Classes with random members, functions, generators and statements over values of every kind, most of which fail
somewhere: the texts of errors count too. Some tensors and graph breaks are among them.

    python -m tests.capture.fuzz_python --first 0 --count 500
    python -m tests.capture.fuzz_reduce SEED --python
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import decimal
import difflib
import fractions
import io
import itertools
import random
import re
import types
import warnings

import torch
from tests.capture.fuzz_command import run_seeds
from tests.capture.fuzz_grammar import GRAMMAR, PRELUDE
from tests.capture.fuzz_programs import BREAKS, load

import pliant

PLAIN = {int, float, str, bytes, bytearray, bool, complex, type(None), range, fractions.Fraction, decimal.Decimal}
PLAIN |= {datetime.date, datetime.datetime, datetime.timedelta}  # texts of them run nothing of the program
PARAMETERS = "x, n, s, l, d, k, t, o, p, j"
FEW = {"block": ("stmt", 1, 3), "members": ("member", 1, 2), "loop": ("inloop", 1, 1), "yields": ("yield", 1, 3)}  # of which kind, how many
LEAVES = {kind: leaves for kind, rows in GRAMMAR.items() if (leaves := [r for r in rows if "$" not in r])}
# Iterators are told apart by what they yield.
ITERATORS = {type(iter(kind)) for kind in ((), [], "", {}, set(), range(1), range(1 << 99))} | {
    getattr(itertools, name) for name in dir(itertools) if isinstance(getattr(itertools, name), type)
}
# A statement alone is checked here: walruses and yields are not allowed everywhere.
AROUND = f"def f({PARAMETERS}, a, i):\n    def g({PARAMETERS}, a, i):\n        for _ in ():\n"


class Generator:
    """Writes one program from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.number = 0
        self.classes: list[str] = []

    def expand(self, kind: str, depth: int) -> str:
        """The text of a row of this kind."""
        if kind == "own":
            return self.random.choice(self.classes or ["Root"])
        leaf = depth <= 0 or self.random.random() < 0.25
        row = self.random.choice(LEAVES.get(kind, GRAMMAR[kind]) if leaf else GRAMMAR[kind])
        self.number += 1
        row = re.sub(r"\b([hHw])@", rf"\g<1>{self.number}", row) if kind == "stmt" else row
        row = re.sub(r"#", lambda _: str(self.random.randint(0, 4)), row)
        text = re.sub(r"^( *)\$(block|loop|yields|members)$", lambda m: self.several(m[2], m[1], depth - 1), row, flags=re.M)
        return re.sub(r"\$([a-z]+)", lambda m: self.part(m[1], depth - 1), text)

    def part(self, kind: str, depth: int) -> str:
        text = self.expand(kind, depth)
        bare = kind in ("base", "target", "augmented", "operation", "own") or re.fullmatch(r"[\w.']+", text)
        return text if bare else f"({text})"

    def several(self, kind: str, indent: str, depth: int) -> str:
        inner, least, most = FEW[kind]
        lines = [self.statement(inner, min(depth, 2)) for _ in range(self.random.randint(least, most))]
        lines += [self.statement("stmt", min(depth, 2))] if kind == "loop" else []
        return "\n".join(indent + line for text in lines for line in text.split("\n"))

    def statement(self, kind: str, depth: int) -> str:
        """One that compiles."""
        for _ in range(9):
            text = self.expand(kind, depth)
            inner = "".join(f"            {line}\n" for line in text.split("\n"))
            with contextlib.suppress(SyntaxError), warnings.catch_warnings(action="ignore"):
                compile(AROUND + inner, "<statement>", "exec")
                return text
        return "pass"

    def class_statement(self, name: str) -> str:
        members = [self.statement("member", 2) for _ in range(self.random.randint(2, 7))]
        body = "".join(f"    {line}\n" for text in members for line in text.split("\n"))
        return (
            f"try:\n    class {name}({self.part('base', 1)}):\n        x = 1\n"
            + re.sub("^", "    ", body, flags=re.M).rstrip(" ")
            + (f"except Exception as e:\n    note(str(e))\n    class {name}(Root): pass\n")
        )

    def function(self, name: str, parameters: str, count: int) -> str:
        lines = []
        for _ in range(count):
            text = self.statement("stmt", 3)
            if self.random.random() < 0.6:
                text = (
                    "try:\n"
                    + re.sub("^", "    ", text, flags=re.M)
                    + "\nexcept Exception as e: note((type(e).__name__, str(e)))"
                )
            lines += text.split("\n")
        body = "".join(f"    {line}\n" for line in lines)
        return f"def {name}({parameters}):\n    global G\n    a, i = x + 1, 0\n{body}    return a, {PARAMETERS}\n"

    def program(self) -> str:
        parts = [
            PRELUDE,
            "x, n, s, l, d, k, t, j = torch.ones(2), 2, 'ab', [1], {'a': 1}, {1}, (1, 2), iter(())",
            "o = p = Root(1)",
        ]
        for number in range(self.random.randint(1, 3)):
            parts.append(self.class_statement(f"C{number}"))
            self.classes.append(f"C{number}")
        parts.append("def made(kind):\n    try: return kind(2)\n    except Exception: return Root(2)")
        parts.append("o, p = made(C0), made(" + self.random.choice(self.classes) + ")\nLOG.clear()")
        parts.append(self.function("h", ", ".join(f"{name}={name}" for name in PARAMETERS.split(", ")), 2))
        parts.append(self.function("f", PARAMETERS, self.random.randint(4, 10)))
        often = self.random.choice((0, 0, 0.05, 0.2))  # breaks, in methods and functions of the prelude too
        return re.sub(r"(?m)^( +|(?: |.* )def .*: )note\(", lambda m: self.random.random() < often and f"{m[1]}brk(); note(" or m[0], "\n".join(parts))


def arguments(module: types.ModuleType, seed: int, call: int) -> tuple:
    """Fresh ones for a call; from the third call on other values."""
    turn = max(0, call - 1) * (seed % 4 + 1)
    kinds = (2 + turn, "ab" * (turn % 3 + 1), [3, "b", (1, 2)][: 3 - turn % 4 % 3], {"a": turn, "b": [1]}, {1, turn})
    return (torch.arange(3.0 + turn % 2), *kinds, (turn, "t"), module.o, module.p, iter([1, 2, 3]))


def described(value: object, seen: dict[int, int], depth: int = 6) -> str:
    """A text of the value that runs nothing of the program."""
    kind, inner = type(value), lambda v: described(v, seen, depth - 1)
    if issubclass(kind, torch.Tensor):
        return f"tensor {value.dtype} {value.tolist()}"
    if kind is str and re.search("0x|x0", value, re.I):
        return "an address"
    if kind in PLAIN:
        return repr(value)
    if kind is slice:
        return f"slice({inner(value.start)}, {inner(value.stop)}, {inner(value.step)})"
    if id(value) in seen or not depth:
        return f"again {seen.get(id(value), kind.__name__)}"
    if not issubclass(kind, tuple):  # which of equal tuples are one object is not promised
        seen[id(value)] = len(seen)
    if kind in ITERATORS:
        return "iterator"
    text = kind.__qualname__ if not issubclass(kind, type) else "class " + value.__qualname__
    if issubclass(kind, BaseException):
        text += inner(BaseException.args.__get__(value))
    for base, items in (
        (list, list.__iter__),
        (tuple, tuple.__iter__),
        (set, set.__iter__),
        (frozenset, frozenset.__iter__),
    ):
        if issubclass(kind, base):
            parts = [inner(v) for v in items(value)]
            text += f"[{', '.join(sorted(parts) if base in (set, frozenset) else parts)}]"
    if issubclass(kind, dict):
        items = collections.OrderedDict.items if issubclass(kind, collections.OrderedDict) else dict.items
        text += "{" + ", ".join(f"{inner(key)}: {inner(v)}" for key, v in items(value)) + "}"
    for base in (int, float, str):
        text += base.__repr__(value) if issubclass(kind, base) else ""
    for cls in kind.__mro__:
        for name, slot in vars(cls).items() if "__slots__" in vars(cls) else ():
            with contextlib.suppress(AttributeError):
                text += f"({name}={inner(slot.__get__(value))})" if isinstance(slot, types.MemberDescriptorType) else ""
    with contextlib.suppress(AttributeError):
        fields = object.__getattribute__(value, "__dict__")
        text += (
            "" if issubclass(kind, type) else "(" + ", ".join(f"{name}={inner(v)}" for name, v in fields.items()) + ")"
        )
    return text


def outcome(function: object, module: types.ModuleType, seed: int, call: int) -> list[str]:
    """All that a call shows, a line each."""
    module.LOG.clear()
    given, text = arguments(module, seed, call), io.StringIO()
    with contextlib.redirect_stdout(text):
        try:
            result = ("returned", function(*given))
        except KeyboardInterrupt:  # whoever runs this wants it to end
            raise
        except BaseException as error:  # the program's own; a text: its traceback would hold the frame that holds it
            result = ("raised", type(error).__name__, str(error))
    seen: dict[int, int] = {}
    shown = [*module.LOG, result, given, text.getvalue(), module.COUNT, module.o, getattr(module, "G", None), module.l]
    return [described(value, seen) for value in shown]


def program_of(seed: int) -> str:
    return Generator(seed).program()


def disagreement(seed: int, backend: str = "eager", source: str = "") -> str:
    """What differs between Python and compiled for this seed, or for another program in its place; empty if nothing."""
    source = source or program_of(seed)
    with warnings.catch_warnings(action="ignore"):
        plain, other = load(source, "program"), load(source, "program")
        pliant.reset()
        other.brk = (lambda v=None, opaque=BREAKS[seed % 3][1]: opaque(v)) if seed % 3 else other.brk
        compiled = pliant.compile(other.f, backend=backend)
        for call in range(4):
            want, got = outcome(plain.f, plain, seed, call), outcome(compiled, other, seed, call)
            if got != want:
                lines = difflib.unified_diff(want, got, "python", "compiled", n=1, lineterm="")
                shown = itertools.islice(lines, 40)
                return f"seed {seed}, call {call}\n" + "\n".join(line[:300] for line in shown)
    return ""


if __name__ == "__main__":
    run_seeds(disagreement, backend=True)
