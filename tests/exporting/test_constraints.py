"""The table of programs with constraints: what is said, and that what is advised works."""

import dataclasses

import pytest
import torch
from tests.exporting.edge_programs import EDGES
from tests.exporting.hostile_programs import HOSTILE
from tests.exporting.more_programs import MORE
from tests.exporting.programs import ROWS
from torch.utils import _pytree as pytree

import pliant
from pliant.errors import ConstraintError, PliantError
from pliant.exporting.checking import facts_of
from pliant.exporting.reading import read_again


def exported(row, said):
    return pliant.export(row.program, row.at(*row.sizes[0]), dynamic_shapes=said, beyond=row.beyond)


def advised(error):
    """The `dynamic_shapes` that the message ends with."""
    scope = {"pliant": pliant}
    exec(error.do.partition("paste\n")[2], scope)
    return scope["dynamic_shapes"]


@pytest.mark.parametrize("row", [*ROWS, *MORE, *EDGES, *HOSTILE], ids=lambda row: row.name)
def test_what_is_said_or_advised_works(row):
    said = row.said
    if row.message:
        with pytest.raises(ConstraintError) as caught:
            exported(row, said)
        lines = str(caught.value).splitlines()
        own = [line for line in lines if "programs.py:" in line]  # the lines that need it, which are rows here
        assert own
        assert row.message in "\n".join(line for line in lines if line not in own)
        said = advised(caught.value)
    program = exported(row, said)
    for size in row.sizes:
        args = row.at(*size)
        wanted = pytree.tree_leaves(row.program(*args))
        found = pytree.tree_leaves(program(*args))
        for a, b in zip(wanted, found, strict=True):
            assert type(a) is type(b)
            assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
    assert set(map(str, facts_of(read_again(program).shape_env))) == set(map(str, facts_of(program.shape_env)))
    if row.wrong is not None:
        with pytest.raises((ConstraintError, RuntimeError)):
            program(*row.at(*row.wrong))


class Counting(torch.nn.Module):
    """Keyword-only arguments, defaults, written buffers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("last", torch.zeros(8, 4))

    def forward(self, x, *, scale=2.0, shift=None):
        self.seen += x.shape[0]
        self.last[: x.shape[0]] = x
        y = x * scale
        return {"y": y if shift is None else y + shift, "seen": self.seen.clone(), "rows": x.shape[0]}


@pytest.mark.parametrize("given", [{}, {"scale": 3.0}, {"shift": True}], ids=str)
def test_keyword_only_arguments_and_written_buffers(given):
    def named(rows):
        return {**given, **({"shift": torch.ones(rows, 4)} if "shift" in given else {})}

    batch, n = pliant.Dim("batch"), pliant.Dim("n")
    said = {"x": {0: batch}, **({"shift": {0: n}} if "shift" in given else {})}
    if "shift" in given:
        with pytest.raises(ConstraintError, match="batch == n is needed") as caught:
            pliant.export(Counting(), (torch.ones(4, 4),), named(4), dynamic_shapes=said)
        said = advised(caught.value)
    model, program = Counting(), pliant.export(Counting(), (torch.ones(4, 4),), named(4), dynamic_shapes=said)
    for rows in (4, 1, 8):
        x = torch.randn(rows, 4)
        wanted, found = model(x, **named(rows)), program(x, **named(rows))
        assert found.keys() == wanted.keys() and found["rows"] == rows
        assert torch.equal(found["y"], wanted["y"]) and torch.equal(found["seen"], wanted["seen"])
        assert torch.equal(program.state["last"], model.last)
    with pytest.raises(ConstraintError, match="batch <= 8"):
        program(torch.ones(9, 4), **named(9))


@dataclasses.dataclass
class Batch:
    tokens: torch.Tensor
    mask: torch.Tensor | None = None


pytree.register_dataclass(Batch)


def masked(batch, *, scale=None):
    y = batch.tokens if batch.mask is None else batch.tokens * batch.mask
    return Batch(y if scale is None else y * scale)


def test_arguments_of_registered_dataclasses():
    n, m = pliant.Dim("n"), pliant.Dim("m")
    given = Batch(torch.ones(4), torch.ones(4))
    with pytest.raises(ConstraintError, match="n == m is needed") as caught:
        pliant.export(masked, (given,), {"scale": torch.ones(1)}, dynamic_shapes={"batch": [{0: n}, {0: m}], "scale": None})
    said = advised(caught.value)
    program = pliant.export(masked, (given,), {"scale": torch.ones(1)}, dynamic_shapes=said)
    found = program(Batch(torch.ones(7) * 3, torch.ones(7) * 2), scale=torch.ones(1) * 5)
    assert torch.equal(found.tokens, torch.ones(7) * 30) and found.mask is None
    with pytest.raises(ConstraintError, match="not the arguments"):
        program(Batch(torch.ones(7)), scale=torch.ones(1))
    with pytest.raises(ConstraintError, match=r"n == .* does not hold|is 3, not 2|size"):
        program(Batch(torch.ones(2), torch.ones(3)), scale=torch.ones(1))


N = pliant.Dim("n")
WRONG = {
    "a name that is none": ({"z": {0: N}}, "z"),
    "a dimension that is none": ({"x": {5: N}}, "5"),
    "too many": (({0: N}, None, None, None), "for the parameters x, y, flag; what `*args` takes is a tuple in one item"),
    "a text": ({"x": {0: "n"}}, "n"),
    "no tensor": ({"flag": {0: N}}, "flag"),
    "two bounds for one name": (({0: pliant.Dim("n", max=4)}, {0: pliant.Dim("n", max=9)}), "n"),
    "out of its range": ({"x": {0: pliant.Dim("n", min=5)}}, "Dim('n', min=5)"),
    "out of its derived range": ({"x": {0: 3 * N + 2}}, "3"),
    "no whole number of it": ({"x": {0: 3 * N}}, "3"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_said_wrongly_is_an_error_that_names_it(name):
    said, part = WRONG[name]
    with pytest.raises(PliantError) as caught:
        pliant.export(lambda x, y, flag=True: x + y if flag else x, (torch.ones(4), torch.ones(4), True), dynamic_shapes=said)
    assert part in str(caught.value) and caught.value.do


def test_a_tensor_in_place_of_none_is_called_a_tensor():
    program = pliant.export(lambda x, y=None: x * 2 if y is None else x + y, (torch.ones(4), None), dynamic_shapes=({0: N}, None))
    with pytest.raises(ConstraintError, match="argument 1 is a tensor, and was None at export"):
        program(torch.ones(2), torch.ones(2))


def test_a_dim_starts_at_one_unless_it_has_a_min():
    with pytest.raises(ConstraintError, match=r"n is 0 by x.size\(0\), outside of Dim\('n'\), which starts at 1"):
        pliant.export(lambda x: x.sin(), (torch.ones(0, 3),), dynamic_shapes=({0: N},))
    program = pliant.export(lambda x: x.sin(), (torch.ones(0, 3),), dynamic_shapes=({0: pliant.Dim("n", min=0)},))
    assert program(torch.ones(0, 3)).shape == (0, 3) and program(torch.ones(2, 3)).shape == (2, 3)


def test_what_an_open_size_turned_out_to_be_names_the_line():
    program = pliant.export(lambda x: x * torch.tensor([n + 1 for n in range(x.shape[0])]), (torch.ones(6),), dynamic_shapes=({0: pliant.AUTO},))
    assert len(program.notes) == 1 and program.notes[0].startswith("x_0 == 6 is needed (x.size(0)), at test_constraints.py:")
    assert "# note: x_0 == 6" in str(program)


def test_what_a_fact_divides_by_is_not_zero():
    n, m = pliant.Dim("n", min=0), pliant.Dim("m", min=0)
    said = {"x": {0: n}, "y": {0: m}}
    program = pliant.export(lambda x, y: x.reshape(y.shape[0], -1), (torch.ones(4, 6), torch.ones(3)), dynamic_shapes=said)
    assert [*map(str, facts_of(program.shape_env))] == ["s1 != 0", "6*s0 % s1 == 0"]
    assert program(torch.ones(0, 6), torch.ones(2)).shape == (2, 0)
    for rows in (4, 0):
        with pytest.raises(ConstraintError, match="m != 0 does not hold: m is 0"):
            program(torch.ones(rows, 6), torch.ones(0))


def test_what_a_fact_divides_by_that_running_tells_is_not_zero():
    program = pliant.export(lambda x, count: x.reshape(count.item(), -1), (torch.ones(4, 6), torch.tensor(3)))
    assert program(torch.ones(4, 6), torch.tensor(8)).shape == (8, 3)
    with pytest.raises(RuntimeError, match="the program holds only where u0 != 0"):
        program(torch.ones(4, 6), torch.tensor(0))
    with pytest.raises(RuntimeError, match="the program holds only where 24 % u0 == 0"):
        program(torch.ones(4, 6), torch.tensor(5))


def test_a_fact_that_no_dim_says_can_be_left_to_calls():
    n, m = pliant.Dim("n"), pliant.Dim("m")
    with pytest.raises(ConstraintError) as caught:
        pliant.export(lambda x, y: x.reshape(y.shape[0], -1), (torch.ones(4, 6), torch.ones(3)), dynamic_shapes=({0: n}, {0: m}), beyond="refuse")
    assert str(caught.value).endswith(
        '  do   pass `beyond="check"`, with which calls check what no Dim says, or paste\n'
        "       dynamic_shapes = {}  # no size varies\n       (docs/export.md#violations)"
    )
