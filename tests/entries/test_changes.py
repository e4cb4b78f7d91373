"""A sample of the table of changes: `python -m tests.entries.changes` runs all."""

import pytest
from tests.entries import changes

import pliant

# What capture learns from an object or a class itself, so that no guard tells it: the digest has to, or nothing is kept.
NAMES = (
    "itemgetter", "bound tuple index", "pattern match", "cmp_to_key", "memoryview", "int subclass", "scipy-free ufunc",
    "enum by value 2", "intenum", "enum init", "abc subclass register", "typing hints", "match args", "str function",
    "torch assume constant", "allow in graph", "func lineno", "decimal context", "int max str", "tz", "version counter",
    "property fget default", "substitute", "kwdefault", "count object", "function mode inside", "global forward hook", "environ copy", "file content",
    "builtin added", "class_getitem", "code replaced", "conj used", "class dict", "lru prefilled",
    "abc abstract", "aten functorch kernel", "metaclass getattr", "own module getattr", "dataclass default changed later",
    "fp32 precision", "static method of a list", "copyreg", "branch in a branch", "operator in a branch",
)  # fmt: skip
# What is the same in both processes but the order of hashes.
OF_HASHES = ("hash str", "hash tuple")
OF_ORDER = ("set join", "set comp", "set fmt", "set pop", "set star")
KEPT = ("set sorted", "set in", "enum by name", "dataclass made")


@pytest.fixture(autouse=True)
def fresh():
    pliant.reset()
    yield
    pliant.reset()


@pytest.mark.parametrize("name", NAMES)
def test_the_second_program_computes_what_its_eager_does(name, tmp_path):
    told = changes.pair(name, str(tmp_path))
    assert [one.wrong for one in told] == ["", "", ""]


@pytest.mark.parametrize("name", OF_HASHES)
def test_what_depends_on_the_order_of_hashes_is_not_kept(name, tmp_path):
    first, again, _ = changes.pair(name, str(tmp_path))
    assert "found" not in again.entries
    assert "process-bound" in first.why[0]


@pytest.mark.parametrize("name", OF_ORDER)
def test_an_order_of_a_set_is_compared(name, tmp_path):
    """Found unless two items lie where one of them would in a table, so that it matters which came first."""
    first, again, second = changes.pair(name, str(tmp_path))
    assert first.entries == {"kept": 1} and not second.wrong
    assert again.entries == {"found": 1} or again.why[0] == "a set of texts has another order here"


@pytest.mark.parametrize("name", KEPT)
def test_what_a_guard_or_the_content_tells_is_kept(name, tmp_path):
    _, again, second = changes.pair(name, str(tmp_path))
    assert again.entries.get("found") and not second.wrong


@pytest.mark.parametrize("name", ["itemgetter", "cmp_to_key", "int subclass", "float subclass", "scipy-free ufunc"])
def test_what_is_read_of_an_object_in_c_is_guarded(name):
    assert not changes.replaced(changes.CHANGES[name])
