"""Constants are exact on disk; digests tell apart what capture could tell apart, and nothing else."""

import gc
import math

import pytest
import torch

from pliant.entries.constants import read, spelled
from pliant.entries.content import NotKept, digest
from pliant.entries.fact_writer import FactWriter
from pliant.entries.taken import Taken
from pliant.guards.facts import same
from pliant.guards.sources import ArgSource, ItemSource

CONSTANTS = [
    None, True, 1, 2**70, "a\ud800b", b"\x00\xff", 0.1, -0.0, math.inf, math.nan, 1j, complex(-0.0, math.nan), ..., NotImplemented,
    range(1, 9, 2), slice(None, 3, -1), (1, (2.0, "x")), [1, [None]], frozenset({1}), {"a": [1, None], 2: (None,)},
    torch.float32, torch.device("cpu"), torch.device("cuda:1"), torch.strided, torch.channels_last, torch.Size([2, 3]),
]  # fmt: skip


@pytest.mark.parametrize("value", CONSTANTS, ids=repr)
def test_a_constant_is_read_as_it_was(value):
    import json

    assert same(read(json.loads(json.dumps(spelled(value)))), value)


@pytest.mark.parametrize("value", [object(), [object()], (1, len), {"a": torch.ones(1)}, torch.ones(1)])
def test_what_is_no_constant_is_not_spelled(value):
    assert spelled(value) is None


def defined(text, name="f", line=0):
    space = {}
    exec(compile("\n" * line + text, f"/nowhere/{line}.py", "exec"), space)
    return space[name]


def code_digest(text, line=0):
    return digest(defined(text, line=line).__code__)


def test_lines_and_files_do_not_matter():
    text = "def f(x):\n    return x + 1\n"
    assert code_digest(text) == code_digest(text, line=7)


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    return x + 1.0\n",
        "def f(x):\n    return x + True\n",
        "def f(x):\n    return x - 1\n",
        "def f(y):\n    return y + 1\n",
        "def f(x, *y):\n    return x + 1\n",
        "def f(x):\n    g = lambda: 2\n    return x + 1\n",
        "def f(x):\n    try:\n        return x + 1\n    except E:\n        pass\n",
    ],
)
def test_what_code_does_matters(text):
    assert code_digest(text) != code_digest("def f(x):\n    return x + 1\n")


def test_nested_code_matters():
    assert code_digest("def f(): return lambda: 1") != code_digest("def f(): return lambda: 2")
    assert code_digest("def f(): return -0.0") != code_digest("def f(): return 0.0")


def test_what_differs_from_process_to_process_has_no_content():
    with pytest.raises(NotKept, match="process-bound"):
        digest(defined("def f(x): return x.__hash__()").__code__)


def test_functions_in_c_are_told_apart_by_what_they_are():
    assert len({digest(f) for f in (torch.relu, torch.sigmoid, torch.Tensor.relu, len, torch.Tensor.relu_)}) == 5
    assert digest(torch.ops.aten.add.Tensor) != digest(torch.ops.aten.add.Scalar)


CONSTANTS = (
    "0", "1", "False", "0.0", "-0.0", "1e400", "0j", "-0j", "''", "'0'", "b'0'", "...", "None", "(0,)", "(False,)", "((0,), 1)", "(0, (1,))",
    "x in {0, 1}", "x in {0, 2}", "x in {0, (1, 2)}", "x in (0, 1)", "x in {'set', b'0'}", "lambda: 0", "('code', 'a')", "2 ** 70",
)  # fmt: skip


def test_constants_are_told_apart():
    digests = {code_digest(f"def f(x): return {text}") for text in CONSTANTS}
    assert len(digests) == len(CONSTANTS)


def test_neither_the_order_of_sets_nor_what_is_interned_matters():
    code = defined("def f(x): return x in {'a', 'b', 'c'}, 'a text'").__code__
    order = {tuple(one for one in code.co_consts if type(one) is frozenset)[0]: frozenset(["c", "b", "a"])}
    texts = {"a text": "".join(["a ", "text"])}
    other = code.replace(co_consts=tuple(order.get(one, texts.get(one, one)) for one in code.co_consts))
    assert digest(code) == digest(other)


def test_garbage_collection_lets_go_of_rows_that_refer_to_nothing():
    def program():
        return None

    facts = FactWriter(program, (), Taken(program, (), (), ()))
    facts.source(ItemSource(ArgSource(0, "x"), 1))
    gc.collect()
    gc.collect()  # tuples within tuples are let go of first
    assert facts.sources and not any(map(gc.is_tracked, facts.sources))
