"""Loops over every state of a container, with a graph break at every place of the loop: all must do as Python does.

`python -m tests.capture.loop_table` runs the whole table and prints each program that differs; `--every N` runs each
Nth row, `--only TEXT` the rows whose name has all of the words, `--show` prints their programs.
"""

import itertools
import linecache
from dataclasses import dataclass

import torch
from tests.capture.table_command import run_table, shown

import pliant

# How the container comes about: its text, given the items that it starts with.
KINDS = {
    "list": "[{}]",
    "dict": "dict.fromkeys([{}], 1)",
    "set": "{{*[{}]}}",
    "deque": "collections.deque([{}])",
    "list of a class": "Items([{}])",
    "dict of a class": "Table(dict.fromkeys([{}], 1))",
    "list iterator": "iter([{}])",
    "dict iterator": "iter(dict.fromkeys([{}], 1).items())",
    "enumerate": "enumerate([{}])",
    "chain": "itertools.chain([{}], [77])",
}
ORIGINS = ("made here", "argument", "attribute")
FILLS = {"empty": "", "three": "1, 2, 3"}
# Statements before the loop, and in each turn of it.
BEFORE = {
    "list": {
        "untouched": "",
        "appended": "c.append(10); c.append(20)",
        "extended": "c += [10, 20]",
        "inserted": "c.insert(0, 10)",
        "emptied": "c.clear(); c.append(10)",
        "stored": "c[:1] = [10]",
    },
    "dict": {
        "untouched": "",
        "stored": "c[10] = 5; c[20] = 6",
        "emptied": "c.clear(); c[10] = 1",
        "changed": "c[1] = 7",
    },
    "set": {"untouched": "", "added": "c.add(10); c.add(20)", "updated": "c |= {10, 20}", "removed": "c.discard(1)"},
    "deque": {
        "untouched": "",
        "appended": "c.append(10); c.append(20)",
        "before": "c.appendleft(10)",
        "turned": "c.rotate(1)",
    },
    "list of a class": {"untouched": "", "appended": "c.append(10); c.append(20)", "stored": "c[:1] = [10]"},
    "dict of a class": {"untouched": "", "stored": "c[10] = 5; c[20] = 6", "changed": "c[1] = 7"},
    "iterator": {"untouched": "", "advanced": "log.append(next(c, None))", "at its end": "log.append(list(c))"},
}
DURING = {
    "list": {
        "nothing": "",
        "appends": "if len(c) < 5: c.append(len(log))",
        "stores": "if c: c[-1] = 30 + len(log)",
        "pops": "if c: c.pop()",
        "removes first": "if c: del c[0]",
        "leaves": "if len(log) == 2: break",
    },
    "dict": {
        "nothing": "",
        "stores": "for k in list(c): c[k] = 30 + len(log)",
        "adds": "if len(c) < 5: c[100 + len(log)] = 1",
        "removes": "if c: c.popitem()",
        "leaves": "if len(log) == 2: break",
    },
    "set": {"nothing": "", "adds": "if len(c) < 5: c.add(100 + len(log))", "leaves": "if len(log) == 2: break"},
    "deque": {"nothing": "", "appends": "if len(c) < 5: c.append(len(log))", "stores": "if c: c[-1] = 30 + len(log)"},
    "list of a class": {
        "nothing": "",
        "appends": "if len(c) < 5: c.append(len(log))",
        "pops": "if c: c.pop()",
        "leaves": "if len(log) == 2: break",
    },
    "dict of a class": {
        "nothing": "",
        "stores": "for k in list(c): c[k] = 30 + len(log)",
        "adds": "if len(c) < 5: c[100 + len(log)] = 1",
        "removes": "if c: c.popitem()",
    },
    "iterator": {"nothing": "", "advances": "log.append(('next', next(c, None)))", "leaves": "if len(log) == 2: break"},
}
ALL = tuple(KINDS)
LISTS, DICTS = ("list", "list of a class"), ("dict", "dict of a class")
CONTAINERS = (*LISTS, *DICTS, "set", "deque")
ITERATORS = tuple(kind for kind in ALL if kind not in CONTAINERS)
# The loop, with `{turn}` for what a turn does with `n`, `{c}` for the container as the loop takes it; and for which
# kinds. A turn that is an expression is `{value}`.
STATEMENT, EXPRESSION = "statement", "expression"
LOOPS = {
    "for": (ALL, STATEMENT, "for n in {c}:\n    {turn}"),
    "for else": (ALL, STATEMENT, "for n in {c}:\n    {turn}\nelse:\n    log.append('else')"),
    "enumerate": (ALL, STATEMENT, "for i, n in enumerate({c}, 5):\n    log.append(i)\n    {turn}"),
    "zip": (ALL, STATEMENT, "for n, m in zip({c}, range(9)):\n    log.append(m)\n    {turn}"),
    "map": (ALL, STATEMENT, "for n in map(lambda v: (v, 1), {c}):\n    {turn}"),
    "filter": (ALL, STATEMENT, "for n in filter(None, {c}):\n    {turn}"),
    "sorted": ((*LISTS, *DICTS, "set"), STATEMENT, "for n in sorted({c}):\n    {turn}"),
    "reversed": ((*LISTS, *DICTS, "deque"), STATEMENT, "for n in reversed({c}):\n    {turn}"),
    "chained": (ALL, STATEMENT, "for n in itertools.chain({c}, [8]):\n    {turn}"),
    "sliced": (ALL, STATEMENT, "for n in itertools.islice({c}, 2):\n    {turn}"),
    "grouped": (ALL, STATEMENT, "for n, g in itertools.groupby({c}, str):\n    {turn}\n    log.append(list(g))"),
    "keys": (DICTS, STATEMENT, "for n in {c}.keys():\n    {turn}"),
    "values": (DICTS, STATEMENT, "for n in {c}.values():\n    {turn}"),
    "items": (DICTS, STATEMENT, "for n in {c}.items():\n    {turn}"),
    "nested": (CONTAINERS, STATEMENT, "for m in {c}:\n    for n in c:\n        {turn}"),
    "while pop": ((*LISTS, "set", "deque"), STATEMENT, "while {c} and len(log) < 9:\n    n = c.pop()\n    {turn}"),
    "by index": ((*LISTS, "deque"), STATEMENT, "for i in range(len({c})):\n    if i < len(c):\n        n = c[i]\n        {turn}"),
    "next": (ALL, STATEMENT, "it = iter({c})\nwhile (n := next(it, None)) is not None:\n    {turn}"),
    "try next": (
        ALL, STATEMENT,
        "it = iter({c})\nwhile True:\n    try:\n        n = next(it)\n    except StopIteration:\n        break\n    {turn}",
    ),
    "in an object": (
        ALL, STATEMENT, "b = Box(iter({c}))\nwhile (n := next(b.c, None)) is not None:\n    {turn}\nlog.append(list(b.c))",
    ),
    "shared": (ALL, STATEMENT, "it = iter({c})\nfor n in it:\n    {turn}\n    log.append(next(it, None))"),
    "comprehension": (ALL, EXPRESSION, "log.append([{value} for n in {c}])"),
    "dict comprehension": (ALL, EXPRESSION, "log.append({{n: {value} for n in {c}}})"),
    "generator expression": (ALL, EXPRESSION, "log.append(list({value} for n in {c}))"),
    "generator": (ALL, EXPRESSION, "log.append([v for v in walk({c}, lambda n: {value})])"),
    "any": (ALL, EXPRESSION, "log.append(any({value} == 3 for n in {c}))"),
    "key": ((*LISTS, "set"), EXPRESSION, "log.append(sorted({c}, key=lambda n: -{value}))"),
    "unpacking": (ALL, EXPRESSION, "n, *rest = (0, *{c})\nlog.append(({value}, rest))"),
    "unpacking one": (ALL, EXPRESSION, "n, m = {c}\nlog.append(({value}, m))"),
    "delegated": (ALL, EXPRESSION, "log.append([v for v in delegate({c}, lambda n: {value})])"),
}  # fmt: skip
BREAK = "pliant.graph_break()"
PLACES = ("before", "first turn", "every turn", "by a tensor", "after", "inlined", "in the iterable")

PRELUDE = """
import collections, itertools, pliant
class Items(list):
    pass
class Table(dict):
    pass
class Box:
    def __init__(self, c):
        self.c = c
def broken(value):
    pliant.graph_break()
    return value
def walk(c, f):
    for n in c:
        yield f(n)
def delegate(c, f):
    yield 'first'
    yield from walk(c, f)
    yield 'last'
"""


@dataclass(frozen=True)
class Row:
    kind: str
    origin: str
    fill: str
    before: str
    during: str
    loop: str
    place: str

    @property
    def name(self) -> str:
        return (
            f"{self.kind}, {self.origin}, {self.fill}, {self.before}; {self.loop}, {self.during}; break: {self.place}"
        )

    def text(self) -> str:
        """The program: a function of a tensor and the container, or what holds it."""
        states = self.kind if self.kind in CONTAINERS else "iterator"
        lines = ["def program(x, given):", "    log = []", "    total = x"]
        lines.append(f"    c = {self._container()}")
        lines += [f"    {BEFORE[states][self.before] or 'pass'}"]
        lines += [f"    {BREAK}"] * (self.place == "before")
        _, form, loop = LOOPS[self.loop]
        taken = "broken(c)" if self.place == "in the iterable" else "c"
        filled = loop.format(c=taken, turn="TURN", value=self._value())
        turn = self._turn(DURING[states][self.during])
        for line in filled.splitlines():
            indent = line[: len(line) - len(line.lstrip())]
            lines += [f"    {indent}{t}" for t in turn] if line.strip() == "TURN" else [f"    {line}"]
        lines += [f"    {BREAK}"] * (self.place == "after")
        lines += ["    log.append(len(log) + 1)", "    total = total + len(log)"]
        return "\n".join([*lines, f"    return log, total, {'c' if states != 'iterator' else 'list(c)'}"])

    def _container(self) -> str:
        if self.origin == "made here":
            return KINDS[self.kind].format(FILLS[self.fill])
        return "given" if self.origin == "argument" else "given.c"

    def _turn(self, during: str) -> list[str]:
        first = {
            "every turn": BREAK,
            "first turn": f"if len(log) < 2: {BREAK}",
            "by a tensor": "total = max(total, total * 0 + len(log))",
            "inlined": "n = broken(n)",
        }.get(self.place, "pass")
        return [first, "log.append(n)", "total = total + 1", during or "pass"]

    def _value(self) -> str:
        value = "(n if type(n) is int else 3)"
        match self.place:
            case "every turn" | "inlined":
                return f"broken({value})"
            case "first turn":
                return f"(broken({value}) if n in (1, 10, (1, 1), (0, 1)) else {value})"
            case "by a tensor":
                return f"int(max(total, total * 0 + {value}))"
        return value

    def given(self, namespace, items):
        """The argument of a call."""
        made = eval(KINDS[self.kind].format(items), namespace)
        return namespace["Box"](made) if self.origin == "attribute" else made


def rows():
    for kind, origin, fill, loop, place in itertools.product(KINDS, ORIGINS, FILLS, LOOPS, PLACES):
        kinds, form, _ = LOOPS[loop]
        states = kind if kind in CONTAINERS else "iterator"
        if kind not in kinds:
            continue
        for before, during in itertools.product(BEFORE[states], DURING[states]):
            if (states, loop, during) == ("set", "while pop", "adds"):  # what is popped depends on a set's past
                continue
            if form == STATEMENT or during == "nothing":
                yield Row(kind, origin, fill, before, during, loop, place)


def _run(row, namespace, program, items):
    """What a call does: its result or exception, what became of the argument."""
    given = row.given(namespace, items)
    try:
        found = shown(program(torch.tensor(2.0), given))
        if row.kind == "set":  # has no order
            found = (
                sorted(str(sorted(v, key=str) if type(v) is list else v) for v in found[0]),
                *found[1:2],
                sorted(found[2]),
            )
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    held = given.c if row.origin == "attribute" else given
    return found, sorted(held) if row.kind == "set" else held if row.kind in CONTAINERS else list(held)


def difference(row):
    """What compiled code does otherwise than Python; None if nothing."""
    text = row.text()
    file = f"<loop {row.name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    namespace = {}
    exec(PRELUDE, namespace)
    exec(compile(text, file, "exec"), namespace)
    program = namespace["program"]
    pliant.reset()
    compiled = pliant.compile(program, backend="eager", dynamic=False)
    fill = FILLS[row.fill]
    calls = [fill, fill, fill + ", 4" if fill else "6", fill] if row.origin != "made here" else [fill, fill]
    for number, items in enumerate(calls):
        expected = _run(row, namespace, program, items)
        found = _run(row, namespace, compiled, items)
        if repr(found) != repr(expected):
            return f"call {number} with [{items}]:\n  Python   {expected}\n  compiled {found}"
    return None


if __name__ == "__main__":
    run_table(rows(), difference, __doc__)
