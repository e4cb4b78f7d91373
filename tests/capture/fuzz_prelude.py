"""What random programs start with: classes, functions and state that their statements use."""

PRELUDE = '''
import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import math
import operator
import torch
import types
STATE = {"n": 0, "items": []}
MOD = types.ModuleType("mod")
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

class Positive:
    """A data descriptor."""
    def __set_name__(self, owner, name): self.name = "_" + name
    def __get__(self, obj, kind=None): return self if obj is None else getattr(obj, self.name, 0)
    def __set__(self, obj, value):
        if not isinstance(value, torch.Tensor) and value < 0: raise ValueError(f"negative {self.name}: {value}")
        setattr(obj, self.name, value)

@functools.total_ordering
class Num:
    __slots__ = ("v", "tag")
    made = 0
    def __init__(self, v, tag="t"): self.v = v; self.tag = tag; Num.made += 1
    def __add__(self, o): return Num(self.v + (o.v if isinstance(o, Num) else o), self.tag)
    def __radd__(self, o): return Num(o + self.v, "r" + self.tag)
    def __iadd__(self, o): self.v = self.v + o; return self
    def __sub__(self, o): return NotImplemented if isinstance(o, str) else Num(self.v - o)
    def __rsub__(self, o): return Num(o - self.v)
    def __mul__(self, o): return Num(self.v * o)
    __rmul__ = __mul__
    def __neg__(self): return Num(-self.v)
    def __matmul__(self, o): return (self.v, o)
    def __rpow__(self, o): return o ** self.v
    def __eq__(self, o): return isinstance(o, Num) and self.v == o.v
    def __lt__(self, o): return self.v < (o.v if isinstance(o, Num) else o)
    def __hash__(self): return hash(self.v)
    def __bool__(self): return bool(self.v)
    def __int__(self): return int(self.v)
    def __index__(self): return int(self.v)
    def __float__(self): return float(self.v)
    def __repr__(self): return f"Num({self.v!r})"
    def __str__(self): return f"<{self.v}>"
    def __format__(self, spec): return f"{spec}:{self.v}"
    def __call__(self, *args, **kw): return self.v + len(args) + len(kw)
    def __round__(self, digits=None): return ("round", digits)
    def __abs__(self): return abs(self.v)
    def __divmod__(self, o): return ("divmod", self.v, o)

class Dyn:
    limit = Positive()
    def __init__(self, **kw): self.__dict__.update(kw); self.seen = []
    def __getattr__(self, name):
        if name.startswith("_"): raise AttributeError(name)
        self.seen.append(name)
        return len(name)
    def __setattr__(self, name, value): object.__setattr__(self, name, value); STATE["n"] += 1
    def __delattr__(self, name): object.__delattr__(self, name); STATE["items"].append(name)
    def __contains__(self, item): return item in self.__dict__
    def __getitem__(self, key): return (key.start, key.stop, key.step) if isinstance(key, slice) else key
    def __iter__(self): return iter(sorted(self.__dict__))

DYN = Dyn(first=1)

class Seq:
    """Old iteration protocol, reversed, length hint."""
    def __init__(self, *v): self.v = v
    def __len__(self): return len(self.v)
    def __getitem__(self, i): return self.v[i]

class Countdown:
    def __init__(self, n): self.n = n
    def __iter__(self): return self
    def __next__(self):
        if self.n <= 0: raise StopIteration
        self.n -= 1
        return self.n

class Base:
    registry = []
    def __init_subclass__(cls, **kw): super().__init_subclass__(); cls.options = kw; Base.registry.append(cls.__name__)
    def __init__(self, *, size=1, **kw): super().__init__(**kw); self.size = size
    @classmethod
    def make(cls, size): return cls(size=size)
    @staticmethod
    def twice(v): return v * 2
    def who(self): return "base"

class Mixin:
    def __init__(self, *, extra=0, **kw): super().__init__(**kw); self.extra = extra
    def who(self): return "mixin " + super().who()

class Derived(Mixin, Base, speed=3):
    def who(self): return "derived " + super().who()
    @property
    def area(self): return self.size * self.extra
    @area.setter
    def area(self, v): self.size = v
    @area.deleter
    def area(self): self.size = 0
    @functools.cached_property
    def cached(self): STATE["n"] += 1; return self.size + 1

@dataclasses.dataclass
class Point:
    px: object
    py: int = 2
    tags: list = dataclasses.field(default_factory=list)
    def __post_init__(self): self.total = self.py + len(self.tags)

@dataclasses.dataclass(frozen=True, order=True)
class Key:
    name: str
    rank: int = 0

Pair = collections.namedtuple("Pair", "left right")

class Color(enum.Enum):
    RED = 1
    BLUE = 2

class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5

class Stack(list):
    def push(self, v): self.append(v); return self
    def __getitem__(self, i): return super().__getitem__(i)

class Defaults(dict):
    def __missing__(self, key): self[key] = len(self); return self[key]

class AppError(Exception):
    def __init__(self, code, *rest): super().__init__(code, *rest); self.code = code
    def __str__(self): return f"app {self.code}"

class SubError(AppError, KeyError): pass

class Quiet:
    """Swallows the named exceptions."""
    def __init__(self, log, *kinds): self.log = log; self.kinds = kinds
    def __enter__(self): self.log.append("enter"); return self.log
    def __exit__(self, kind, error, trace):
        self.log.append(("exit", kind.__name__ if kind else None, str(error)))
        return bool(kind) and issubclass(kind, self.kinds)

class Translating:
    def __enter__(self): return 1
    def __exit__(self, kind, error, trace):
        if kind is KeyError: raise AppError("translated") from error

@contextlib.contextmanager
def scope(log, name):
    log.append("in " + name)
    try:
        yield name
    except KeyError:
        log.append("swallowed " + name)
    finally:
        log.append("out " + name)

@contextlib.contextmanager
def setting(name, value):
    old = STATE.get(name)
    STATE[name] = value
    try:
        yield old
    finally:
        STATE[name] = old

def gen(t, n):
    total = 0
    for i in range(n):
        got = yield t + i
        total += 1 if got is None else got
    return total

def outer(t, n):
    r = yield from gen(t, n)
    yield t * r

def careful(log, n):
    try:
        for i in range(n):
            try:
                got = yield i
                log.append(("got", got))
            except ValueError as e:
                log.append(("caught", str(e)))
                yield "after"
    except GeneratorExit:
        log.append("closed")
        raise
    finally:
        log.append("finally")
    return "done"

def delegating(log, n):
    r = yield from careful(log, n)
    log.append(("result", r))
    return r

def finally_return(v):
    try:
        if v % 2: raise ValueError("odd")
        return "try"
    except ValueError:
        return "except"
    finally:
        if v > 2: return "finally"

def finally_loop(log, v):
    for i in range(4):
        try:
            if i == v: raise KeyError(i)
            if i == 2: continue
            log.append(i)
        except KeyError:
            log.append("key")
            if i > 1: break
        finally:
            log.append("f")
            if i == 0: continue
    else:
        log.append("else")
    return i

def chain(v):
    try:
        try:
            {}[v]
        except KeyError as e:
            if v % 2: raise AppError(v) from e
            raise ValueError("v")
    except Exception as e:
        return type(e).__name__, type(e.__cause__).__name__, type(e.__context__).__name__, e.__suppress_context__, e.args

def defaults(v, acc=[], *args, k=1, **kw):
    acc.append(v)
    return len(acc) + k + len(args) + len(kw)

def only_keywords(*, p, q=2): return (p, q)
def positional(p, /, q, *, r=0): return (p, q, r)

def counted(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kw):
        wrapper.calls += 1
        return fn(*args, **kw)
    wrapper.calls = 0
    return wrapper

@counted
def tripled(t): return t * 3

def make_counter(start):
    def bump(by=1):
        nonlocal start
        start += by
        return start
    def read(): return start
    return bump, read

BUMP, READ = make_counter(1)

def recursive(n): return 0 if n <= 0 else n + recursive(n - 1)

@functools.lru_cache
def cached(n): return n * n

@functools.singledispatch
def kind_of(v): return "object"
@kind_of.register
def _(v: int): return "int"
@kind_of.register
def _(v: list): return "list"

def describe(v):
    match v:
        case None: return "none"
        case True | False: return "bool"
        case int() if v > 3: return f"big {v > 3}"
        case int(): return "int"
        case [p, q]: return f"two {type(p).__name__}"
        case [p, *rest]: return f"many {len(rest)}"
        case {"k1": v1, **rest}: return f"k1 {len(rest)}"
        case Point(px=p, py=2): return "point2"
        case Point(): return "point"
        case Pair(l, r): return "pair"
        case str() as s: return "str " + s[:2]
        case Color.RED: return "red"
        case _: return type(v).__name__

def shown(v):
    if isinstance(v, torch.Tensor): return ("tensor", tuple(v.shape))
    return v

def brk(): pass
def opaque(v): return v

def noisy(log, v, result):
    log.append(v)
    return result
'''
