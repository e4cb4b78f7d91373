"""Expressions read from the text that they are printed as."""

import math

import pytest

from pliant.symbolic.expr import Symbol, lit
from pliant.symbolic.parse import ParseError, can_be_read, parse
from pliant.symbolic.printer import to_python
from pliant.symbolic.rules import extrema, floats, powers

S, T = Symbol("s0"), Symbol("s1")
AS_FLOAT = floats.to_float(S)
READ = [
    S * 2 + T // 3 - 1, S % 4, S**3, S * T, S.eq(T), S.lt(T).not_(), extrema.maximum(S, T + 1), powers.bit_and(S, lit(7)), powers.bit_or(S, T),
    powers.bit_xor(S, T), AS_FLOAT, S / 3, AS_FLOAT * 0.5, AS_FLOAT**-0.5, 1 / floats.math_call("sqrt", S), floats.math_call("atan2", S, T),
    floats.to_int(AS_FLOAT * 0.6), floats.floor(S / T), floats.ceil(AS_FLOAT * 1.5), floats.round_to_int(S / 2),
    floats.round_digits(S / 3, lit(2)), floats.is_integer(S / 3), -(AS_FLOAT + 1.0), floats.absolute(S * -0.5), AS_FLOAT + math.inf,
    AS_FLOAT * -0.0, floats.minimum(S / 2, lit(1.5)), floats.mod(AS_FLOAT, lit(1.5)), (S / 2).lt(1.0), (S / 2).ne(T / 3),
    AS_FLOAT * (S / 3 * 2.0), AS_FLOAT * (S / 3) * 2.0, AS_FLOAT + math.nan, floats.to_int((S / 3).lt(2.0)),
]  # fmt: skip


@pytest.mark.parametrize("e", READ, ids=to_python)
def test_the_text_of_an_expression_reads_as_itself(e):
    assert parse(to_python(e), {"s0": S, "s1": T}) is e


REFUSED = [
    "s2", "s0 << 3", "1 << s0", "s0**s1", "2**s0", "s0**999", "eval(s0)", "math.pi", "math.factorial(9)", "math.degrees(1.0)", "math.__name__()", "s0.free",
    "s0.is_integer", "math.sqrt(-1.0)", "math.log(0.0)", "float()", "1.0 ** 'a'", "10.0 ** 999.0", "math.trunc(math.inf)(s0)", "-" * 99 + "s0",
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_other_text_is_an_error(text):
    with pytest.raises(ParseError):
        parse(text, {"s0": S, "s1": T})


def test_what_a_file_could_ask_any_memory_with_cannot_be_read():
    assert not can_be_read(powers.left_shift(lit(1), S)) and not can_be_read(S**T)
