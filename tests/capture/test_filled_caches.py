"""Functions with a cache that was filled before they are captured return what it holds."""

import functools

import pytest
import torch

import pliant

STATE = {"k": 1}


def filled(**options):
    @functools.lru_cache(**options)
    def cached(a, b=0, *, c=None):
        return STATE["k"], [a, b, c]

    return cached


@pytest.mark.parametrize("options", [{"maxsize": 4}, {"maxsize": None}, {"maxsize": 4, "typed": True}], ids=str)
@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {"a": 1}), ((1,), {}), (("s", 2), {}), ((1,), {"c": "k"}), ((torch.float32,), {})],
    ids=str,
)
def test_what_is_kept_is_returned(options, args, kwargs):
    cached = filled(**options)
    STATE["k"] = 1
    others = [cached(n) for n in (7, 8)]
    kept = cached(*args, **kwargs)
    STATE["k"] = 2

    def program(x):
        number, found = cached(*args, **kwargs)
        found.append(number)
        return x * number, found

    result, found = pliant.compile(program, backend="eager")(torch.ones(2))
    assert result[0] == 1
    assert found is kept[1]
    assert found[-1] == 1 and others[0][1] == [7, 0, None]


def test_kept_tensors_are_themselves():
    made = functools.cache(lambda n: torch.rand(n))
    kept = made(3)
    compiled = pliant.compile(lambda x: (x + made(3), made(3)), backend="eager")
    total, found = compiled(torch.zeros(3))
    assert found is kept
    assert torch.equal(total, kept)


def test_other_arguments_are_computed():
    cached = functools.lru_cache(maxsize=2)(lambda n: n + STATE["k"])
    STATE["k"] = 1
    cached(1), cached(2), cached(3)  # the first was dropped
    STATE["k"] = 5
    compiled = pliant.compile(lambda x: (x, cached(1), cached(2), cached(3)), backend="eager")
    assert compiled(torch.ones(1))[1:] == (6, 3, 4)


def test_what_is_kept_no_longer_is_asked_again():
    number = functools.cache(lambda: STATE["k"])
    pair = functools.cache(lambda: [STATE["k"]])
    STATE["k"] = 1
    number(), pair()
    STATE["k"] = 2
    compiled = pliant.compile(lambda x: x * number() + pair()[0])
    assert compiled(torch.ones(1)).item() == 2
    number.cache_clear(), pair.cache_clear()
    pair()
    assert compiled(torch.ones(1)).item() == 4
