"""Arguments that are one tensor, or share memory: where it matters, the program says so."""

import pytest
import torch

import pliant
from pliant.errors import ConstraintError, ExportError

ROWS = pliant.Dim("rows")


def same(x, y):
    return x * 2 if x is y else x + y * 3


def as_keys(x, y):
    return x * len({x: 1, y: 2})


def by_id(x, y):
    return x * 2 if id(x) == id(y) else x + y * 3


def written(x, y):
    x.add_(1)
    return y * 2


def not_asked(x, y):
    return x + y * 3


def once(rows):
    x = torch.arange(rows * 2, dtype=torch.float32).view(rows, 2)
    return x, x


def twice(rows):
    return once(rows)[0], once(rows)[0] + 1


def exported(fn, given):
    return pliant.export(fn, given(3), dynamic_shapes=({0: ROWS}, {0: ROWS}))


@pytest.mark.parametrize("fn", [same, as_keys, by_id, written, not_asked])
@pytest.mark.parametrize("given", [once, twice])
def test_calls_as_the_example_are_as_eager(fn, given, tmp_path):
    program = exported(fn, given)
    program.save(tmp_path / "file")
    for run in (program, pliant.load(tmp_path / "file"), program.transform("dead_code")):
        for rows in (3, 1, 5):
            args, others = given(rows), given(rows)
            assert torch.equal(fn(*args), run(*others)) and torch.equal(args[0], others[0])


@pytest.mark.parametrize("fn", [same, as_keys, by_id])
def test_a_program_for_two_tensors_refuses_one(fn):
    with pytest.raises(ConstraintError, match="x and y were two tensors at export, which the model asks, and are one"):
        exported(fn, twice)(*once(3))


@pytest.mark.parametrize("fn", [same, as_keys, by_id, written])
def test_a_program_for_one_tensor_refuses_two(fn):
    with pytest.raises(ConstraintError, match="x, y were one tensor at export, which the model asks, and are several"):
        exported(fn, once)(*twice(3))


def test_where_nobody_asks_any_tensors_are_taken():
    program = exported(not_asked, once)
    assert torch.equal(program(*twice(4)), not_asked(*twice(4)))


def test_memory_that_is_written_is_not_shared(tmp_path):
    program = exported(written, twice)
    program.save(tmp_path / "file")
    for run in (program, pliant.load(tmp_path / "file")):
        x = torch.zeros(6, 2)
        assert torch.equal(run(x[:3], x[3:]), torch.zeros(3, 2)) and torch.equal(x[:3], torch.ones(3, 2))
        with pytest.raises(ConstraintError, match="x, which the program writes, shares memory with y"):
            run(x[:3], x[2:5])


def test_forms_that_tell_no_tensors_apart_refuse_programs_for_one(tmp_path):
    with pytest.raises(ExportError, match="one tensor as several arguments"):
        exported(same, once).to_exported_program()
    with pytest.raises(ExportError, match="one tensor as several arguments"):
        pliant.aot_compile(exported(same, once), tmp_path / "folder", interface="standalone")


def test_sizes_of_one_tensor_are_said_once():
    with pytest.raises(ConstraintError, match="`x` and `y` are one tensor, and other sizes of it vary"):
        pliant.export(same, once(3), dynamic_shapes=({0: ROWS}, None))


def views(x, y):
    part = x[:, 1:]
    return {"part": part, "more": (part, x.t(), part), "made": [y * 2] * 2, "given": (x, x)}


def test_results_that_are_one_tensor_are_one(tmp_path):
    program = exported(views, twice)
    program.save(tmp_path / "file")
    for run in (program, pliant.load(tmp_path / "file"), program.compile(), program.transform("dead_code"), program.unflatten()):
        x, y = twice(4)
        found = run(x, y)
        assert found["part"] is found["more"][0] is found["more"][2] and found["made"][0] is found["made"][1]
        assert found["given"][0] is x is found["given"][1] and found["more"][1] is not found["part"]
        assert torch.equal(found["part"], x[:, 1:]) and found["part"].data_ptr() == x[:, 1:].data_ptr()
    assert "result 1: result 0 itself" in str(program)


@pytest.mark.parametrize("given, other", [(0.0, -0.0), (-0.0, 0.0), (1.0, 1), (True, 1), (float("nan"), 0.0)])
def test_constants_are_told_apart_as_python_tells_them(given, other):
    program = pliant.export(lambda x, k: torch.atan2(x * 0, torch.full_like(x, k)), (torch.ones(2), given))
    program(torch.ones(2), given)
    with pytest.raises(ConstraintError, match="such values are constants"):
        program(torch.ones(2), other)
