"""The grammar of random Python programs: what each `$name` may stand for. `fuzz_python` expands it.

A row is an expression of that kind, or one or more lines of a statement. `$block` alone on a line is some statements;
`@` is a number that no other row of the program has; `#` is a small number. The names that rows use stand for values of
their kinds everywhere: in functions as locals, in methods as globals. Rows without `$` end the expansion.
"""

# ruff: noqa: E501
from tests.capture.fuzz_grammar_library import PRELUDE as LIBRARY_PRELUDE
from tests.capture.fuzz_grammar_library import ROWS as LIBRARY

PRELUDE = '''
import collections, contextlib, dataclasses, enum, functools, itertools, math, operator, types
import torch

LOG = []

class Enough(RuntimeError): pass

def note(value):
    """What the program shows of itself; a program without an end ends here."""
    if len(LOG) > 250: raise Enough("enough")
    LOG.append(value)
    return value

def brk(value=None): return value

COUNT = [0]
copy_of = __import__("copy").copy

class Trouble(Exception):
    def __init__(self, code=1, *rest): super().__init__(code, *rest); self.code = code
    def __str__(self): return f"trouble {self.code}"

class Root:
    def __init__(self, *args, **kw): self.f = args[0] if args else 3; self.g = list(args); self.h = kw
    def __repr__(self): return "<root>"  # without an address

class Words(dict): pass
class Items(list): pass
class Small(int): pass

WORDS, ITEMS = Words(a=1), Items([1, 2, 3])
BOUND = (itertools.count().__next__, WORDS.get, ITEMS.pop, ITEMS.__len__, types.MappingProxyType(WORDS).get, types.SimpleNamespace(f=1).__getattribute__, (i for i in range(9)).send)
UP, GET, POP, SIZE, LOOK, ASK, SEND = BOUND

class Field:
    """A data descriptor."""
    def __set_name__(self, owner, name): self.name = "_" + name
    def __get__(self, obj, kind=None): note("get" + self.name); return self if obj is None else getattr(obj, self.name, 5)
    def __set__(self, obj, value): note("set" + self.name); obj.__dict__[self.name] = value
    def __delete__(self, obj): note("del" + self.name); obj.__dict__.pop(self.name, None)

class Once:
    """A descriptor that instances hide."""
    def __init__(self, fn=None): self.fn = fn
    def __set_name__(self, owner, name): self.name = name
    def __get__(self, obj, kind=None): note("once"); return self.name if self.fn is None else self.fn(obj)

class Caught:
    def __init__(self, *kinds): self.kinds = kinds
    def __enter__(self): note("enter"); return self
    def __exit__(self, kind, error, trace): note(("exit", kind and kind.__name__)); return kind is not None and issubclass(kind, self.kinds)

@contextlib.contextmanager
def managed(v):
    note("in")
    try: yield v
    except (KeyError, TypeError) as e: note(("managed", type(e).__name__))
    finally: note("out")

def traced(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kw): note(fn.__name__); return fn(*args, **kw)
    return wrapper

def adding(by):
    def decorate(fn): return lambda *args, **kw: (by, fn(*args, **kw))
    return decorate

def counted(n):
    for i in range(n):
        try:
            got = yield i
            if got is not None: note(got)
        except ValueError as e: note(("thrown", str(e)))
    return "end"

def wrapped(inner):
    result = yield from inner
    note(result); yield result

class Point(collections.namedtuple("Point", "u v")):
    def total(self): return self.u + self.v

class Color(enum.Enum):
    RED = 1; BLUE = 2; ALSO = 1
    @property
    def low(self): return self.name.lower()

class Bits(enum.Flag): A = 1; B = 2; C = 4

class Level(enum.IntEnum): LOW = 1; HIGH = 3

@dataclasses.dataclass(order=True)
class Data:
    u: object
    v: int = 2
    w: list = dataclasses.field(default_factory=list, compare=False)

@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    u: int = 1
    v: str = "v"

class Slots:
    __slots__ = ("u", "v")
    def __init__(self, u=1): self.u = u
    def __repr__(self): return "<slots>"

class Meta(type):
    made = 0
    def __new__(meta, name, bases, space, **kw):
        cls = super().__new__(meta, name, bases, space); cls.words = sorted(kw); Meta.made += 1; return cls
    def __init__(cls, name, bases, space, **kw): super().__init__(name, bases, space)
    def __call__(cls, *args, **kw): note("call " + cls.__name__); return super().__call__(*args, **kw)
    def __contains__(cls, item): return item in vars(cls)
    def __len__(cls): return 7
    def __iter__(cls): return iter(("m", 1))
    def __getitem__(cls, key): return (cls.__name__, key)
    def __getattr__(cls, name): note("meta " + name); return len(name)
    def __instancecheck__(cls, obj): return type.__instancecheck__(cls, obj) or obj == 1
    def __add__(cls, other): return ("added", other)

class Made(metaclass=Meta, key=1):
    f = 2
    def __init__(self, v=0): self.v = v
    def __repr__(self): return "<made>"

@functools.singledispatch
def single(v): return "any"
@single.register
def _(v: int): return ("int", v)
@single.register(list)
@single.register(tuple)
def _(v): return ("several", len(v))

def matched(v):
    match v:
        case None | True: return "none or true"
        case int(m) if m > 2: return ("big", m)
        case int() | float(): return "number"
        case str() as m: return m[:1]
        case [m]: return ("one", m)
        case [m, *rest, last]: return ("ends", m, last, len(rest))
        case {"a": m, **rest}: return ("a", m, sorted(rest, key=str))
        case {}: return "dict"
        case Point(u=1): return "one point"
        case Data(m, 2): return ("data", m)
        case Data(v=m): return ("v", m)
        case Color.RED: return "red"
        case Root(f=m): return ("root", m)
        case _: return type(v).__name__
'''

EXPRESSIONS = {
    "int": (
        "#", "n", "n", "-#", "len($many)", "$int + $int", "$int - $int", "$int * #", "$int // $int", "$int % $int", "abs($int)",
        "int($num)", "sum($ints)", "max($int, $int)", "min($ints, default=#)", "($int if $bool else $int)", "(n := $int)",
        "$str.count($str)", "$list.index($any)", "$ints[#]", "hash($int) % 5", "ord($str[:1])", "~$int", "$int & $int", "$int | #", "$int ^ $int",
        "$int << #", "$int >> #", "round($num)", "operator.index($int)", "len($str)", "Level.HIGH + $int", "Point($int, $int).total()",
        "$bool + $int", "divmod($int, #)[1]", "(lambda q, r=$int: q + r)($int)", "functools.reduce(operator.add, $ints, 0)", "x.shape[0]", "x.dim() + $int",
        "$int.bit_length()", "int(str($int))", "$set.__len__()", "operator.length_hint($ints)", "math.gcd($int, #)", "$any.f", "$any.__len__()",
    ),
    "num": ("$int", "$int / $int", "1.5", "$int * 0.5", "float($int)", "$bool", "round($int / 3, 2)", "math.sqrt(abs($int))", "$int ** #", "-$num", "+$num", "complex($int, #)", "$int ** -1", "float($str)"),
    "bool": (
        "True", "False", "$int > $int", "$any == $any", "$any != $any", "$any is $any", "$any is None", "not $any", "$any in $many", "$any not in $many", "isinstance($any, $class)",
        "issubclass($class, $class)", "hasattr($any, $attr)", "bool($any)", "any($list)", "all($list)", "$int < $int <= $int", "$set <= $set", "$list < $list", "$str < $str", "callable($any)",
        "$any and $any", "$any or $any", "$str.startswith($str)", "$str.isdigit()", "$any < $any", "$any >= $any", "operator.contains($many, $any)", "$set.isdisjoint($list)", "a is x",
        "isinstance($any, (int, $class))", "$class == $class", "type($any) is $class", "$obj == $obj", "$obj < $obj", "$obj",
    ),
    "str": (
        "'ab'", "s", "s", "''", "str($any)", "repr($plain)", "f'{n}'", "f'{o!r:>5}{p}'", "f'{n:.2f}|{s:^4}{d}'", "f'{l} {t!s} {k}'", "'%s-%r' % ($any, $int)", "'%d' % $int", "'{}{}'.format($any, $any)", "'{0[0]}{u}'.format($list, u=$int)",
        "$str + $str", "$str * #", "$str.upper()", "$str.replace('a', $str)", "$str.join(map(str, $list))", "$str.split('b')[0]", "$str[$int]", "$str[::-1]", "$str.strip($str)", "$str.zfill(#)", "$str.center(#, '*')",
        "type($any).__name__", "chr(97 + #)", "format($int, '03d')", "format($any, '')", "Color.RED.low", "$str.partition('a')[2]", "$str.title()", "'a' 'b'", "max($str, $str)", "$str.encode().decode()", "ascii($str)", "bin($int)",
        "$class.__name__", "f'{n=} {s!s}'", "$str.translate({97: 'z'})", "', '.join(sorted($strs))", "$obj.__class__.__name__", "$any.h",
    ),
    "list": (
        "l", "l", "[]", "[$any, $any]", "[#, $int]", "list($many)", "sorted($ints)", "sorted($list, key=str)", "$list + $list", "$list * #", "[$any for i in $ints if $bool]", "[*$list, *$many]", "$list[#:]", "$list[::-1]", "list(map($func, $list))",
        "list(zip($list, $str))", "list(enumerate($many, $int))", "list(filter(None, $list))", "[i for i in $many]", "[(i, j) for i in $ints for j in $str]", "$list.copy()", "list(reversed($list))", "list($iter)", "[*$iter]", "$str.split('a')", "list(d.items())",
        "sorted($list)", "sorted($many, key=$func, reverse=$bool)", "[i := $int, i + 1]", "[[i for i in range(j)] for j in $ints]", "list(itertools.chain($list, $many))", "list(itertools.islice($many, #))", "list(itertools.accumulate($ints))", "$list.__add__($list)",
        "[lambda: $int][0]() and [$any]", "list(dict.fromkeys($list))", "list($class)", "$obj.g", "list(itertools.zip_longest($list, $str))", "list(itertools.groupby($ints, lambda i: i % 2))[:1]", "list(itertools.product($str, repeat=1))", "list(itertools.pairwise($list))",
        "list(itertools.starmap(max, [($int, $int)]))", "[u for u, *_ in [($any, $int), $tuple]]", "$tuple[-1:]",
    ),
    "ints": ("range(#)", "[#, n, #]", "range(n)", "range($int, #, -1)", "(#, #)", "sorted($ints)", "[i * # for i in $ints]", "(i for i in $ints if i % 2)", "map(abs, $ints)", "$ints[:#]", "[*$ints, $int]", "iter($ints)", "[len(q) for q in $strs]", "x.shape", "bytes([#, 2])"),
    "strs": ("['b', 'a']", "'ab'", "[s, $str]", "d", "map(str, $list)", "(i for i in $str)", "$str.split('b')", "map(repr, $ints)"),
    "tuple": ("()", "t", "(#, $any)", "tuple($many)", "(*$list, $any)", "$tuple + $tuple", "$tuple[:#]", "divmod($int, $int)", "($any, ($any, $any))", "Point($any, $any)", "Point($int, #)._replace(u=$any)", "$str.partition('a')", "(lambda *q: q)(*$many)", "tuple(i for i in $ints)", "$tuple * #", "Point._make($list)"),
    "dict": (
        "d", "d", "{}", "{$key: $any}", "dict(u=$any)", "{i: $any for i in $ints}", "{**$dict, $key: $any}", "dict(zip($strs, $list))", "$dict | $dict", "$dict.copy()", "dict.fromkeys($ints, $any)", "dict($dict, v=$any)", "collections.Counter($str)", "collections.OrderedDict($dict)",
        "collections.defaultdict(list, $dict)", "dict(sorted($dict.items(), key=str))", "(lambda **q: q)(**$dict)", "types.MappingProxyType($dict)", "collections.ChainMap($dict, $dict)", "vars($obj).copy()", "{k: v for k, v in $dict.items()}", "dict([($key, $any), $tuple])", "dataclasses.asdict($data)",
        "{i: j for i, j in zip($str, $ints)}", "$obj.h",
    ),
    "set": ("k", "set()", "{$key, $key}", "set($ints)", "$set | $set", "$set & $set", "$set - $set", "$set ^ $set", "frozenset($ints)", "{i % 2 for i in $ints}", "set($str)", "$set.union($ints)", "$set.difference($list)", "d.keys() & $set", "d.keys()", "$set.copy()", "set(map($func, $ints))"),
    "key": ("#", "'a'", "'b'", "n", "s", "(#, 'a')", "None", "True", "1.0", "$int", "$str", "Color.RED", "Frozen($int)", "$class", "$obj", "frozenset($ints)", "$list"),
    "many": ("$list", "$list", "$ints", "$tuple", "$dict", "$set", "$str", "$iter", "$obj", "d.values()", "d.items()", "$any"),
    "iter": (
        "iter($many)", "reversed($list)", "zip($many, $many)", "map($func, $many)", "filter($func, $many)", "enumerate($many)", "(i for i in $many)", "counted(#)", "wrapped(counted(#))", "itertools.chain($many, $many)", "itertools.islice($many, #)", "itertools.takewhile($func, $many)",
        "itertools.dropwhile($func, $ints)", "iter(lambda: next(j, 2), 2)", "itertools.repeat($any, #)", "itertools.compress($many, $many)", "zip($list, $many, strict=True)", "j", "(note(i) for i in $ints)", "itertools.filterfalse($func, $ints)", "(i for i in $many if $bool)", "(q for i in $many for q in ($any, i))", "$gen", "$gen",
    ),
    "gen": ("counted(#)", "wrapped(counted(#))", "wrapped($iter)", "(i for i in $many)", "j"),
    "func": ("str", "lambda v: v", "lambda *v: len(v)", "(lambda v, q=$any: (q, v))", "abs", "len", "functools.partial(max, $int)", "operator.itemgetter(0)", "operator.attrgetter('f')", "matched", "single", "repr", "bool", "(lambda v: $any)", "int", "traced($func)", "adding($any)($func)", "$class", "$any", "$obj", "type", "note", "functools.partial($func)", "operator.neg", "d.get", "'{}'.format", "l.append", "(lambda v: v * 2)", "functools.lru_cache($func)", "operator.methodcaller('upper')"),
    "attr": ("'f'", "'g'", "'h'", "'p'", "'m'", "'no'", "'__len__'", "'_q'", "'u'", "s", "'__dict__'", "'__doc__'", "'name'"),
    "class": ("int", "str", "list", "Root", "Point", "Data", "Color", "Made", "object", "dict", "type($any)", "Meta", "Slots", "collections.abc.Sized", "collections.abc.Iterable", "collections.abc.Hashable", "Exception", "$own", "$own", "$own", "type", "bool", "tuple"),
    "data": ("Data($any)", "Data($any, $int)", "Data(v=#, u=$any)", "dataclasses.replace($data, v=$int)", "Data($int)", "Data(*$tuple)"),
    "obj": (*["o", "p", "$own()", "$own($any)"] * 4, "$own(u=$any)", "$data", "Made()", "Slots($any)", "Frozen()", "Color.RED", "Color($int)", "Bits.A | Bits.B", "Level($int)", "Color['BLUE']", "Root($any, $any)", "types.SimpleNamespace(f=$any)", "$obj.f", "$obj + $any", "$any - $obj", "$class($any)", "$obj.p", "$obj.m($any)", "-$obj", "$obj * $any", "$obj[$key]", "$obj()", "collections.deque($many, maxlen=#)", "range($int)", "copy_of($obj)", "Bits(#)"),
    "error": ("ValueError($any)", "KeyError($key)", "TypeError('t')", "IndexError", "StopIteration($any)", "$own", "ZeroDivisionError(*$tuple)", "RuntimeError($str, $int)", "AttributeError('no')", "Trouble($any)", "$any", "LookupError", "ExceptionGroup('g', [ValueError($int), KeyError(#)])"),
    "plain": ("$int", "$str", "$num", "None", "[$int, $str]", "($num,)", "{$int: $str}", "{#}", "$data", "Point($int, $str)", "Color.RED", "Bits.A | Bits.C", "Frozen()", "types.SimpleNamespace(f=$int)", "collections.Counter($str)", "collections.deque($ints)", "range(#)", "slice($int, None)", "ValueError($int)", "Level.LOW", "$class", "b'a'", "$num"),
    "any": (*["$int", "$str", "$list", "$tuple", "$dict", "$set", "$num", "$bool", "None"] * 3, *["$obj", "o", "p", "o", "p", "n", "s", "l", "d", "t"] * 4, "$class", "$func", "$iter", "note($any)", "($any if $any else $any)", "getattr($any, $attr, $any)", "next($iter, $any)", "$dict.get($key)", "$dict[$key]", "$list[$int]", "$func($any)", "$func(*$many)", "$func(**$dict)", "matched($any)", "single($any)", "$any.f", "type($any)", "UP()", "GET($key)", "POP($int)", "SIZE()", "LOOK('a')", "ASK($attr)", "SEND($any)", "BOUND[#]($any)", "$list[$int:$int]", "max($many)", "$any @ $any", "$any + $any", "$any * #", "$any % $any", "$any[$any]", "NotImplemented", "...", "brk($any)", "$obj.m($any)", "$class.m", "$any ** #", "$any // $any", "round($any)", "divmod($any, #)", "abs($any)", "-$any", "iter($any)", "len($any)", "min($many, key=$func)", "sum($many)", "sum($many, $any)", "float($any)", "vars($obj)", "$any | $any", "$any & $any", "getattr($any, $attr)", "next($iter)", "setattr($obj, 'f', $any)", "b'ab'", "reversed($any)", "slice($any, $any)", "hash($key) == hash($key)", "dict($many)", "set($many)", "tuple($any)", "complex($any)"),
    "tensor": ("a", "x", "a + $int", "a * $num", "a - x", "a.sum()", "x.clone()", "torch.ones(#)", "a.relu()", "a[:#]", "x + n", "torch.stack([x, x])", "torch.full((2,), $int)"),
}
TARGETS = {
    "target": ("n", "s", "l", "d", "t", "o", "p", "j", "o.f", "l[$int]", "d[$key]", "o.h['a']", "p.g[0]", "(q, *t)", "(q, (r, *_))", "[n, s]", "o.p", "$own.f", "l[#:]", "l[::2]", "p.new", "o[$key]"),
    "augmented": ("n", "s", "l", "d", "k", "t", "o", "p", "o.f", "l[0]", "d['a']", "o.g", "$own.f", "p[$key]", "o.p"),
    "operation": ("+", "-", "*", "//", "%", "|", "&", "@"),
}
STATEMENTS = {
    "stmt": (
        *["note($any)"] * 8, *["$target = $any"] * 4, "n = $int", "s = $str", "l = $list", "d = $dict", "k = $set", "t = $tuple", "o = $obj", "p = $obj", "j = $iter", "a = $tensor", "a = a + $tensor", "note($tensor)", "brk()", "brk()", "note($bool)",
        "$augmented $operation= $any", "n += $int", "l += $many", "k |= $set", "d |= $dict", "s += $str", "l.append($any)", "l.extend($many)", "l.insert($int, $any)", "note(l.pop($int))", "l.remove($any)", "l.sort(key=$func)", "l.reverse()", "l.clear()", "del l[$int]", "del l[#:$int]",
        "d.update($dict)", "note(d.pop($key, $any))", "note(d.setdefault($key, $any))", "note(d.popitem())", "del d[$key]", "k.add($key)", "k.discard($key)", "k.update($many)", "note(sorted(map(str, k)))", "del o.f", "del o.p", "o.f = $any", "o.p = $any", "setattr(o, $attr, $any)", "delattr(o, $attr)",
        "if $bool:\n    $block\nelse:\n    $block", "if $any:\n    $block\nelif $bool:\n    $block", *["for i in $many:\n    $loop"] * 3, "for i in $many:\n    $loop\nelse:\n    $block", "for i, (q, *r) in $list:\n    $loop", "w@ = 0\nwhile w@ < # and $bool:\n    w@ += 1\n    $loop\nelse:\n    $block",
        "for i in d:\n    $loop\n    if i == 'a': d[s] = $any", "for i in l:\n    $loop\n    if len(l) < 6: l.append($any)", "for i in list(k): k.discard(i)",
        *["try:\n    $block\nexcept $caught as e:\n    note((type(e).__name__, str(e)))"] * 6, "try:\n    $block\nexcept $caught as e:\n    note(repr(e.__context__))\n    $block\nelse:\n    $block\nfinally:\n    $block", "try:\n    $block\nfinally:\n    $block",
        "try:\n    raise $error\nexcept $caught as e:\n    note((type(e).__name__, e.args, type(e.__cause__).__name__, type(e.__context__).__name__))\n    $block", "try:\n    $block\nexcept TypeError: note('type')\nexcept $caught: note('other')\nexcept Exception as e: note(type(e).__name__); raise",
        "try:\n    raise $error\nexcept* $caught as e:\n    note(len(e.exceptions))", "try:\n    $block\n    raise $error from $error\nexcept Exception as e: note((type(e.__cause__).__name__, e.__suppress_context__))",
        "with Caught(KeyError, TypeError, AttributeError):\n    $block", "with managed($any) as q:\n    $block", "with Caught(Exception) as q, managed(n) as r:\n    $block\n    raise $error", "with contextlib.suppress(LookupError, TypeError):\n    $block", "with contextlib.ExitStack() as q:\n    q.callback(note, $any); q.enter_context(Caught(ValueError))\n    $block", "with $obj as q:\n    $block",
        "def h@(q=$any, *r, u=$any, **w):\n    $block\n    return (q, r, u, w)\nnote(h@($any)); note(h@(*$many, **$dict))", "def h@():\n    nonlocal n, l, s, o\n    $block\n    return n\nnote(h@()); note(n)", "def h@(q, /, r, *, u=2): return $any\ntry: note(h@($any, r=$any)); note(h@($any, $any, q=$any))\nexcept TypeError as e: note(str(e))",
        "def h@(q): return $any if q <= 0 else (q, h@(q - 1))\nnote(h@(#))", "@traced\ndef h@(q): return $any\nnote(h@($any)); note(h@.__name__)", "@adding($int)\ndef h@(q=$any):\n    $block\n    return q\nnote(h@())", "h@ = [lambda q=i: (q, i) for i in $ints]\nnote([r() for r in h@])",
        "def h@():\n    $yields\n    return $any\nj = h@()\nnote([*j])", "def h@():\n    try:\n        $yields\n    except ValueError as e: note(type(e).__name__); yield $any\n    except GeneratorExit: note('exit'); raise\n    finally: note('ended')\nj = h@()\ntry: note(next(j)); note(j.send($any)); note(j.throw(ValueError('v'))); j.close()\nexcept (StopIteration, ValueError, RuntimeError) as e: note(repr(e))",
        "def h@():\n    q = yield from $gen\n    note(q)\n    $yields\nfor i in h@():\n    $loop", "j = $gen; note(next(j, 'none')); j.close(); note(next(j, 'closed'))", "note(next(j, 'over')); note(list(j)); note(list(j))", "q, *r = $many; note((q, r))", "(q, r), t = $tuple, $any; note(r)",
        "match $any:\n    case int() | str() as q: note(q)\n    case [q, *r]: note(r)\n    case {'a': q, **r}: note((q, r))\n    case Root(f=q): note(q)\n    case Data(u=q) if $bool: note(q)\n    case _:\n        $block", "match $many:\n    case [q, r] | [q, _, r]: note((q, r))\n    case 1 | None: note('one')\n    case str(q): note(q)\n    case Point(q, r): note(r)\n    case _:\n        $block",
        "class H@($base):\n    f = $any\n    $members\nnote(H@($any).f)\no = H@()", "class H@($base):\n    f: int = $int\n    def m(self, v=1): return super().m(v)\no = H@($any); note(o.m($any))", "@dataclasses.dataclass\nclass H@:\n    u: int = $int\n    v: list = dataclasses.field(default_factory=lambda: $list)\n    def __post_init__(self): self.w = $any\nnote(H@()); note(H@($any, $any) == H@($any))",
        "H@ = type('H@', ($own,), {'f': $any, 'm': lambda self, *v: v})\np = H@(); note(p.f); note(p.m($any))", "assert $bool, $any", "if $bool: raise $error", "if $bool: return $any", "G = $any; note(G)", "G = $any\ndef h@():\n    global G\n    G = (G, $any)\nh@(); note(G)", "COUNT[0] += 1; note(COUNT)", "WORDS[$key] = $any", "ITEMS.append($any)", "q = n; del q\ntry: note(q)\nexcept UnboundLocalError as e: note(str(e))",
        "try: note($own.f); $own.f = $any\nexcept AttributeError as e: note(str(e))", "print($any, $str, sep='-')", "n, s = s, n; n, s = s, n", "lambda: (yield)", "if (q := $any): note(q)", "note(h(*$many))", "note(sorted($list, key=lambda v: 1 // (len(str(v)) - 1)))", "l[1:1] = $many", "note((lambda: [(yield), $any])())",
    ),
    "caught": ("Exception", "Exception", "Exception", "(TypeError, AttributeError)", "(KeyError, IndexError)", "ValueError", "LookupError", "ArithmeticError", "(Trouble, ValueError)", "StopIteration", "RuntimeError"),
    "inloop": ("if $bool: break", "if $bool: continue", "note(i)", "try:\n    $block\n    continue\nfinally:\n    note('f')", "try:\n    if $bool: break\nfinally:\n    $block", "n += 1", "with managed(i):\n    if $bool: continue\n    $block"),
    "yield": ("yield $any", "q = yield $int; note(q)", "yield from $many", "note((yield))", "try: yield $any\nfinally: note('y')", "for i in $many: yield i"),
    "base": ("Root", "Root", "Root", "$own", "int", "str", "list", "dict", "tuple", "set", "Exception", "Root, list", "$own, Root", "Small", "Words", "Items", "Made", "Slots", "float", "Data", "Point", "collections.UserDict", "collections.deque"),
    "selfany": ("self.f", "other", "(self, other)", "self", "NotImplemented", "#", "$int", "$any", "type(self)(other)", "self.g", "len(self.g)", "other == 1", "getattr(other, 'f', #)", "None", "super().__repr__()", "$str", "$bool", "[other]", "'o'"),
}
MEMBERS = {
    "member": (
        *(f"def __{name}__(self, other): note('{name}'); return $selfany" for name in "add radd sub rsub mul rmul truediv floordiv mod rmod matmul rmatmul or ror and xor lshift eq ne lt le gt ge contains getitem missing iadd imul ior isub divmod rfloordiv rtruediv".split()),
        *(f"def __{name}__(self, other=1): note('{name}'); return $selfany" for name in "neg pos abs invert len bool int index float round hash repr str iter next reversed length_hint call enter trunc complex bytes dir fspath pow rpow".split()),
        "def __iter__(self): note('iter'); return iter($many)", "def __iter__(self):\n    note('iter')\n    $yields", "def __next__(self):\n    note('next')\n    self.c = getattr(self, 'c', 0) + 1\n    if self.c > 2: raise StopIteration($any)\n    return self.c\ndef __iter__(self): return self", "def __len__(self): note('len'); return #", "def __bool__(self): note('bool'); return $bool", "def __hash__(self): note('hash'); return #", "def __index__(self): note('index'); return #", "def __getitem__(self, i):\n    note(i)\n    if i == 2: raise IndexError(i)\n    return i", "def __eq__(self, other): note('eq'); return $bool\n__hash__ = None", "def __repr__(self): note('repr'); return $str", "def __str__(self): note('str'); return 'S'",
        "def __getattr__(self, name):\n    note(name)\n    if name in ('no', '__len__', '_q', 'p'): raise AttributeError(name)\n    return $any", "def __getattribute__(self, name):\n    if not name.startswith('_'): note('ga ' + name)\n    return super().__getattribute__(name)", "def __setattr__(self, name, other): note(('set', name)); super().__setattr__(name, $selfany)", "def __delattr__(self, name): note(name); super().__delattr__(name)",
        "@property\ndef p(self): note('p'); return self.f", "@property\ndef p(self): return self.nothing", "p = property(lambda self: self.g, lambda self, other: note(other))", "p = Field()", "p = Once()", "f = Field()", "@Once\ndef p(self): return $any", "@functools.cached_property\ndef p(self): note('cached'); return $any", "@classmethod\ndef m(cls, other=1): note(cls.__name__); return $any", "@staticmethod\ndef m(*v): return v", "def m(self, other=1): note('m'); return $selfany", "def m(self, other=1): return super().m(other)", "def m(self, *v, u=1, **w): return (v, u, w)", "m = lambda self, other=1: (self.f, other)", "m = functools.partialmethod(lambda self, *v: v, $int)", "m = traced(lambda self, other=1: $any)",
        "def __init__(self, *v, **w): note('init'); super().__init__(*v, **w); self.f = $any", "def __init__(self, other=1, **w): self.f = other; self.g = [$any]; self.h = w", "def __new__(cls, *v, **w): note('new'); return super().__new__(cls)", "def __new__(cls, *v, **w): return super().__new__(cls) if $bool else $any", "def __init_subclass__(cls, **w): note(('sub', cls.__name__)); super().__init_subclass__(**w)", "def __class_getitem__(cls, other): return (cls.__name__, other)", "f = $any", "g = [#]", "__slots__ = ('f', 'g', 'h', 'c')", "__slots__ = ()", "def __exit__(self, *v): note('exit'); return $bool\ndef __enter__(self): return $selfany", "def __format__(self, other): return $str + other", "def __contains__(self, other): note('in'); return $any", "def __call__(self, *v, **w): note('call'); return (v, sorted(w))", "def __copy__(self): return $selfany", "def __set_name__(self, owner, name): note(name)", "def __get__(self, obj, kind=None): note('get'); return $any", "def __instancecheck__(self, other): return $bool", "__match_args__ = ('f', 'g')", "def __del__(self): pass", "def __setitem__(self, i, other): note((i, other))", "def __delitem__(self, i): note(('del', i))", "def __missing__(self, other): return $any", "__add__ = __radd__ = lambda self, other: ('sum', other)", "__iter__ = None", "__contains__ = None", "__call__ = functools.partial(max, 1)", "__len__ = lambda self: len(self.g)", "class f: u = $any",
    ),
}
GRAMMAR = {**EXPRESSIONS, **TARGETS, **STATEMENTS, **MEMBERS}
GRAMMAR |= {kind: (*GRAMMAR.get(kind, ()), *rows) for kind, rows in LIBRARY.items()}
PRELUDE += LIBRARY_PRELUDE
