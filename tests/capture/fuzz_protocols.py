"""Objects of the program's classes given to C code that asks them: class x call x place, in eager and compiled.

Each method notes that it ran, and what it gives depends on a global that changes from call to call: one that C code runs
at capture is missing in what later calls note, or gives what it gave then.

    python -m tests.capture.fuzz_protocols --count 2000 --first 0
"""

# ruff: noqa: E501
from __future__ import annotations

import dataclasses
import functools
import random
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from tests.capture.fuzz_command import run_seeds
from tests.capture.table_command import differs

import pliant

# Of a class derived from nothing, or from a builtin one: methods that C code may ask for, and what they give.
METHODS = {
    "index": ("__index__", "self", "STATE['n'] + 1"),
    "int": ("__int__", "self", "STATE['n'] + 1"),
    "float": ("__float__", "self", "STATE['n'] + 0.5"),
    "complex": ("__complex__", "self", "complex(STATE['n'], 1)"),
    "bool": ("__bool__", "self", "STATE['n'] % 2 == 1"),
    "len": ("__len__", "self", "STATE['n']"),
    "hash": ("__hash__", "self", "STATE['n']"),
    "eq": ("__eq__", "self, other", "STATE['n'] % 2 == 1"),
    "lt": ("__lt__", "self, other", "STATE['n'] % 2 == 1"),
    "gt": ("__gt__", "self, other", "STATE['n'] % 2 == 1"),
    "iter": ("__iter__", "self", "iter([*range(STATE['n'])])"),
    "next": ("__next__", "self", "stop_after(STATE['n'] + 3)"),
    "getitem": ("__getitem__", "self, key", "key if key == 'a' else [1, 2, 3, 4][key % 9] + STATE['n']"),
    "keys": ("keys", "self", "['a', 'b'][:STATE['n']]"),
    "contains": ("__contains__", "self, item", "STATE['n'] % 2 == 1"),
    "reversed": ("__reversed__", "self", "iter([STATE['n']])"),
    "hint": ("__length_hint__", "self", "STATE['n']"),
    "round": ("__round__", "self, *digits", "STATE['n']"),
    "trunc": ("__trunc__", "self", "STATE['n']"),
    "floor": ("__floor__", "self", "STATE['n']"),
    "ceil": ("__ceil__", "self", "STATE['n']"),
    "abs": ("__abs__", "self", "STATE['n']"),
    "neg": ("__neg__", "self", "STATE['n']"),
    "add": ("__add__", "self, other", "STATE['n']"),
    "radd": ("__radd__", "self, other", "STATE['n']"),
    "iadd": ("__iadd__", "self, other", "STATE['n']"),
    "mul": ("__mul__", "self, other", "STATE['n']"),
    "rmul": ("__rmul__", "self, other", "STATE['n']"),
    "sub": ("__rsub__", "self, other", "STATE['n']"),
    "mod": ("__rmod__", "self, other", "STATE['n']"),
    "divmod": ("__rdivmod__", "self, other", "STATE['n']"),
    "pow": ("__rpow__", "self, *others", "STATE['n']"),
    "or": ("__ror__", "self, other", "STATE['n']"),
    "str": ("__str__", "self", "'ab'[:STATE['n']]"),
    "repr": ("__repr__", "self", "'ab'[:STATE['n']]"),
    "format": ("__format__", "self, spec", "spec + 'ab'[:STATE['n']]"),
    "bytes": ("__bytes__", "self", "b'ab'[:STATE['n']]"),
    "fspath": ("__fspath__", "self", "'a/b'[:STATE['n']]"),
    "call": ("__call__", "self, *args, **kwargs", "STATE['n']"),
    "items": ("items", "self", "[('a', STATE['n'])]"),
    "getattr": ("__getattr__", "self, name", "missing(name)"),
}
ROWS_OF_METHODS = {
    "numbers": ("index", "int", "float", "complex"),
    "order": ("eq", "lt", "hash"),
    "map": ("keys", "getitem"),
    "row": ("len", "getitem"),
    "both": ("iter", "len"),
    "iterator": ("iter", "next"),
    "add": ("add", "radd"),
    "mul": ("mul", "rmul"),
    **{name: (name,) for name in METHODS if name not in ("next", "add", "mul")},
}
BASES = {
    "": "",
    "str": "'12'",
    "int": "3",
    "float": "2.0",
    "list": "[1, 2]",
    "tuple": "(1, 2)",
    "dict": "{'a': 1}",
    "bytes": "b'12'",
    "set": "{1, 2}",
    "frozenset": "{1, 2}",
    "bytearray": "b'12'",
    "complex": "1j",
    "collections.OrderedDict": "{'a': 1}",
    "collections.deque": "[1, 2]",
    "type": "",
}
OF_BASES = {
    "str": ("index", "int", "float", "complex", "numbers", "hash", "eq", "lt", "iter", "len", "getitem", "mul", "add", "radd", "str", "repr", "format", "bool", "bytes", "fspath", "contains"),
    "int": ("index", "int", "float", "complex", "numbers", "hash", "eq", "lt", "bool", "round", "trunc", "floor", "abs", "add", "mul", "pow", "divmod", "mod", "str", "repr", "format"),
    "float": ("index", "int", "float", "complex", "numbers", "hash", "eq", "lt", "bool", "round", "trunc", "floor", "ceil", "abs", "add", "mul", "pow", "divmod", "mod", "str", "repr", "format"),
    "complex": ("index", "int", "float", "complex", "hash", "eq", "abs", "add", "mul"),
    "list": ("eq", "lt", "iter", "len", "getitem", "contains", "bool", "mul", "add", "iadd", "reversed", "index", "float", "keys", "hint"),
    "tuple": ("eq", "lt", "hash", "iter", "len", "getitem", "contains", "bool", "mul", "add", "index", "keys"),
    "dict": ("eq", "iter", "len", "getitem", "keys", "contains", "bool", "or", "items", "getattr"),
    "collections.OrderedDict": ("eq", "iter", "len", "getitem", "keys", "items"),
    "collections.deque": ("eq", "iter", "len", "getitem", "contains"),
    "bytes": ("index", "int", "float", "hash", "eq", "lt", "iter", "len", "getitem", "bytes", "fspath", "add", "mul"),
    "bytearray": ("index", "float", "eq", "lt", "iter", "len", "getitem", "bytes"),
    "set": ("eq", "lt", "iter", "len", "contains", "or", "hash"),
    "frozenset": ("eq", "lt", "iter", "len", "contains", "or", "hash"),
    "type": ("eq", "hash", "iter", "len", "call", "contains", "index", "getitem", "keys", "or", "getattr", "bool", "repr"),
}  # fmt: skip

# What is called: `V` is the object, `W` a container in which it is.
CALLS = """
int(V)
int(V, 16)
int('12', V)
float(V)
complex(V)
complex(1, V)
bool(V)
not V
bytes(V)
bytearray(V)
str(V)
str(V, 'utf8')
repr(V)
ascii(V)
format(V)
format(V, '>4')
format(1, V)
hash(V)
len(V)
abs(V)
round(V)
round(V, 1)
round(1.25, V)
divmod(7, V)
divmod(V, 2)
pow(2, V)
pow(V, 2)
pow(2, 3, V)
bin(V)
hex(V)
oct(V)
chr(V)
ord(V)
range(V)
range(0, 9, V)
list(range(9))[V]
slice(V).indices(9)
slice(0, 5).indices(V)
[1, 2, 3, 4][:V]
'abcd'[V]
'abcd'[V:]
(1, 2, 3, 4)[V]
range(9)[V]
range(9)[:V]
b'abcd'[V]
bytearray(b'abcd')[V]
deque([1, 2, 3, 4])[V]
[1] * V
'a' * V
(1,) * V
b'a' * V
bytearray(b'a') * V
deque([1]) * V
list(V)
tuple(V)
set(V)
frozenset(V)
dict(V)
dict([V])
dict(**V)
kwargs_of(**V)
args_of(*V)
collections.OrderedDict(V)
collections.Counter(V)
collections.ChainMap(V)
collections.defaultdict(int, V)
types.MappingProxyType(V)['a']
{'b': 2} | V
updated({'b': 2}, V)
updated({1}, V)
updated(collections.OrderedDict(b=2), V)
updated(collections.Counter('ab'), V)
{1, 2} | V
{1, 2}.union(V)
{1, 2}.isdisjoint(V)
{1, 2} <= V
{1, 2}.issuperset(V)
{1, 2} == V
frozenset({1, 2}).intersection(V)
{'a': 1} == V
{'a': 1}.keys() & V
{'a': 1}.keys() == V
{'a': 1}.keys().isdisjoint(V)
{'a': 1}.items() | V
dict.fromkeys(V)
dict.fromkeys(V, 1)
extended([1], V)
extended(deque([1]), V)
extended(bytearray(b'1'), V)
[1] + V
added([1], V)
iter(V)
[*V]
[*iter(V)]
{**V}
a, *b = V
enumerate(V)
enumerate('ab', V)
enumerate(V, 2)
zip(V, 'ab')
zip(V)
zip('ab', V, strict=True)
map(str, V)
map(V, 'ab')
filter(None, V)
filter(V, 'ab')
reversed(V)
sorted(V)
sorted([3, 1, 2], key=V)
sorted([3, 1, 2], reverse=V)
min(V)
max(V)
min([3, 1, 2], key=V)
max([], default=V)
min(3, V)
max(3, V)
sum(V)
sum([1], V)
any(V)
all(V)
next(V)
next(V, 1)
1 in V
V in [1, 2]
V in (1, 2)
V in 'abc'
V in {1: 2}
V in {1, 2}
V in range(4)
V in b'abc'
V in {'a': 1}.values()
V in {'a': 1}.items()
V in deque([1])
'a'.join(V)
b'a'.join(V)
'a,b'.split(V)
'a b c'.split(None, V)
'abc'.replace('a', V)
'abc'.replace('a', 'b', V)
'abc'.find(V)
'abc'.find('b', V)
'abc'.index('a', V)
'abc'.count('a', V)
'abc'.startswith(V)
'abc'.startswith('a', V)
'abc'.center(V)
'abc'.ljust(9, V)
'abc'.zfill(V)
'a\\tb'.expandtabs(V)
'abc'.encode(V)
'abc'.translate(V)
str.maketrans(V)
'abc'.strip(V)
'abc'.partition(V)
'a\\nb'.splitlines(V)
'%d' % V
'%s' % V
'%r' % V
'%f' % V
'%c' % V
'%x' % V
'%*d' % (V, 1)
'%(a)s' % V
'{}'.format(V)
'{0:>5}'.format(V)
'{0!r}'.format(V)
'{0[0]}'.format(V)
'{0.real}'.format(V)
'{:{}}'.format(1, V)
'{a}'.format(**V)
'{a}'.format_map(V)
f'{V}'
f'{V!s:>4}'
f'{1:{V}}'
b'%d' % V
b'%s' % V
b'abc'.find(V)
b'abc'.replace(b'a', b'b', V)
b'abc'.count(V)
b'abc'.startswith(V)
b'abc'.hex('-', V)
bytes.fromhex(V)
(5).to_bytes(V, 'big')
(5).to_bytes(2, V)
(5).to_bytes(2, 'big', signed=V)
int.from_bytes(V, 'big')
float.fromhex(V)
(5).__add__(V)
(5).__eq__(V)
(5.0).__mul__(V)
'a'.__eq__(V)
'a'.__contains__(V)
5 + V
5 == V
'a' == V
None == V
(1, 2) == V
[1, 2] == V
[1, 2] < V
5 < V
V < 5
V == 5
V != 5
(1, V) < (1, 2)
(1, V) == (1, 2)
[1, V] == [1, 2]
{'a': V} == {'a': 2}
[1, V].index(2)
[1, 2].index(V)
[1, 2].index(2, V)
[1, V].count(1)
(1, 2).index(V)
(1, 2).count(V)
removed([1, 2], V)
deque([1, 2]).count(V)
deque(V)
deque('abc', V)
rotated(V)
popped([1, 2, 3], V)
popped({'a': 1}, V)
inserted(V)
stored([1, 2, 3, 4], V, 9)
stored([1, 2, 3], slice(0, 2), V)
stored(bytearray(b'abcd'), 1, V)
stored(bytearray(b'abcd'), V, 65)
stored(bytearray(b'abcd'), slice(0, 2), V)
stored({}, V, 1)
deleted([1, 2, 3, 4], V)
sorted_by([3, 1, 2], V)
bytearray_appended(V)
{V: 1}
{V}
{1: 2}.get(V)
{1: 2}.setdefault(V, 1)
{1, 2}.discard(V)
frozenset({1}).__contains__(V)
math.fsum(V)
math.fsum([V])
math.prod(V)
math.prod([2, V])
math.sqrt(V)
math.sin(V)
math.floor(V)
math.ceil(V)
math.trunc(V)
math.gcd(4, V)
math.factorial(V)
math.comb(5, V)
math.hypot(3.0, V)
math.dist([1.0], [V])
math.dist([1.0, 2.0], V)
math.isclose(1.0, V)
math.isclose(1.0, 1.1, rel_tol=V)
math.ldexp(1.0, V)
math.pow(2.0, V)
math.copysign(1.0, V)
math.log(V)
math.log(8, V)
math.isnan(V)
math.isqrt(V)
math.atan2(1.0, V)
math.fmod(5.0, V)
math.nextafter(1.0, V)
cmath.sqrt(V)
cmath.polar(V)
cmath.rect(1.0, V)
operator.index(V)
operator.length_hint(V)
operator.truth(V)
operator.not_(V)
operator.add(5, V)
operator.eq(5, V)
operator.lt(5, V)
operator.contains(V, 1)
operator.contains([1], V)
operator.countOf(V, 1)
operator.countOf([1, 2], V)
operator.indexOf([1, 2], V)
operator.indexOf(V, 1)
operator.concat([1], V)
operator.getitem([1, 2, 3, 4], V)
operator.getitem(V, 0)
operator.itemgetter(V)([1, 2, 3, 4])
operator.itemgetter(0)(V)
operator.attrgetter('real')(V)
operator.methodcaller('keys')(V)
operator.mul([1], V)
operator.pow(2, V)
operator.neg(V)
operator.call(V)
operator.iadd([1], V)
functools.reduce(operator.add, V)
functools.reduce(V, [1, 2, 3])
functools.reduce(operator.add, [1, 2], V)
functools.partial(V)()
functools.partial(max, 2)(V)
functools.cmp_to_key(V)(1) < functools.cmp_to_key(V)(2)
itertools.chain(V, 'a')
itertools.chain.from_iterable(V)
itertools.chain.from_iterable([V])
itertools.islice('abcd', V)
itertools.islice(V, 2)
itertools.islice('abcd', 0, None, V)
itertools.repeat(1, V)
itertools.repeat(V, 2)
itertools.islice(itertools.count(V), 2)
itertools.islice(itertools.count(1, V), 3)
itertools.islice(itertools.cycle(V), 5)
itertools.accumulate(V)
itertools.accumulate([1, 2], V)
itertools.accumulate([1, 2], initial=V)
itertools.accumulate([1, 2, V])
itertools.takewhile(V, 'abc')
itertools.takewhile(bool, V)
itertools.dropwhile(V, 'abc')
itertools.filterfalse(V, 'abc')
itertools.filterfalse(None, [V, 1])
itertools.starmap(V, [(1,), (2,)])
itertools.starmap(max, [V])
itertools.starmap(max, [[V, 1]])
[len([*g]) for _, g in itertools.groupby([1, V, 2])]
[len([*g]) for _, g in itertools.groupby([1, 2, 2], V)]
itertools.compress('abc', V)
itertools.compress('abc', [V, 1, V])
itertools.product(V, 'a')
itertools.product('ab', repeat=V)
itertools.permutations(V, 1)
itertools.permutations('abc', V)
itertools.combinations(V, 1)
itertools.combinations('abc', V)
itertools.combinations_with_replacement('abc', V)
itertools.zip_longest(V, 'abc')
itertools.zip_longest('a', 'ab', fillvalue=V)
itertools.pairwise(V)
itertools.tee(V)[0]
itertools.tee('ab', V)
bisect.bisect([1, 2, 3], V)
bisect.bisect_left([1, 2, 3], 2, V)
bisect.bisect([1, 2, 3], 2, key=V)
bisect.bisect(V, 1)
inserted_sorted([1, 3], V)
heapified([3, 1, V])
heapified(V)
heapq.nsmallest(2, [3, 1, V])
heapq.nsmallest(V, [3, 1, 2])
heapq.nlargest(2, V)
heapq.nlargest(2, [3, 1, 2], key=V)
heapq.merge([1, 3], V)
heapq.merge([1, 3], [V])
struct.pack('<h', V)
struct.pack('<f', V)
struct.pack('<d', V)
struct.pack('?', V)
struct.pack('2s', V)
struct.pack(V, 1)
struct.unpack('<h', V)
struct.calcsize(V)
array.array('i', [V])
array.array('f', [V])
array.array('i', V)
array_appended(V)
re.sub('a', V, 'banana')
re.sub('a', 'x', 'banana', count=V)
re.sub('a', 'x', V)
re.compile('a').sub(V, 'banana')
re.compile('a').match('aaa', V)
re.compile('a').split('bab', V)
re.compile('a').findall(V)
re.match('(a)(b)', 'ab').group(V)
re.match('(a)(b)', 'ab')[V]
re.match('(a)(b)', 'ab').span(V)
isinstance(1, V)
isinstance(V, int)
isinstance(V, collections.abc.Iterable)
isinstance(V, collections.abc.Hashable)
isinstance(V, (V, int)) if isinstance(V, type) else 0
issubclass(int, V)
callable(V)
getattr(V, 'real', 5)
hasattr(V, 'nothing')
getattr(1, V, 5)
setattr_of(V)
vars(V)
dir(V)
type(V)('1')
type(V, (), {})
super_of(V)
iter(V, 2)
iter(lambda: 2, V)
datetime.timedelta(days=V)
datetime.date(2020, 1, V)
datetime.timedelta(1) * V
datetime.date(2020, 1, 1) == V
datetime.timedelta(1) < V
decimal.Decimal(V)
decimal.Decimal(1) + V
decimal.Decimal(1) == V
decimal.Decimal('1.25').quantize(V)
fractions.Fraction(V)
fractions.Fraction(1, 2) + V
statistics.mean(V)
statistics.mean([1, V])
statistics.median([1, V, 3])
json.dumps(V)
json.dumps([V])
json.dumps({'a': V})
json.dumps({V: 1})
json.dumps(1, indent=V)
json.dumps(object, default=V)
json.loads(V)
json.loads('[1.5]', parse_float=V)
copy.copy(V)
copy.deepcopy([V])
pickle.dumps([V]) and 1
os.fspath(V)
os.path.join('a', V)
pathlib.PurePosixPath(V)
pathlib.PurePosixPath('a') / V
string.Template('$a').substitute(V)
textwrap.indent('a', V)
textwrap.wrap('a b c', V)
base64.b64encode(V)
binascii.hexlify(V)
zlib.crc32(V)
zlib.crc32(b'a', V)
hashlib.md5(V).hexdigest()
io.StringIO('abc').read(V)
io.BytesIO(V).read()
io.StringIO(V).read()
unicodedata.name(V)
random.Random(V) and 1
random.Random(1).randrange(V)
random.Random(1).choice(V)
random.Random(1).sample(V, 1)
random.Random(1).uniform(0, V)
random.Random(1).choices('ab', V)
random.Random(1).choices('ab', [V, V], k=2)
random.Random(1).gauss(V, 1)
uuid.UUID(int=V)
types.SimpleNamespace(**V)
types.SimpleNamespace(a=V) == types.SimpleNamespace(a=1)
collections.namedtuple('P', V)
collections.namedtuple('P', 'a b')._make(V)
collections.deque([3, 1]).index(V)
Exception(V).args == (1,)
str(Exception(V))
str(KeyError(V))
repr([V])
str({1: V})
str((V,))
repr({V: 1})
memoryview(V)
memoryview(b'abc')[V]
complex('1') * V
torch.Size(V)
torch.Size([1, V])
torch.Size([1, 2])[V]
torch.Size([1, 2]) == V
x.reshape(V)
x.reshape([V, 1])
x.view(1, V)
x.sum(V)
x.sum([V])
x.size(V)
x.shape[V]
x[V]
x[V, None]
x[:V]
x[[V]]
x * V
x + V
V + x
V * x
x == V
x < V
torch.tensor(V)
torch.tensor([V])
torch.tensor([[V, 1.0]])
torch.full((2,), V)
torch.zeros(V)
torch.zeros(V, 2)
torch.ones([V])
torch.arange(V)
torch.arange(0, 5, V)
torch.linspace(0, 1, V)
torch.clamp(x, V)
torch.clamp(x, max=V)
torch.where(x > 1, x, V)
torch.cat(V)
torch.stack([x, x], V)
torch.stack(V)
torch.pow(x, V)
torch.add(x, x, alpha=V)
torch.sum(x, dim=V)
torch.flatten(x, V)
torch.split(x, V)
torch.chunk(x, V)
torch.topk(x, V)[0]
torch.roll(x, V)
torch.nn.functional.pad(x, V)
torch.nn.functional.pad(x, [V, 1])
torch.nn.functional.dropout(x, V, False)
torch.nn.functional.leaky_relu(x, V)
x.to(V)
x.expand(V, 2)
x.repeat(V)
x.fill_(V)
x.add_(V)
filled(x, V)
x.item() if V else 1
x.masked_fill(x > 1, V)
x.permute(V)
x.softmax(V)
x.new_full((1,), V)
x.new_tensor(V)
torch.as_tensor(V)
torch.as_tensor([V])
torch.broadcast_shapes((1,), V)
torch.nn.Linear(2, 2)(x).shape[V]
""".strip().split("\n")
# Containers that hold the object, where a call takes one.
WITHIN = ("[V]", "(V,)", "[1, V]", "{'a': V}", "iter([V])", "[V, V]", "{'a': 1}.values()")
PRELUDE = """
import array, base64, binascii, bisect, cmath, collections, copy, datetime, decimal, fractions, functools, hashlib, heapq, io, itertools
import json, math, operator, os, pathlib, pickle, random, re, statistics, string, struct, textwrap, torch, types, unicodedata, uuid, zlib
from collections import deque
STATE = {'n': 1, 'log': [], 'left': 2}
def note(name): STATE['log'].append(name)
def missing(name):
    if name.startswith('_'): raise AttributeError(name)
    return STATE['n']
def stop_after(n):
    STATE['left'] += 1
    if STATE['left'] > n: raise StopIteration
    return STATE['left']
def args_of(*args): return args
def kwargs_of(**kwargs): return kwargs
def updated(one, other): one.update(other); return one
def extended(one, other): one.extend(other); return one
def added(one, other): one += other; return one
def removed(one, item): one.remove(item); return one
def rotated(by): one = deque([1, 2, 3]); one.rotate(by); return one
def popped(one, key): return one.pop(key), one
def inserted(at): one = [1, 2, 3]; one.insert(at, 9); return one
def stored(one, key, item): one[key] = item; return one
def deleted(one, key): del one[key]; return one
def sorted_by(one, key): one.sort(key=key); return one
def bytearray_appended(v): one = bytearray(b'ab'); one.append(v); return one
def array_appended(v): one = array.array('i', [1]); one.append(v); return one
def inserted_sorted(one, v): bisect.insort(one, v); return one
def heapified(one): heapq.heapify(one); return one
def filled(x, v): x = x.clone(); x[0] = v; return x
def setattr_of(v): one = types.SimpleNamespace(); setattr(one, v, 1); return vars(one)
def super_of(v): return super(type(v), v).__hash__ is None
def shown(v, depth=4):
    "As constants; nothing of the program's is asked."
    cls = type(v)
    if depth == 0: return cls.__name__
    if issubclass(cls, torch.Tensor): return 'tensor', v.tolist(), str(v.dtype)
    if cls is str: return re.sub('0x[0-9a-f]+', '0x', v)
    if cls in (int, float, complex, bytes, bool, type(None)): return repr(v)
    if cls is bytearray: return repr(v)
    if cls in (list, tuple, set, frozenset, deque, torch.Size): return cls.__name__, *[shown(one, depth - 1) for one in v]
    if cls in (dict, collections.OrderedDict, collections.Counter): return cls.__name__, *[(shown(k, depth - 1), shown(one, depth - 1)) for k, one in v.items()]
    if cls.__module__ in ('decimal', 'datetime', 'fractions', 'array', 'pathlib') or cls in (range, slice): return repr(v)
    for base in (int, float, str, bytes, tuple, list):
        if issubclass(cls, base): return cls.__name__, repr(base(*[base.__int__(v)] if base is int else [base.__float__(v)] if base is float else [base.__str__(v)] if base is str else [base.__getitem__(v, slice(None))] if base is not float else []))
    if hasattr(cls, '__next__') and cls is not V: return cls.__name__, *[shown(one, depth - 1) for one in itertools.islice(v, 6)]
    return cls.__name__
"""


@dataclasses.dataclass(frozen=True)
class Row:
    base: str
    methods: str
    call: str
    place: str

    @property
    def name(self) -> str:
        return f"{self.base or 'object'}, {self.methods}: {self.call}, {self.place}"

    def text(self) -> str:
        return PRELUDE + self.program()

    def program(self) -> str:
        lines = [f"class V({self.base}):", "    value = 1"]
        for method in ROWS_OF_METHODS[self.methods]:
            name, parameters, result = METHODS[method]
            result = "self" if self.methods == "iterator" and method == "iter" else result
            lines += [f"    def {name}({parameters}): note('{name}'); return {result}"]
            if name == "__eq__" and "hash" not in ROWS_OF_METHODS[self.methods] and self.base not in ("list", "dict", "set", "bytearray", "collections.OrderedDict", "collections.deque"):
                lines += [f"    __hash__ = {self.base or 'object'}.__hash__"]
        made = "V('T', (), {})" if self.base == "type" else f"V({BASES[self.base]})"
        if self.place == "made":
            lines += ["def program(x, v):", f"    v = {made}"]
        else:
            lines += ["def program(x, v):"]
        call = self.call.replace("V", "v")
        lines += ["    try:"]
        lines += [f"        {call}; r = a, b" if "*b =" in call else f"        r = {call}"]
        lines += ["        r = shown(r)", "    except Exception as e: r = type(e).__name__", "    return r, x + 1", f"MADE = lambda: {made}"]
        return "\n".join(lines) + "\n"


def rows() -> Iterator[Row]:
    within = [call.replace("V", place) for call in CALLS if "V" in call and "{" not in call for place in WITHIN]
    for call in (*CALLS, *within):
        for base in BASES:
            for methods in OF_BASES.get(base, ROWS_OF_METHODS):
                for place in ("given", "made"):
                    yield Row(base, methods, call, place)


def _call(namespace: dict[str, Any], function: Any, turn: int) -> Any:
    state = namespace["STATE"]
    state["n"], state["left"], state["log"] = (1, 2, 2, 1)[turn], 2, []
    found = function(torch.tensor([1.0, 2.0]), namespace["MADE"]())
    return found, state["log"]


def asks(row: Row) -> bool:
    """Whether Python calls a method of the object's."""
    namespace = dict(_prelude())
    try:
        warnings.simplefilter("ignore")
        exec(row.program(), namespace)
        return any(_call(namespace, namespace["program"], turn)[1] for turn in (0, 1))
    except SyntaxError:
        return False


@functools.cache
def _prelude() -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(PRELUDE, namespace)
    return namespace


def difference(row: Row) -> str | None:
    with warnings.catch_warnings(action="ignore"):
        try:
            return differs(row.name, row.text(), _call, 3)
        except Exception as error:
            return f"{type(error).__name__}: {error}"


@functools.cache
def all_rows() -> list[Row]:
    return [*rows()]


def disagreement(seed: int) -> str:
    """What a row that asks an object does otherwise than Python; empty if nothing. Of each seed another row."""
    chance = random.Random(seed)
    row = next(row for row in iter(lambda: chance.choice(all_rows()), None) if asks(row))
    with pliant.config.patch(strict=False):  # a graph break may hold what no code can make again
        found = difference(row)
    return f"seed {seed}: {row.name}\n{found}" if found else ""


if __name__ == "__main__":
    run_seeds(disagreement, recompile_limit=64)
