"""Random programs, each run eagerly and compiled: results, mutations, printed text and exceptions must agree.

`python -m tests.capture.fuzz_programs --count 5000 --first 0` prints each disagreement with its program.
"""

import argparse
import copy
import itertools
import linecache
import random
import types

import torch
from tests.capture.constructs.harness import observe, same

import pliant

PRELUDE = """
import contextlib
import torch
STATE = {"n": 0, "items": []}
COUNT = 0

class Box:
    scale = 2
    def __init__(self, value): self.value = value; self.log = []
    def grow(self, by): self.value = self.value + by; self.log.append("grow"); return self
    def __add__(self, other): return Box(self.value + (other.value if isinstance(other, Box) else other))
    def __len__(self): return len(self.log)
    @property
    def doubled(self): return self.value * self.scale
    def __enter__(self): self.log.append("in"); return self
    def __exit__(self, kind, error, trace): self.log.append("out"); return kind is not None and issubclass(kind, ValueError)

class SubBox(Box):
    scale = 3
    def grow(self, by): super().grow(by); self.log.append("sub"); return self

BOX = SubBox(1)

@contextlib.contextmanager
def scope(log, name):
    log.append("in " + name)
    try:
        yield name
    except KeyError:
        log.append("swallowed " + name)
    finally:
        log.append("out " + name)

def gen(t, n):
    total = 0
    for i in range(n):
        got = yield t + i
        total += 1 if got is None else got
    return total

def outer(t, n):
    r = yield from gen(t, n)
    yield t * r
"""

SIMPLE = (
    "a = a + {k}",
    "a = a * b.mean() + {k}",
    "b = torch.relu(b) - a.mean()",
    "n += {k}",
    "n = n * 2 - a.shape[0]",
    "a = a[:max(1, a.shape[0] - {k})]",
    "a = torch.cat([a, a], 0)[:x.shape[0]]",
    "x.add_({k})",
    "x[0] = {k}",
    "v = x.view(-1); v[{k}] += 1",
    "a = a.clone(); a.mul_(2)",
    "items.append(n)",
    "items.insert(0, a.shape[0])",
    "items.extend(range({k}))",
    "items.sort()",
    "del items[:1]",
    "d['k{k}'] = n",
    "d.setdefault('s', []).append({k})",
    "d.pop('k{k}', None)",
    "n += len(d) + len(items)",
    "STATE['n'] += {k}",
    "STATE['items'].append(n)",
    "COUNT += 1",
    "BOX.grow({k})",
    "box = Box(a); box.grow({k}); a = box.doubled",
    "box = SubBox(n) + {k}; n = box.value",
    "n += BOX.doubled + len(BOX)",
    "print('n', n, {k})",
    "print(f'{{n}} {{a.shape[0]}} {{tuple(a.shape)}}')",
    "items.append(str(x.shape[0]) + '{{}}'.format(x.shape[1]))",
    "items_text.append(f'{{x.shape[0]:>4}}|%d' % x.numel())",
    "items_text.append('%s' % (n,))",
    "items.extend(t.shape[0] for t in gen(a, {k}))",
    "parts = list(gen(a, {k})); a = parts[-1] if parts else a",
    "parts = [*outer(a, {k})]; a = parts[-1]",
    "g = gen(a, 3); next(g); a = g.send({k})",
    "a = sum((a * i for i in range({k})), a)",
    "a = torch.stack([a, a + 1]).sum(0)",
    "f = lambda t, k={k}: t * k + n; a = f(a)",
    "a, b = b[:1] + a, a.mean() * b",
    "n = sum(i for i in items if i % 2)",
    "a = a if n % 2 else a + 1",
    "log.append([i for i in items[-{k}:]])",
    "d = {{**d, 'u': n}}",
    "s = {{i % 3 for i in items}}; n += len(s)",
    "first, *rest = [n, {k}, 2]; n = first + len(rest)",
    "n = int(a.sum().item() > 0) + n",
    "nums = [x.shape[0] * i for i in range(3)]; n = max(nums) - min(nums)",
    "items = items[::-1][:5]",
    "y.mul_(1.5) if y.shape[0] > {k} else y.add_(1)",
    "w = x.t(); w[0] += 1",
    "a = a.reshape(-1).sum() + a",
    "n ^= {k}",
    "n = -n if n > 20 else n + 1",
    "a = a.to(torch.float64).float()",
    "c = counter(); n += c",
    "a = a / x.shape[0]",
    "a = a.mean() * x.shape[1] + a",
    "items_text.append(repr(x.shape[0]) + str(list(x.shape)))",
    "n = n // 2 + n % 3",
    "items_text.append(type(x.shape[0]).__name__)",
    "items.append(hash(x.shape[0]))",
    "d[x.shape[0]] = 1",
    "a = a.unsqueeze(0).squeeze(0)",
    "n += isinstance(x.shape[0], int)",
    "items_text.append(format(x.shape[0] / 2, '.2f'))",
)
FAILING = (
    "raise ValueError('v', n)",
    "raise KeyError('k')",
    "{{}}['missing']",
    "[][3]",
    "1 // (n - n)",
    "torch.zeros(2) + torch.zeros(3)",
    "a.nothing",
    "int('x')",
    "x.view(7, 7, 7)",
    "raise RuntimeError('r') from KeyError('c')",
)
CAUGHT = ("ValueError", "KeyError", "(IndexError, ZeroDivisionError)", "RuntimeError", "Exception", "LookupError")


class Generator:
    """Writes one program from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = itertools.count()

    def block(self, depth: int, indent: str, loop: bool) -> list[str]:
        return [line for _ in range(self.random.randint(1, 4)) for line in self.statement(depth, indent, loop)]

    def statement(self, depth: int, indent: str, loop: bool) -> list[str]:
        kind = self.random.random()
        if depth == 0 or kind < 0.6:
            return [indent + self.simple(loop)]
        inner = indent + "    "
        make = self.random.choice((self.branch, self.loop, self.handled, self.context))
        return make(depth - 1, indent, inner, loop)

    def simple(self, loop: bool) -> str:
        chance = self.random.random()
        if loop and chance < 0.08:
            return self.random.choice(("if n % 2: break", "if i > 1: continue"))
        if chance > 0.97:
            return "if n > 5: return a, n"
        table = FAILING if chance > 0.93 else SIMPLE
        return self.random.choice(table).format(k=self.random.randint(1, 4))

    def branch(self, depth: int, indent: str, inner: str, loop: bool) -> list[str]:
        test = self.random.choice(
            (
                "n % 2",
                "x.shape[0] > 3",
                "len(items) > 2",
                "a.dim() == 2 and n",
                "x.shape[0] % 2 == 0",
                "'k1' in d",
                "a.sum() > 0",
            )
        )
        return [
            f"{indent}if {test}:",
            *self.block(depth, inner, loop),
            f"{indent}else:",
            *self.block(depth, inner, loop),
        ]

    def loop(self, depth: int, indent: str, inner: str, loop: bool) -> list[str]:
        head = self.random.choice(
            (
                "range(3)",
                "list(items)[:3]",
                "range(min(x.shape[0], 3))",
                "enumerate('ab')",
                "zip(range(2), 'ab')",
                "sorted(d, key=str)[:2]",
            )
        )
        end = [f"{indent}else:", f"{inner}log.append('else')"] if self.random.random() < 0.3 else []
        return [
            f"{indent}for i in {head}:",
            f"{inner}i = i if isinstance(i, int) else len(i)",
            *self.block(depth, inner, True),
            *end,
        ]

    def handled(self, depth: int, indent: str, inner: str, loop: bool) -> list[str]:
        name = f"e{next(self.names)}"
        end = [f"{indent}finally:", f"{inner}log.append('finally')"] if self.random.random() < 0.4 else []
        fail = [inner + self.random.choice(FAILING).format(k=1)] if self.random.random() < 0.5 else []
        return [
            f"{indent}try:",
            *self.block(depth, inner, loop),
            *fail,
            f"{indent}except {self.random.choice(CAUGHT)} as {name}:",
            f"{inner}log.append(type({name}).__name__)",
            *self.block(depth, inner, loop),
            *end,
        ]

    def context(self, depth: int, indent: str, inner: str, loop: bool) -> list[str]:
        head = self.random.choice(
            (
                "scope(log, 's')",
                "Box(n)",
                "contextlib.suppress(KeyError, IndexError)",
                "torch.no_grad()",
                "contextlib.nullcontext()",
            )
        )
        fail = [inner + self.random.choice(FAILING).format(k=1)] if self.random.random() < 0.3 else []
        return [f"{indent}with {head}:", *self.block(depth, inner, loop), *fail]

    def program(self) -> str:
        lines = [line for _ in range(self.random.randint(3, 7)) for line in self.statement(3, "    ", False)]
        return "\n".join(
            (
                PRELUDE,
                "def f(x, y, d, items):",
                "    global COUNT",
                "    a, b, n, log, items_text, i = x + 0, y * 1, 1, [], [], 0",
                "    def counter():",
                "        nonlocal n",
                "        n += 1",
                "        return n",
                *lines,
                "    return a, b, n, log, items_text, d, items",
                "",
            )
        )


def load(source: str, name: str) -> types.ModuleType:
    """A fresh module of the program."""
    module = types.ModuleType(name)
    file = f"<{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    exec(compile(source, file, "exec"), module.__dict__)
    return module


def _arguments(rows: int, seed: int):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 3, generator=generator), torch.randn(rows, 3, generator=generator), {"k1": 1}, [1, 2, rows]


def _state(module: types.ModuleType):
    return module.STATE, module.COUNT, vars(module.BOX)


def _seen(observed):
    result, text, arguments = observed
    return (result[:2] if result[0] == "raised" else result), text, arguments


def disagreement(seed: int) -> str:
    """What differs between eager and compiled for this seed; empty if nothing."""
    source = Generator(seed).program()
    eager, other = load(source, f"program_{seed}"), load(source, f"program_{seed}")
    pliant.reset()
    compiled = pliant.compile(other.f, backend="eager")
    for call, rows in enumerate((4, 4, 5, 2)):
        arguments = _arguments(rows, seed + call)
        want = _seen(observe(eager.f, copy.deepcopy(arguments)))
        got = _seen(observe(compiled, copy.deepcopy(arguments)))
        if not same(got, want):
            return f"seed {seed}, call {call}:\n got {got}\nwant {want}\n"
        if not same(_state(other), _state(eager)):
            return f"seed {seed}, call {call}: state\n got {_state(other)}\nwant {_state(eager)}\n"
    return ""


def main() -> None:
    """Run many seeds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--source", action="store_true")
    options = parser.parse_args()
    bad = []
    with pliant.config.patch(strict=True):
        for seed in range(options.first, options.first + options.count):
            try:
                found = disagreement(seed)
            except Exception as error:  # a crash of the compiler itself
                found = f"seed {seed}: {type(error).__name__}: {error}"
            if found:
                bad.append(seed)
                print(found[:1500])
                if options.source:
                    print(Generator(seed).program().removeprefix(PRELUDE))
    print(f"{len(bad)} of {options.count} disagree: {bad}")


if __name__ == "__main__":
    main()
