"""Generators in every state, with graph breaks at every place and every way to an end: all side effects in Python's order.

`python -m tests.capture.generator_table` runs the whole table and prints each program that differs; `--every N` runs
each Nth row, `--only TEXT+TEXT` the rows whose name has all of the words, `--show` prints their programs.
"""

import itertools
from dataclasses import dataclass

import torch
from tests.capture.table_command import differs, run_table

# What is iterated over. Each notes what it does in `log`; `@start` and the like are places of a graph break.
GENERATORS = {
    "plain": "@start\nfor i in range(n):\n    log.append(('in', i))\n    @before\n    yield x + i\n    @after",
    "finally": """
        @start
        try:
            for i in range(n):
                @before
                got = yield x + i
                @after
                log.append(('got', got))
        finally:
            @finally
            log.append('finally')
        return 'value'""",
    "closed": """
        @start
        try:
            for i in range(n):
                @before
                yield i
                @after
        except GeneratorExit:
            @finally
            log.append('closed')
            raise
        log.append('done')
        return n""",
    "context": """
        @start
        with scope(log, 'inner'):
            for i in range(n):
                @before
                yield x.shape[0] * i
                @after
            @finally""",
    "catches": """
        @start
        for i in range(n):
            try:
                @before
                yield i
                @after
            except ValueError as error:
                log.append(str(error))
                @finally
                yield 'after'
            else:
                log.append('else')""",
    "raises": """
        @start
        try:
            for i in range(n):
                @before
                yield i
                @after
                if i: raise KeyError(i)
        finally:
            @finally
            log.append('finally')""",
    "delegates": """
        try:
            log.append((yield from inner(x, n, log)))
        finally:
            log.append('outer')""",
    "expression": "return (v for v in inner(x, n, log))",
    "filtered": "return filter(None, map(lambda v: (v, 1), inner(x, n, log)))",
    "object": "return Counted(x, n, log)",
}
INNER = "finally"  # the generator that others go through
INSIDE = ("start", "before", "after", "finally")
ORIGINS = {
    "made here": ("", "make(x, n, log)"),
    "in a local": ("it = make(x, n, log)", "it"),
    "started": ("it = make(x, n, log)\nlog.append(shown(next(it, None)))\n@between", "it"),
    "argument": ("", "given"),
    "attribute": ("", "given.it"),
    "in a list": ("many = [make(x, n, log)]", "many[0]"),
}
FROM_OUTSIDE = ("argument", "attribute")
# How it is used, and how it ends; `it` is where it comes from.
USES = {
    "for": "for v in {it}:\n    log.append(shown(v))\n    @body",
    "for else": "for i, v in enumerate({it}):\n    @body\n    log.append(shown(v))\nelse:\n    log.append('else')",
    "leaves": "for v in {it}:\n    @body\n    if len(log) > 1: break\n    log.append(shown(v))",
    "returns": "for v in {it}:\n    log.append(shown(v))\n    @body\n    if len(log) > 2: return x, log",
    "raises": "for v in {it}:\n    log.append(shown(v))\n    @body\n    if len(log) > 1: raise KeyError('body')",
    "fails": "for v in {it}:\n    log.append(shown(v))\n    @body\n    {{}}['missing']",
    "kept": "u = {it}\nlog.append(shown(next(u, 'none')))\n@between\nlog.append(shown(next(u, 'none')))\n@body",
    "deleted": "u = {it}\nlog.append(shown(next(u, 'none')))\n@between\ndel u\n@body",
    "replaced": "u = {it}\nlog.append(shown(next(u, 'none')))\n@between\nu = make(x, n, log)\nlog.append(shown(next(u)))\n@body",
    "closed": "u = {it}\nlog.append(shown(next(u, 'none')))\n@between\nif hasattr(u, 'close'): log.append(u.close())\n@body",
    "not started": "u = {it}\n@between\nu = None\n@body",
    "thrown": "u = {it}\nlog.append(shown(next(u, 'none')))\n@between\nif hasattr(u, 'throw'): log.append(shown(u.throw(ValueError('thrown'))))\n@body",
    "sent": "u = {it}\nlog.append(shown(next(u, 'none')))\n@between\nif hasattr(u, 'send'): log.append(shown(u.send(5)))\n@body",
    "list": "log.append([shown(v) for v in list({it})])\n@body",
    "zip": "log.append([shown(v) for v, _ in zip({it}, range(1))])\n@body",
    "any": "log.append(any(shown(v) == 1 for v in {it}))\n@body",
    "unpacked": "p, q = {it}\n@body",
    "shared": "u = {it}\nfor v in u:\n    log.append(shown(v))\n    @body\n    log.append(shown(next(u, 'none')))",
    "delegated": "def outer():\n    r = yield from {it}\n    log.append(r)\nfor v in outer():\n    log.append(shown(v))\n    @body\n    if len(log) > 3: break",
    "passed": "def use(u):\n    log.append(shown(next(u, 'none')))\n    @between\n    u = None\n    log.append('dropped')\nuse({it})\n@body",
    "from a callee": "def taken():\n    u = {it}\n    log.append(shown(next(u, 'none')))\n    @between\n    return u\n"
    "u = taken()\n@body\nlog.append(shown(next(u, 'none')))",
    "in a callee": "def inside():\n    u = {it}\n    log.append(shown(next(u, 'none')))\n    @between\n    log.append('leaving')\ninside()\n@body",
    "popped": "held = [{it}]\nlog.append(shown(next(held[0], 'none')))\n@between\nheld.pop()\n@body",
    "in a dict": "held = {{'it': {it}}}\nlog.append(shown(next(held['it'], 'none')))\n@between\nheld['it'] = 1\n@body",
    "in an object": "held = Held({it})\nlog.append(shown(next(held.it, 'none')))\n@between\nheld.it = None\n@body",
    "garbage": "held = [{it}]\nlog.append(shown(next(held[0], 'none')))\nheld.append(held)\n@between\ndel held\ngc.collect()\n@body",
    "two": "for v, w in zip({it}, make(x, n, log)):\n    log.append((shown(v), shown(w)))\n    @body\n    if len(log) > 3: break",
}  # fmt: skip
BREAK = "pliant.graph_break()"
PLACES = ("nowhere", "between", "body", "behind", *INSIDE, "everywhere")

PRELUDE = """
import contextlib, gc, pliant, torch
def shown(v):
    return ('tensor', tuple(v.shape), v.sum()) if isinstance(v, torch.Tensor) else v
@contextlib.contextmanager
def scope(log, name):
    try:
        yield name
    finally:
        log.append('out ' + name)
class Held:
    def __init__(self, it):
        self.it = it
class Counted:
    def __init__(self, x, n, log):
        self.x, self.n, self.log = x, n, log
    def __iter__(self):
        return self
    def __next__(self):
        if not self.n: raise StopIteration
        self.n -= 1
        return self.x + self.n
    def __del__(self):
        self.log.append('deleted')
"""


@dataclass(frozen=True)
class Row:
    generator: str
    origin: str
    use: str
    place: str

    @property
    def name(self) -> str:
        return f"{self.generator}, {self.origin}; {self.use}; break: {self.place}"

    def text(self) -> str:
        """The program: a function of a tensor, how often to turn, where to note, and what is iterated over."""
        first, it = ORIGINS[self.origin]
        return "\n".join([
            PRELUDE,
            self._function("inner", "x, n, log", GENERATORS[INNER]),
            self._function("make", "x, n, log", GENERATORS[self.generator]),
            self._function("program", "x, n, log, given", self._body(first, USES[self.use].format(it=it))),
        ])  # fmt: skip

    def _body(self, first: str, use: str) -> str:
        handled = "\n".join(["try:", *(f"    {line}" for line in use.splitlines()), "except Exception as error:"])
        return f"{first}\n{handled}\n    log.append((type(error).__name__, str(error)))\n@behind\nlog.append('end')\nreturn x + len(log), log"

    def _function(self, name: str, parameters: str, body: str) -> str:
        lines = [line for line in body.splitlines() if line.strip()]
        indent = min(len(line) - len(line.lstrip()) for line in lines)
        return "\n".join([f"def {name}({parameters}):", *(f"    {self._placed(line[indent:])}" for line in lines), ""])

    def _placed(self, line: str) -> str:
        before, at, place = line.partition("@")
        return before + (BREAK if place == self.place or self.place == "everywhere" else "pass") if at else line

    def call(self, namespace, function, turn: int):
        """What a call does, and what happens behind it."""
        rows, n = ((4, 3), (4, 3), (5, 2), (3, 0), (6, 4))[turn]
        x, log = torch.ones(rows), []
        given = namespace["make"](x, n, log)
        if turn % 2 and self.origin in FROM_OUTSIDE:
            log.append(namespace["shown"](next(given, None)))
        holder = namespace["Held"](given) if self.origin == "attribute" else given
        del given
        if self.origin not in FROM_OUTSIDE:
            holder = None
            log.clear()
        try:
            found = function(x, n, log, holder)
            log.append("returned")
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
            log.append("raised")
        del holder
        return found, log


def rows():
    for generator, origin, use, place in itertools.product(GENERATORS, ORIGINS, USES, PLACES):
        if (generator, use) == ("expression", "thrown"):  # the inner one lives as long as the exception's traceback
            continue
        yield Row(generator, origin, use, place)


def difference(row):
    return differs(row.name, row.text(), row.call, turns=5)


if __name__ == "__main__":
    run_table(rows(), difference, __doc__)
