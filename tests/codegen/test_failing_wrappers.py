"""Errors of a graph's wrapper say whether an input was written before."""

import pytest

from pliant.wrappers.wrapper import FIRST_WRITE, WROTE, WrapperCode, compile_wrapper, telling_by_lines

LINES = ["def call(args):", "    early(args)", "    write(args)", "    late(args)", "    return args", ""]


def fail(args):
    raise ValueError("mine")


@pytest.mark.parametrize(("fails", "wrote"), [("early", False), ("late", True)])
def test_what_failed_behind_a_write_says_so(fails, wrote):
    names = {"early": id, "write": id, "late": id, FIRST_WRITE: 3} | {fails: fail}
    run = telling_by_lines(compile_wrapper(WrapperCode("\n".join(LINES), names), "program", {}))
    with pytest.raises(ValueError, match="mine") as raised:
        run([])
    assert getattr(raised.value, WROTE, False) is wrote
