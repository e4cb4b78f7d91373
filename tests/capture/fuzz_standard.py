"""Random programs over arguments of classes of the standard library, and of the program's classes with protocols of their own.

As `fuzz_arguments`, whose statements they use, too.

    python -m tests.capture.fuzz_standard --count 2000 --first 0
"""

# ruff: noqa: E501
from __future__ import annotations

import functools

from tests.capture.fuzz_arguments import ABSENT, ANY, KINDS, LOOPS, USES, WRITES, Space, disagreement
from tests.capture.fuzz_command import run_seeds

MORE = """
import abc, array, contextvars, datetime, decimal, fractions, ipaddress, pathlib, re, string, uuid, weakref
VAR = contextvars.ContextVar("VAR", default=1)
CAUGHT += decimal.DecimalException, OverflowError, ReferenceError, AssertionError, BufferError, NotImplementedError

@dataclasses.dataclass(slots=True)
class Slotted:
    first: int
    rest: list = dataclasses.field(default_factory=list)

@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Frozen:
    first: int
    second: object = dataclasses.field(default=None, compare=False)
    def with_more(self): return dataclasses.replace(self, first=self.first + 1)

class Flags(enum.Flag):
    A = 1
    B = 2
    C = 4
    AB = A | B

class Words(str, enum.Enum):
    ONE = "one"
    TWO = "two"
    @property
    def long(self): return self.value * 2
    @classmethod
    def _missing_(cls, value): return cls.ONE if value == 1 else None

class Meta(type):
    def __getattr__(cls, name):
        if name.startswith("_"): raise AttributeError(name)
        return name.upper()
    def __len__(cls): return 3
    def __iter__(cls): return iter(("m", "e"))
    def __contains__(cls, item): return item == 2
    def __call__(cls, *args, **kw): made = super().__call__(*args, **kw); made.late = len(args); return made
    def __instancecheck__(cls, one): return hasattr(one, "value") or type.__instancecheck__(cls, one)

class Made(metaclass=Meta):
    def __init__(self, value=1): self.value = value

class Slots:
    __slots__ = ("value", "px", "__weakref__")
    def __init__(self, value): self.value = value
    def __getattr__(self, name): return ("slot", name) if name == "late" else object.__getattribute__(self, name)

class Watched:
    "Sees each read of it."
    def __init__(self, value): object.__setattr__(self, "reads", []); object.__setattr__(self, "value", value)
    def __getattribute__(self, name):
        if name not in ("reads", "__class__", "__dict__"): object.__getattribute__(self, "reads").append(name)
        return object.__getattribute__(self, name)
    def __setattr__(self, name, value): self.reads.append("=" + name); object.__setattr__(self, name, value)

class Lazy:
    "A descriptor that replaces itself, and one in C's way."
    def __init__(self, function): self.function = function
    def __set_name__(self, owner, name): self.name = name
    def __get__(self, obj, cls=None):
        if obj is None: return self
        obj.__dict__[self.name] = found = self.function(obj)
        return found

class Described:
    size = Positive()
    def __init__(self, value): self.value = value; self.size = value
    @Lazy
    def late(self): return self.value + 10
    @property
    def px(self): return self.size * 2
    @px.setter
    def px(self, v): self.size = v
    @px.deleter
    def px(self): self.size = 0
    @functools.singledispatchmethod
    def told(self, v): return "any"
    @told.register
    def _(self, v: int): return "int"
    def __class_getitem__(cls, item): return (cls.__name__, item)
    def __missing__(self, key): return key
    def __length_hint__(self): return 4
    def __reversed__(self): return iter((3, self.value))
    def __getitem__(self, key):
        if key == 9: raise IndexError(key)  # or loops over it never end
        return ("item", key, self.value)
    def __delitem__(self, key): self.value = key
    def __setitem__(self, key, v): self.value = v

class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...
    @classmethod
    def __subclasshook__(cls, other): return True if hasattr(other, "area") else NotImplemented

class Square(Shape):
    def __init__(self, value): self.value = value
    def area(self): return self.value ** 2

class Missing(dict):
    def __missing__(self, key): self[key] = len(self); return self[key]

class Counting(int):
    def __add__(self, o): return Counting(int(self) + o + 100)
    def __eq__(self, o): return int(self) == o
    __hash__ = int.__hash__

class Text(str):
    def upper(self): return "own " + str(self)
    def __eq__(self, o): return len(self) == len(o) if isinstance(o, str) else NotImplemented
    __hash__ = str.__hash__

class Row(tuple):
    __slots__ = ()
    first = property(operator.itemgetter(0))

class UserItems(collections.UserList): pass
class UserMap(collections.UserDict):
    def __getitem__(self, key): return super().__getitem__(key) if key in self.data else ("none", key)

def sending(k):
    total = 0
    try:
        while total < 9:
            got = yield total + k
            total += 1 if got is None else got
    except ValueError as e:
        yield ("caught", str(e))
    finally:
        STATE["items"].append("closed")
    return total

def delegating(k): r = yield from sending(k); yield ("r", r)

def kept(value):
    STATE["alive"] = value
    return value
"""
STANDARD = {
    "maps": (
        "collections.OrderedDict([(1, k), ('k1', 2)])",
        "collections.ChainMap({'k1': k}, {'m1': 2, 'k1': 0})",
        "collections.defaultdict(int, {k: 1})",
        "collections.defaultdict(lambda: [k])",
        "Missing(k1=k)",
        "UserMap(k1=k)",
        "collections.Counter({'a': k, 'b': 1})",
        "types.MappingProxyType(collections.OrderedDict(k1=k))",
        "{'k1': {'m1': [k]}}",
            ),
    "rows": (
        "collections.deque([1, 2, k], maxlen=3)",
        "collections.deque(maxlen=k)",
        "frozenset({1, 'k1', k})",
        "frozenset(map(str, range(k)))",
        "Row((k, 2))",
        "UserItems([1, k])",
        "array.array('i', range(k))",
        "memoryview(b'abcd'[:k])",
        "memoryview(bytearray(b'abcd'))",
        "bytes(range(k))",
        "bytearray(range(k))",
        "range(k, 9, 3)",
        "range(5, 0, -k - 1)",
    ),
    "values": (
        "complex(k, -1)",
        "fractions.Fraction(k, 3)",
        "decimal.Decimal(k) / 4",
        "decimal.Decimal('NaN') if k == 3 else decimal.Decimal(1)",
        "datetime.datetime(2020, 1, 1 + k)",
        "datetime.date(2020, 1, 1 + k)",
        "datetime.timedelta(days=k, seconds=5)",
        "datetime.time(k, 5)",
        "datetime.timezone(datetime.timedelta(hours=k))",
        "uuid.UUID(int=k)",
        "pathlib.PurePosixPath('a') / str(k)",
        "ipaddress.ip_address(k)",
        "Counting(k)",
        "Text('ab' * k)",
        "1 << (60 + k)",
        "-k",
        "float('nan') if k == 3 else float(k)",
        "float('inf') if k == 3 else -0.0",
        "NotImplemented",
        "...",
        "string.Template('a $k1 b')",
        "'é' * k",
        "b'k%d' % k",
    ),
    "enums": ("Flags(k)", "Flags.A | Flags.C if k % 2 else Flags.AB", "Words.ONE if k % 2 else Words.TWO", "Words", "Flags", "Level(5)", "Color(1 + k % 2)"),
    "records": ("Slotted(k)", "Slotted(1, [k])", "Frozen(first=k)", "Frozen(first=1, second=[k])", "Slots(k)", "Described(k)", "Square(k)", "Made(k)", "Made", "Square", "types.SimpleNamespace(value=k)"),
    "texts": ("re.match('(a)(?P<k1>b)?', 'ab' if k % 2 else 'a')", "re.compile('a+' if k % 2 else 'b')", "re.search('b', 'abc'[:k])", "re.finditer('.', 'abc'[:k])", "iter('abc'[:k])"),
    "weak": ("weakref.ref(kept(Box(k)))", "weakref.proxy(BOX)", "weakref.WeakMethod(kept(Box(k)).grow)", "weakref.ref(Box(k))"),
    "running": ("sending(k)", "started(sending(k))", "delegating(k)", "started(delegating(k))", "(v for v in [k, 2, 3])", "itertools.tee([1, k])[0]", "itertools.groupby([1, 1, k])", "itertools.accumulate(range(k))", "itertools.zip_longest('ab', range(k))", "itertools.pairwise(range(k))", "itertools.batched(range(k), 2) if hasattr(itertools, 'batched') else iter(())", "iter(lambda: k, k)"),
    "context": ("VAR", "contextvars.copy_context()", "VAR.set(k)", "contextlib.nullcontext(k)", "contextlib.suppress(KeyError)", "contextlib.ExitStack()", "contextlib.closing(Held(k))"),
    "called": ("functools.partial(int, base=2)", "functools.partialmethod(Box.grow, k)", "functools.lru_cache(lambda v=1: v + k)", "functools.singledispatch(lambda v=1: k)", "operator.attrgetter('value')", "operator.methodcaller('grow', k)", "staticmethod(len)", "property(len)", "classmethod(len)", "Box.doubled", "Described.told", "type(k)", "super", "str.upper", "'abc'.upper", "types.MethodType(lambda self, v=1: (self, v), k)", "functools.cached_property(len)"),
}  # fmt: skip
STANDARD_USES = (
    "log.append(str(g) if ' at 0x' not in repr(g) else 0)",
    "log.append(repr(g) if ' at 0x' not in repr(g) else 0)",
    "log.append(f'{g!r:>12}' if ' at 0x' not in repr(g) else 0)",
    "log.append(type(g).__mro__[1].__name__)",
    "log.append((g == o, g != o))",
    "log.append(hash(g) == hash(o))",
    "log.append(copy.copy(g) == g)",
    "log.append(copy.deepcopy(g) == g)",
    "log.append(g < o); log.append(g >= o)",
    "log.append(shown(-g)); log.append(shown(abs(g)))",
    "log.append(shown(g + g)); log.append(shown(g - g))",
    "log.append(shown(g * 2)); log.append(shown(2 * g))",
    "log.append(shown(g / 2)); log.append(shown(g ** 2))",
    "log.append(shown(g % 3)); log.append(shown(divmod(g, 2)))",
    "log.append(g | o); log.append(g & o); log.append(g ^ o); log.append(~g)",
    "log.append(shown(g.value))",
    "log.append(shown(g.name))",
    "log.append(shown(g.first)); g.first = 7; log.append(shown(g.first))",
    "log.append(shown(g.late))",
    "g.late = n; log.append(shown(g.late))",
    "g.px = 3; log.append(shown(g.px)); del g.px; log.append(shown(g.px))",
    "del g.value",
    "log.append(getattr(g, 'nothing', 'none'))",
    "log.append(hasattr(g, 'value')); log.append(hasattr(g, '__dict__')); log.append(hasattr(g, '__slots__'))",
    "log.append(g.area()); log.append(isinstance(g, Shape))",
    "log.append(isinstance(g, Made)); log.append(isinstance(g, Described))",
    "log.append(g.with_more())",
    "log.append(dataclasses.asdict(g)); log.append(dataclasses.astuple(g))",
    "log.append(g.told(1)); log.append(g.told('a'))",
    "log.append(type(g)[1])",
    "log.append(g.reads)",
    "log.append(shown(g['k1'])); log.append(shown(g['nothing']))",
    "log.append(shown(g[0])); log.append(shown(g[-1]))",
    "log.append(shown(g[1:])); log.append(shown(g[::-1]))",
    "g['new'] = n; log.append(len(g)); log.append(shown(g['new']))",
    "del g['k1']; log.append(len(g))",
    "del g[0]; log.append(len(g))",
    "log.append(shown(g.get('k1'))); log.append(shown(g.pop('k1', 3)))",
    "log.append([shown(v) for v in g.values()])",
    "log.append([*g.items()][:1] if len(g) < 2 else 0)",
    "log.append(g.maxlen); g.appendleft(n); g.rotate(1); log.append(shown(g[0]))",
    "log.append(g.maps[0]); log.append(len(g.new_child({'a': 1})))",
    "g.move_to_end('k1'); log.append(list(g)); log.append(g.popitem())",
    "log.append(g.most_common(1)); g.subtract('a'); log.append(g['a'])",
    "log.append(g.default_factory is None); log.append(shown(g[n]))",
    "log.append(g.tolist()); log.append(g.tobytes())",
    "log.append(g.hex()); log.append(g.decode())",
    "g[0] = 65; log.append(bytes(g))",
    "log.append(g.format); log.append(g.nbytes); log.append(g.readonly)",
    "log.append(g.real); log.append(g.imag); log.append(g.conjugate())",
    "log.append(g.numerator); log.append(g.denominator)",
    "log.append(g.days); log.append(g.total_seconds())",
    "log.append(g.isoformat()); log.append(g.year)",
    "log.append(g.replace(day=2))",
    "log.append(g.quantize(g)); log.append(g.is_nan())",
    "log.append(g.bit_length()); log.append(g.to_bytes(10, 'big'))",
    "log.append(g.hex); log.append(g.int)",
    "log.append(g.parent); log.append(g / 'b'); log.append(g.name)",
    "log.append(g.group(0)); log.append(g['k1']); log.append(g.span())",
    "log.append(g.sub('-', 'aab')); log.append(g.pattern)",
    "log.append(g.upper()); log.append(g.title())",
    "log.append(g.substitute(k1=n))",
    "log.append(g.long)",
    "log.append(g('two') is o); log.append(g['ONE']); log.append(len(g))",
    "log.append(g.__members__['A']); log.append([m.name for m in g])",
    "log.append(Flags.A in g); log.append(bool(g & Flags.B))",
    "log.append(shown(g())); STATE.pop('alive', 0); log.append(shown(g()))",
    "STATE.pop('alive', 0); log.append(len(g))",
    "log.append(shown(g().grow(1).value))",
    "log.append(shown(next(g))); log.append(shown(g.send(2))); brk(); log.append(shown(g.throw(ValueError('v'))))",
    "log.append(shown(g.send(3))); g.close(); log.append(STATE['items'])",
    "log.append(g.gi_frame is None); log.append(g.gi_running)",
    "log.append([[shown(v) for v in w] if hasattr(w, '__next__') else shown(w) for w in itertools.islice(g, 4)])",
    "for i, (p, q) in enumerate(g): log.append((i, shown(p))); brk()",
    "log.append(g.get()); t = g.set(n); log.append(g.get()); g.reset(t)",
    "log.append(g.get(VAR, 4)); log.append(g.run(VAR.get))",
    "log.append(shown(g.old_value) if g.old_value is not g.MISSING else 0); VAR.reset(g)",
    "with g as v: log.append(shown(v)); brk()",
    "with g: raise KeyError('in')",
    "with g as v: v.callback(log.append, 'end'); log.append('in')",
    "log.append(shown(g(BOX)))",
    "log.append(g.cache_info()[:2]); log.append(g(2)); log.append(g(2)); log.append(g.cache_info()[:2])",
    "log.append(g.func is o.func); log.append(g.keywords); log.append(g.args)",
    "log.append(g.__name__); log.append(g.__wrapped__ is None)",
    "log.append(g.__get__(BOX)())",
    "log.append(g.__self__)",
    "log.append({g: 1}[g]); log.append(g in {o})",
    "log.append(isinstance(g, (str, int))); log.append(issubclass(type(g), collections.abc.Mapping))",
    "log.append(isinstance(g, collections.abc.Hashable)); log.append(isinstance(g, collections.abc.Sequence))",
    "match g:\n    case str(): log.append('str')\n    case complex(real=p): log.append(p)\n    case Slotted(first=p) | Frozen(first=p): log.append(p)\n    case Words.ONE: log.append('one')\n    case {'k1': p, **q}: log.append(('map', len(q)))\n    case [p, *q]: log.append(('row', shown(p), len(q)))\n    case _: log.append('other')",
    "a = a * (1 if g else 2)",
    "a = a * float(g)",
    "a = a + int(g)",
    "a = a.reshape([len(g) and 1, -1])",
    "n = g; brk(); log.append(n is g)",
    "n = [g, {'k': g}]; brk(); log.append(n[0] is n[1]['k'])",
    "log.append(len(str(g)))",
    "log.append(','.join(map(str, g)))",
    "log.append(g.__class__.__name__); log.append(type(g) is type(o))",
    "log.append(g.__doc__ is None); log.append(g.__module__)",
    "log.append(callable(g)); log.append(g.__eq__(o))",
    "log.append(operator.length_hint(g))",
    "log.append(reversed(g).__class__.__name__); log.append([shown(v) for v in reversed(g)])",
    "setattr(g, 'value', n); log.append(vars(g)['value'])",
    "log.append(g.area)",
    "log.append(bool(g)); log.append(not o)",
    "assert g, 'none'",
    "log.append('%s %r' % (n, shown(g)) if ' at 0x' not in repr(g) else 0)",
    "log.append('{0:>5}|{1}'.format(n, shown(g)) if ' at 0x' not in repr(g) else 0)",
    "p = g; g = o; o = p; log.append(g == o)",
    "for v in g:\n    try: log.append(shown(v)); brk()\n    finally: n += 1",
)
SPACE = Space({**STANDARD, "others": sum(KINDS.values(), ())}, (ANY, LOOPS, LOOPS, WRITES, USES, STANDARD_USES, STANDARD_USES, STANDARD_USES, ABSENT), MORE)  # fmt: skip

different = functools.partial(disagreement, space=SPACE)

if __name__ == "__main__":
    run_seeds(different, backend=True, recompile_limit=64)
