"""A table that stays in a core's cache may be read in any order: rows that look something up there are one kernel."""

import torch

import pliant
from pliant.debug import events


def steps(columns):
    """Of softmax of rows with a bias that lies by columns, which is read once more."""
    x, bias = torch.randn(3, 256, columns), torch.randn(columns, 3)

    def program(x, bias):
        y = x + bias.t()[:, None, :]
        return y.softmax(-1), y.exp()

    with torch.no_grad(), events.collect("schedule") as found:
        torch.testing.assert_close(pliant.compile(program)(x, bias), program(x, bias))
    return str(found[0].fields["text"]).splitlines()


def test_rows_read_a_small_table_in_any_order():
    assert len(steps(49)) == 1


def test_rows_do_not_read_a_large_table_across():
    assert len(steps(6000)) == 2
