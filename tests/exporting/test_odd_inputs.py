"""Arguments, results and constants that few programs have: exported, saved and loaded, they are as they were."""

import copy

import pytest
import torch

import pliant

BATCH = ({0: pliant.Dim("b")},)
X, SHORT = torch.arange(20.0).view(5, 4) - 7, torch.arange(12.0).view(3, 4) - 5
COMPLEX, SHORT_COMPLEX = torch.complex(X, X + 1), torch.complex(SHORT, SHORT + 1)


def twice(x):
    y = x + 1
    return y, y, y.view(-1)


def changed(x):
    x.add_(1)
    return x.view(-1)


def found(x):
    places = x.nonzero()
    return places.shape[0], places


FLOATS = {
    "a type and a device": lambda x: (x + 1, x.dtype, x.device),
    "an input and views of it": lambda x: (x, x.t(), x[1:], x),
    "an input that is changed": changed,
    "one result twice": twice,
    "numbers and words": lambda x: (x.shape[0], x.shape[0] * 2 + 1, 3.5, "s", True, x.dim(), tuple(x.shape)),
    "numbers made of sizes": lambda x: (x.shape[0] / 2, x.numel(), (x.shape[0], 2), x.stride()),
    "a condition": lambda x: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)),
    "no results": lambda x: (),
    "None": lambda x: None,
    "infinite constants": lambda x: (x.masked_fill(x > 0, float("-inf")), torch.full_like(x, float("nan")), x + 2**40),
    "complex constants": lambda x: (x * (1 + 2j), torch.full((x.shape[0],), complex(float("inf"), float("nan")))),
    "places of elements": found,
}
COMPLEXES = {
    "conjugated": lambda x: (x + 1).conj(),
    "negated": lambda x: (x + 1).conj().imag,
    "parts": lambda x: (x.conj().imag + 1, x.conj() * 2, x.mH @ x),
    "resolved": lambda x: torch.view_as_real((x * 2).conj().resolve_conj()),
}
CASES = [(name, fn, (X, SHORT)) for name, fn in FLOATS.items()] + [(name, fn, (COMPLEX, SHORT_COMPLEX)) for name, fn in COMPLEXES.items()]
CASES += [
    ("16 bits", lambda x: torch.softmax(x, -1) @ x.mT, (X.bfloat16(), SHORT.bfloat16())),
    ("8 bits", lambda x: (x.float() + 1, x), (X.to(torch.float8_e4m3fn), SHORT.to(torch.float8_e4m3fn))),
    ("unsigned", lambda x: (x.to(torch.int32) + 1, x.view(torch.int16)), (X.abs().to(torch.uint16), SHORT.abs().to(torch.uint16))),
]


def same(one, other):
    assert type(one) is type(other)
    if not isinstance(one, torch.Tensor):
        assert one == other
        return
    kinds = [(t.dtype, t.stride(), t.is_conj(), t.is_neg()) for t in (one, other)]
    assert kinds[0] == kinds[1]
    torch.testing.assert_close(one, other, equal_nan=True)


def same_calls(call, fn, args):
    mine, theirs = copy.deepcopy(args), copy.deepcopy(args)
    results = call(*mine), fn(*theirs)
    leaves = [torch.utils._pytree.tree_flatten(one) for one in ((results[0], mine), (results[1], theirs))]
    assert leaves[0][1] == leaves[1][1]
    for one, other in zip(leaves[0][0], leaves[1][0], strict=True):
        same(one, other)


@pytest.mark.parametrize(("fn", "inputs"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_files_take_and_give_what_the_program_does(fn, inputs, tmp_path):
    program = pliant.export(fn, (inputs[0].clone(),), dynamic_shapes=BATCH)
    program.save(tmp_path / "file")
    for call in (program, pliant.load(tmp_path / "file")):
        for x in inputs:
            same_calls(call, fn, (x,))


def nested(d):
    return {"o": d["a"]["k"] + d["b"][1][0], "q": (d["b"][0].sum(), None)}


NESTED = {"a": {"k": X}, "b": [X[:, 0], (X,)]}


@pytest.mark.parametrize(("fn", "args"), [(nested, (NESTED,)), (lambda x: (x * 2, x.reshape(1), x[None]), (torch.tensor(3.0),)),
    (lambda x: (x.sum(), x.sum(0), x * 2), (torch.zeros(0, 4),))], ids=["nested", "no dimensions", "no elements"])  # fmt: skip
def test_fixed_inputs(fn, args, tmp_path):
    program = pliant.export(fn, copy.deepcopy(args))
    program.save(tmp_path / "file")
    for call in (program, pliant.load(tmp_path / "file")):
        same_calls(call, fn, args)


def test_conjugated_numbers_as_real_ones_fail_as_eagerly():
    with pytest.raises(pliant.errors.PliantError, match="resolve_conj"):
        pliant.export(lambda x: torch.view_as_real(x.conj()), (COMPLEX,))
