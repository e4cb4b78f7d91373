"""Random programs over arguments of every kind: containers, iterators, objects, functions, exceptions, also given twice.

A program does a few things with `g` and `o`, perhaps one object, and with names that come and go. From call to call
their lengths, values and kinds change. Results, texts, errors and what is left of the arguments must be eager's, and
without graph breaks at most two entries serve each way in which a call behaves.

    python -m tests.capture.fuzz_arguments --count 2000 --first 0
"""

# ruff: noqa: E501
from __future__ import annotations

import dataclasses
import itertools
import random
import types
import warnings
from typing import Any

import torch
from tests.capture.constructs.harness import observe
from tests.capture.fuzz_command import run_seeds
from tests.capture.fuzz_entries import behaviour
from tests.capture.fuzz_prelude import PRELUDE
from tests.capture.fuzz_programs import BREAKS, difference, load

import pliant

MORE = """
import copy
import numpy as np
CAUGHT = AttributeError, TypeError, LookupError, ValueError, RuntimeError, StopIteration, ZeroDivisionError, AppError

def started(it):
    next(it)
    return it

class Held:
    "Enters and leaves; it says so in its own list."
    def __init__(self, k): self.k, self.seen = k, []
    def __enter__(self): self.seen.append("in"); return self
    def __exit__(self, kind, error, trace): self.seen.append(kind and kind.__name__); return kind is KeyError

class Late:
    "An iterable whose iterator is made anew each time."
    def __init__(self, k): self.k = k
    def __iter__(self): return iter(range(self.k))

@dataclasses.dataclass
class Tensors:
    first: object
    rest: list
    def total(self): return sum(self.rest, self.first)
"""
# What an argument is; `k` is the call's number.
KINDS = {
    "lists": ("list(range(k))", "[1, k]", "[k] * 3", "[[k], [1]]", "Stack(range(k))", "[None] * k", "['a', 'b'][:k]"),
    "dicts": (
        "dict.fromkeys(range(k))",
        "{'k1': k}",
        "{'k1': 1, **{f'm{i}': i for i in range(k)}}",
        "Defaults(a=k)",
        "collections.OrderedDict(a=1, b=k)",
        "collections.Counter('a' * k)",
        "collections.defaultdict(list, {k: [k]})",
        "{k: k}",
        "types.MappingProxyType({'k1': k})",
    ),
    "sets": ("set(range(k))", "{1, k}", "frozenset(range(k))", "{'a', 'b'} if k % 2 else {'b'}"),
    "sequences": (
        "tuple(range(k))",
        "(1, k)",
        "collections.deque(range(k))",
        "collections.deque(range(k), maxlen=2)",
        "range(k)",
        "Pair(1, k)",
        "'abcdef'[:k]",
        "b'abcdef'[:k]",
        "Seq(*range(k))",
        "torch.Size([k, 2])",
        "bytearray(b'ab' * k)",
        "slice(0, k)",
    ),
    "iterators": (
        "iter([1, 2, k])",
        "iter(range(k))",
        "started(iter((1, 2, k)))",
        "gen(k, 3)",
        "started(gen(k, 3))",
        "careful([], k)",
        "enumerate('abc'[:k])",
        "zip('ab', range(k))",
        "map(str, range(k))",
        "filter(None, [0, 1, k])",
        "itertools.islice(itertools.count(k), 3)",
        "itertools.chain([1], range(k))",
        "reversed([1, k])",
        "Countdown(k)",
        "iter({1: 2, k: 3})",
        "iter({'a': k}.items())",
        "(v * 2 for v in range(k))",
        "Late(k)",
    ),
    "objects": (
        "Box(k)",
        "SubBox(k)",
        "BOX",
        "Num(k)",
        "Dyn(px=k)",
        "Point(k)",
        "Point(1, k, ['t'] * k)",
        "Key('a', k)",
        "Held(k)",
        "Derived(size=k)",
        "Color.RED if k % 2 else Color.BLUE",
        "Level.HIGH if k % 2 else Level.LOW",
        "types.SimpleNamespace(px=k, value=2)",
        "object()",
    ),
    "functions": (
        "(lambda v=1: v + k)",
        "make_counter(k)[0]",
        "functools.partial(operator.add, k)",
        "Box(k).grow",
        "len",
        "[1, k].append",
        "operator.itemgetter(0)",
        "Num",
        "Box",
        "Num(k)",
        "(BUMP, READ)[k % 2]",
    ),
    "errors": ("ValueError(k)", "KeyError('k', k)", "AppError(k)", "SubError(k, 'x')", "KeyError", "StopIteration(k)"),
    "numbers": (
        "k",
        "np.int64(k)",
        "np.float32(k)",
        "np.float64(k)",
        "np.int32(k)",
        "np.bool_(k % 2)",
        "k / 2",
        "bool(k % 2)",
        "complex(k, 1)",
        "np.uint8(k)",
        "np.float16(k)",
        "None",
    ),
    "tensors": (
        "[torch.ones(2)] * k",
        "{'k1': torch.ones(2) * k}",
        "(torch.ones(2), torch.zeros(2) + k)",
        "Tensors(torch.ones(2), [torch.ones(2)] * k)",
        "Pair(torch.ones(2), k)",
        "torch.ones(2) * k",
        "torch.arange(k)",
        "torch.tensor(k)",
        "np.ones(2) * k",
        "np.arange(k)",
        "iter([torch.ones(2)] * k)",
        "Box(torch.ones(2))",
    ),
}
ANY = (
    "log.append(type(g).__name__)",
    "log.append(g is o)",
    "log.append(g == o)",
    "log.append(bool(g))",
    "log.append(len(g))",
    "log.append(describe(g))",
    "log.append(kind_of(g))",
    "log.append(isinstance(g, (list, tuple, dict)))",
    "log.append(callable(g) or hasattr(g, '__iter__'))",
    "log.append(id(g) == id(o))",
    "if g: a = a + 1\nelse: a = a - 1",
    "if g is None: a = a * 2",
    "a = a + g",
    "a = a * len(g)",
    "BUMP(2); log.append(READ())",
    "brk()",
    "g = opaque(g)",
    "h = copy.copy(g); log.append(type(h) is type(g))",
    "log.append({1: g}[1] is o)",
    "log.append([v is g for v in (o, g)])",
    "STATE['kept'] = g; brk(); log.append(STATE.pop('kept') is g)",
    "def later(): return g\nbrk(); log.append(later() is g)",
    "log.append(f'{n}'); log.append(len(str(n)))",
)
LOOPS = (
    "for v in g: log.append(shown(v))",
    "for v in g: brk(); log.append(shown(v))",
    "for v in g:\n    log.append(shown(v)); brk()",
    "for v in g:\n    if v == 2: break\n    log.append(shown(v))\nelse: log.append('all')",
    "for v in g:\n    for w in o: log.append((shown(v), shown(w)))",
    "for i, v in enumerate(g): brk(); log.append((i, shown(v)))",
    "for v, w in zip(g, o): log.append((shown(v), shown(w))); brk()",
    "log.append([shown(v) for v in g])",
    "log.append([opaque(shown(v)) for v in g])",
    "log.append({str(v): shown(v) for v in g})",
    "p, *q = g; log.append((shown(p), len(q)))",
    "p, q = g; log.append((shown(p), shown(q)))",
    "log.append(shown(next(g))); brk(); log.append(shown(next(g, 'end')))",
    "log.append(shown(next(iter(g), 'end')))",
    "it = iter(g); log.append(shown(next(it, 0))); brk(); log.append([shown(v) for v in it])",
    "log.append(sum(v for v in g if isinstance(v, int)))",
    "log.append(sorted(g, key=str))",
    "log.append([*map(shown, g), *map(shown, o)])",
    "log.append(any(v == 2 for v in g))",
    "log.append(2 in g)",
    "log.append([shown(v) for v in reversed(g)])",
    "log.append(max(g)); log.append(min(g))",
    "log.append(len({*g}))",
    "def passing(): yield from g\nlog.append([shown(v) for v in passing()])",
    "def first(): return next(iter(g))\nlog.append(shown(first())); brk(); log.append(shown(first()))",
    "log.append(list(itertools.islice(g, 2))); brk(); log.append([shown(v) for v in itertools.islice(g, 2)])",
    "while True:\n    try: v = next(g)\n    except StopIteration as e: log.append(e.value); break\n    log.append(shown(v)); brk()",
    "a = a + sum(v.sum() for v in g)",
    "a = torch.stack([a, *g]).sum(0)",
    "log.append(functools.reduce(lambda p, q: (p, shown(q)), g, 0))",
    "log.append(' '.join(map(str, g)))",
    "log.append(dict(enumerate(map(shown, g))))",
)
WRITES = (
    "g.append(n)",
    "g.append(4); brk(); log.append(len(o))",
    "g.add(n)",
    "g.update({'late': n})",
    "g.update([(7, n)])",
    "g[0] = n",
    "g['late'] = n; log.append(len(o))",
    "g[-1] = 'last'; brk(); log.append(o[-1])",
    "del g[0]",
    "log.append(shown(g.pop()))",
    "g.clear(); brk(); log.append(len(o))",
    "g.extend(o)",
    "g += [5]; log.append(g is o)",
    "g |= {5}",
    "g |= {5: 6}; log.append(g is o)",
    "g.insert(1, 'in')",
    "g.sort(); g.reverse()",
    "g.remove(1)",
    "g.discard(1); log.append(len(o))",
    "g.setdefault('q', []).append(n); log.append(g['q'])",
    "g.late = n; brk(); log.append(o.late)",
    "g.late = a; del g.late",
    "g.value = n; log.append(o.value)",
    "g.px += 1; log.append(o.px)",
    "g.px = a; brk(); a = o.px + 1",
    "g.tags.append(n); log.append(len(o.tags))",
    "g.rest.append(a); a = o.total()",
    "g *= 2; log.append(g is o)",
    "g[:1] = [8, 9]; log.append(len(o))",
    "g.add_(1); a = a + o",
    "g[0] += 1; a = a + o[0]",
    "vars(g)['late'] = n; log.append(sorted(vars(o)))",
    "for v in g: g.remove(v)",
    "for v in g: o[v + 1] = 2",
    "for v in list(g): g.pop(v)",
)
USES = (
    "log.append(shown(g(2)))",
    "log.append(shown(g()))",
    "log.append(shown(g([n, 2])))",
    "raise g",
    "raise g from o",
    "try: raise g\nexcept KeyError as e: log.append(e is o)\nfinally: brk(); log.append('f')",
    "try: raise g\nexcept (ValueError, KeyError) as e: brk(); log.append((e.args, type(e.__context__).__name__))",
    "try: {}[1]\nexcept KeyError as e: raise g",
    "with g as v: log.append(v is o); brk(); log.append('in')",
    "with g: raise KeyError(n)",
    "log.append(shown(g.send(None)))",
    "log.append(shown(g.throw(ValueError('in')))); brk(); log.append(shown(next(g, 'end')))",
    "g.close(); log.append(next(g, 'closed'))",
    "log.append(shown(g[0]))",
    "log.append(shown(g[-1]))",
    "log.append(len(g[1:]))",
    "log.append(g['k1'])",
    "log.append(g.get('m1', 3))",
    "log.append('m2' in g)",
    "log.append(list(g.items())[:2])",
    "log.append(g.keys() & {'k1', 1})",
    "log.append(hasattr(g, 'late'))",
    "log.append(getattr(g, 'px', n))",
    "log.append(getattr(g, 'value', None))",
    "log.append(g.late)",
    "log.append(sorted(vars(g)))",
    "log.append(g.name)",
    "log.append(g.grow(2) is o)",
    "log.append(shown(g + o))",
    "log.append(shown(g * 2))",
    "log.append(-g)",
    "log.append(g < o)",
    "log.append(g & o)",
    "log.append(g | o)",
    "log.append(g - o)",
    "log.append((g // 2, g % 3))",
    "log.append(round(g / 3, 1))",
    "log.append(float(g)); log.append(int(g))",
    "log.append(list(range(g)))",
    "log.append([5, 6, 7, 8, 9][g])",
    "log.append({g: 1}.get(o, 2))",
    "log.append(len({g, o}))",
    "log.append(hash(g) == hash(o))",
    "log.append(g in (1, 2, o))",
    "log.append(f'{g}' if describe(g) != type(g).__name__ else 0)" ,
    "log.append(dataclasses.replace(g, px=n) == o)",
    "log.append(len(dataclasses.astuple(g)))",
    "log.append([f.name for f in dataclasses.fields(g)])",
    "log.append(g._replace(left=n))",
    "log.append(len(copy.deepcopy(g)))",
    "match g:\n    case []: log.append('none')\n    case [p]: log.append('one')\n    case [p, *q]: log.append(('more', len(q)))\n    case {'k1': p, **q}: log.append(('map', len(q)))\n    case Point(px=p) | Box(value=p): log.append('object')\n    case int() | float(): log.append('number')\n    case _: log.append('other')",
    "a = a[g]",
    "a = torch.full((2,), 1.0 * g)",
    "a = a + torch.tensor(g)",
    "a = a + torch.tensor(list(g)).sum()",
    "log.append(g.count(1)); log.append(g.index(1))",
    "log.append(tuple(g)); log.append(list(g))",
    "log.append(isinstance(g, collections.abc.Iterator))",
    "log.append(g.total())",
    "log.append(g.size); log.append(g.who())",
)
ABSENT = (
    "log.append(hasattr(MOD, 'late'))",
    "n += getattr(MOD, 'late', 2)",
    "try: n += MOD.late\nexcept AttributeError as e: log.append(str(e))",
    "log.append('LATE' in globals())",
    "try: n += LATE\nexcept NameError as e: log.append(str(e))",
    "n += getattr(BOX, 'late', 3)",
    "n += getattr(Box, 'late', 4)",
    "log.append(hasattr(Late, 'late'))",
    "n += STATE.get('late', 1)",
    "try: n += STATE['late']\nexcept KeyError: log.append('no key')",
    "n += 3 in SOME; log.append(len(SOME))",
    "n += len(ITEMS); log.append(ITEMS[-1:])",
    "for v in ITEMS: n += v",
    "try: log.append(ITEMS[2])\nexcept IndexError: log.append('short')",
    "log.append([v for v in SOME])",
)


@dataclasses.dataclass(frozen=True)
class Space:
    """What programs are drawn from: kinds of arguments by group, tables of statements, what their module has beside `MORE`."""

    kinds: dict[str, tuple[str, ...]]
    tables: tuple[tuple[str, ...], ...]
    more: str = ""


SPACE = Space(KINDS, (ANY, ANY, LOOPS, LOOPS, WRITES, USES, USES, ABSENT))


def program(seed: int, count: int = 0, space: Space = SPACE) -> str:
    """Its text; each statement's error is caught, noted, and the program goes on."""
    chance = random.Random(seed)
    unbroken = seed % 3 == 0
    tables = [[one for one in table if not unbroken or "brk" not in one and "opaque" not in one] for table in space.tables]
    lines = []
    for _ in range(count or chance.randint(2, 5)):
        statement = chance.choice(chance.choice(tables))
        lines += ["try:", *(f"    {line}" for line in statement.split("\n"))]
        lines += ["except CAUGHT as e: log.append((type(e).__name__, str(e)))"]
    body = "\n".join(f"    {line}" for line in lines)
    head = "    a, n, log, e = x * 1, 1, [], None\n"
    return f"{PRELUDE}{MORE}{space.more}\nITEMS, SOME = [1], {{1}}\ndef f(x, g, o):\n{head}{body}\n    return a, n, log\n"


def kinds(seed: int, space: Space = SPACE) -> list[str]:
    """The kinds of a program's arguments: mostly one, or several of one group, or of any."""
    chance = random.Random(seed)
    group = space.kinds[chance.choice(list(space.kinds))]
    few = chance.choice((1, 1, 2, 4))
    return [chance.choice(space.kinds[chance.choice(list(space.kinds))] if few == 4 else group) for _ in range(few)]


def arguments(module: types.ModuleType, way: tuple[Any, ...]) -> tuple[Any, ...]:
    """What one call is given. Each module's own objects are made of its own classes."""
    kind, k, other, other_k, one, _ = way
    first = _made(module, kind, k)
    return torch.ones(2), first, first if one else _made(module, other, other_k)


def _made(module: types.ModuleType, kind: str, k: int) -> Any:
    return eval(f"(lambda k: {kind})", module.__dict__)(k)


def prepare(module: types.ModuleType, late: bool) -> None:
    """Names, attributes, keys and members are there, or not."""
    for owner, name in ((vars(module), "LATE"), (vars(module.BOX), "late"), (module.STATE, "late"), (vars(module.MOD), "late")):
        owner.pop(name, None)
        if late:
            owner[name] = 3
    for owner in (module.Box, module.Late):
        if late:
            owner.late = 5
        elif "late" in vars(owner):
            del owner.late
    module.ITEMS[:] = [1, 2, 3] if late else [1]
    (module.SOME.add if late else module.SOME.discard)(3)


def left(value: Any) -> Any:
    """What an argument is after the call; iterators are read to their end."""
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return [left(one) for one in value]
    if isinstance(value, (types.GeneratorType, itertools.islice)) or (hasattr(value, "__next__") and hasattr(value, "__iter__")):
        try:
            return [type(value).__name__, *itertools.islice(value, 9)]
        except Exception as error:
            return type(error).__name__
    if isinstance(value, (types.FunctionType, types.MethodType, types.BuiltinMethodType)):
        return type(value).__name__, left(getattr(value, "__self__", None))
    return value


def called(function: Any, given: tuple[Any, ...]) -> Any:
    result, text, after = observe(function, given)
    if result[0] == "raised" and result[1] is RuntimeError:
        result = result[:2]
    return result, text, left(list(after[1:])), after[1] is after[2]


def disagreement(seed: int, calls: int = 10, backend: str = "eager", source: str = "", space: Space = SPACE) -> str:
    """What differs from eager, or how many entries there are too many; empty if nothing."""
    text, chance, names = source or program(seed, space=space), random.Random(seed), kinds(seed, space)
    eager, other, watched = (load(text, "program") for _ in range(3))
    pliant.reset()
    other.brk, other.opaque = BREAKS[seed % 3]
    compiled = pliant.compile(other.f, backend=backend)
    behaviours = set()
    for call in range(calls):
        way = (chance.choice(names), chance.choice((2, 2, 3, 0, 4)), chance.choice(names), 1, chance.random() < 0.4, chance.random() < 0.5)
        for module in (eager, other, watched):
            prepare(module, way[-1])
        want = called(eager.f, arguments(eager, way))
        with warnings.catch_warnings(action="ignore", category=pliant.PliantWarning):
            got = called(compiled, arguments(other, way))
        found = difference(got, want) or difference(vars(other.BOX), vars(eager.BOX), "BOX")
        if found:
            return f"seed {seed}, call {call}, {way}:\n{text[text.index('def f(x') :]}\n{found}"
        behaviours.add((way[0], way[1], way[2], way[4:], _done(watched, arguments(watched, way))))
    stats = pliant.stats()
    captures = stats["calls"].get("capture", 0)
    if not stats["graph_breaks"] and captures > 2 * len(behaviours):
        reasons = "\n  ".join(stats["recompile_reasons"])
        return f"seed {seed}: {captures} entries for {len(behaviours)} behaviours\n{text[text.index('def f(x') :]}\n  {reasons}\n"
    return ""


def _done(module: types.ModuleType, given: tuple[Any, ...]) -> Any:
    try:
        return behaviour(module, given)[1]
    except Exception as error:
        return type(error).__name__


if __name__ == "__main__":
    run_seeds(disagreement, backend=True, recompile_limit=64)
