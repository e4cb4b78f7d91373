"""Large tensors of the caller's that are written in a few places: nothing else of them is written, and results are eager's."""

import re

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.debug import events
from pliant.ir.interpret import run as interpret
from pliant.ir.loops import Axis, Buffer, Extern, LoopProgram, View
from pliant.ir.verify import verify
from pliant.schedule.indexed_writes import places_written
from pliant.schedule.regions import Layout, Span, apart, is_within
from pliant.symbolic.expr import ZERO, lit, symbol

HEADS, LENGTH, WIDTH = 2, 512, 64  # 256 kB in float32


@pytest.fixture(autouse=True)
def fresh():
    pliant.reset()
    with torch.no_grad():
        yield
    pliant.reset()


def cache(*leading):
    return torch.randn(*leading, 1, HEADS, LENGTH, WIDTH, generator=torch.Generator().manual_seed(0))


def token(seed=1, length=1):
    return torch.randn(1, HEADS, length, WIDTH, generator=torch.Generator().manual_seed(seed))


def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


# ---- programs that write a cache in place; each takes it, a token and its position


def by_index_copy(c, x, at):
    c.index_copy_(2, at, x)
    return attend(x, c, c)


def by_index_put(c, x, at):
    c[:, :, at] = x
    return attend(x, c, c)


def by_scatter(c, x, at):
    c.scatter_(2, at.view(1, 1, 1, 1).expand_as(x), x)
    return attend(x, c, c)


def by_mask(c, x, at):
    c[c > 2.5] = 0.0
    return attend(x, c, c)


def by_added_index(c, x, at):
    c.index_add_(2, at, x)
    return attend(x, c, c)


def by_number(c, x, at):
    c[:, :, int(at)] = x[:, :, 0]
    return attend(x, c, c)


def by_slice(c, x, at):
    c[:, :, 3:4] = x
    return attend(x, c, c)


def by_read_slice(c, x, at):
    n = int(at)
    c[:, :, n : n + 1] = x
    return attend(x, c, c)


def by_two_slices(c, x, at):
    c[:, :, 3:4] = x
    c[:, 1:, 3:9] = x[:, 1:] + 1
    return attend(x, c, c)


def only_written(c, x, at):
    c.index_copy_(2, at, x)
    return x + 1


def returned_itself(c, x, at):
    c.index_copy_(2, at, x)
    return c


def scaled_where_written(c, x, at):
    c[:, :, 3:9] *= 0.5
    return attend(x, c, c)


def from_elsewhere_in_it(c, x, at):
    c[:, :, 3:4] = c[:, :, 8:9] + x
    return attend(x, c, c)


def read_before(c, x, at):
    y = attend(x, c, c)
    c[:, :, 5:6] = y
    return attend(y, c, c)


def twice_at_one_place(c, x, at):
    c.index_copy_(2, at, x)
    y = attend(x, c, c)
    c.index_copy_(2, at, y)
    return attend(y, c, c)


IN_PLACE = [
    by_index_copy, by_index_put, by_scatter, by_number, by_slice, by_read_slice, by_two_slices,
    only_written, returned_itself, scaled_where_written, from_elsewhere_in_it, read_before, twice_at_one_place,
]  # fmt: skip


# ---- programs for which that would be wrong, or too early


def old_read_after(c, x, at):
    old = c * 1
    c[:, :, 3:4] = x
    return attend(x, old, c)


def new_returned(c, x, at):
    new = c.index_copy(2, at, x)
    c.copy_(new)
    return new


def shifted(c, x, at):
    c.copy_(torch.cat((c[:, :, 1:], x), 2))
    return attend(x, c, c)


def shifted_in_it(c, x, at):
    c[:, :, 3:9] = c[:, :, 4:10].clone()
    return attend(x, c, c)


def changed_whole(c, x, at):
    c.mul_(2)
    return attend(x, c, c)


def may_fail_later(c, x, at):
    c.index_copy_(2, at, x)
    return attend(x, c, c).flatten()[at + 1]


COPIED = [by_mask, by_added_index, new_returned, shifted, shifted_in_it, changed_whole, may_fail_later]


def is_copied(text):
    """Whether the program makes or stores a whole tensor like the cache."""
    whole = re.search(rf"^  buf\d+\[i0 < {HEADS}, i1 < {LENGTH}, i2 < {WIDTH}\]", text, re.MULTILINE)
    return whole is not None or re.search(r"buf\d+ = aten\.(index|scatter|select|masked)", text) is not None


def run(f, c, x, positions):
    """The loop programs of `f`, whose results and writes are eager's."""
    compiled, eager = c.clone(), c.clone()
    call = pliant.compile(f, fullgraph=True)
    with events.collect("loops") as found:
        for k, at in enumerate(positions):
            place = torch.tensor([at])
            torch.testing.assert_close(call(compiled, x + k, place), f(eager, x + k, place))
            torch.testing.assert_close(compiled, eager)
    return [e.fields["text"] for e in found]


@pytest.mark.parametrize("f", IN_PLACE, ids=lambda f: f.__name__)
def test_places_are_written_in_place(f):
    texts = run(f, cache(), token(), [5, 7, 7, 0, LENGTH - 1])
    assert texts and not any(map(is_copied, texts)), texts


@pytest.mark.parametrize("f", COPIED, ids=lambda f: f.__name__)
def test_what_needs_a_copy_is_copied(f):
    texts = run(f, cache(), token(), [5, 7, 7, 0])
    assert texts and any(map(is_copied, texts)), texts


def test_what_is_read_of_the_old_one_is_read_in_time():
    run(old_read_after, cache(), token(), [5, 7, 0])


@pytest.mark.parametrize("position", [0, 5, -1, -LENGTH, LENGTH - 1])
def test_positions_that_are_numbers(position):
    def f(c, x, n):
        c[:, :, n] = x[:, :, 0]
        return attend(x, c, c)

    call, x = pliant.compile(f, dynamic=True), token()
    compiled, eager = cache(), cache()
    for n in (3, position, 3, position):
        torch.testing.assert_close(call(compiled, x, n), f(eager, x, n))
        assert torch.equal(compiled, eager)


def test_starts_that_are_numbers():
    def f(c, x, start):
        c[:, :, start : start + x.shape[2]] = x
        return attend(x, c, c)

    call, compiled, eager = pliant.compile(f), cache(), cache()
    with events.collect("loops") as found:
        for start, length in ((0, 7), (7, 1), (8, 1), (9, 3), (500, 12), (511, 1)):
            x = token(start, length)
            torch.testing.assert_close(call(compiled, x, start), f(eager, x, start))
            assert torch.equal(compiled, eager)
        with pytest.raises(RuntimeError, match="expand|size"):
            call(compiled, token(0, 3), 511)
    assert torch.equal(compiled, eager)
    assert not any(is_copied(e.fields["text"]) for e in found)


class Layers(torch.nn.Module):
    """Caches of all layers in one tensor."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers
        self.register_buffer("kept", cache(layers, 2))

    def forward(self, x, at):
        for k in range(self.layers):
            for part in range(2):
                self.kept[k, part][:, :, at] = x + part
            x = attend(x, self.kept[k, 0], self.kept[k, 1])
        return x


def test_layers_of_one_tensor():
    eager, compiled = Layers(4), Layers(4)
    call = pliant.compile(compiled, fullgraph=True)
    with events.collect("loops") as found:
        for k in (4, 5, 6):
            place = torch.tensor([k])
            torch.testing.assert_close(call(token(k), place), eager(token(k), place))
            torch.testing.assert_close(compiled.kept, eager.kept)
    assert found and not any(re.search(r"= aten\.index_put|buf\d+\[i0 < 4, i1 < 2", e.fields["text"]) for e in found)


def test_layers_are_written_again():
    def f(c, x, at):
        for k in (0, 1, 0):
            c[k][:, :, at] = x
            x = attend(x, c[k], c[1 - k])
        return x, c[0] + c[1]

    call, compiled, eager = pliant.compile(f, fullgraph=True), cache(2), cache(2)
    for k in (4, 5):
        torch.testing.assert_close(call(compiled, token(k), torch.tensor([k])), f(eager, token(k), torch.tensor([k])))
        torch.testing.assert_close(compiled, eager)


@pytest.mark.parametrize("f", [by_index_copy, by_index_put, by_scatter, twice_at_one_place, may_fail_later], ids=lambda f: f.__name__)
def test_an_index_out_of_range_leaves_what_eager_leaves(f):
    call, compiled, eager = pliant.compile(f), cache(), cache()
    call(compiled, token(), torch.tensor([3]))
    f(eager, token(), torch.tensor([3]))
    for at in ([LENGTH], [LENGTH + 5], [-LENGTH - 1]):
        for run_one, c in ((call, compiled), (f, eager)):
            with pytest.raises((IndexError, RuntimeError)):
                run_one(c, token(), torch.tensor(at))
        assert torch.equal(compiled, eager)


def copied_back(c, x, at):
    c.copy_(c.index_copy(2, at, x))
    return attend(x, c, c)


def cloned(c, x, at):
    new = c.clone()
    new[:, :, at] = x
    c.copy_(new)
    return attend(x, c, c)


@pytest.mark.parametrize("f", [by_index_copy, by_index_put, by_scatter, copied_back, cloned], ids=lambda f: f.__name__)
def test_one_of_several_indices_out_of_range(f):
    """Eager writes those before it in place, and none where it writes a copy."""
    call, compiled, eager = pliant.compile(f), cache(), cache()
    for at in ([3, 4], [5, LENGTH], [-1, LENGTH - 1], [6, -LENGTH - 1], [7, 8]):
        if f is by_scatter:
            at = at[-1:]
        for run_one, c in ((call, compiled), (f, eager)):
            try:
                run_one(c, token(length=len(at)), torch.tensor(at))
            except (IndexError, RuntimeError):
                assert min(at) < 0 or max(at) >= LENGTH
        assert torch.equal(compiled, eager)


def test_what_takes_negative_indices_says_nothing_of_what_refuses_them():
    def f(c, d, x, at):
        c[at] = x
        d.index_copy_(0, at, x)
        return c.sum() + d.sum()

    def tensors():
        return torch.zeros(300, 64), torch.zeros(300, 64)

    call, compiled, eager = pliant.compile(f), tensors(), tensors()
    for at in ([3, 4], [-1, 5], [6, 7]):
        for run_one, given in ((call, compiled), (f, eager)):
            try:
                run_one(*given, torch.full((2, 64), 1.0 * at[1]), torch.tensor(at))
            except (IndexError, RuntimeError):
                assert at[0] < 0
        torch.testing.assert_close(compiled, eager)


def test_a_later_place_out_of_range():
    def f(c, d, x, at, then):
        c.index_copy_(2, at, x)
        d.index_copy_(2, then, x)
        return attend(x, c, d)

    call = pliant.compile(f)
    caches = [[cache(), cache()], [cache(), cache()]]
    for then in (3, LENGTH, 4, -LENGTH - 1):
        for run_one, (c, d) in ((call, caches[0]), (f, caches[1])):
            try:
                run_one(c, d, token(then), torch.tensor([5]), torch.tensor([then]))
            except (IndexError, RuntimeError):
                assert then in (LENGTH, -LENGTH - 1)
        for one, other in zip(*caches):
            assert torch.equal(one, other)


@pytest.mark.parametrize("by", ["index_copy", "index_put"])
def test_each_layer_has_a_place_of_its_own(by):
    """As caches do that count what they hold: what may fail in a later layer is looked at before the first is written."""

    def f(x, *layers):
        for c, held in zip(layers[::2], layers[1::2]):
            at = held.clone()
            if by == "index_copy":
                c.index_copy_(2, at, x)
            else:
                c[:, :, at] = x
            held.add_(1)
            x = attend(x, c, c)
        return x

    call = pliant.compile(f, fullgraph=True)
    compiled, eager = ([one for k in range(3) for one in (cache() + k, torch.tensor([5 * k]))] for _ in range(2))
    with events.collect("loops") as found:
        for k in range(3):
            torch.testing.assert_close(call(token(k), *compiled), f(token(k), *eager))
            torch.testing.assert_close(compiled, eager)
    assert found and not any(is_copied(e.fields["text"]) for e in found)
    for layer in (1, 3, 5):
        for held in (LENGTH, -LENGTH - 1):
            compiled[layer].fill_(held)
            eager[layer].fill_(held)
            for run_one, layers in ((call, compiled), (f, eager)):
                with pytest.raises((IndexError, RuntimeError)):
                    run_one(token(), *layers)
            torch.testing.assert_close(compiled, eager)
        compiled[layer].fill_(7)
        eager[layer].fill_(7)


def test_versions_are_counted_as_eager_counts_them():
    compiled, eager = cache(), cache()
    call = pliant.compile(by_index_copy)
    for k in range(3):
        call(compiled, token(), torch.tensor([k]))
        by_index_copy(eager, token(), torch.tensor([k]))
        assert compiled._version == eager._version


def test_inference_mode():
    with torch.inference_mode():
        run(by_index_copy, cache(), token(), [5, 6])
    plain, call = cache(), pliant.compile(by_index_copy)
    with torch.inference_mode():
        call(plain, token(), torch.tensor([5]))
    assert torch.equal(plain[:, :, 5:6], token())


@pytest.mark.parametrize("strides", ["sequence first", "channels last"])
def test_other_layouts(strides):
    c = cache().permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3) if strides == "sequence first" else cache().to(memory_format=torch.channels_last)
    for f in (by_index_copy, by_two_slices, by_number):
        call, compiled, eager = pliant.compile(f), c.clone(), c.clone()
        for k in (5, 6):
            torch.testing.assert_close(call(compiled, token(), torch.tensor([k])), f(eager, token(), torch.tensor([k])))
            torch.testing.assert_close(compiled, eager)


# ---- regions


def test_regions_of_a_buffer():
    def known(fact):
        return fact.is_const and bool(fact.value)

    buffer = Buffer("b", torch.float32, tuple(map(lit, (4, 1, 6, 8))), tuple(map(lit, (48, 48, 8, 1))), torch.device("cpu"), "input")
    layout = Layout(buffer, known)
    i, j = symbol("i"), symbol("j")
    region = layout.of_index(48 * i + j + 64, [Axis(i, lit(2)), Axis(j, lit(8))])
    assert region == (Span(lit(1), lit(2)), Span(ZERO, lit(1)), Span(lit(2), lit(1)), Span(ZERO, lit(8)))
    other = layout.of_index(48 * i + j + 56, [Axis(i, lit(2)), Axis(j, lit(8))])
    assert apart(region, other) and not apart(region, region) and is_within(region, layout.whole)
    assert not is_within(layout.whole, region)
    assert layout.of_index(9 * i, [Axis(i, lit(4))]) is None  # a diagonal
    assert layout.of_index(8 * i + 40, [Axis(i, lit(2))]) is None  # over the end of a dimension
    assert layout.of_index(i * j, [Axis(i, lit(2)), Axis(j, lit(2))]) is None
    overlapping = Buffer("o", torch.float32, (lit(4), lit(4)), (lit(1), lit(1)), torch.device("cpu"), "input")
    assert layout.is_plain and not Layout(overlapping, known).is_plain


# ---- calls as loops, where kernels cost less than calls


def whole(name, tensor):
    device = torch.device("cuda")
    buffer = Buffer(name, tensor.dtype, tuple(map(lit, tensor.shape)), tuple(map(lit, tensor.stride())), device, "input")
    return View(buffer, buffer.shape, buffer.strides, ZERO, tensor.dtype)


@pytest.mark.parametrize("at", [[5], [0, 4, 3], [-1], [6]])
@pytest.mark.parametrize("operator", ["index_copy_", "index_put_"])
@pytest.mark.parametrize("itype", [torch.int64, torch.int32])
def test_places_are_written_by_a_loop(operator, at, itype):
    start, index = torch.zeros(2, 6, 3), torch.tensor(at, dtype=itype)
    source = torch.arange(6.0 * len(at)).view(2, len(at), 3) if operator == "index_copy_" else torch.arange(3.0 * len(at)).view(-1, 3)
    home, places, new = whole("home", start), whole("places", index), whole("new", source)
    args = (home, 1, places, new) if operator == "index_copy_" else (home, [None, places], new, False)
    call = Extern(getattr(torch.ops.aten, operator).default, args, {}, (), mutates=(home.buffer,))
    loop = places_written(call, {})
    program = LoopProgram([home.buffer, places.buffer, new.buffer], [loop], [])
    verify(program)
    expected, fails = start.clone(), False
    try:
        if operator == "index_copy_":
            expected.index_copy_(1, index.long(), source)
        else:
            expected[:, index] = source
    except (IndexError, RuntimeError):
        fails = True
    if fails:
        with pytest.raises(IndexError):
            interpret(program, [start, index, source])
    else:
        interpret(program, [start, index, source])
        assert torch.equal(start, expected)


def test_what_a_loop_does_not_write():
    start, mask, source = torch.zeros(2, 6, 3), torch.tensor([True, False]), torch.ones(())
    home, chosen, new = whole("home", start), whole("mask", mask), whole("new", source)
    for operator, args in (
        (torch.ops.aten.index_put_.default, (home, [chosen], new, False)),
        (torch.ops.aten.index_put_.default, (home, [whole("at", torch.tensor([1]))], new, True)),
        (torch.ops.aten.index_add_.default, (home, 0, whole("at", torch.tensor([1])), new)),
    ):
        assert places_written(Extern(operator, args, {}, (), mutates=(home.buffer,)), {}) is None
