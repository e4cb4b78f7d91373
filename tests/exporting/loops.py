"""Programs that branch and loop on tensors, or have recurrent layers: models, what is said of their sizes, arguments.

PyTorch's own branches and loops compile what they are called with. `plainly` runs a model with loops of Python in their place.
"""

from unittest import mock

import torch
from torch import nn
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops.map import map as control_map
from torch.utils import _pytree as pytree

from pliant import Dim

cond = torch.cond
batch, length = Dim("batch"), Dim("length")


def rows(a, b, width=4):
    return (torch.linspace(-1, 1, a * b * width) + (0.2 if a % 2 else -0.2)).view(a, b, width).sin()


def branches(x, y):
    return cond(x.sum() > 0, lambda a, b: (a * 2 + b, a.mean((0, 1))), lambda a, b: (a.sin() - b, a.amax((0, 1))), (x, y))


def of_sizes(x, y):
    """Both branches take numbers of the sizes, and a tensor that they close over."""
    z = x + y
    return cond(x.sum() > 0, lambda a: a * z.shape[0] + z, lambda a: a.view(-1, 4).sum(0) + z * z.shape[1], (x,))


def halving(x, y):
    def goes_on(step, a):
        return (a.abs().sum() > 1).logical_and(step < 20)

    return while_loop(goes_on, lambda step, a: (step + 1, a / 2 + y * 0.01), (torch.zeros((), dtype=torch.int64), x))


def running(x, y):
    return scan(lambda so_far, one: (so_far * 0.5 + one[0], so_far.softmax(-1) * one[1]), x[:, 0] * 0, (x, y), dim=1)


def backwards(x, y):
    return scan(lambda so_far, one: (so_far + one.transpose(0, 1).sum(1)[0], so_far * 1), x[0, 0] * 0, x.transpose(0, 2), dim=1, reverse=True)


def mapped(x, y):
    return control_map(lambda one, other: (one @ other.mT).relu().sum(-1) + one.shape[0], x, y[0])


def associative(x, y):
    def combine(a, b):
        return a[0] * b[0], b[0] * a[1] + b[1]

    return associative_scan(combine, (x.sigmoid(), y), dim=1, combine_mode="generic")


def branch_in_scan(x, y):
    def step(so_far, one):
        return cond(one.sum() > 0, lambda a, b: a + b, lambda a, b: a - b * a.shape[0], (so_far, one)), so_far + one

    return scan(step, x[:, 0] * 0, x, dim=1)


def shared_numbers(x, y):
    return cond(x.sum() > 0, lambda a: torch.randn_like(a), lambda a: torch.randn_like(a) + 1, (x,))


class Recurrent(nn.Module):
    def __init__(self, layer):
        super().__init__()
        torch.manual_seed(0)
        self.layer = layer

    def forward(self, x, y):
        return self.layer(x), y * 2


def recurrent(cls, **options):
    torch.manual_seed(0)
    return Recurrent(cls(4, 6, **options)).eval()


def _parts(xs, dim):
    leaves, spec = pytree.tree_flatten(xs)
    return [pytree.tree_unflatten(one, spec) for one in zip(*[leaf.unbind(dim) for leaf in leaves])]


def _stacked(found, dim):
    leaves = [torch.stack(one, dim) for one in zip(*map(pytree.tree_leaves, found))]
    return pytree.tree_unflatten(leaves, pytree.tree_structure(found[0]))


def _plain_while(goes_on, body, carried):
    while goes_on(*carried):
        carried = body(*carried)
    return carried


def _plain_scan(body, so_far, xs, dim=0, reverse=False):
    found = []
    for one in _parts(xs, dim)[:: -1 if reverse else 1]:
        so_far, made = body(so_far, one)
        found.append(made)
    return so_far, _stacked(found[:: -1 if reverse else 1], 0)


def _plain_associative(body, xs, dim, combine_mode):
    found = []
    for one in _parts(xs, dim):
        found.append(body(found[-1], one) if found else one)
    return _stacked(found, dim)


_PLAIN = {
    "cond": lambda pred, one, other, given: (one if pred else other)(*given), "while_loop": _plain_while, "scan": _plain_scan,
    "associative_scan": _plain_associative, "control_map": lambda body, xs, *more: _stacked([body(x, *more) for x in xs], 0),
}  # fmt: skip


def plainly(model, args):
    """What the model gives."""
    with mock.patch.dict(globals(), _PLAIN), torch.no_grad():
        return pytree.tree_leaves(model(*args))


MODELS = {
    "branches": branches, "of sizes": of_sizes, "while": halving, "scan": running, "scan backwards": backwards, "map": mapped,
    "associative scan": associative, "branch in scan": branch_in_scan, "random branch": shared_numbers,
    "gru": recurrent(nn.GRU), "lstm": recurrent(nn.LSTM, num_layers=2, bidirectional=True, batch_first=True),
    "projected": recurrent(nn.LSTM, proj_size=3, bias=False, num_layers=2), "rnn": recurrent(nn.RNN, nonlinearity="relu"),
}  # fmt: skip
SAID = ({0: batch, 1: length}, {0: batch, 1: length})
SIZES = ((3, 5), (1, 2), (4, 3), (2, 9))


def arguments(a, b):
    return rows(a, b), rows(a, b).flip(1)
