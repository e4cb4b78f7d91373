"""A method of a class that the program makes is one function before a break and behind it."""

import pliant


def methods():
    class Owner:
        def named(self):
            return 1

    owner = Owner()
    first = owner.named
    pliant.graph_break()
    again, function = owner.named, Owner.named
    pliant.graph_break()
    same = first.__func__ is Owner.named, first.__func__ is again.__func__, function is Owner.__dict__["named"]
    return same, first == again, hash(first) == hash(again), first() + function(owner)


def hashes():
    class Owner:
        def named(self):
            return 1

    owner = Owner()
    return hash(owner.named) == hash(owner.named), len({owner.named, owner.named})


def test_a_method_is_the_class_own():
    compiled = pliant.compile(methods, backend="eager")
    for _ in range(2):
        assert compiled() == methods()


def test_hashes_of_a_method():
    compiled = pliant.compile(hashes, backend="eager")
    for _ in range(2):
        assert compiled() == hashes()
