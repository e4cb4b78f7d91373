"""Containers that the comparisons, or the keys, of what is looked for change meanwhile, as C code complains of it."""

import collections

import pytest

import pliant


class Item:
    def __init__(self, act, equal):
        self.act, self.equal = act, equal

    def __eq__(self, other):
        self.act()
        return self.equal

    def __lt__(self, other):
        self.act()
        return False

    def __hash__(self):
        return 1


MAKE = {
    "deque": collections.deque,
    "list": list,
    "set": set,
    "dict": dict.fromkeys,
    "ordered dict": collections.OrderedDict.fromkeys,
}
CHANGES = {
    "clear": lambda box: box.clear(),
    "add": lambda box: getattr(box, "append", getattr(box, "add", lambda one: box.setdefault(one)))(9),
}
OPERATIONS = {
    "in": lambda box, item: item in box,
    "max": lambda box, item: max(box, key=lambda one: item.act() or 0),
    "any": lambda box, item: any(item.act() for one in box),
    "==": lambda box, item: box == type(box)([item] * len(box)) if isinstance(box, (list, collections.deque)) else None,
    "<": lambda box, item: box < type(box)([item] * len(box)) if isinstance(box, (list, collections.deque)) else None,
}


def program(box, operation, change, equal):
    done = []

    def act():
        if not done:
            done.append(1)
            change(box)

    try:
        return operation(box, Item(act, equal)), list(box)
    except (RuntimeError, TypeError) as error:
        return type(error), str(error), list(box)


@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("made", MAKE)
def test_as_in_python(made, operation, change, equal):
    rest = OPERATIONS[operation], CHANGES[change], equal
    compiled = pliant.compile(program, backend="eager")
    for _ in range(2):
        box, expected = MAKE[made](range(3)), MAKE[made](range(3))
        assert compiled(box, *rest) == program(expected, *rest)
        assert list(box) == list(expected)
