"""More rows of the grammar of random Python programs (`fuzz_grammar`): the standard library, coroutines, groups of
exceptions, descriptors and copies. `GRAMMAR` there has the rows of both."""

# ruff: noqa: E501
PRELUDE = '''
import bisect, copy, datetime, decimal, fractions, heapq, random, re, statistics, string, struct, textwrap

F, D = fractions.Fraction, decimal.Decimal
DAY = datetime.datetime(2024, 2, 29, 12, 30)
RANDOM = random.Random(7)

class Copied:
    """Is copied through `__reduce__`."""
    def __init__(self, *v): self.v = v; self.w = {}
    def __reduce__(self): note("reduce"); return Copied, self.v, {"w": self.w}
    def __eq__(self, other): return isinstance(other, Copied) and self.v == other.v
    def __hash__(self): return 3
    def __repr__(self): return f"<copied {len(self.v)}>"

class Deep:
    def __init__(self, v=1): self.v = v; self.me = self
    def __deepcopy__(self, memo): note("deep"); made = type(self)(copy.deepcopy(self.v, memo)); memo[id(self)] = made; return made
    def __getstate__(self): note("state"); return {"v": self.v}
    def __setstate__(self, state): note("set state"); self.__dict__.update(state, late=1)
    def __repr__(self): return "<deep>"

class Checked:
    """A descriptor with a check; a class's own errors."""
    def __init__(self, kind=object): self.kind = kind
    def __set_name__(self, owner, name): self.name = name; owner.names = (*getattr(owner, "names", ()), name)
    def __get__(self, obj, kind=None): return self.kind if obj is None else obj.__dict__.get(self.name, "unset")
    def __set__(self, obj, value):
        if not isinstance(value, self.kind): raise TypeError(f"{self.name} takes {self.kind.__name__}, not {type(value).__name__}")
        obj.__dict__[self.name] = value

class Form:
    forms = []
    a, b = Checked(int), Checked()
    def __init_subclass__(cls, /, tag="none", **kw): super().__init_subclass__(**kw); cls.tag = tag; Form.forms.append(cls.__name__)
    def __init__(self, a=1, *, b=None): self.a = a; self.b = b
    def __repr__(self): return f"<form {self.a!r}>"
    def __format__(self, spec): note(("format", spec)); return f"{spec}!{self.a}"

class Tagged(Form, tag="t"):
    def __class_getitem__(cls, key): return (cls.tag, key)

@functools.total_ordering
class Ranked:
    def __init__(self, v=0): self.v = v
    def __eq__(self, other): return self.v == other.v if isinstance(other, Ranked) else NotImplemented
    def __lt__(self, other): return self.v < other.v if isinstance(other, Ranked) else NotImplemented
    __hash__ = None
    def __repr__(self): return "<ranked>"

class Spaced(type):
    @classmethod
    def __prepare__(meta, name, bases, **kw): note("prepare"); return collections.OrderedDict(kw)
    def __new__(meta, name, bases, space, **kw): return super().__new__(meta, name, bases, dict(space))
    def __init__(cls, name, bases, space, **kw): super().__init__(name, bases, space)
    @property
    def size(cls): return len(cls.__name__)
    def __call__(cls, *v): made = super().__call__(); made.v = v; return made

class Space(metaclass=Spaced, key=3):
    def __repr__(self): return "<space>"

@dataclasses.dataclass
class Rich:
    u: int = 1
    v: list = dataclasses.field(default_factory=lambda: [1])
    w: dataclasses.InitVar[int] = 2
    x: str = dataclasses.field(default="x", init=False, repr=False)
    y: int = dataclasses.field(kw_only=True, default=4)
    made = 0
    def __post_init__(self, w): note("post"); self.z = (self.u, w); Rich.made += 1

class Turn(enum.IntFlag):
    NO = 0; A = 1; B = 2; AB = 3
    @classmethod
    def _missing_(cls, value): note("missing"); return cls.A if value == "a" else super()._missing_(value)

class Unit(str, enum.Enum):
    M = "m"; S = "s"
    def __str__(self): return self.value
    @property
    def twice(self): return self.value * 2

class Wait:
    """What a coroutine may await: yields its values, gives back what it was sent last."""
    def __init__(self, *v): self.v = v
    def __await__(self):
        got = None
        for one in self.v: got = yield one
        return got

async def waited(*v):
    try: got = await Wait(*v); note(got)
    except ValueError as e: note(("wait", str(e))); got = await Wait("again")
    finally: note("waited")
    return (got, len(v))

async def streamed(*v):
    try:
        for one in v: got = yield await waited(one); note(got)
    finally: note("streamed")

class Within:
    async def __aenter__(self): note("aenter"); await Wait("in"); return self
    async def __aexit__(self, kind, *rest): note("aexit"); await Wait("out"); return kind is KeyError

def driven(task, *sent):
    """Drives a coroutine by hand: what it yielded, what it returned or raised."""
    seen = []
    try:
        seen.append(task.send(None))
        for one in sent: seen.append(task.throw(one) if isinstance(one, BaseException) else task.send(one))
        for _ in range(9): seen.append(task.send(None))
        task.close()
    except StopIteration as e: seen.append(("end", e.value))
    except Exception as e: seen.append((type(e).__name__, str(e)))
    return seen

def stubborn(*v):
    """Yields when it is closed."""
    try: yield from v
    except GeneratorExit: note("closing"); yield "stubborn"
    yield "more"

def group(*v): return ExceptionGroup("g", [ValueError(v), KeyError("k"), ExceptionGroup("inner", [TypeError("t"), ValueError(2)])])

def chained(error):
    """How an error came to be."""
    seen = []
    while error is not None and len(seen) < 5:
        seen.append((type(error).__name__, error.__suppress_context__, getattr(error, "__notes__", None)))
        error = error.__cause__ or error.__context__
    return seen

@functools.lru_cache(maxsize=2)
def remembered(v): note("computed"); return [v]

class Method:
    @functools.singledispatchmethod
    def of(self, v): return "any"
    @of.register
    def _(self, v: int): return ("int", v)
    @of.register(str)
    def _(self, v): return ("str", v)
    @functools.cached_property
    def kept(self): note("kept"); return [1]
    def __repr__(self): return "<method>"

METHOD, FORM = Method(), Form(2)

def starred(a, b=2, /, c=3, *rest, d, e=5, **more): return (a, b, c, rest, d, e, more)
def typed(v):
    match v:
        case Form(a=1 | 2 as q): return ("form", q)
        case Form(a=q) if q: return ("other", q)
        case {"a": int(q) | str(q), "b": [_, *r], **rest}: return ("map", q, r, rest)
        case {"a": None}: return "none"
        case [Form(), *_] | (_, Form()): return "with form"
        case [[q, r], {"b": s}]: return (q, r, s)
        case bytes() | bytearray(): return "bytes"
        case Turn.A | Unit.M: return "a"
        case complex(real=q) | float(q): return q
        case str("ab" | "b"): return "text"
        case tuple((q, r)): return ("tuple", q)
        case Rich(u=q, v=[_]) | Ranked(v=q): return q
        case Space(): return "space"
        case -1 | 1.5: return "number"
'''

ROWS = {
    "int": ("$big % 97", "-$big >> 65", "$big.bit_length()", "hash($fraction) % 7", "int.from_bytes($bytes, 'big')", "RANDOM.randint(0, 9)", "bisect.bisect($ints, $int)", "Turn.B", "$fraction.numerator", "struct.calcsize('<ihb')", "operator.indexOf($many, $any)", "math.comb(#, #)", "math.isqrt(abs($int))", "collections.Counter($many).total()", "remembered.cache_info().hits", "$int.__class__(#)", "pow($int, -1, 7)", "operator.countOf($many, #)", "int('0x1f', 0)", "sum($bytes)"),
    "big": ("(1 << 70)", "n ** 40", "(2 ** 64 + $int)", "-(10 ** 25)", "$big * $int", "$big // ($int or 1)", "$big & $big", "math.factorial(20 + #)"),
    "num": ("$fraction", "$decimal", "$fraction + $int", "float($fraction)", "statistics.mean($ints)", "statistics.median($ints)", "statistics.stdev($list)", "math.fsum($ints)", "math.hypot($int, #)", "float('nan')", "$num // 0.5", "divmod($num, 0.75)[1]", "$num.__class__(#)", "math.copysign(1, $num)", "abs($num)", "RANDOM.random()"),
    "fraction": ("F($int, 3)", "F('0.75')", "F(1.5)", "($fraction + $fraction)", "$fraction * $int", "-$fraction", "F($int) ** 2", "$fraction.limit_denominator(4)"),
    "decimal": ("D('1.10')", "D($int)", "($decimal + D('0.25'))", "$decimal * $int", "round($decimal, 1)", "$decimal.quantize(D('0.01'))", "D(1) / D(7)"),
    "bool": ("$fraction < $num", "$date < $date", "re.match('[ab]+', $str)", "Turn.A in Turn(#)", "$bytes == $bytes", "Ranked($int) >= Ranked(#)", "Ranked(#) < $any", "isinstance($any, $class | int)", "$decimal == $num", "dataclasses.is_dataclass($any)", "math.isnan($num)", "Copied($int) == $any", "issubclass($class, Form)", "isinstance($any, collections.abc.Mapping)", "operator.is_not($any, None)", "$rich == $rich"),
    "str": ("f'{FORM:>4}{F(n, 3)}'", "f'{$num:+.3e}'", "f'{s:{n}}|{n:#x}|{n:,}'", "'{:>{}}'.format($str, #)", "'{0.f} {1!r}'.format($obj, $plain)", "'%(a)s %(b)r' % {'a': $any, 'b': $int}", "string.Template('%a %{b}'.replace('%', chr(36))).safe_substitute($dict)", "textwrap.fill($str * 3, width=4)", "textwrap.dedent('  a\\n   b')", "re.sub('a(.)?', lambda m: str(m.start()), $str)", "'-'.join(re.findall('[a-c]', $str))", "$date.isoformat()", "f'{$date:%Y/%m}'", "$str.expandtabs(#)", "$str.casefold()", "str($bytes, 'latin1')", "$bytes.hex()", "repr($bytes)", "str($fraction)", "str($decimal)", "repr($error)", "format(FORM, $str)", "'{:{w}.{p}f}'.format($num, w=#, p=2)", "Unit.M.twice", "f'{Unit.S}{Turn(#)!r}'", "repr($rich)", "$str.removeprefix('a')", "$str.rsplit('a', 1)[-1]", "$str.splitlines()[0]", "RANDOM.choice('abc')", "$class.__qualname__", "f'{n!r:^{n + 3}}'", "string.capwords($str)", "'{:d}'.format($any)", "f'{$any:>5}'", "str.format('{}{}', *$list)", "$str.maketrans('a', 'b')[97] and 'c'"),
    "list": ("heapq.nsmallest(2, $ints)", "heapq.nlargest(2, $many, key=str)", "list(heapq.merge($ints, [1, 5]))", "re.split('b', $str)", "RANDOM.sample(range(9), 3)", "[*struct.unpack('<2B', b'ab')]", "list($bytes)", "copy.deepcopy($list)", "list(itertools.batched($list, 2))", "list(itertools.combinations($list, 2))", "list(itertools.permutations($str, 2))[:4]", "statistics.multimode($many)", "collections.Counter($str).most_common(2)", "list(collections.ChainMap($dict, {'z': 1}))", "driven(waited($any, #), $any)", "driven(waited(#), ValueError($str))", "list(Turn)", "list(Unit)", "[m.group() for m in re.finditer('.', $str)]", "chained($error)", "textwrap.wrap('a bc def', #)", "list(itertools.accumulate($ints, operator.mul, initial=1))", "list(map(operator.itemgetter(0), $list))", "[*map(lambda q, r: (q, r), $list, $many)]", "Form.forms", "list(itertools.tee($many)[1])", "list(collections.OrderedDict($dict).items())", "sorted($list, key=functools.cmp_to_key(lambda q, r: len(str(q)) - len(str(r))))", "list(memoryview($bytes))", "list(zip(*[iter($list)] * 2))", "list(dataclasses.astuple($rich))", "random.Random(#).choices('ab', k=3)", "list(filter(None, map($func, $list)))", "$bytes.split(b'a')"),
    "tuple": ("struct.unpack('<hb', struct.pack('<hb', #, 1))", "copy.copy($tuple)", "re.fullmatch('(a*)(b?)', $str).groups()", "$date.timetuple()[:3]", "starred($any, d=#)", "starred(*$list, d=$any, z=#)", "starred(1, *$many, **$dict)", "$fraction.as_integer_ratio()", "$decimal.as_tuple()", "Rich.__match_args__", "collections.namedtuple('P', 'a b', defaults=(1,))($any)", "math.modf($num)", "math.frexp($num)", "Point($any, 2)._asdict().popitem()"),
    "dict": ("copy.deepcopy($dict)", "re.match('(?P<a>.)', $str).groupdict()", "Point($any, $int)._asdict()", "collections.ChainMap({}, $dict).new_child({'c': 1})", "collections.Counter($str) + collections.Counter('ab')", "collections.Counter($str) - collections.Counter('a')", "(q := collections.OrderedDict($dict), q.move_to_end('a'))[0]", "{**$dict, 'b': (s, [1])}", "collections.defaultdict(lambda: $any)", "dict(Turn.__members__)", "dict(itertools.pairwise($many))", "dataclasses.asdict($rich)", "{m: m.value for m in Unit}", "vars(FORM)", "dict(zip($many, $many))", "{(lambda: i)(): i for i in $ints}"),
    "set": ("{F(1, 2), 0.5, D('0.5')}", "set($bytes)", "frozenset($set)", "set($dict)", "$set.symmetric_difference($ints)", "{i for i in $ints if i}", "set(itertools.chain($ints, $ints))"),
    "key": ("F($int)", "D($int)", "$bytes", "Copied($int)", "Turn.A", "Unit.M", "10 ** 20", "(s, n)", "DAY", "float($int)"),
    "bytes": ("b'abc'", "bytes([#, 97])", "bytearray(b'ab')", "$str.encode()", "struct.pack('<h', #)", "$bytes + $bytes", "$bytes[#:]", "$bytes * #", "memoryview(b'abcd')[::2].tobytes()", "(#).to_bytes(2, 'little')", "b'%d-%s' % (n, b'q')", "$bytes.replace(b'a', b'')", "bytes($ints)", "bytes.fromhex('6162')", "b'-'.join([$bytes, b'z'])", "bytearray($bytes)", "bytes($any)", "memoryview(b'abc')"),
    "date": ("DAY", "DAY + datetime.timedelta(days=$int)", "DAY.replace(month=3)", "datetime.datetime.fromisoformat('2024-01-02')", "datetime.date(2024, 1, 1 + #)", "($date + datetime.timedelta(hours=#))", "datetime.datetime.strptime('2020-03', '%Y-%m')"),
    "rich": ("Rich()", "Rich($any)", "Rich($int, $list, #)", "Rich(y=#)", "dataclasses.replace($rich, w=1, u=$any)", "Rich(1, [2])"),
    "func": ("typed", "remembered", "METHOD.of", "operator.attrgetter('a', 'f')", "operator.itemgetter(0, 1)", "F", "copy.copy", "copy.deepcopy", "starred", "functools.partial(starred, #, d=$any)", "functools.partial(Form, b=1)", "re.compile('a').match", "Form", "Copied", "driven", "(lambda *q, r=$any, **u: (q, r, sorted(u)))", "functools.reduce", "(lambda q, /, *, r=$int: q)", "bytes", "Turn", "Unit", "Space", "chained", "operator.methodcaller('m', $any)", "Ranked", "Rich", "functools.cache(lambda q: note('cached') and q)", "staticmethod(len)", "str.upper", "dict.fromkeys", "Method.of", "int.__add__", "list.append"),
    "obj": ("Form($any)", "Tagged($int, b=$any)", "Copied($any, $any)", "Deep($any)", "Ranked($int)", "Space($any)", "$rich", "METHOD", "FORM", "copy.deepcopy($obj)", "copy.copy(Deep($any))", "Unit.S", "Turn(#)", "$date", "$fraction", "$decimal", "$bytes", "datetime.timedelta(#)", "re.match('a', $str)", "random.Random(#)", "collections.ChainMap($dict, d)", "collections.Counter($many)", "collections.defaultdict(int, a=#)", "collections.OrderedDict(a=$any)", "functools.partial(max, #)", "copy.deepcopy(Copied($any, $list))", "Tagged[$key]", "Space", "bytearray(b'ab')", "memoryview(b'abc')"),
    "attr": ("'a'", "'v'", "'kept'", "'of'", "'names'", "'size'", "'value'", "'real'", "'__class__'", "'x'"),
    "class": ("Form", "Tagged", "Copied", "Ranked", "Rich", "F", "bytes", "Turn", "Unit", "Space", "Spaced", "complex", "float", "type(None)", "collections.abc.Callable", "collections.abc.Iterator", "Method"),
    "error": ("group($any)", "ExceptionGroup($str, [$error, ValueError(#)])", "decimal.InvalidOperation('d')", "UnicodeError($str)", "OSError(2, 'no')", "ImportError('i', name='m')", "BaseExceptionGroup('b', [KeyError($any)])", "StopAsyncIteration(#)", "NotImplementedError", "OverflowError($int)"),
    "any": ("METHOD.of($any)", "METHOD.kept", "typed($any)", "remembered($key)", "copy.copy($any)", "copy.deepcopy($any)", "Form.names", "FORM.a", "$fraction / $num", "operator.add($any, $any)", "functools.reduce(lambda q, r: (q, r), $many)", "operator.attrgetter($attr)($obj)", "operator.itemgetter($key)($any)", "operator.iadd($list, $many)", "operator.getitem($any, $key)", "$date - $date", "$date + $any", "$bytes", "$rich", "F($any)", "D($str)", "statistics.mean($many)", "heapq.heappop($list)", "re.search($str, 'abab')", "struct.pack('b', $any)", "starred($any)", "Turn.A | $any", "$bytes[$key]", "memoryview($bytes)[0]", "copy.deepcopy([o, o])", "type($any).__mro__[-1] is object", "$class.__name__", "$obj.__class__", "$any.__class__.__name__", "~Turn.A", "Space.size", "Tagged.tag", "isinstance(a, torch.Tensor) and $any", "$func.__name__", "$func.__defaults__", "$func.__doc__ is None", "$any.__dict__", "$any.__eq__($any)", "$any.__hash__ is None", "dict($many, **$dict)", "next(iter($many))", "max($many, key=$func, default=$any)"),
    "gen": ("stubborn(#, $any)", "(i async for i in ()) and ()", "wrapped(stubborn(#))"),
    "tensor": ("a * $fraction.__float__()", "torch.tensor($ints)", "x[n % 2]", "a.clone().add_($int)", "torch.cat([x, x])[: x.shape[0]]", "a.mean() * $num", "x.reshape(-1)", "torch.arange(#) + x.sum()", "copy.copy(a)", "copy.deepcopy(x)", "functools.reduce(torch.add, [x, a])"),
    "stmt": (
        "note($big); note($big == $big); note(-$big // ($int or 1)); note($big / 3); note(f'{$big:,}'); note($big ** 2 % 1000)", "k = {1, 9, 17, n}; k.update([5, 33]); note(k.pop()); note(k)", "k = set($ints); k ^= {1, 8, 40}; note(k.pop())", "k = {*'abc', s}; k -= {'a'}; k |= set('de'); note(k.pop()); note(list(k))",
        "j = stubborn(#, $any); note(next(j, 'none'))\ntry: j.close()\nexcept RuntimeError as e: note(str(e))\nnote([*j])", "def h@():\n    try:\n        $yields\n    finally:\n        $yields\nj = h@()\ntry: note(next(j)); j.close()\nexcept (RuntimeError, StopIteration) as e: note(str(e))\nnote(next(j, 'end'))",
        "async def h@(q=$any):\n    $block\n    async with Within() as r:\n        $block\n        q = await waited(q)\n    return q\nnote(driven(h@(), $any, $any))", "async def h@():\n    async for q in streamed($any, #):\n        $loop\n    return [r async for r in streamed(#)]\nnote(driven(h@(), $any))", "async def h@():\n    try: return await Wait(#, $any)\n    except $caught as e: note(str(e)); await waited($any)\n    finally: note('h')\nnote(driven(h@(), $any, $error))", "q = waited($any); note(q.send(None)); q.close(); note(driven(q))",
        "try:\n    raise group($any)\nexcept* ValueError as e:\n    note((len(e.exceptions), e.message))\n    $block\nexcept* $caught as e: note(str(e))", "try:\n    try:\n        raise group(n)\n    except* (KeyError, TypeError) as e:\n        note(repr(e)); raise $error\nexcept Exception as e: note(type(e).__name__); note(str(e))", "q, r = group(1).split(ValueError); note((repr(q), repr(r))); note(repr(group(2).subgroup(lambda v: isinstance(v, KeyError)))); note(group(#).derive([ValueError(1)]).exceptions)",
        "try:\n    try:\n        $block\n        raise $error\n    except $caught as e:\n        e.add_note($str); raise $error from e\nexcept Exception as e: note(chained(e))", "try:\n    try: raise $error\n    finally:\n        $block\n        raise $error from None\nexcept Exception as e: note(chained(e))", "try: raise $error from $any\nexcept Exception as e: note(chained(e)); note(e.args)", "try:\n    try: raise $error\n    except Exception:\n        $block\n        raise\nexcept Exception as e: note(chained(e))", "q = ValueError('q')\ntry: raise q from q\nexcept ValueError as e: note(e.__cause__ is e)",
        "with contextlib.ExitStack() as q:\n    q.push(lambda *v: note(v[0] and v[0].__name__)); q.callback(note, 'first'); r = q.pop_all() if $bool else q\n    $block\n    r.close()", "with contextlib.closing($gen) as q:\n    note(next(q, 'none'))\n    $block", "with contextlib.nullcontext($any) as q, contextlib.suppress(Exception):\n    $block\n    note(q)", "with contextlib.ExitStack() as q:\n    for i in $ints: q.enter_context(managed(i)) if i else q.push(Caught(KeyError))\n    raise $error", "@contextlib.contextmanager\ndef h@(q):\n    $block\n    try: yield q\n    except ValueError as e: note(str(e))\n    finally:\n        $block\nwith h@($any) as q:\n    $block\n    raise $error",
        "match $any:\n    case Form(a=int(q) | str(q)) if $bool: note(('form', q))\n    case {'a': [q, *_], **r} | {'b': q, **r}: note((q, r))\n    case [Form() as q, *r] | (q, r): note((q, r))\n    case complex() | F(numerator=1): note('n')\n    case Turn.A | Unit.M: note('unit')\n    case Copied(v=(q, *_)) | Ranked(v=q): note(q)\n    case _: note('other')", "match $dict:\n    case {'a': q} if q == $int: note(q)\n    case {'b': 1 | 2 as q, **r} if r: note((q, r))\n    case {}: note('map')", "note(typed($any)); note(typed($plain))",
        "def h@(q, *r, u=$any, w, **y): return (q, r, u, w, y)\nfor i in ((1,), (1, 2)):\n    try: note(h@(*i, w=$any)); note(h@(*$many, **$dict, w=1))\n    except TypeError as e: note(str(e))", "def h@(q=$any, /, *, r=$any): return (q, r)\nh@.__defaults__ = ($any,); note(h@()); h@.__kwdefaults__ = {'r': $any}; note(h@(#)); h@.u = $any; note(h@.__dict__)",
        "class H@(metaclass=Spaced, key=$any):\n    f = $any\n    $members\nnote(H@.size); note(H@($any).v); note(H@.key)", "class H@(Form, tag=$str):\n    c = Checked(str)\n    $members\nnote(H@.tag); note(H@.names); o = H@(#)\no.c = $any", "class H@:\n    __slots__ = ('u', '__dict__')\n    u2 = Field()\n    $members\no = H@(); o.u = $any; o.u2 = $any; note(o.u2); note(o.__dict__)", "class H@(enum.Enum):\n    A = $int\n    B = enum.auto()\n    def m(self): return (self.name, $any)\nnote([*H@]); note(H@.A.m()); note(H@($any))", "@dataclasses.dataclass(order=True, frozen=$bool)\nclass H@(Data):\n    y: int = dataclasses.field(default=$int, kw_only=True)\n    $members\nnote(repr(H@($any))); note(H@(1) < H@($any)); H@(1).u = 2", "class H@:\n    $members\n    @property\n    def q(self): return $any\n    @q.setter\n    def q(self, v): note(('q', v))\n    @functools.cached_property\n    def r(self): return [self.q]\no = H@(); note(o.q); o.q = $any; note(o.r is o.r); del o.r; note(o.r)",
        "@functools.singledispatch\ndef h@(v): return $any\n@h@.register\ndef _(v: str): return ('s', v)\n@h@.register($class)\ndef _(v): return 'c'\nnote(h@($any)); note(h@(s)); note(h@.dispatch(int).__name__)", "@functools.lru_cache\ndef h@(q, r=1): note(('run', q)); return $any\nnote(h@($key)); note(h@($key)); note(h@.cache_info()[:2])", "note(remembered($key)); remembered.cache_clear()", "METHOD.__dict__.pop('kept', None); note(METHOD.kept)",
        "d = collections.OrderedDict($dict); d.move_to_end($key); note(d.popitem(last=$bool)); note([*d])", "d = collections.defaultdict($func); note(d[$key]); d[s] += $any; note(len(d))", "d = collections.ChainMap($dict, {'a': 7}); d['q'] = $any; note(d.parents); del d['a']; note(d.maps)", "d = collections.Counter($many); d.update($str); d.subtract($ints); note(d.most_common(1)); note(+d)", "q = collections.deque($many, 3); q.appendleft($any); q.rotate($int); note(q); note(q.index($any)); q.extendleft($many)", "heapq.heappush(l, $int); heapq.heapify(l); note(heapq.heappop(l)); note(heapq.heapreplace(l, $any))", "bisect.insort(l, $int); note(bisect.bisect_left(l, $any)); bisect.insort(l, $any, key=$func)", "q = random.Random($int); note(q.random()); note(q.randrange(1, 50)); q.shuffle(l); note(l); note(q.gauss(0, 1))", "note(RANDOM.random()); note(RANDOM.choices($list, k=2))",
        "q = bytearray($bytes); q.append(#); q[0:1] = b'zz'; q += $bytes; note(q); q[$int] = $any; note(bytes(q))", "q = bytearray(b'abcd'); r = memoryview(q); r[1] = 65; note(r[::-1].tolist()); note(q); q.extend($bytes)", "q = struct.Struct('<hf'); note(q.pack($int, $num)); note(q.unpack(b'abcdef'))", "q = re.compile('(?P<u>[ab])(c)?'); r = q.search($str); note(r and (r.span(), r['u'], r.groups('n'))); note(q.sub(r'<\\g<u>>', $str)); note(q.subn($func, $str))", "note(f'{$obj!r}|{$obj!s:>8}|{$obj:}'); note(format($any, $str))", "q = copy.deepcopy([o, o, l, $any]); note(q[0] is q[1]); note(q[2] is l)", "q = copy.copy($obj); note(q is o); note(copy.deepcopy($obj))", "q = F($int, #) + $num; note(q); note(q > $num); note(round(q, 1))", "with decimal.localcontext() as q:\n    q.prec = 3; note(D(1) / D(3)); note(D($any) + $decimal)", "note((($date - DAY) * 2).total_seconds()); note($date.strftime('%j')); note(max($date, DAY))", "note(statistics.quantiles($ints)); note(statistics.pvariance($many))", "q = itertools.tee($many, 2); note(next(q[0])); note([*q[1]]); note([*q[0]])", "q = itertools.count(#, $int); r = itertools.cycle($list); note([*zip(q, r, range(4))]); note(next(q))", "for i, q in itertools.groupby($many, $func): note((i, [*q]))", "operator.setitem($any, $key, $any)", "note(operator.iconcat(l, $many)); note(operator.itruediv($int, $num))",
    ),
    "member": (
        "def __reduce__(self): note('reduce'); return type(self), ()", "def __reduce_ex__(self, p): note(p); return (type(self), ($any,), {'f': #})", "def __deepcopy__(self, memo): note('deep'); return $selfany", "def __getstate__(self): note('state'); return {'f': $any}", "def __setstate__(self, state): note('set state'); self.f = $any", "def __getnewargs__(self): return (#,)", "def __await__(self):\n    $yields\n    return $any", "async def m(self, v=1): note('am'); return await Wait(v)", "def __aiter__(self): return streamed(#, self)", "a = Checked(int)", "b = Checked()", "def __format__(self, spec): note(spec); return format($any, spec)", "def __set__(self, obj, v): note('descriptor set')", "@functools.singledispatchmethod\ndef m(self, v=1): return $any\n@m.register\ndef _(self, v: int): return self.f", "@functools.lru_cache\ndef m(self, v=1): note('m'); return $selfany", "@staticmethod\n@traced\ndef m(*v): return $any", "@classmethod\n@functools.lru_cache\ndef m(cls, *v): return (cls.__name__, v)", "@property\ndef __dict__(self): return {'d': #}", "__class__ = property(lambda self: $class)", "@classmethod\ndef __subclasshook__(cls, other): return $bool", "def __mro_entries__(self, bases): return (Root,)", "@contextlib.contextmanager\ndef m(self, v=1): note('mi'); yield v", "__hash__ = Root.__hash__", "def __ge__(self, other): return super().__ge__(other)", "def __sizeof__(self): return #", "def __rmatmul__(self, other): return (other, self.f)", "def __contains__(self, other): return super().__contains__(other)", "__getitem__ = functools.cache(lambda self, key: $any)", "def __init_subclass__(cls, /, tag=0): cls.tag = tag", "@dataclasses.dataclass\nclass f: u: int = #", "g = enum.Enum('g', 'A B')",
    ),
    "base": ("Form", "Form", "Tagged", "Copied", "Deep", "Space", "Rich", "Ranked", "Method", "bytes", "bytearray", "frozenset", "complex", "collections.OrderedDict", "collections.Counter", "collections.defaultdict", "collections.ChainMap", "F", "ExceptionGroup", "Data, Form", "collections.UserList", "contextlib.ContextDecorator", "random.Random", "enum.Enum", "dict, Root", "tuple, Form", "contextlib.AbstractContextManager", "types.SimpleNamespace", "collections.abc.Mapping", "KeyError"),
    "caught": ("(ExceptionGroup, KeyError)", "OSError", "ArithmeticError", "NameError", "$own"),
    "augmented": ("p.a", "d[s]", "l[-1]"),
    "target": ("o.a", "FORM.b", "METHOD.f", "(n, *l)", "d['b'], *t", "Form.late"),
    "yield": ("q = yield; note(q)", "try: yield $any\nexcept GeneratorExit: note('e'); yield $any", "yield (yield $any)", "n = yield from $gen; note(n)", "with managed($any) as q: yield q"),
    "plain": ("$big", "$bytes", "$fraction", "$decimal", "$rich", "$date", "Turn(#)", "Unit.M", "FORM", "datetime.timedelta(#)", "collections.OrderedDict(a=$int)", "KeyError($str)", "group(#)"),
}
