"""For each opcode of CPython 3.11 to 3.13 a small program that has it. Imports neither torch nor pytest.

A program defines `f(x)`; x is a tensor, or a plain number where there is no torch. In `ANY` are those that need not be
one graph: what they do has no meaning inside one. `MODULES` are run as modules. `NEVER`: opcodes that no code has.
"""

import types
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    """Source, and which opcodes it is there for, on the versions that have them."""

    opcodes: tuple[str, ...]
    text: str
    whole: bool = True
    kind: str = "exec"
    since: tuple[int, int] = (3, 11)

    @property
    def name(self) -> str:
        return self.opcodes[0]


def program(opcodes: str, text: str, **facts: object) -> Program:
    return Program(tuple(opcodes.split()), text, **facts)  # type: ignore[arg-type]


ASYNC = """
def run(coroutine):
    sent = None
    while True:
        try: sent = coroutine.send(sent)
        except StopIteration as end: return end.value
class Ready:
    def __init__(self, value): self.value = value
    def __await__(self):
        got = yield self.value
        return got
    async def __aenter__(self): return self.value
    async def __aexit__(self, *error): return True
class Counter:
    def __init__(self, n): self.n = n
    def __aiter__(self): return self
    async def __anext__(self):
        self.n -= 1
        if self.n < 0: raise StopAsyncIteration
        return self.n
"""

PROGRAMS: tuple[Program, ...] = (
    # ---- names and the stack
    program("LOAD_FAST STORE_FAST RETURN_VALUE RESUME LOAD_CONST", "def f(x):\n y = x * 2\n return y\n"),
    program("LOAD_FAST_LOAD_FAST STORE_FAST_STORE_FAST", "def f(x):\n a, b = x, x\n return a + b\n"),
    program("STORE_FAST_LOAD_FAST", "def f(x):\n t = 0\n for i in (1, 2): t = t + x * i\n return t\n"),
    program("DELETE_FAST LOAD_FAST_CHECK", "def f(x):\n y = x + 1\n z = y\n if z is None: del y\n z = y * 2\n del z\n return y\n"),
    program("RETURN_CONST", "def f(x):\n x * 2\n return None\n"),
    program("SWAP COPY POP_TOP", "def f(x):\n d = [x, 2]\n d[0] += d[1]\n a, b, c = d[1], d[0], 5\n x * 3\n return 1 < a < 9, b, c\n"),
    program("NOP", "def f(x):\n try: pass\n finally: y = x + 1\n while True:\n  return y\n"),
    program("MAKE_CELL LOAD_CLOSURE LOAD_DEREF STORE_DEREF COPY_FREE_VARS MAKE_FUNCTION",
        "def f(x):\n n = 1\n def add():\n  nonlocal n\n  n += 2\n  return x * n\n return add(), n\n"),
    program("DELETE_DEREF", "def f(x):\n n = x\n def g(): return n\n y = g()\n del n\n try: g()\n except NameError: y = y * 2\n return y\n"),
    program("LOAD_GLOBAL STORE_GLOBAL DELETE_GLOBAL", "def f(x):\n global G\n G = 3\n y = x * G\n del G\n return y\n"),
    program("PUSH_NULL CALL PRECALL", "def f(x):\n return (lambda y: y + 1)(x)\n"),
    program("KW_NAMES CALL_KW", "def g(x, *, by): return x * by\ndef f(x):\n return g(x, by=3)\n"),
    program("CALL_FUNCTION_EX DICT_MERGE", "def g(*a, **k): return a[0] * k['by'] + k['to']\ndef f(x):\n a = [x]\n return g(*a, **{'by': 3}, **{'to': 1})\n"),
    program("LOAD_METHOD", "def f(x):\n a = []\n a.append(x)\n return a[0] * 2\n"),
    program("SET_FUNCTION_ATTRIBUTE", "def f(x):\n def g(y, z=2, *, w=3): return y * z + w\n return g(x)\n"),
    program("EXTENDED_ARG", "def f(x):\n t = [" + ", ".join(f"{i}.5" for i in range(300)) + "]\n y = x\n"
        + "".join(f" y = y + {i + 1000}\n" for i in range(300)) + " return y * t[299]\n"),
    program("CACHE", "def f(x):\n return x.real if hasattr(x, 'nothing') else x + 1\n"),
    # ---- attributes and items
    program("LOAD_ATTR STORE_ATTR DELETE_ATTR",
        "class C: pass\ndef f(x):\n c = C()\n c.a = x * 2\n y = c.a\n del c.a\n return y, hasattr(c, 'a')\n"),
    program("LOAD_SUPER_ATTR",
        "class A:\n k = 3\n def m(self, x): return x * 2\nclass B(A):\n def m(self, x): return super().m(x) + super().k\n"
        "def f(x):\n return B().m(x)\n"),
    program("BINARY_SUBSCR STORE_SUBSCR DELETE_SUBSCR", "def f(x):\n d = {'a': 1}\n d['b'] = x * 2\n del d['a']\n return d['b'], len(d)\n"),
    program("BINARY_SLICE STORE_SLICE", "def f(x):\n d = [1, x, 3]\n n = 2\n d[0:n] = [x, x]\n return d[1:n]\n"),
    program("BUILD_SLICE", "def f(x):\n d = [x, 1, 2, 3]\n n = 2\n return d[::n][0] * d[0:4:n][1]\n"),
    # ---- operators
    program("BINARY_OP COMPARE_OP IS_OP CONTAINS_OP",
        "def f(x):\n n = 7\n y = x + n - 1\n y += n // 2 % 5\n return y, n < 8, n is None, n in (1, 7), n not in (2,), n ** 2 >> 1 | 8 & 3 ^ 1\n"),
    program("UNARY_NEGATIVE UNARY_INVERT UNARY_NOT", "def f(x):\n n = 4\n return -x, ~n, not n\n"),
    program("UNARY_POSITIVE CALL_INTRINSIC_1", "def f(x):\n return +x\n"),
    program("TO_BOOL", "def f(x):\n d = [1]\n return x + 1 if d else x\n"),
    # ---- jumps
    program("POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE",
        "def f(x):\n n = 3\n if n: x = x + 1\n if not n: x = x * 5\n return x\n"),
    program("POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE",
        "def f(x):\n n = None\n if n is None: x = x + 1\n if n is not None: x = x * 5\n return x\n"),
    program("POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_BACKWARD_IF_FALSE",
        "def f(x):\n n = 3\n while n:\n  n -= 1\n  x = x + n\n while not n > 4: n += 1\n return x * n\n"),
    program("POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE",
        "def f(x):\n n = None\n while n is None:\n  n = 1\n  x = x + 1\n while n is not None: n = None\n return x\n"),
    program("JUMP_IF_TRUE_OR_POP JUMP_IF_FALSE_OR_POP", "def f(x):\n n, m = 0, 2\n return x * (n or m), n and m\n"),
    program("JUMP_FORWARD JUMP_BACKWARD FOR_ITER GET_ITER END_FOR",
        "def f(x):\n t = x\n for i in range(3):\n  if i == 1: t = t * 2\n  else: t = t + 1\n  t = t + i\n return t\n"),
    # ---- building and taking apart
    program("BUILD_LIST BUILD_TUPLE BUILD_SET BUILD_MAP BUILD_STRING",
        "def f(x):\n n = 2\n s = {n, 1}\n return [x, n], (n, x), len(s), {n: x}, f'{n}a{n}'\n"),
    program("BUILD_CONST_KEY_MAP", "def f(x):\n n = 2\n return {'a': x, 'b': n, 'c': n}\n"),
    program("LIST_APPEND SET_ADD MAP_ADD", "def f(x):\n return [x * i for i in (1, 2)], {i for i in (1, 2)}, {i: x for i in (3, 4)}\n"),
    program("LOAD_FAST_AND_CLEAR", "def f(x):\n i = 5\n return [x * i for i in (1, 2)], i\n"),
    program("LIST_EXTEND SET_UPDATE DICT_UPDATE LIST_TO_TUPLE",
        "def f(x):\n a, b = [x, 2], {'k': x}\n return [1, *a], len({1, *(2, 3)}), {**b, 'l': 3}, (*a, 4)\n"),
    program("UNPACK_SEQUENCE UNPACK_EX", "def f(x):\n t = [x, 2, 3, 4]\n a, *b, c = t\n d, e = b\n return a * c, d, e\n"),
    program("FORMAT_VALUE FORMAT_SIMPLE FORMAT_WITH_SPEC CONVERT_VALUE", "def f(x):\n n = 5\n return x + 1, f'{n} {n!r} {n:>4} {n!s:<5}|'\n"),
    # ---- matching
    program("MATCH_MAPPING MATCH_KEYS GET_LEN MATCH_SEQUENCE MATCH_CLASS",
        "class P:\n __match_args__ = ('a',)\n def __init__(self, a): self.a = a\n"
        "def m(v):\n match v:\n  case {'k': k, **r}: return k\n  case [a, *b]: return a\n  case P(a): return a * 3\n"
        "def f(x):\n return m({'k': x}), m([x, 1]), m(P(x)), m(4)\n"),
    # ---- exceptions
    program("RAISE_VARARGS PUSH_EXC_INFO CHECK_EXC_MATCH POP_EXCEPT RERAISE",
        "def g(n):\n try:\n  try:\n   if n: raise ValueError('a') from KeyError(n)\n   [][n]\n  except TypeError: pass\n  finally: n += 1\n"
        " except ValueError as e: return str(e), repr(e.__cause__)\n except IndexError: return n\n"
        "def f(x):\n return x + 1, g(0), g(2)\n"),
    program("LOAD_ASSERTION_ERROR", "def f(x):\n n = 3\n try:\n  assert n < 2, 'large'\n except AssertionError as e: return x * 2, str(e)\n"),
    program("CHECK_EG_MATCH PREP_RERAISE_STAR CALL_INTRINSIC_2",
        "def f(x):\n s = []\n try: raise ExceptionGroup('g', [ValueError('a'), TypeError('b')])\n"
        " except* ValueError as e: s.append(len(e.exceptions))\n except* TypeError: s.append('t')\n return x + 1, s\n"),
    program("BEFORE_WITH WITH_EXCEPT_START",
        "class M:\n def __enter__(self): return 2\n def __exit__(self, k, e, t): return k is ValueError\n"
        "def f(x):\n with M() as n: x = x * n\n with M(): raise ValueError\n return x\n"),
    # ---- imports and classes
    program("IMPORT_NAME IMPORT_FROM", "def f(x):\n import math\n from os.path import join as j\n return x * math.floor(2.5), j('a', 'b')\n"),
    program("LOAD_BUILD_CLASS LOAD_NAME STORE_NAME DELETE_NAME SETUP_ANNOTATIONS",
        "def f(x):\n class C:\n  a: int = 3\n  b = a + 1\n  del a\n return x * C.b, hasattr(C, 'a')\n"),
    program("LOAD_CLASSDEREF LOAD_FROM_DICT_OR_DEREF LOAD_LOCALS", "def f(x):\n n = 3\n class C:\n  m = n + 1\n  def g(self): return n\n return x * C.m, C().g()\n"),
    program("LOAD_FROM_DICT_OR_GLOBALS", "N = 2\ndef f(x):\n class C:\n  type A = N\n return x * C.A.__value__\n", since=(3, 12), whole=False),
    # ---- generators and coroutines
    program("RETURN_GENERATOR YIELD_VALUE", "def g(x):\n y = yield x\n yield y * 2\ndef f(x):\n i = g(x)\n return next(i) + i.send(x)\n"),
    program("SEND GET_YIELD_FROM_ITER JUMP_BACKWARD_NO_INTERRUPT END_SEND CLEANUP_THROW",
        "def g(x):\n got = yield x\n return got * 2\ndef h(x):\n r = yield from g(x)\n yield r\ndef f(x):\n i = h(x)\n return next(i) + i.send(x)\n"),
    program("GET_AWAITABLE",
        ASYNC + "async def g(x):\n y = await Ready(x)\n return y * 2\ndef f(x):\n return run(g(x))\n", whole=False),
    program("BEFORE_ASYNC_WITH",
        ASYNC + "async def g(x):\n async with Ready(x) as y: z = y * 2\n return z\ndef f(x):\n return run(g(x))\n", whole=False),
    program("GET_AITER GET_ANEXT END_ASYNC_FOR",
        ASYNC + "async def g(x):\n async for i in Counter(3): x = x + i\n return x\n"
        "def f(x):\n return run(g(x))\n", whole=False),
    program("ASYNC_GEN_WRAP",
        ASYNC + "async def a(x):\n yield x * 2\nasync def g(x):\n async for y in a(x): x = x + y\n return x\n"
        "def f(x):\n return run(g(x))\n", whole=False),
    # ---- modules and the prompt
    program("IMPORT_STAR", "from math import *\ndef f(x):\n return x * floor(2.5)\n"),
    program("PRINT_EXPR", "3\n", kind="single"),
)  # fmt: skip

NEVER = {
    "RESERVED": "a number that is kept free",
    "INTERPRETER_EXIT": "in the interpreter's own trampoline",
    "ENTER_EXECUTOR": "put in by the optimizer of traces",
    "EXIT_INIT_CHECK": "in the interpreter's own trampoline for __init__",
}


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and those inside."""
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from codes(const)
