"""Objects given to C code: their methods run at each call of the compiled function, as often as in eager."""

import pytest
import torch
from tests.capture.fuzz_protocols import Row, difference

import pliant

ROWS = [
    ("object", "index", "bytearray_appended(V)"),
    ("object", "index", "extended(bytearray(b'1'), [V])"),
    ("bytearray", "index", "stored(bytearray(b'abcd'), 1, V)"),
    ("object", "numbers", "stored(bytearray(b'abcd'), slice(0, 2), [V])"),
    ("object", "index", "int.from_bytes((V,), 'big')"),
    ("tuple", "index", "bisect.bisect_left([1, 2, 3], 2, V)"),
    ("str", "float", "complex(V)"),
    ("list", "float", "math.fsum(iter([V]))"),
    ("object", "float", "math.isclose(1.0, 1.1, rel_tol=V)"),
    ("frozenset", "len", "math.dist([1.0, 2.0], V)"),
    ("collections.deque", "iter", "math.prod([V, V])"),
    ("dict", "bool", "struct.pack('?', V)"),
    ("object", "bool", "struct.pack('?', V)"),
    ("object", "row", "'abc'.translate(V)"),
    ("object", "row", "'a'.join(V)"),
    ("dict", "len", "itertools.product(V, 'a')"),
    ("dict", "len", "itertools.combinations(V, 1)"),
    ("object", "eq", "[len([*g]) for _, g in itertools.groupby([1, V, 2])]"),
    ("object", "str", "collections.namedtuple('P', [1, V])"),
    ("object", "getitem", "collections.namedtuple('P', V)"),
    ("object", "index", "json.dumps(1, indent=V)"),
    ("bytearray", "eq", "V in range(4)"),
    ("list", "eq", "types.SimpleNamespace(a=V) == types.SimpleNamespace(a=1)"),
    ("set", "len", "'{}'.format([1, V])"),
    ("frozenset", "iter", "str({'a': V})"),
    ("collections.deque", "iter", "repr({'a': V})"),
    ("frozenset", "iter", "ascii(V)"),
    ("set", "len", "{'a': 1}.keys().isdisjoint(V)"),
    ("frozenset", "len", "{'a': 1}.keys() == V"),
    ("collections.OrderedDict", "getitem", "{'b': 2} | V"),
    ("bytearray", "index", "torch.Size([1, V])"),
    ("tuple", "len", "torch.Size(V)"),
    ("tuple", "getitem", "torch.tensor([V])"),
    ("tuple", "len", "torch.as_tensor((V,))"),
    ("tuple", "index", "torch.nn.functional.pad(x, [V, 1])"),
    ("tuple", "eq", "torch.broadcast_shapes((1,), [1, V])"),
    ("list", "getitem", "x.new_tensor([V, V])"),
    ("object", "getattr", "x.add_(V)"),
    ("object", "numbers", "x[V, None]"),
    ("tuple", "iter", "x[V, None]"),
    ("dict", "getattr", "x[[V, V]]"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("base, methods, call", ROWS)
def test_methods_run_as_in_eager(base, methods, call):
    with pliant.config.patch(recompile_limit=64):
        for place in ("given", "made"):
            row = Row("" if base == "object" else base, methods, call, place)
            assert difference(row) is None


class Shown:
    """Its methods only show and compare: what holds it may be asked for nothing of them."""

    def __init__(self, value):
        self.value = value

    def __len__(self):
        return self.value

    def __repr__(self):
        return f"Shown({self.value})"

    def __iter__(self):
        return iter(range(self.value))


def test_what_holds_objects_asks_them_for_nothing():
    """One graph, whatever methods the objects have."""

    def program(x, one):
        held = [one, Shown(3)]
        held.append(one)
        table = {"a": one, "b": held}
        table.update(c=one)
        first, *_ = zip(held, enumerate(held))
        return x * len(first[0]) + sum(held[1]), isinstance(one, Shown), table["c"] is one, getattr(one, "value", 0), max(one)

    compiled = pliant.compile(program, fullgraph=True)
    for n in (2, 3):
        found, expected = compiled(torch.ones(2), Shown(n)), program(torch.ones(2), Shown(n))
        assert torch.equal(found[0], expected[0])
        assert found[1:] == expected[1:]


class Held:
    """A cache that may be gone through."""

    def __iter__(self):
        raise AssertionError

    def __len__(self):
        raise AssertionError


@pytest.mark.parametrize("make", [lambda held: (held,), lambda held: [held]], ids=["tuple", "list"])
def test_sequences_are_joined_as_they_are(make):
    def f(x, held):
        found = make(x + 1)
        found += make(held)
        return [*(found + make(held)), *(make(held) * 2)]

    held = Held()
    pliant.reset()
    results = pliant.compile(f, fullgraph=True)(torch.ones(2), held)
    assert torch.equal(results[0], torch.full((2,), 2.0)) and all(one is held for one in results[1:]) and len(results) == 5
