"""Facts of quotients and remainders as facts of multiples: the same at every size."""

import itertools

import pytest

from pliant.exporting.residues import plainer
from pliant.symbolic.bounds import Interval
from pliant.symbolic.expr import Symbol
from pliant.symbolic.facts import Facts
from pliant.symbolic.traverse import evaluate

n, m, b = Symbol("n"), Symbol("m"), Symbol("b")

ROWS = {
    "a product": ((b * n).eq(b * (n // 8) * 8), "n % 8 == 0"),
    "half and back": (n.eq((n + 1) // 2 * 2), "n % 2 == 0"),
    "a rest times a size": ((n * (m % 4)).eq(0), "m % 4 == 0"),
    "two at once": ((b * n * m).eq(b * (n // 2) * (m // 2) * 4), "m % 2 == 0, n % 2 == 0"),
    "odd": (n.eq(n // 2 * 2 + 1), "n % 2 == 1"),
    "of two": ((n % 6).eq(4), "n % 6 == 4"),
    "a part": (((n % 4) * (n % 4 - 2)).eq(0), "n % 2 == 0"),
    "either": (n.eq(8).or_((n % 8).eq(0)), "n % 8 == 0"),
    "never the same": ((n // 2).ne(3), "n // 2 != 3"),
    "nothing is divided": (n.eq(m), "m == n"),
}


@pytest.mark.parametrize("name", ROWS)
def test_what_is_said_is_the_same_at_every_size(name):
    fact, wanted = ROWS[name]
    known = Facts()
    for symbol in (n, m, b):
        known.set_range(symbol, Interval(2, 40))
    found = plainer(fact, known)
    assert ", ".join(sorted(map(str, found))) == wanted
    for sizes in itertools.product(range(2, 20), range(2, 12), (2, 3)):
        values = dict(zip((n, m, b), sizes))
        assert bool(evaluate(fact, values)) == all(evaluate(one, values) for one in found)
