"""Python and C text. The generator of random expressions checks Python text at large (`test_properties.py`)."""

import random
import shutil
import subprocess

import pytest
from tests.symbolic.checks import UNDEFINED, build_or_none
from tests.symbolic.programs import SYMBOLS, tree

from pliant.symbolic.bounds import NONNEGATIVE, POSITIVE, Interval
from pliant.symbolic.expr import Integer, lit, symbol
from pliant.symbolic.printer import C_PRELUDE, to_c, to_python
from pliant.symbolic.rules import extrema, floats, relations
from pliant.symbolic.traverse import evaluate

s0, s1 = symbol("s0"), symbol("s1")

SAMPLES = [
    s0 // 3 + s1 % 5,
    s0 // s1,
    s0 % s1,
    -(s0 // 7) * (s1 % 3),
    extrema.minimum(s0, extrema.maximum(s1, s0 * s1)),
    relations.select(s0.lt(s1), s0, s1 * 2 + 1),
    floats.floor(s0 / 4),
    floats.to_int(floats.math_call("sqrt", lit(2.5) + s1 * s1)),
    floats.to_int(relations.or_(s0.eq(s1), (s0 - 2).le(s1 // 2), (s0 % 3).ne(1))),
    floats.to_int(relations.and_(s0.lt(s1), (s0 / 2).lt(1.5)).not_()),
    s0 * 4294967296 + 1,
    floats.round_to_int(s0 * 0.5),
]


def test_names():
    assert to_python(s0 // s1, {s0: "x.size(0)"}) == "x.size(0) // s1"


def test_plain_division_where_nothing_is_negative():
    ranges = {s0: NONNEGATIVE, s1: POSITIVE}
    known = lambda e: ranges.get(e) or Interval(e.const, e.const)  # noqa: E731
    assert to_c(s0 // s1 + s0 % 4, None, known) == "s0 % 4 + s0 / s1"  # in the order of the texts
    assert to_c(s0 // s1) == "p_floordiv(s0, s1)"


def test_what_c_cannot_say():
    with pytest.raises(NotImplementedError):
        to_c(floats.round_digits(symbol("f0", float), Integer(2)))


def printed_by_c(cases, folder):
    """The values of `(expression, values of the symbols)` as a C program prints them."""
    lines = []
    for e, values in cases:
        symbols = "".join(f"int64_t {s.name} = {v}; " for s, v in values.items())
        lines.append(f'{{ {symbols}printf("%lld\\n", (long long)({to_c(e)})); }}')
    headers = "#include <stdint.h>\n#include <stdio.h>\n#include <math.h>\n"
    (folder / "check.c").write_text(f"{headers}{C_PRELUDE}\nint main(void) {{\n" + "\n".join(lines) + "\nreturn 0; }\n")
    subprocess.run(["gcc", "-O1", str(folder / "check.c"), "-o", str(folder / "check"), "-lm"], check=True)
    return [int(v) for v in subprocess.run([folder / "check"], check=True, capture_output=True).stdout.split()]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_c_text_means_the_same(tmp_path):
    points = [(a, b) for a in (-17, -4, -1, 0, 1, 5, 12) for b in (-6, -2, 1, 3, 9)]
    cases = [(e, {s0: a, s1: b}) for a, b in points for e in SAMPLES]
    assert printed_by_c(cases, tmp_path) == [int(evaluate(e, values)) for e, values in cases]


def random_cases(count):
    """Random integer expressions, those with a minus before every part among them, and values that they are defined at."""
    chosen = random.Random(7)
    while count:
        values = {s: chosen.randrange(1, 9) for s in SYMBOLS}
        a, b = (build_or_none(tree(chosen.randrange, "i", 3, integers=True)) for _ in range(2))
        if a is None or b is None:
            continue
        e = chosen.choice([a, -a, -(a + b * s0), -(s0 * (a // 2)) - s0])
        try:
            expected = evaluate(e, values)
            text = to_c(e)
        except (*UNDEFINED, NotImplementedError):
            continue
        if abs(expected) < 1 << 60 and "p_pow" not in text:
            count -= 1
            yield e, values


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_c_text_of_random_expressions(tmp_path):
    cases = list(random_cases(400))
    printed = printed_by_c(cases, tmp_path)
    wrong = [(str(e), to_c(e)) for (e, values), found in zip(cases, printed) if int(evaluate(e, values)) != found]
    assert not wrong, wrong[:3]


def test_each_part_is_written_once():
    """Convolutions that follow one another halve a size, and pad it, again and again."""
    e, asked = symbol("s0"), []

    def bounds(part):
        asked.append(part)
        return NONNEGATIVE if len(part.free) else POSITIVE

    for k in range(12):
        e = (e + symbol(f"s{k + 1}") + 1) // 2 + symbol("s0")
    assert to_c(e, {}, bounds).count("/") == 12
    assert len(asked) == 24
