"""What a wrapper calls for operators: the quickest callable that does the work, and no buffer that the operator makes itself."""

import pytest
import torch
from torch.utils import _pytree as pytree

import pliant
from pliant.codegen import plain_forms
from pliant.debug import events

CASES = {
    "a product": (lambda x, w: x.mm(w.t()), ["= mm_out(arg0, arg1.mT)"]),
    "with a bias": (lambda x, w: torch.addmm(w[0], x, w.t()), ["= addmm_out(", "arg1.mT)"]),
    "a part of an input": (
        lambda x, w: x[:, 1:].mm(w[:, 1:].t()),
        ["arg0.as_strided((4, 15,), (16, 1,), arg0.storage_offset() + 1)", "arg1.storage_offset() + 1)"],
    ),
    "as it lies": (lambda x, w: x.mm(w.view(8, 32)[:, :16].t()), ["arg1.as_strided((16, 8,), (1, 32,))"]),
    "batches": (lambda x, w: torch.bmm(x[None], w.t()[None]), ["= bmm_out("]),
}


@pytest.mark.parametrize("name", CASES)
def test_products_make_their_results_themselves(name):
    function, parts = CASES[name]
    x, w = torch.randn(4, 16), torch.randn(16, 16)
    with events.collect("output_code") as seen:
        found = pliant.compile(function, dynamic=False)(x, w)
    text = str(seen[0].fields["text"])
    text = text[text.index("def call") :]
    assert all(part in text for part in parts), text
    assert "empty" not in text and "out=" not in text, text
    torch.testing.assert_close(found, function(x, w))
    assert found.stride() == function(x, w).stride()


def test_inputs_that_begin_behind_their_memory_are_read_from_there():
    x, w = torch.randn(65)[1:].view(4, 16), torch.randn(257)[1:].view(16, 16)
    for function, _ in CASES.values():
        torch.testing.assert_close(pliant.compile(function, dynamic=False)(x, w), function(x, w))


def test_a_product_in_memory_that_is_free_again_writes_there():
    """It has a buffer: no more memory is in use at once than planned."""

    def chain(x, w):
        return torch.mm(torch.mm(torch.mm(x, w), w), w)

    x, w = torch.randn(16, 16), torch.randn(16, 16)
    torch.testing.assert_close(pliant.compile(chain)(x, w), chain(x, w))


ATEN = torch.ops.aten


def test_functions_stand_for_overloads_that_take_the_same():
    for name in ("convolution", "scatter_add", "topk", "index_select", "embedding", "cummax", "searchsorted"):
        overload = getattr(ATEN, name).default if name != "searchsorted" else ATEN.searchsorted.Tensor
        assert plain_forms.quicker(overload) is (None if name == "searchsorted" else getattr(torch, name))
    for overload in (
        ATEN.sort.default,
        ATEN.sum.default,
        ATEN.relu_.default,
        ATEN.empty_like.default,
        ATEN.convolution_backward.default,
    ):
        assert plain_forms.quicker(overload) is None, overload


CALLS = {
    "convolution": (lambda: (torch.randn(1, 4, 8, 8), torch.randn(6, 2, 3, 3), torch.randn(6), [2, 2], [1, 1], [1, 1], False, [0, 0], 2)),
    "scatter_add": (lambda: (torch.randn(4, 6), 1, torch.randint(0, 6, (4, 6)), torch.randn(4, 6))),
    "topk": (lambda: (torch.randn(4, 6), 3)),
    "index_select": (lambda: (torch.randn(4, 6), 1, torch.tensor([3, 1]))),
    "embedding": (lambda: (torch.randn(4, 6), torch.tensor([3, 1]), 2, True)),
    "cummax": (lambda: (torch.randn(4, 6), 1)),
    "bincount": (lambda: (torch.randint(0, 6, (40,)), None, 9)),
    "_fft_r2c": (lambda: (torch.randn(4, 6), [0, 1], 1, True)),
    "grid_sampler_2d": (lambda: (torch.randn(1, 2, 4, 4), torch.rand(1, 3, 3, 2), 0, 1, False)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_they_give_what_the_overloads_give(name):
    overload, args = getattr(ATEN, name).default, CALLS[name]()
    function = plain_forms.quicker(overload)
    assert function is not None
    torch.testing.assert_close(pytree.tree_leaves(function(*args)), pytree.tree_leaves(overload(*args)), rtol=0, atol=0)


def test_results_are_made_in_the_form_in_which_they_are_given():
    """Kernels go by addresses: what they write needs no view of it."""

    def means(x):
        return x.mean(-1, keepdim=True), x.sum(0)[None, :, None]

    x = torch.randn(4, 16)
    with events.collect("output_code") as seen:
        found = pliant.compile(means, dynamic=False)(x)
    assert "as_strided" not in str(seen[0].fields["text"])
    for one, expected in zip(found, means(x), strict=True):
        torch.testing.assert_close(one, expected)
        assert one.stride() == expected.stride() and one._base is None


def test_what_is_given_in_two_forms_shares_its_memory():
    def twice(x):
        total = x.sum(-1)
        return total, total[:, None], total.view(2, 2)

    x = torch.randn(4, 16)
    first, second, third = pliant.compile(twice)(x)
    assert first.data_ptr() == second.data_ptr() == third.data_ptr()
    torch.testing.assert_close(third, twice(x)[2])
