"""Numbers that vary from call to call mean and complain as Python's own do, whatever is done with them."""

import collections
import functools
import itertools
import math
import operator

import pytest
import torch

import pliant

# Expressions over an int `n`, a list `t = [1, n, rows]` and a tensor `x` of `rows` rows; one program for each line.
# ruff: noqa: E501
EXPRESSIONS = """
{*t} ;; {*t, n} ;; set(t) ;; frozenset(t) ;; set(t)|{n} ;; {n, 2} & set(t)
{1}.union(t) ;; {1,n}.intersection(t) ;; {1,n}.difference(t) ;; {1,n}.symmetric_difference(t) ;; {1,n}.issubset(t) ;; {1,n}.issuperset(t)
{1,2}.isdisjoint(t) ;; dict.fromkeys(t) ;; dict([(n,1)]) ;; dict(zip(t,t)) ;; {n: 1} ;; {**{n: 1}}
{k: k for k in t} ;; {k for k in t} ;; collections.Counter(t) ;; collections.Counter([n,n])[n] ;; collections.OrderedDict([(n,1)]) ;; hash(n)
hash((n,1)) ;; n in {1,2,3,4} ;; n in (1,2,3,4) ;; n in [1,2,3,4] ;; n in {3:1} ;; n in range(10)
[1,2,3,4].count(n) ;; [1,2,3,4,5].index(n) ;; 'abcdef'[n] ;; (1,2,3,4,5,6)[n] ;; [1,2,3,4,5,6][:n] ;; list(range(n))
list(range(0, n, 2)) ;; list(itertools.islice(itertools.count(), n)) ;; list(itertools.islice(range(10), 1, n)) ;; list(itertools.repeat('a', n)) ;; list(itertools.permutations(range(3), n-1)) if n<4 else 0 ;; list(itertools.accumulate(t))
list(itertools.accumulate(t, operator.mul, initial=n)) ;; list(itertools.pairwise(t)) ;; list(itertools.compress('abc', t)) ;; list(itertools.groupby(sorted(t)))[0][0] ;; [(k, list(g)) for k, g in itertools.groupby([n,n,1])] ;; functools.reduce(operator.add, t, n)
sum(t) ;; sum(t, n) ;; max(t) ;; max(n, 2) ;; min(t, key=lambda v: -v) ;; sorted(t, reverse=True)
sorted(t, key=lambda v: v % 3) ;; sorted([(n,'a'),(1,'b')]) ;; divmod(n, 2) ;; pow(n, 2) ;; pow(n,2,5) ;; pow(2,n)
n**n ;; 2**-n ;; n/2 ;; n//2 ;; -n//2 ;; n%3
-n%3 ;; 7%n ;; n<<1 ;; 1<<n ;; n>>1 ;; n&1
n in {3: 1, 'a': 2} ;; n + 0.5 in {3.5, 4.5} ;; n in frozenset([True, 2.0]) ;; math.pow(n, -.8) ;; math.pow(2, n) ;; math.pow(-n, .5) ;; math.pow(n - 3, -1)
n|8 ;; n^1 ;; ~n ;; abs(-n) ;; round(n/3, 2) ;; round(n)
round(n, -1) ;; int(n/2) ;; float(n) ;; complex(n) ;; bool(n) ;; str(n)
repr(n) ;; f'{n}' ;; f'{n:5}' ;; f'{n:>5}|' ;; f'{n!r:^7}' ;; f'{n:.2f}'
f'{n:b}' ;; f'{n:,}' ;; f'{n:{n}}' ;; f'{n=}' ;; '%d' % n ;; '%s-%s' % (n, t)
'%(a)s' % {'a': n} ;; '{}'.format(n) ;; '{0:03d}{1}'.format(n, t) ;; format(n, '05d') ;; format(n) ;; 'a'*n
[0]*n ;; (0,)*n ;; 'a'.rjust(n,'.') ;; 'a,b,c,d'.split(',', n-2) ;; hex(n) ;; bin(n)
oct(n) ;; chr(n+60) ;; bytes(n) ;; bytes([n]) ;; n.bit_length() ;; n.to_bytes(2,'big')
n.as_integer_ratio() ;; n.real ;; (n/2).hex() ;; (n/2).is_integer() ;; n.numerator ;; n.conjugate()
str(n/2) ;; repr(n/3) ;; f'{n/3:.3f}' ;; f'{n*1.5}' ;; str([n, n/2, {'a': n}, (n,), {n}]) ;; isinstance(n, int)
type(n) ;; type(n) is int ;; type(n/2).__name__ ;; isinstance(n, (str, bool)) ;; callable(n) ;; int.__add__(n, 1)
n.__add__(1) ;; n.__class__ ;; operator.add(n,1) ;; operator.index(n) ;; math.sqrt(n) ;; math.floor(n/2)
math.factorial(n) ;; math.comb(n,2) ;; math.log(n) ;; math.isqrt(n) ;; math.prod(t) ;; math.gcd(n, 6)
math.hypot(n,1) ;; math.copysign(n,-1) ;; math.fmod(n,2) ;; math.isclose(n, 3) ;; math.inf > n ;; ','.join(map(str,t))
','.join(str(v) for v in t) ;; slice(n).indices(10) ;; slice(0,n) ;; range(n) ;; range(n)==range(n) ;; len(range(n))
range(10)[n] ;; range(10)[:n] ;; list(enumerate('ab', n)) ;; list(zip(range(n), t)) ;; list(reversed(range(n))) ;; list(map(pow, t, t))
list(filter(lambda v: v > 2, t)) ;; any(v == n for v in t) ;; all(t) ;; collections.deque(t, maxlen=n) ;; collections.deque(t).index(n) ;; int('7', n+8)
int(str(n)) ;; memoryview(b'abcdef')[n] ;; bytearray(n) ;; [10,20,30,40,50,60][n:][::-1] ;; n if n > 3 else -n ;; 1 < n < 5
n == 3.0 ;; n != 3 ;; n is n ;; not n ;; n and 'y' ;; n or 'y'
n + '' ;; n[0] ;; n() ;; n.foo ;; len(n) ;; [*n]
n/0 ;; n%0 ;; n//0 ;; divmod(n,0) ;; 'a'+n ;; [1]+n
n<'a' ;; {}[n] ;; [][n] ;; int('a'*n) ;; n @ n ;; '%d' % (n, n)
f'{n:q}' ;; chr(-n) ;; math.sqrt(-n) ;; math.factorial(-n) ;; range(n, 5, 0)
"""
STATEMENTS = (
    "s = {1}; s.update(t, [n + 1]); s.intersection_update(t + [n + 1]); s.difference_update([n]); s.symmetric_difference_update(t); s.add(n); s.discard(n + 1); s.remove(n); r = s",
    "v = {}; v.update([(n, 1)]); v.update({n: 2}); v |= {n + 1: 3}; r = v, n in v, v[n], v.get(n + 2, 'no'), v.pop(n + 1), {n: 2} == v, v.keys() & {n}",
    "v = collections.defaultdict(int); v[n] += 1; v[len(x)] += 2; r = dict(v), v.get(n), v.pop(n), v.setdefault(n, 7)",
    "q = collections.deque([1, 2, 3, 4]); q.rotate(n); q.insert(n, 9); r = q",
    "v = [1, 2, 3]; v.insert(n, 7); v.append(n); v.remove(n); v.extend(t); v.sort(); v[n - 3] = n; r = v, v.pop(n - 3), v.index(n), v == t, v < t",
    "v = {n: 1}; v |= [(n + 1, 2)]; r = list(v), *v, [*v]",
)
CALLS = ((3, 3), (3, 4), (5, 5), (4, 2), (6, 0), (2, -3))


def program(lines):
    """A function `(x, n) -> (tensor, results)`; an expression that fails gives its error."""
    body = [
        f"    try:\n        {line}\n    except Exception as e:\n        r = (type(e).__name__, str(e))\n    out.append(r)"
        for line in lines
    ]
    text = "def f(x, n):\n    t = [1, n, x.shape[0]]\n    out = []\n" + "\n".join(body) + "\n    return x + 1, out\n"
    space = {
        "collections": collections,
        "functools": functools,
        "itertools": itertools,
        "math": math,
        "operator": operator,
    }
    exec(text, space)
    return space["f"]


def same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return repr(a) == repr(b)


PROGRAMS = [[f"r = {e}" for e in line.split(" ;; ")] for line in EXPRESSIONS.strip().splitlines()] + [
    [s] for s in STATEMENTS
]


@pytest.mark.parametrize("lines", PROGRAMS, ids=lambda lines: lines[0])
def test_agrees_with_python(lines):
    function = program(lines)
    compiled = pliant.compile(function, backend="eager")
    with pliant.config.patch(strict=True):
        for rows, n in CALLS:
            want, got = function(torch.ones(rows, 2), n)[1], compiled(torch.ones(rows, 2), n)[1]
            wrong = [(line, g, w) for line, g, w in zip(lines, got, want) if not same(g, w)]
            assert not wrong, (rows, n, wrong)


def test_numbers_looked_for_in_a_table_need_no_code_of_their_own():
    table = collections.Counter([4, 6])
    state = {"n": 1}

    @pliant.compile(backend="eager")
    def count(x):
        state["n"] += 1
        return x + math.pow(state["n"], -0.5) if state["n"] not in table else x

    pliant.reset()
    for _ in range(9):
        x, number = torch.zeros(2), state["n"] + 1
        expected = 0.0 if number in table else number**-0.5
        assert count(x)[0].item() == pytest.approx(expected)
    assert pliant.stats()["graphs"] <= 4


def _pow(x):
    return x * math.pow(x[0].item(), 2) + math.pow(2, x[1].item())


def _classes(x):
    number = x[0].item()
    return x * 2, math.isnan(number), math.isinf(number), math.isfinite(number), math.isfinite(x.long()[1].item())


def _refuses(x):
    if math.isnan(x[0].item()):
        raise ValueError("not a number")
    return x * 2


@pytest.mark.parametrize("function", [_pow, _classes, _refuses])
def test_functions_of_numbers_from_tensors_are_part_of_the_graph(function):
    def outcome(call, first):
        try:
            return call(torch.tensor([first, 1.5])), ""
        except ValueError as error:
            return None, str(error)

    pliant.reset()
    compiled = pliant.compile(function)
    # Powers of other numbers may raise: the graph takes numbers for positive and finite until one is not.
    for positive, values in ((True, (1.5, 3.0)), (False, (-2.0, 0.0, math.inf, math.nan, 2.0))):
        for first in values:
            (found, raised), (expected, error) = outcome(compiled, first), outcome(function, first)
            assert raised == error
            if not error:
                torch.testing.assert_close(found, expected, equal_nan=True)
        stats = pliant.stats()
        if positive or function is not _pow:
            assert (stats["graphs"], stats["graph_breaks"], stats["fallbacks"]) == (1, 0, 0)
    pliant.reset()


def test_a_number_made_of_others_is_computed_from_them():
    """Sizes behind many layers: each layer's is one step from the last one's, not all steps anew."""
    graphs = []

    def keeps(module, inputs):
        graphs.append(module.graph)
        return module

    def program(x):
        n, ys = x.shape[0], []
        for _ in range(12):
            n = (n + 3) // 2 + max(n % 5, 1)
            ys.append(x.new_zeros(()) + n)
        return ys

    compiled = pliant.compile(program, backend=keeps, dynamic=True)
    for rows in (7, 100):
        assert compiled(torch.ones(rows)) == program(torch.ones(rows))
    steps = [node for node in graphs[0].nodes if node.target is operator.floordiv]
    assert (len(graphs), len(steps)) == (1, 12)


def _attributes(x, n):
    asked = hasattr(n, "__torch_function__"), getattr(n, "absent", 2), n.real, n.imag
    try:
        return n.absent
    except AttributeError as error:
        return x * n, asked, str(error), error.name, error.obj


@pytest.mark.parametrize("numbers", [(3, 4, 5, 2), (0.5, 1.5, 2.5, 0.25)])
def test_attributes_that_do_not_tell_the_number(numbers):
    pliant.reset()
    compiled = pliant.compile(_attributes, backend="aot_eager", fullgraph=True)
    for n in numbers:
        found, expected = compiled(torch.ones(3), n), _attributes(torch.ones(3), n)
        assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]
    assert pliant.stats()["graphs"] == 2


def test_a_distribution_of_a_number_that_varies():
    pliant.reset()
    program = lambda x, n: torch.distributions.Normal(x, n).log_prob(x)  # noqa: E731
    compiled = pliant.compile(program, backend="aot_eager", fullgraph=True)
    for n in (0.5, 1.5, 2.5, 0.25):
        torch.testing.assert_close(compiled(torch.ones(3), n), program(torch.ones(3), n))
    assert pliant.stats()["graphs"] == 2


_LEVELS = [1.5, 2.5, 0.25, 3.5]


@pytest.mark.parametrize(
    "program, places, graphs",
    [
        (lambda x, n: x * [1.0, 2.0, 3.0, 4.0][int(n % 4)], range(3, 12), 2),
        (lambda x, n: x * _LEVELS[n], (2, 1, 0, 3, 7), 2),
        (lambda x, n: x * (1.0, 2.0, 3.0)[n], (2, -1, -2, -3, -4), 2),
        (lambda x, n: x * 2 if _LEVELS[n] > 2.0 else x * 3, (2, 1, 0, 3), 3),
        (lambda x, n: 1 / (x * (1.0, -0.0, 0.0)[n]), (0, 1, 2), 3),
        (lambda x, n: x.new_zeros(int((1.0, 2.0, 3.0)[n]), 2), (0, 1, 2), 2),
    ],
    ids=["remainder", "from outside", "from behind", "decided", "zeros of both signs", "size"],
)
def test_floats_at_places_that_vary(program, places, graphs):
    pliant.reset()
    compiled = pliant.compile(program, backend="aot_eager")
    for n in places:
        outcomes = []
        for one in (compiled, program):
            try:
                outcomes.append(one(torch.ones(3), n).tolist())
            except IndexError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]
    assert pliant.stats()["graphs"] == graphs
