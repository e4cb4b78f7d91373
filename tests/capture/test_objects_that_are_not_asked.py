"""Objects whose classes answer for every attribute: code of the compiler asks them for none, only the program does."""

import pytest
import torch

import pliant

LOG = []


def heard(base, **members):
    def ask(self, name):
        LOG.append(name)
        return base.__getattribute__(self, name)

    return type(f"Heard{base.__name__}", (base,), {"__getattribute__": ask, **members})


Plain, Slots, List, Error = heard(object), heard(object, __slots__=("a", "b")), heard(list), heard(Exception)
PLAIN, SLOTS, LIST, ERROR = Plain(), Slots(), List([1, 2]), Error(1)
PLAIN.v, PLAIN.me, SLOTS.a, SLOTS.b = 1, PLAIN, 1, [1]


class Missing:
    def __getattribute__(self, name):
        LOG.append(name)
        if name == "b":
            raise AttributeError(name)
        return super().__getattribute__(name)

    def __getattr__(self, name):
        LOG.append(("missing", name))
        return name


class Claims:
    @property
    def __class__(self):
        LOG.append("claims")
        return int


def fields(n):
    PLAIN.v += 1
    return PLAIN.v, PLAIN.me.v, PLAIN.__class__.__name__, [*PLAIN.__dict__]


def slots(n):
    return SLOTS.a, SLOTS.b, SLOTS.__class__.__name__


def items(n):
    LIST.append(n)
    return LIST[0], len(LIST), [*LIST], n in LIST, LIST.pop()


def errors(n):
    try:
        raise ERROR
    except Error as error:
        return error.args, error is ERROR


def made_inside(n):
    made = Missing()
    made.n = n
    pliant.graph_break()
    return made.n, made.b, made.c, hasattr(made, "d"), getattr(made, "b", 0), made.__class__.__name__, {1: [made]}[1][0] is made


def claims(n):
    made = Claims()
    made.n = n
    return made.n, isinstance(made, int), isinstance(made, Claims), isinstance(made, (list, str)), {1: made}[1].n, bool(made)


class Keeps:
    """Is a key, a condition, an operand, and may be what a container holds."""

    def __init__(self, v):
        object.__setattr__(self, "v", v)

    @property
    def __class__(self):
        LOG.append("claims")
        return float

    def __getattribute__(self, name):
        LOG.append(name)
        return object.__getattribute__(self, name)

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 3

    def __bool__(self):
        return True

    def __len__(self):
        return 1

    def __index__(self):
        return 1


def used(n):
    made = Keeps(n)
    found = [1 if made else 2, len(made), {made: 1}[made], {made} == {made}, [1, 2][made], made is made, made is None]
    return found, [made].index(made), [made].count(1), dict(a=made)["a"] is made, id(made) == id(made), (made, n)[0] is made


@pytest.mark.parametrize("program", [used, fields, slots, items, errors, made_inside, claims])
def test_only_the_program_asks(program):
    compiled = pliant.compile(lambda x, n: (x + 1, program(n))[1], backend="eager")
    with pliant.config.patch(strict=True):
        for n in (2, 3, 5):
            heard_each_way = []
            for function in (program, lambda n: compiled(torch.ones(2), n)):
                LOG.clear()
                PLAIN.v = 1
                LOG.clear()
                heard_each_way.append((function(n), [*LOG]))
            assert heard_each_way[1] == heard_each_way[0]
