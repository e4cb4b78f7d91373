"""The text of errors: what, where, why, do; in this order."""

import pickle
from pathlib import Path

import pytest

from pliant import errors


def test_graph_break_error_answers_four_questions():
    error = errors.GraphBreakError(
        "`print` cannot be captured",
        kind="side-effect-call",
        where="train.py:42 in step       print(loss)",
        why="it writes to the terminal while the graph is being recorded",
        do="print after the compiled call, or drop fullgraph=True",
    )
    assert str(error) == (
        "GraphBreakError [side-effect-call]: `print` cannot be captured\n"
        "  train.py:42 in step       print(loss)\n"
        "  why  it writes to the terminal while the graph is being recorded\n"
        "  do   print after the compiled call, or drop fullgraph=True    (docs/graph-breaks.md#side-effect-call)"
    )


def test_class_gives_why_and_do_that_the_raiser_leaves_out():
    assert str(errors.DataDependentError("cannot decide u0 > 3", kind="branch")) == (
        "DataDependentError [branch]: cannot decide u0 > 3\n"
        "  why  the value is computed by the graph that is being recorded, so it is not known yet\n"
        "  do   state what is true of it with torch's _check(...), or branch with torch.cond"
        "    (docs/dynamic-shapes.md#data-dependent-values)"
    )


def test_verify_error_names_pass_node_and_dump():
    error = errors.VerifyError("buffer read before it is written", pass_name="fuse", node="buf3", dump="/d/08.ir")
    assert str(error) == (
        "VerifyError [fuse]: buffer read before it is written\n"
        "  why  a pass broke a rule of the representation it returns (after `fuse`, at `buf3`)\n"
        "       dump: /d/08.ir\n"
        "  do   report it with the repro; the program goes on eagerly unless strict is set    (docs/debugging.md)"
    )


def test_long_parts_are_aligned():
    text = str(errors.UserError("w", where="a.py:1 in f\nb.py:2 in g", why="one\ntwo", do="this"))
    assert text == "UserError: w\n  a.py:1 in f\n  b.py:2 in g\n  why  one\n       two\n  do   this"


@pytest.mark.parametrize(
    "error",
    [
        errors.CompileError("gcc failed", where="x.c:3"),
        errors.VerifyError("bad", pass_name="fuse", node=object()),
    ],
)
def test_errors_travel_between_processes(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)


def test_hierarchy():
    users = (errors.GraphBreakError, errors.ConstraintError, errors.ConfigError)
    assert all(issubclass(e, errors.UserError) for e in users)
    assert issubclass(errors.VerifyError, errors.InternalError)
    assert not issubclass(errors.Unsupported, errors.PliantError)


def test_pages_that_errors_name_exist():
    root = Path(__file__).resolve().parents[1]
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.PliantError)]
    assert not [c.__name__ for c in classes if c.page and not (root / c.page).exists()]
