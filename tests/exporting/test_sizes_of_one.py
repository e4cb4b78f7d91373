"""Programs whose sizes may be 1 are exported at larger ones: what is a view where a size is 1 and a copy elsewhere."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.errors import ConstraintError

BATCH, N = pliant.Dim("batch"), pliant.Dim("n")
SIZES = ((3, 6), (1, 6), (1, 1), (2, 1), (1, 2), (2, 8))
WEIGHT, TOKEN = torch.randn(4, 8), torch.randn(1, 1, 8)
SIDES = torch.eye(4) + torch.ones(4, 4).triu(1) * 0.1


def exported(fn):
    return pliant.export(fn, (torch.randn(3, 8, 6),), dynamic_shapes=({0: BATCH, 2: N},))


def turned(x):
    return x.transpose(1, 2) * 2


COPIES = {
    "contiguous": lambda x: turned(x).contiguous(),
    "reshape": lambda x: turned(x).reshape(x.shape[0], -1),
    "in order of rows": lambda x: (x * 2).view(x.shape[0], 2, 4, -1).transpose(0, 1).to(
        torch.float32, memory_format=torch.contiguous_format) * 2,
    "in order of rows from columns": lambda x: torch.linalg.solve_triangular(
        SIDES, (x[:, None] * 2).view(x.shape[0], 2, 4, -1).transpose(-1, -2), upper=True, left=False
    ).transpose(1, 2).to(torch.float32, memory_format=torch.contiguous_format) * 2,
    "flatten": lambda x: turned(x).flatten(0, 1),
    "a token for each": lambda x: torch.cat([(TOKEN * 2).expand(x.shape[0], -1, -1).reshape(x.shape[0], 2, 4), x[:, :2, :1].expand(-1, 2, 4)], 1),
    "a layer": lambda x: F.linear(x.transpose(1, 2), WEIGHT, torch.ones(4)),
    "a product": lambda x: x.transpose(1, 2) @ WEIGHT.T,
    "products by letters": lambda x: torch.einsum("bcn,bdn->bcd", x, x) + torch.einsum("bcn,dc->bd", x, WEIGHT).sum(),
    "letters that broadcast": lambda x: torch.einsum("bcn,bcn->bn", x, TOKEN.transpose(1, 2)) + torch.einsum("bcn,cn->b", x, WEIGHT[0][:, None]).sum(),
    "heads": lambda x: x.transpose(1, 2).reshape(x.shape[0], -1, 2, 4).permute(0, 2, 1, 3) * 2,
    "halves": lambda x: (x * 2).chunk(2, 1)[0].reshape(x.shape[0], -1),
    "a mean of rows": lambda x: F.adaptive_avg_pool1d(turned(x), 1),
    "rotated": lambda x: turned(x)[:, None].expand(-1, 3, -1, -1) * torch.cos(turned(x))[:, None],
    "written in place, and read": lambda x: turned(x).contiguous().add_(1),
}


@pytest.mark.parametrize("name", COPIES)
def test_copies_of_what_may_be_laid_out_in_order(name):
    fn, program = COPIES[name], exported(COPIES[name])
    assert not program.notes
    for rows, length in SIZES:
        x = torch.randn(rows, 8, length)
        torch.testing.assert_close(program(x), fn(x))


IMAGES = {
    "norm of groups": lambda x: F.group_norm(lying_otherwise(x), 2),
    "a mean of images": lambda x: F.adaptive_avg_pool2d(lying_otherwise(x), 1),
}


def lying_otherwise(x):
    return (x * 2).flatten(2).transpose(1, 2).contiguous().transpose(1, 2).reshape(x.shape)


@pytest.mark.parametrize("name", IMAGES)
def test_images_with_channels_last(name):
    program = pliant.export(IMAGES[name], (torch.randn(3, 8, 4, 6),), dynamic_shapes=({0: BATCH},))
    assert not program.notes
    for rows in (1, 2, 5):
        x = torch.randn(rows, 8, 4, 6)
        torch.testing.assert_close(program(x), IMAGES[name](x))


PARTS = {
    "columns": lambda x: [one.squeeze(1).contiguous() for one in (x * 2)[:, :2].split(1, 1)],
    "last columns": lambda x: [one.contiguous() for one in (x.transpose(1, 2) * 2).unbind(-1)],
    "a part and the rest": lambda x: ((x * 2).transpose(0, 1)[:2].transpose(0, 1).contiguous(), (x + 1)[:, :2].transpose(1, 2)),
    "rows and a view": lambda x: ((y := x.view(x.shape[0], 2, 4, -1) * 2)[:, 0].contiguous(), y[:, 1:]),
}


@pytest.mark.parametrize("name", PARTS)
def test_results_of_one_memory_with_no_element_in_common(name):
    fn, program = PARTS[name], exported(PARTS[name])
    assert not program.notes
    for rows, length in SIZES:
        x = torch.randn(rows, 8, length)
        torch.testing.assert_close(list(program(x)), list(fn(x)))


def test_results_that_may_be_one_another_are_not_copies():
    for fn in (lambda x: ((y := turned(x)).contiguous(), y), lambda x: ((y := turned(x))[:, :2].contiguous(), y[:, 1:].contiguous())):
        with pytest.raises(ConstraintError, match="batch >= 2|n >= 2"):
            exported(fn)(torch.randn(1, 8, 1))


def writes_a_copy(x):
    y = x * 2
    z = y.transpose(1, 2).contiguous()
    z.add_(1)
    return y + 0


def writes_the_source(x):
    y = x * 2
    z = y.transpose(1, 2).reshape(-1)
    y.add_(1)
    return z + 0


def writes_through_both(x):
    y = turned(x).contiguous().view(-1)
    z = y.view(x.shape[0], -1, 8).transpose(1, 2).contiguous()
    z[0] = 0
    return y.sum() + z.sum()


def writes_an_argument(x):
    x.transpose(1, 2).contiguous().add_(1)
    return x * 2


@pytest.mark.parametrize("fn", [writes_a_copy, writes_the_source, writes_through_both, writes_an_argument])
def test_writes_that_tell_a_copy_from_a_view(fn):
    program = exported(fn)
    for rows, length in SIZES:
        x = torch.randn(rows, 8, length)
        one, other = x.clone(), x.clone()
        try:
            found = program(one)
        except ConstraintError:
            assert 1 in (rows, length)
            continue
        assert torch.equal(found, fn(other)) and torch.equal(one, other)


def test_results_that_may_be_views_of_arguments_are_not_copies():
    program = exported(lambda x: x.transpose(1, 2).flatten(0, 1))
    with pytest.raises(ConstraintError, match="batch >= 2"):
        program(torch.randn(1, 8, 6))


@pytest.mark.parametrize("sides", ["1111", "b1ll", "11ll", "bhll", "111l", "1hl1"])
def test_masks_of_attention_ask_for_no_batch(sides):
    def call(batch, heads, length):
        sizes = {"1": 1, "b": batch, "h": heads, "l": length}
        return torch.randn(batch, heads, length, 8), torch.randn([sizes[one] for one in sides])

    def attention(q, mask):
        return torch.nn.functional.scaled_dot_product_attention(q, q, q, mask)

    dims = {"b": pliant.Dim("batch"), "h": pliant.Dim("heads"), "l": pliant.Dim("length"), "1": None}
    said = ({0: dims["b"], 1: dims["h"], 2: dims["l"]}, [dims[one] for one in sides])
    program = pliant.export(attention, call(3, 2, 5), dynamic_shapes=said)
    assert not program.notes
    for sizes in ((1, 2, 5), (1, 1, 1), (4, 1, 7), (2, 3, 1)):
        args = call(*sizes)
        assert torch.equal(program(*args), attention(*args))
