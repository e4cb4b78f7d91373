"""What a program puts in the place of standard functions before Pliant is loaded means what it says."""

import own_process

PROGRAM = """
import math, operator, torch

math.prod = lambda numbers: 5
math.exp = lambda number: 6
math.sqrt = math.fabs
operator.truth = lambda value: 7

def f(x, n):
    return x * math.prod([n, n]) * math.exp(n), x * math.sqrt(n), x + math.fabs(-n), operator.truth(n)

expected = [f(torch.ones(3), n) for n in (4, 9)]
import pliant
compiled = pliant.compile(f, dynamic=True)
for n, wanted in zip((4, 9), expected):
    torch.testing.assert_close(compiled(torch.ones(3), n), wanted, rtol=0, atol=0)
print(pliant.stats()["fallbacks"])
"""


def test_functions_put_in_place_of_standard_ones_keep_their_meaning():
    done = own_process.ran(PROGRAM)
    assert done.stdout.strip() == "0", done.stderr[-3000:]
