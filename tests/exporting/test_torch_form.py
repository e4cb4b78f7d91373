"""Programs as PyTorch's own: called at several sizes, saved and loaded by `torch.export`, as eager."""

import copy
import io

import pytest
import torch
from tests.exporting.generated import SIZES, Generated, differs, exported
from tests.exporting.programs import ROWS
from torch import nn
from torch.utils import _pytree as pytree

import pliant
from exporting.test_models import Network, bert
from pliant.errors import ExportError

BATCH, LENGTH = pliant.Dim("batch"), pliant.Dim("length", max=64)


def converted(model, args=(), kwargs=None, dynamic=None):
    return pliant.export(model, args, kwargs, dynamic_shapes=dynamic).to_exported_program()


def reloaded(made):
    file = io.BytesIO()
    torch.export.save(made, file)
    file.seek(0)
    return torch.export.load(file)


def check(model, made, calls):
    """Both forms at these calls, `(args, kwargs)`: results, and what is written in arguments and buffers."""
    for program in (made, reloaded(made)):
        mine, theirs = copy.deepcopy(model), program.module()
        for call in calls:
            args, kwargs = copy.deepcopy(call)
            given = copy.deepcopy(call)
            with torch.no_grad():
                wanted, found = mine(*args, **kwargs), theirs(*given[0], **given[1])
            torch.testing.assert_close(pytree.tree_leaves(found), pytree.tree_leaves(wanted), rtol=1e-5, atol=1e-6)
            assert pytree.tree_structure(found) == pytree.tree_structure(wanted)
            torch.testing.assert_close(given, (args, kwargs))
        kept = theirs.state_dict()
        assert all(torch.equal(kept[name], one) for name, one in mine.state_dict().items() if name in kept)


def rows(*sizes, width=8):
    return [((torch.randn(size, width),), {}) for size in sizes]


def test_names_and_ranges():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    made = converted(model, (torch.randn(4, 8),), dynamic=({0: pliant.Dim("rows", min=1, max=32)},))
    assert list(made.graph_signature.parameters) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert made.graph_signature.user_inputs == ("input",)
    ((low, high),) = {(int(one.lower), int(one.upper)) for one in made.range_constraints.values()}
    assert (low, high) == (1, 32)
    check(model, made, rows(1, 5, 32))
    with pytest.raises(AssertionError):
        converted(Calls(lambda x, flag: x + flag), (torch.ones(3), 2)).module()(torch.ones(3), 3)
    for wrong in ((33, 8), (3, 9)):
        with pytest.raises(Exception, match=r"input|Guard|Expected|<="):
            made.module()(torch.randn(wrong))


def test_a_network_of_convolutions_and_recurrent_cells():
    model = Network().eval()
    made = converted(model, (torch.randn(2, 4, 12),), dynamic=({0: BATCH, 2: LENGTH},))
    assert set(made.graph_signature.buffers) <= {name for name, _ in model.named_buffers()}
    check(model, made, [((torch.randn(n, 4, m),), {}) for n, m in ((1, 5), (3, 7), (4, 16))])


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_recurrent_layers(kind):
    torch.manual_seed(0)
    model = kind(4, 6, batch_first=True)
    made = converted(model, (torch.randn(3, 7, 4),), dynamic=({0: BATCH},))
    check(model, made, [((torch.randn(n, 7, 4),), {}) for n in (1, 2, 5)])


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, scale=None):
        self.calls += 1
        return {"gate": torch.sigmoid(self.inner(x)), "rows": x.shape[0], "none": None}


def test_a_written_buffer():
    torch.manual_seed(0)
    model = Counting()
    made = converted(model, (torch.randn(5, 8),), dynamic={"x": {0: BATCH}})
    assert list(made.graph_signature.buffers_to_mutate.values()) == ["calls"]
    check(model, made, rows(2, 3, 7))
    assert model.calls == 0


def test_dictionaries_and_written_arguments():
    class Model(nn.Module):
        def forward(self, data, *, flag, out):
            out.add_(1)
            return {"sum": data["a"].sum(0) if flag else data["a"], "b": [data["b"][0] * 2, out[0]]}

    at = lambda n, m: (({"a": torch.randn(n, 3), "b": torch.randn(m, 2)},), {"flag": True, "out": torch.ones(n)})  # noqa: E731
    args, kwargs = at(4, 5)
    made = converted(Model(), args, kwargs, {"data": {"a": {0: BATCH}, "b": {0: LENGTH}}, "out": {0: BATCH}})
    check(Model(), made, [at(1, 1), at(2, 7), at(6, 3)])


def test_derived_sizes():
    class Model(nn.Module):
        def forward(self, x, y):
            return torch.cat([x, x, x[:1]]) + y

    made = converted(Model(), (torch.randn(4), torch.randn(9)), dynamic=({0: BATCH}, {0: 2 * BATCH + 1}))
    check(Model(), made, [((torch.randn(n), torch.randn(2 * n + 1)), {}) for n in (1, 2, 7)])
    with pytest.raises(Exception, match=r"Eq\(|Guard"):
        made.module()(torch.randn(4), torch.randn(8))


def test_halves():
    class Model(nn.Module):
        def forward(self, x, y):
            return x.view(-1, 2).sum(1) + y

    made = converted(Model(), (torch.randn(8), torch.randn(4)), dynamic=({0: 2 * BATCH}, {0: BATCH}))
    check(Model(), made, [((torch.randn(2 * n), torch.randn(n)), {}) for n in (1, 2, 7)])


def test_facts_of_two_sizes():
    class Model(nn.Module):
        def forward(self, x, y, z):
            return torch.cat([x, y]) * z, x.shape[0] + y.shape[0]

    n, m = pliant.Dim("n", min=2), pliant.Dim("m", min=2)
    args = torch.randn(5), torch.randn(4), torch.randn(9)
    made = converted(Model(), args, dynamic=({0: n}, {0: m}, {0: pliant.AUTO}))
    at = lambda n, m: ((torch.randn(n), torch.randn(m), torch.randn(n + m)), {})  # noqa: E731
    check(Model(), made, [at(6, 2), at(2, 2), at(3, 9)])
    with pytest.raises(RuntimeError, match="Eq"):
        made.module()(torch.randn(3), torch.randn(4), torch.randn(8))


def test_conditions_that_pytorch_adds_are_refused():
    class Model(nn.Module):
        def forward(self, x, y):
            return x.view(y.shape[0], -1).sum(1) * y

    with pytest.raises(ExportError, match=r"PyTorch's program would need `.*`"):
        converted(Model(), (torch.randn(12), torch.randn(4)), dynamic=({0: BATCH}, {0: LENGTH}))


def test_views_constants_and_many_arguments():
    constant = torch.arange(3.0)

    class Model(nn.Module):
        def forward(self, *xs, **named):
            return xs[0].T, xs[1] * constant, named["k"] + 2.5, 7, xs[0], None

    args, kwargs = (torch.randn(4, 3), torch.randn(4, 3)), {"k": torch.ones(2)}
    made = pliant.export(Model(), args, kwargs).to_exported_program()
    check(Model(), made, [(args, kwargs), ((args[1], args[0]), kwargs)])
    transposed = torch.randn(3, 4).T
    assert torch.equal(made.module()(transposed, transposed, k=torch.ones(2))[0], transposed.T)


def test_numbers_that_only_running_tells():
    class Model(nn.Module):
        def forward(self, x, n):
            count = n.item()
            torch._check(count >= 2)
            torch._check(count <= x.shape[0])
            return x.expand(x.shape[0], 2)[:count] * 2 if x.dim() > 1 else torch.ones(count) * 2

    made = converted(Model(), (torch.randn(8), torch.tensor(4)))
    check(Model(), made, [((torch.randn(8), torch.tensor(n)), {}) for n in (2, 5, 8)])


def test_a_loaded_program(tmp_path):
    model = nn.Linear(8, 4)
    pliant.export(model, (torch.randn(5, 8),), dynamic_shapes=({0: BATCH},)).save(tmp_path / "file")
    check(model, pliant.load(tmp_path / "file").to_exported_program(), rows(1, 3, 6))


# PyTorch computes with sizes from 2 on.
NARROWER = {
    "auto with a multiple", "checked in the graph", "image", "one less", "only derived", "two derived of one", "auto that is fixed",
    "conv", "blocks of images", "a sum of two", "a product of two", "which is larger",
}  # fmt: skip


def test_sizes_from_2_on_are_checked():
    class Model(nn.Module):
        def forward(self, x):
            return x.new_ones(torch.sym_ite(x.shape[0] == 1, 3, 4)) + x.sum()

    program = pliant.export(Model(), (torch.ones(5),), dynamic_shapes=({0: BATCH},))
    made = program.to_exported_program()
    check(Model(), made, [((torch.randn(n),), {}) for n in (2, 3, 6)])
    for one in (made, reloaded(made)):
        with pytest.raises(RuntimeError, match="batch >= 2 does not hold"):
            one.module()(torch.ones(1))


@pytest.mark.parametrize("seed", [14, 45, 57, 96])
def test_a_generated_program_is_no_wider(seed):
    made = Generated(seed).grow(4)
    program = exported(made)
    theirs = program.to_exported_program().module()
    for sizes in SIZES:
        args = made.at(sizes)
        try:
            wanted = program(*args)
        except (pliant.PliantError, RuntimeError):
            with pytest.raises((RuntimeError, AssertionError, ZeroDivisionError, IndexError)):
                theirs(*args)
        else:
            assert not differs(theirs(*args), wanted)


class Calls(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *args):
        return self.fn(*args)


@pytest.mark.parametrize("row", [row for row in ROWS if not row.message], ids=lambda row: row.name)
def test_programs_with_constraints(row):
    program = pliant.export(row.program, row.at(*row.sizes[0]), dynamic_shapes=row.said, beyond=row.beyond)
    if row.name in NARROWER:
        with pytest.raises(ExportError, match="PyTorch's program would need|PyTorch does not take"):
            program.to_exported_program()
        return
    made = program.to_exported_program()
    check(Calls(row.program), made, [(row.at(*size), {}) for size in row.sizes])
    if row.wrong is not None:
        with pytest.raises((RuntimeError, AssertionError)):
            made.module()(*row.at(*row.wrong))


REFUSED = {
    "memory": (lambda x: x.as_strided((2, 2), (1, 1)) + 1, "by strides"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    fn, message = REFUSED[name]
    with pytest.raises(ExportError, match=message):
        pliant.export(fn, (torch.randn(6),)).to_exported_program()


def test_bert():
    model = bert()
    at = lambda *size: ((), {"input_ids": torch.randint(1, 64, size), "attention_mask": torch.ones(size, dtype=torch.int64)})  # noqa: E731
    args, kwargs = at(2, 12)
    made = converted(model, args, kwargs, dict.fromkeys(kwargs, {0: BATCH, 1: pliant.Dim("tokens", max=32)}))
    check(model, made, [at(3, 7), at(1, 5), at(4, 16)])


def test_writes_to_a_part_are_operators():
    def fn(x):
        y = x * 2
        y[:, 0] = 0
        return y

    made = converted(Calls(fn), (torch.randn(5, 8),), dynamic=(({0: BATCH},),))
    assert "aten.select_scatter.default" in {str(node.target) for node in made.graph.nodes}
    check(Calls(fn), made, rows(1, 3))
