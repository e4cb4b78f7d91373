"""The language: statements, the object model, containers, text and numbers, many uses in each program. One table, one file:
the programs share its classes.
"""

import calendar
import cmath
import collections
import contextlib
import dataclasses
import enum
import functools
import pickle
import traceback
import types
import typing

import torch
import torch.nn.functional as F
from tests.capture.constructs.harness import program
from torch import nn


def area(function):
    return program("language")(function)


def broken(function):
    return program("language", whole=False)(function)


G = [0]
GD = {"a": 1}
STATE = {"n": 0}


class Meta(type):
    def __call__(cls, *a, **k):
        o = super().__call__(*a, **k)
        o.tag = cls.__name__
        return o

    def __getitem__(cls, i):
        return i * 2

    @property
    def prop(cls):
        return 7


class WithMeta(metaclass=Meta):
    def __init__(self, v):
        self.v = v


class Desc:
    def __set_name__(self, o, n):
        self.n = "_" + n

    def __get__(self, i, o=None):
        return self if i is None else getattr(i, self.n, 0)

    def __set__(self, i, v):
        setattr(i, self.n, v * 2)


class HasDesc:
    d = Desc()


class Slots:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a = 1


class Reg:
    subs = []

    def __init_subclass__(cls, **k):
        super().__init_subclass__()
        cls.k = k.get("k", 0)


class Vec:
    def __init__(self, t):
        self.t = t

    def __add__(self, o):
        return Vec(self.t + (o.t if isinstance(o, Vec) else o))

    __radd__ = __add__

    def __mul__(self, o):
        return Vec(self.t * o)

    def __rmatmul__(self, o):
        return Vec(o @ self.t)

    def __neg__(self):
        return Vec(-self.t)

    def __getitem__(self, i):
        return self.t[i]

    def __setitem__(self, i, v):
        self.t = self.t.clone()
        self.t[i] = v

    def __len__(self):
        return 3

    def __iter__(self):
        return iter(self.t)

    def __contains__(self, v):
        return v == 3

    def __call__(self, v):
        return self.t * v

    def __bool__(self):
        return False

    def __eq__(self, o):
        return isinstance(o, Vec)

    def __hash__(self):
        return 5

    def __lt__(self, o):
        return True

    def __index__(self):
        return 1

    def __int__(self):
        return 2

    def __float__(self):
        return 2.5

    def __format__(self, s):
        return "V" + s

    def __str__(self):
        return "vec"

    def __repr__(self):
        return "Vec()"

    def __invert__(self):
        return 4

    def __abs__(self):
        return Vec(self.t.abs())

    def __round__(self, n=None):
        return 9

    def __divmod__(self, o):
        return (1, 2)

    def __pow__(self, o):
        return Vec(self.t**o)

    def __iadd__(self, o):
        self.t = self.t + o
        return self

    def __enter__(self):
        return self.t

    def __exit__(self, *a):
        return False

    def __getattr__(self, n):
        if n.startswith("x_"):
            return len(n)
        raise AttributeError(n)


class Tree:
    def __init__(self, v, *c):
        self.v = v
        self.c = c

    def walk(self):
        yield self.v
        for k in self.c:
            yield from k.walk()


class Mod(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4)
        self.register_buffer("b", torch.ones(4))
        self.n = 0
        self.hist = []
        self.d = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
        self.p = nn.ParameterList([nn.Parameter(torch.ones(4))])
        self.pd = nn.ParameterDict({"w": nn.Parameter(torch.ones(4))})

    def forward(self, x, mode="a"):
        self.n += 1
        return self.d[mode](self.l(x)) * self.b + self.p[0] * self.pd["w"]


M = Mod()


@area
def metaclass(x, y):
    w = WithMeta(x)
    return w.v * WithMeta[3] + WithMeta.prop, w.tag


@area
def descriptors(x, y):
    h = HasDesc()
    h.d = 3
    return x * h.d, HasDesc.d.n


@area
def slots(x, y):
    s = Slots()
    s.b = x
    try:
        s.c = 1
    except AttributeError:
        pass
    return s.a * s.b, hasattr(s, "b")


@area
def init_subclass(x, y):
    class A(Reg, k=3):
        pass

    return x * A.k


@area
def dunders(x, y):
    v = Vec(x)
    w = (v + 1 + v) * 2
    w = 1 + w
    w += 1
    v[0] = 5.0
    return (
        w.t,
        (-v).t,
        v[0],
        len(v),
        3 in v,
        v(2),
        bool(v),
        v == v,
        {v: 1}[Vec(x)],
        v < v,
        [10, 20, 30][v],
        int(v),
        float(v),
        f"{v:>}",
        str(v),
        repr(v),
        ~v,
        abs(v).t,
        round(v),
        divmod(v, 2),
        (v**2).t,
        v.x_abc,
        [t.shape for t in v],
    )


@area
def dunder_with(x, y):
    with Vec(x) as t:
        z = t + 1
    return z, not Vec(x), sorted([Vec(x), Vec(y)])[0] is not None


@area
def tree_walk(x, y):
    return sum(t.sum() for t in Tree(x, Tree(y), Tree(x, Tree(y))).walk())


@area
def module_state(x, y):
    n = M.n
    return M(x), M.n - n, M(x, mode="b")


@broken
def module_hist(x, y):
    M.hist.append(x.shape[0])
    return M.l(x), len(M.hist) > 0


@area
def module_iter(x, y):
    return (
        x * len(list(M.parameters())),
        [n for n, _ in M.named_parameters()][:2],
        [n for n, _ in M.named_children()],
        sum(p.numel() for p in M.parameters()),
        len(list(M.modules())),
        M.training,
    )


@area
def functional_module_call(x, y):
    return torch.func.functional_call(M.l, {"weight": torch.ones(4, 4), "bias": torch.zeros(4)}, (x,))


@area
def global_write(x, y):
    G[0] += 1
    GD["b"] = x.shape[0]
    STATE["n"] = STATE["n"] + 1
    global GG
    GG = x + 1
    return GG * 1, len(GD)


@area
def match_statement(x, y):
    out = []
    for v in (1, "a", [1, 2, 3], {"k": 1, "z": 2}, (1, 2), Slots(), None, 3.5, True):
        match v:
            case bool():
                out.append("b")
            case 1 | 2:
                out.append("n")
            case str() as s if s == "a":
                out.append(s)
            case [a, *rest]:
                out.append((a, rest))
            case {"k": k, **r}:
                out.append((k, r))
            case Slots(a=q):
                out.append(q)
            case None:
                out.append("none")
            case _:
                out.append("other")
    return x, out


@area
def walrus(x, y):
    return [z for v in (x, y) if (z := v + 1) is not None], (n := 3) + n


@area
def try_else_finally(x, y):
    log = []

    def f(k):
        try:
            if k == 0:
                return "r"
            if k == 1:
                raise KeyError(k)
            if k == 2:
                raise ValueError(k)
        except KeyError as e:
            log.append(repr(e))
            return "k"
        except (ValueError, TypeError) as e:
            log.append(e.args)
            raise RuntimeError("x") from e
        else:
            log.append("else")
        finally:
            log.append("fin")
        return "end"

    out = []
    for k in range(4):
        try:
            out.append(f(k))
        except RuntimeError as e:
            out.append((str(e), type(e.__cause__).__name__, type(e.__context__).__name__))
    return x, log, out


@area
def exception_group(x, y):
    out = []
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(2)])
    except ExceptionGroup as g:
        out.append(len(g.exceptions))
    return x, out


@area
def except_star(x, y):
    out = []
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(2)])
    except* ValueError as g:
        out.append("v")
    except* KeyError as g:
        out.append("k")
    return x, out


@area
def custom_exception(x, y):
    class E(Exception):
        def __init__(self, a, b):
            super().__init__(a)
            self.b = b

    try:
        raise E(1, x)
    except E as e:
        return e.b + 1, e.args, str(e)


@area
def loop_else(x, y):
    for i in range(3):
        if i == 5:
            break
    else:
        x = x + 1
    while True:
        i -= 1
        if i < 0:
            break
        if i == 1:
            continue
        x = x * 2
    return x


@area
def nested_nonlocal(x, y):
    n = 0
    fs = []

    def inc():
        nonlocal n
        n += 1
        return n

    for i in range(3):
        fs.append(lambda k=i: inc() + k + i)
    return x * sum(f() for f in fs), n


@area
def gen_send_throw(x, y):
    def g():
        t = 0
        while True:
            try:
                v = yield t
                t += v
            except ValueError:
                t = -1

    it = g()
    next(it)
    it.send(3)
    r = it.throw(ValueError())
    it.close()
    return x * r


@area
def star_args(x, y):
    def f(a, /, b, *c, d=1, **e):
        return a * b + len(c) + d + len(e)

    return f(x, 2, 3, *[4, 5], d=3, z=1), f(*(x, 2)), (lambda *a: a[::-1])(1, 2)


@area
def slicing(x, y):
    l = list(range(10))
    l[2:4] = [9]
    l[::3] = [0] * len(l[::3])
    del l[1:3]
    a, *b, c = l
    return x, l, a, b, c, l[-3:], l[::-1], "abc"[::-1], (1, 2, 3)[1:]


@area
def set_ops(x, y):
    a = {1, 2, 3}
    b = frozenset([3, 4])
    a |= {7}
    return (
        x,
        sorted(a | b),
        sorted(a & b),
        sorted(a - b),
        sorted(a ^ b),
        a >= {1},
        a.isdisjoint({9}),
        sorted(a.union([9])),
    )


@area
def dict_ops(x, y):
    d = {"a": 1} | {"b": 2}
    d |= {"c": x}
    d.setdefault("e", []).append(1)
    e = {**d, "f": 0}
    p = d.pop("a")
    q = d.pop("zz", None)
    return (
        d,
        list(e.items())[0],
        p,
        q,
        list(reversed(d)),
        d.keys() & {"b", "z"},
        "b" in d.keys(),
        dict(zip("ab", (1, 2))),
        {v: k for k, v in {"a": 1}.items()},
    )


@area
def bytes_forms(x, y):
    b = bytearray(b"ab")
    b.append(99)
    b[0] = 65
    m = memoryview(b"abc")
    return (
        x,
        bytes(b),
        b.hex(),
        m[1],
        bytes([1, 2]),
        int.from_bytes(b"\x01", "big"),
        (5).to_bytes(2, "big"),
        b"a,b".split(b","),
    )


@area
def complex_numbers(x, y):
    z = 3 + 4j
    return x * abs(z), z.conjugate(), z.real, cmath.sqrt(-1), complex(1, 2) * z


@area
def numbers_forms(x, y):
    return (
        x * round(2.567, 1),
        divmod(7, 3),
        pow(2, 5, 7),
        int("ff", 16),
        float("1.5"),
        7 // 2,
        -7 // 2,
        -7 % 3,
        5 & 3,
        5 | 3,
        5 ^ 3,
        ~5,
        1 << 3,
        (5).bit_length(),
        (0.5).is_integer(),
        1_000,
        0b11,
        float("inf"),
        int(3.9),
        bool([]),
        hash(3),
        (2.5).as_integer_ratio(),
    )


@area
def type_forms(x, y):
    return (
        x,
        isinstance(3, int | str),
        isinstance(x, torch.Tensor),
        type(x) is torch.Tensor,
        issubclass(bool, int),
        type(3).__name__,
        callable(len),
        isinstance(nn.Linear, type),
        x.__class__.__name__,
        isinstance([], list),
        type("T", (), {"a": 3}).a,
    )


@area
def generic_class(x, y):
    T = typing.TypeVar("T")

    class Box(typing.Generic[T]):
        def __init__(self, v: T):
            self.v = v

        def get(self) -> T:
            return self.v

    return Box[int](3).get() * x


@area
def typed_dict(x, y):
    class D(typing.TypedDict):
        a: int

    d: D = {"a": 3}
    return x * d["a"]


@area
def new_type(x, y):
    U = typing.NewType("U", int)
    return x * U(3)


@area
def closures_in_loop(x, y):
    fs = [(lambda v, n=n: v * n) for n in range(3)]
    return functools.reduce(lambda a, f: f(a) + 1, fs, x)


@area
def recursion(x, y):
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    fib = functools.cache(lambda n: n if n < 2 else fib(n - 1) + fib(n - 2))
    return x * fact(4) + fib(7)


@area
def print_forms(x, y):
    print("a", 1, [1, "b"], {"k": (1,)}, sep="|", end="!\n", flush=True)
    print()
    print(f"{3:5}", None)
    return x


@area
def string_tensor_info(x, y):
    return x, f"{x.shape} {x.dtype} {x.device} {tuple(x.shape)} {x.dim()=}", str(x.dtype), repr(x.shape)


@area
def assert_forms(x, y):
    assert x.dim() == 2, "no"
    try:
        assert x.dim() == 3, f"dim {x.dim()}"
    except AssertionError as e:
        return x, str(e)


@area
def iter_protocol(x, y):
    class It:
        def __init__(self):
            self.i = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.i += 1
            if self.i > 3:
                raise StopIteration
            return self.i

    it = iter([3, 4, 5])
    a = next(it)
    c = iter(lambda: a, 3)
    return x * sum(It()), list(It()), next(it), next(iter([]), None), list(c), max(It()), list(zip(It(), "abc"))


@area
def getitem_protocol(x, y):
    class S:
        def __getitem__(self, i):
            if i > 2:
                raise IndexError
            return i * 10

    return x * sum(S()), list(S()), 10 in S(), [*S()], tuple(reversed([1, 2]))


@area
def del_forms(x, y):
    a = [1, 2]
    d = {"k": 1}
    o = types.SimpleNamespace(z=1)
    del a[0], d["k"], o.z
    b = 1
    del b
    try:
        b  # noqa: F821
    except UnboundLocalError:
        return x, a, d, vars(o)


@area
def chained(x, y):
    n = x.shape[0]
    return x if 1 < n <= 6 != 7 else y, 1 < 2 > 1, (n > 2 and "a") or "b", not n, n if n else 0


@area
def locals_globals(x, y):
    a = 1
    return x * locals()["a"], "G" in globals(), sorted(k for k in locals() if k in ("a", "x"))


@area
def multiple_inheritance(x, y):
    class A:
        def f(self):
            return ["A"]

    class B(A):
        def f(self):
            return ["B"] + super().f()

    class C(A):
        def f(self):
            return ["C"] + super().f()

    class D(B, C):
        def f(self):
            return ["D"] + super().f()

    return x, D().f(), [c.__name__ for c in D.__mro__]


@area
def property_forms(x, y):
    class P:
        _v = 1

        @property
        def v(self):
            return self._v

        @v.setter
        def v(self, n):
            self._v = n

        @v.deleter
        def v(self):
            self._v = 0

        @staticmethod
        def s(a):
            return a + 1

        @classmethod
        def c(cls, a):
            return cls._v + a

    p = P()
    p.v = 5
    a = p.v
    del p.v
    return x * a, p.v, P.s(1), p.c(2), P.c(3)


@area
def getattribute(x, y):
    class Q:
        def __getattribute__(self, n):
            if n == "z":
                return 9
            return object.__getattribute__(self, n)

        def __setattr__(self, n, v):
            object.__setattr__(self, n, v * 2)

        def __delattr__(self, n):
            object.__setattr__(self, n, -1)

    q = Q()
    q.a = 2
    b = q.a
    del q.a
    return x * q.z, b, q.a


@area
def class_attr(x, y):
    class K:
        n = 0
        items = []

    K.n += 1
    K.items.append(2)
    K.m = 5
    return x * K.n, K.items, K.m


@area
def container_subclass(x, y):
    class L(list):
        def total(self):
            return sum(self)

        def append(self, v):
            super().append(v * 2)

    class D(dict):
        def __missing__(self, k):
            return k * 2

        def __getattr__(self, k):
            return self[k]

    l = L([1])
    l.append(3)
    d = D(a=x)
    d["q"] = 1
    return x * l.total(), d["zz"], d.a, isinstance(l, list), l + [1], len(d), dict(d)["q"]


@area
def str_enum(x, y):
    class E(enum.StrEnum):
        A = enum.auto()
        B = enum.auto()

    class Fl(enum.Flag):
        R = 1
        W = 2

    return x, E.A == "a", (Fl.R | Fl.W).value, ((Fl.R | Fl.W) & Fl.W).value, E("b").name, [e.value for e in E]


@area
def dataclass_forms(x, y):
    @dataclasses.dataclass(slots=True)
    class P:
        a: int
        b: list = dataclasses.field(default_factory=list)
        c: typing.ClassVar[int] = 3

        def __post_init__(self):
            self.a += 1

    @dataclasses.dataclass(frozen=True, eq=True, order=True)
    class Q:
        v: int
        w: int = dataclasses.field(default=2, compare=False)

    p = P(1)
    p.b.append(x)
    try:
        Q(1).v = 2
    except dataclasses.FrozenInstanceError:
        fz = True
    return p.b[0] * p.a, Q(1) < Q(2), Q(1) == Q(1, 5), hash(Q(1)) == hash(Q(1)), fz, repr(Q(3)), P.c


@area
def contextlib_forms(x, y):
    @contextlib.contextmanager
    def cm(n):
        log.append(n)
        try:
            yield n
        except ZeroDivisionError:
            log.append("z")
        finally:
            log.append(-n)

    log = []
    with cm(1) as a, cm(2) as b:
        x = x * (a + b)
    with cm(3):
        1 / 0
    return x, log


@area
def torch_contexts(x, y):
    with torch.no_grad():
        a = x * 2
    with torch.enable_grad():
        b = x * 3
    with torch.inference_mode():
        c = x.sum()
    with torch.autocast("cpu", torch.bfloat16):
        d = (x @ y.T).float()
    with torch.set_grad_enabled(False):
        e = x + 1
    with torch.profiler.record_function("a"):
        f = x + 2
    with torch.device("cpu"):
        g = torch.zeros(2)
    return a, b, d, e, f, g


@area
def torch_misc(x, y):
    return (
        torch.where(x > 0, x, y),
        torch.einsum("ij,ij->i", x, y),
        F.softmax(x, -1),
        torch.nn.functional.one_hot(torch.arange(3)),
        torch.cat([x, y]).chunk(2)[0],
        torch.stack([x, y]).unbind(0)[1],
        x.new_tensor([1.0]),
        torch.tensor([[1, 2]]),
        torch.arange(x.shape[1]),
        torch.meshgrid(torch.arange(2), torch.arange(2), indexing="ij")[0],
        torch.vmap(lambda v: v * 2)(x),
        torch.func.grad(lambda v: (v**2).sum())(x),
        x.to(dtype=torch.float64).dtype,
        torch.promote_types(torch.int, torch.float),
        torch.result_type(x, 3),
        torch.is_floating_point(x),
        x.element_size(),
        x.nelement(),
    )


@area
def inplace_views(x, y):
    z = x.clone()
    z[1:].add_(1)
    z.T[0] = 0
    z.view(-1)[::2] *= 2
    w = z[:, 0]
    w.zero_()
    z.masked_fill_(z > 1, 0.5)
    z.index_fill_(0, torch.tensor([0]), 7)
    z.scatter_(1, torch.tensor([[0], [1], [2]]), 1.0) if z.shape[0] == 3 else None
    return z


@area
def param_inside(x, y):
    w = nn.Parameter(torch.ones(4))
    return (w * x).detach()


@area
def module_inside(x, y):
    m = nn.Sequential(nn.ReLU(), nn.Flatten())
    return m(x)


@area
def seq_slice(x, y):
    return nn.Sequential(nn.ReLU(), nn.Tanh())[:1](x)


@area
def lambda_default_mutable(x, y, acc=[]):
    acc = acc + [1]
    return x, len(acc)


@area
def unpack_nested(x, y):
    (a, (b, c)), *d = [(1, (2, 3)), 4, 5]
    return x * a, b, c, d


@area
def multi_assign(x, y):
    a = b = []
    a.append(x)
    c, d = x, y
    c, d = d, c
    return b[0] is x, c - d


@area
def aug_assign(x, y):
    a = [1]
    b = a
    a += [2]
    t = (1,)
    t += (2,)
    s = "a"
    s *= 3
    n = 7
    n //= 2
    n **= 2
    n %= 5
    n <<= 1
    x = x * 1
    x += 1
    x @= y.T
    return x, b, t, s, n


@area
def swap_attr(x, y):
    o = types.SimpleNamespace(a=1, b=2)
    o.a, o.b = o.b, o.a
    return x * o.a, o.b


@area
def int_cache_identity(x, y):
    a = [1, 2]
    b = a[:]
    return x, a is b, a == b, None is None, () == (), a != b


@area
def map_filter_none(x, y):
    return (
        x,
        list(map(lambda a, b: a + b, [1, 2], [3, 4])),
        list(filter(None, [0, 1, "", 2])),
        list(map(str, range(3))),
        all([]),
        any(v > 1 for v in (1, 2)),
        min(3, 1),
        max([[1], [2]], key=sum),
        sum([[1], [2]], []),
        sorted("bca", reverse=True),
        list(zip(*[(1, 2), (3, 4)])),
        list(enumerate("ab", 1)),
    )


@area
def traceback_text(x, y):
    try:
        raise ValueError("q")
    except ValueError as e:
        return x, traceback.format_exception_only(e)


@broken
def pickle_roundtrip(x, y):
    return x, pickle.loads(pickle.dumps({"a": [1, 2]}))


@area
def queue_deque(x, y):
    q = collections.deque()
    q.append(x)
    q.extend([y, x])
    q.popleft()
    q.insert(0, y)
    q.reverse()
    return q[0], len(q), list(q)[1]


@area
def calendar_mod(x, y):
    return x * calendar.monthrange(2024, 2)[1]


@area
def unicode_text(x, y):
    return (
        x,
        "é".encode("utf8"),
        "ß".upper(),
        "ǆ".title(),
        "a\tb".expandtabs(2),
        "%5.2f|%-5s|%05d" % (1.234, "a", 3),
        "{0[a]} {1.real}".format({"a": 1}, 3),
    )
