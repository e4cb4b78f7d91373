"""Objects of the program's classes that come from outside, given to C code: what it reads of them is guarded."""

import collections
import fractions
import math
import weakref

import numpy
import pytest
import torch

import pliant


class Items(list):
    pass


class OwnIterator(list):
    def __iter__(self):
        return iter([torch.ones(2)])


class OwnLength(list):
    def __len__(self):
        return 1


class Table(dict):
    pass


class Row(tuple):
    pass


class Queue(collections.deque):
    pass


class Frozen(frozenset):
    pass


class Sequence:
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class Whole:
    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


class Real(Whole):
    __index__ = None

    def __float__(self):
        return float(self.value)

    def __floor__(self):
        return self.value + 10


Pair = collections.namedtuple("Pair", "a b")


class Doubled(dict):
    def __getitem__(self, key):
        return super().__getitem__(key) * 2


class DoubledInOrder(collections.OrderedDict):
    def __getitem__(self, key):
        return super().__getitem__(key) * 2


class OwnKeys(Doubled):
    def __iter__(self):
        return iter(["a"])


def stored(places):
    y = torch.zeros(6)
    y[places] = 1
    return y


T = torch.arange(3.0)
LISTS = {
    "stack": (torch.stack, [Items([T]), Items([T, T]), Items([T, T * 3])]),
    "items of its own": (torch.stack, [OwnIterator([T]), OwnIterator([T, T])]),
    "a length of its own": (torch.stack, [OwnLength([T]), OwnLength([T, T])]),
    "unpacked beside": (lambda b: torch.cat((torch.cat(b), *b)), [Items([T]), Items([T, T])]),
    "sizes": (lambda b: torch.arange(12).view(b), [Items([3, 4]), Items([4, 3]), Items([12])]),
    "data": (torch.tensor, [Items([3, 4]), Items([4, 3]), Items([Items([1, 2])]), Items([[2, 2]])]),
    "index": (lambda b: torch.arange(6)[b], [Items([0, 1]), Items([2, 3]), Items([4])]),
    "index of a store": (stored, [Items([0, 1]), Items([2, 3]), Items([4])]),
    "list in one made here": (lambda b: torch.tensor(Items([b, b])), [[0, 1], [2, 3], [4]]),
    "list in a tuple made here": (lambda b: torch.tensor(Row([b, b])), [[0, 1], [2, 3], [4]]),
    "list in a tuple": (torch.tensor, [Row([[0, 1]]), Row([[2, 1]]), Row([[2]])]),
    "lists in a named tuple": (lambda p: torch.eye(5)[p], [Pair([0, 1], [3, 4]), Pair([0, 1], [1, 0])]),
    "subclasses in a named tuple": (lambda p: torch.eye(5)[p], [Pair(Items([0]), Items([3])), Pair(Items([0]), [0])]),
    "named tuple in a list": (torch.tensor, [[Pair([0], [3])], [Pair([0], [1])]]),
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.fallbacks_expected  # C code would run the `__len__` of the class
def test_functions_of_pytorch_read_what_a_list_holds_now(name):
    function, given = LISTS[name]
    compiled = pliant.compile(function, backend="eager")
    for one in given:
        assert torch.equal(compiled(one), function(one))


@pytest.mark.fallbacks_expected  # C code would run the `__iter__` of the class
def test_tensors_are_made_of_what_an_iterator_of_its_own_gives():
    class Shifted(list):
        def __iter__(self):
            return (item + 1 for item in super().__iter__())

    compiled = pliant.compile(torch.tensor, backend="eager")
    for items in (Shifted([1, 2]), Shifted([1, 3]), Shifted([4])):
        assert torch.equal(compiled(items), torch.tensor(items))


def test_arrays_are_made_of_lists_with_what_was_added():
    def program(items):
        items.append(7)
        return numpy.array(items).tolist()

    compiled = pliant.compile(program, backend="eager")
    for items in ([1, 2], [1, 3], [4]):
        assert compiled(items) == items and items[-1] == 7


def test_a_list_of_a_subclass_is_no_break():
    compiled = pliant.compile(lambda b: torch.stack(b).sum(0), fullgraph=True)
    for items in (Items([T]), Items([T, T * 2])):
        assert torch.equal(compiled(items), sum(items))


OTHERS = {
    "reversed list": (lambda b: list(reversed(b)), [Items([1, 2]), Items([1, 3]), Items([3])]),
    "reversed deque": (lambda b: list(reversed(b)), [Queue([1, 2]), Queue([1, 3]), Queue([3])]),
    "reversed dict": (lambda d: list(reversed(d)), [Doubled(a=1, b=2), Doubled(b=1, a=1), Doubled(c=1)]),
    "bytes": (bytes, [Items([1, 2]), Items([1, 3]), Items([3])]),
    "bytearray of a deque": (bytearray, [Queue([1, 2]), Queue([1, 3])]),
    "tensor of a deque": (lambda b: torch.tensor(b).tolist(), [Queue([1, 2]), Queue([1, 3]), Queue([3])]),
    "tensor of a sequence": (lambda b: torch.tensor(b).tolist(), [Sequence([1, 2]), Sequence([1, 3])]),
    "new tensor": (lambda b: T.new_tensor(b).tolist(), [collections.UserList([1, 2]), collections.UserList([3])]),
    "index": (lambda b: torch.arange(5)[b].tolist(), [Sequence([1, 2]), Sequence([1, 3])]),
    "formatted": (lambda d: "%(a)s" % d, [{"a": 1}, OwnKeys(a=1), OwnKeys(a=2)]),
    "subset": (lambda s: s.issubset({1, 2}), [Frozen([1]), Frozen([3])]),
    "size": (lambda n: torch.zeros(n).tolist(), [Whole(1), Whole(2)]),
    "end of a slice": (lambda n: torch.arange(4)[:n].tolist(), [Whole(1), Whole(2)]),
    "digits": (lambda n: round(1.234, n), [Whole(1), Whole(2)]),
    "square root": (math.sqrt, [Whole(1), Whole(4), Real(9), Real(16), fractions.Fraction(1, 4), fractions.Fraction(4)]),
    "floor": (math.floor, [Real(1), Real(2), Whole(3), Whole(4)]),
    "power": (lambda n: math.pow(2, n), [Real(1), Real(2), Whole(3)]),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.fallbacks_expected  # C code looks into an object from outside
def test_so_does_other_code_in_c(name):
    function, given = OTHERS[name]
    compiled = pliant.compile(function, backend="eager")
    for one in given:
        assert compiled(one) == function(one)


def given_to(**names):
    return names


def copies(u):
    ordered, plain = collections.OrderedDict(z=1), {}
    ordered.update(u)
    plain.update(u)
    lists = collections.defaultdict(list, u)
    return dict(u), {**u}, given_to(**u), plain, lists, collections.OrderedDict(u), ordered, dict(u, k=1)


@pytest.mark.parametrize("cls", [Doubled, DoubledInOrder, OwnKeys])
def test_copies_of_dicts_ask_for_items_where_python_does(cls):
    def made_here(x):
        return copies(cls(a=x, b=2))

    compiled, of_made = pliant.compile(copies, fullgraph=True), pliant.compile(made_here, fullgraph=True)
    for number in (1, 2, 3):
        assert compiled(cls(a=number, b=5)) == copies(cls(a=number, b=5))
        assert of_made(number) == made_here(number)


class Node:
    pass


def test_stores_through_a_weak_proxy_reach_the_object():
    def store(p, x):
        p.value = x * 2
        return x + 1

    def delete(p, x):
        del p.value
        return x + 1

    node = Node()
    pliant.compile(store)(weakref.proxy(node), T)
    assert torch.equal(node.value, T * 2)
    pliant.compile(delete)(weakref.proxy(node), T)
    assert not hasattr(node, "value")


def growing(items):
    for n in items:
        pliant.graph_break()
        if len(items) < 6:
            items.append(n + 10)
        yield n


def shrinking(items):
    for n in reversed(items):
        items.pop(0)
        yield n


def stored_while_read(table):
    for n, value in enumerate(table.values()):
        pliant.graph_break()
        table["last"] = n + 5
        yield value


def stored_behind_a_view(table):
    values, keys = table.values(), table.keys()
    table["last"] = 7
    return [*values, *keys]


def added_while_read(table):
    for key in table:
        table[key + "x"] = 1
        yield key


@pytest.mark.parametrize("read", [growing, shrinking])
def test_iterators_over_lists_of_a_class_see_changes(read):
    assert_same_outcomes(lambda items: list(read(items)), lambda: Items([1, 2, 3]))


@pytest.mark.parametrize("read", [stored_while_read, stored_behind_a_view, added_while_read])
def test_iterators_over_dicts_of_a_class_see_changes(read):
    assert_same_outcomes(lambda table: list(read(table)), lambda: Doubled(first=1, last=2))
    assert_same_outcomes(lambda table: list(read(table)), lambda: Table(first=1, last=2))


def assert_same_outcomes(program, make):
    compiled = pliant.compile(program, backend="eager")
    for _ in range(2):
        ours, eagers = make(), make()
        assert outcome(compiled, ours) == outcome(program, eagers)
        assert ours == eagers


def outcome(program, given):
    try:
        return program(given)
    except RuntimeError as error:
        return str(error)


def test_lists_compare_with_what_was_added_to_a_list_from_outside():
    def program(items):
        items.append(3)
        lists = [[3], [1, 2, 3], items]
        return lists.index(items), lists.count(items), items in lists[:2], lists.remove(items), len(lists)

    assert_same_outcomes(program, lambda: [1, 2])


class InOrder(collections.OrderedDict):
    pass


def moved_to_end():
    table = InOrder(a=1, b=2, c=3)
    table.move_to_end("a")
    return table


def test_an_ordered_dict_of_a_class_is_read_in_its_own_order():
    def read(table):
        views = list(table.items()), list(table), list(table.keys())
        table.update(b=7)
        return views, list(table.values()), len(table)

    pliant.reset()
    compiled = pliant.compile(read, fullgraph=True)
    for _ in range(3):
        assert compiled(moved_to_end()) == read(moved_to_end())
    assert pliant.stats()["recompiles"] == 0


def test_a_factory_of_a_class_makes_items_behind_a_read_of_all():
    class Lists(collections.defaultdict):
        pass

    def grow(table, x):
        before = sorted(table.items())
        table["new"].append(x + 1)
        table.setdefault("a", [])
        table |= {"b": [5]}
        return before, table.pop("b"), "new" in table, len(table)

    compiled = pliant.compile(grow, fullgraph=True)
    for x in (1, 2):
        ours, eagers = Lists(list, a=[x]), Lists(list, a=[x])
        assert compiled(ours, x) == grow(eagers, x)
        assert ours == eagers and list(ours) == list(eagers)


class Uncounted(tuple):
    """What has items, but no length that the program may ask for."""

    __slots__ = ()

    def __len__(self):
        raise NotImplementedError


def test_a_tuple_whose_own_length_says_nothing():
    held = {"sizes": Uncounted((2, 3))}

    def program(x):
        first, second = held["sizes"]
        return x * first + second

    compiled = pliant.compile(program, fullgraph=True)
    x = torch.ones(3)
    assert torch.equal(compiled(x), program(x))
    held["sizes"] = Uncounted((2, 4))
    assert torch.equal(compiled(x), program(x))
    held["sizes"] = Uncounted((2, 4, 5))
    with pytest.raises(ValueError, match="too many"):
        compiled(x)


@pytest.mark.parametrize("cls", [Row, Items])
def test_items_counted_from_the_end_are_the_same_items(cls):
    pliant.reset()
    compiled = pliant.compile(lambda x, row: (x * row[-1], row[-1], row[-2] is row[0]), backend="eager")
    for number in range(2, 6):
        assert compiled(torch.ones(2), cls([[0], number]))[1:] == (number, True)
    assert pliant.stats()["graphs"] == 2
