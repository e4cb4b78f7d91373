"""Containers of a program's classes that come from outside: kind x operation x place, in eager and compiled.

`python -m tests.capture.container_table` lists what breaks the graph.
"""

import collections

import torch

import pliant


class Items(list):
    pass


class Table(dict):
    pass


class Ordered(collections.OrderedDict):
    pass


class Factory(collections.defaultdict):
    pass


class Unique(set):
    pass


class Queue(collections.deque):
    pass


class OwnItems(list):
    """Its own methods, some of which end in the list's."""

    noted = 0

    def append(self, item):
        self.noted += 1
        super().append(item)
        super().append(item + 1)

    def extend(self, items):
        for item in list(items):
            self.append(item)

    def __iadd__(self, other):
        self.noted += 100
        return super().__iadd__(other)

    def __setitem__(self, key, value):
        list.__setitem__(self, key, value * 2)

    def __contains__(self, item):
        return not super().__contains__(item)


class OwnTable(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value * 2)

    def update(self, *args, **kwargs):
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def pop(self, key, *rest):
        return super().pop(key, *rest), "popped"


class OwnUnique(set):
    def add(self, item):
        super().add(item)
        super().add(item + 100)


class OwnQueue(collections.deque):
    def append(self, item):
        super().appendleft(item)


class Holder:
    def __init__(self, value):
        self.value = value


LIST = {
    "append": lambda b: b.append(7),
    "extend": lambda b: b.extend([7, 8]),
    "extend by itself": lambda b: b.extend(b),
    "extend by a generator": lambda b: b.extend(i + 1 for i in range(3)),
    "insert": lambda b: b.insert(1, 7),
    "pop": lambda b: b.pop(),
    "pop first": lambda b: b.pop(0),
    "remove": lambda b: b.remove(4),
    "clear": lambda b: b.clear(),
    "reverse": lambda b: b.reverse(),
    "sort": lambda b: b.sort(),
    "sort by a key": lambda b: b.sort(key=lambda v: -v),
    "store": lambda b: b.__setitem__(0, 9),
    "delete": lambda b: b.__delitem__(0),
    "slice": lambda b: b[1:],
    "copy": lambda b: b.copy(),
    "index": lambda b: b.index(4),
    "count": lambda b: b.count(4),
    "times": lambda b: b * 2,
    "plus": lambda b: b + [1],
    "equal": lambda b: b == [3, 4, 5],
    "contains": lambda b: 4 in b,
}
DICT = {
    "update": lambda b: b.update({"z": 9}),
    "update by names": lambda b: b.update(a=8, y=7),
    "setdefault": lambda b: b.setdefault("q", 5),
    "setdefault of one that is there": lambda b: b.setdefault("a", 5),
    "pop": lambda b: b.pop("a"),
    "pop of none": lambda b: b.pop("none", 3),
    "popitem": lambda b: b.popitem(),
    "clear": lambda b: b.clear(),
    "store": lambda b: b.__setitem__("n", 3),
    "delete and store": lambda b: (b.__delitem__("a"), b.__setitem__("a", 3), list(b)),
    "delete, store, pop": lambda b: (b.pop("a"), b.setdefault("a", 3), b.popitem(), b.pop("b")),
    "delete": lambda b: b.__delitem__("a"),
    "get": lambda b: (b.get("a"), b.get("none")),
    "copy": lambda b: dict(b.copy()),
    "join": lambda b: b | {"k": 1},
    "join in place": lambda b: b.__ior__({"k": 1}),
    "equal": lambda b: b == {"a": 1, "b": 2},
    "items": lambda b: list(b.items()),
    "contains": lambda b: "a" in b,
}
ORDERED = DICT | {"to the end": lambda b: b.move_to_end("a"), "first out": lambda b: b.popitem(last=False)}
SET = {
    "add": lambda b: b.add(7),
    "update": lambda b: b.update([7, 8]),
    "discard": lambda b: b.discard(4),
    "remove": lambda b: b.remove(4),
    "pop": lambda b: b.pop(),
    "clear": lambda b: b.clear(),
    "difference_update": lambda b: b.difference_update({3}),
    "join in place": lambda b: b.__ior__({9}),
    "join": lambda b: sorted(b | {9}),
    "copy": lambda b: sorted(b.copy()),
    "length": lambda b: len(b),
    "contains": lambda b: 4 in b,
    "loop": lambda b: [v + 1 for v in b],
    "subset": lambda b: b.issubset([3, 4, 5, 6]),
}
DEQUE = {
    "append": lambda b: b.append(7),
    "appendleft": lambda b: b.appendleft(7),
    "extend": lambda b: b.extend([7, 8]),
    "popleft": lambda b: b.popleft(),
    "pop": lambda b: b.pop(),
    "rotate": lambda b: b.rotate(1),
    "clear": lambda b: b.clear(),
    "store": lambda b: b.__setitem__(0, 9),
    "item": lambda b: b[1],
    "length": lambda b: (len(b), b.maxlen),
    "loop": lambda b: [v + 1 for v in b],
    "insert": lambda b: b.insert(1, 5),
    "contains": lambda b: 4 in b,
}
KINDS = {
    "list": (lambda: Items([3, 4, 5]), LIST),
    "list with methods": (lambda: OwnItems([3, 4, 5]), LIST),
    "dict": (lambda: Table(a=1, b=2), DICT),
    "dict with methods": (lambda: OwnTable(a=1, b=2), DICT),
    "ordered": (lambda: Ordered(a=1, b=2), ORDERED),
    "factory": (lambda: Factory(int, a=1, b=2), DICT | {"missing": lambda b: b["new"]}),
    "set": (lambda: Unique([3, 4, 5]), SET),
    "set with methods": (lambda: OwnUnique([3, 4, 5]), SET),
    "deque": (lambda: Queue([3, 4, 5]), DEQUE),
    "bounded deque": (lambda: Queue([3, 4, 5], 4), DEQUE),
    "deque with methods": (lambda: OwnQueue([3, 4, 5]), DEQUE),
}
GLOBAL = None


def augmented(b):
    """`+=`, which stores the name anew."""
    before = b
    if isinstance(b, dict):
        b |= {"k": 1}
    elif isinstance(b, set):
        b |= {9}
    else:
        b += [7]
    return before is b


def twice(operation):
    """What the second operation finds is what the first left."""

    def program(b):
        first = operation(b)
        seen = len(b), [v for v in b], bool(b)
        if isinstance(b, dict):
            b["again"] = 3
            return first, seen, b["again"], operation_or_error(operation, b), len(b)
        again = b.append if hasattr(b, "append") else b.add
        again(4)
        return first, seen, operation_or_error(operation, b), len(b), 4 in b

    return program


def operation_or_error(operation, b):
    try:
        return operation(b)
    except (IndexError, KeyError, ValueError) as error:
        return type(error).__name__


def from_global(operation):
    def program(x, b):
        return operation(GLOBAL), x + 1

    return program


PLACES = {
    "argument": lambda operation: lambda x, b: (operation(b), x + 1),
    "attribute": lambda operation: lambda x, h: (operation(h.value), x + 1),
    "item": lambda operation: lambda x, h: (operation(h[0]), x + 1),
    "global": from_global,
}
GIVEN = {
    "argument": lambda b: b,
    "attribute": Holder,
    "item": lambda b: [b],
    "global": lambda b: b,
}


def programs():
    """(name, what makes the container, what is done with it)"""
    for kind, (make, operations) in KINDS.items():
        for name, operation in {**operations, "augmented": augmented}.items():
            yield f"{kind}, {name}", make, operation
            yield f"{kind}, {name} twice", make, twice(operation)


def run(function, make, given):
    """What a call returns and leaves."""
    global GLOBAL
    GLOBAL = b = make()
    try:
        found = function(torch.ones(2), given(b))[0]
    except Exception as error:
        found = type(error), str(error)
    found = None if found is b else found
    return found, type(found), base_items(b), {k: v for k, v in vars(b).items()}


def base_items(b):
    base = next(cls for cls in (dict, set, collections.deque, list) if isinstance(b, cls))
    if isinstance(b, collections.OrderedDict):
        base = collections.OrderedDict
    return list(base.items(b)) if isinstance(b, dict) else list(base.__iter__(b))


def differences(make, operation, place="argument"):
    """(what is unlike eager, kinds of breaks)"""
    program, given = PLACES[place](operation), GIVEN[place]
    pliant.reset()
    expected = run(program, make, given)
    compiled = pliant.compile(program, backend="eager")
    wrong = [found for _ in range(2) if (found := run(compiled, make, given)) != expected]
    return [(w, expected) for w in wrong], dict(pliant.stats()["break_reasons"]), pliant.stats()["fallbacks"]


def main():
    for place in PLACES:
        for name, make, operation in programs():
            if place != "argument" and name.endswith("twice"):
                continue
            wrong, breaks, fallbacks = differences(make, operation, place)
            if wrong or breaks or fallbacks:
                print(f"{place}: {name}: {wrong or 'as eager'}, {breaks}, {fallbacks}")


if __name__ == "__main__":
    main()
