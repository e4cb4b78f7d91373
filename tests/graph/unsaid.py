"""Look for operators that do what their schemas do not say: they write, draw, or give back memory of their arguments.

`python -m tests.graph.unsaid [samples]` runs torch's own operator samples, forward and backward, and prints what it finds.
"""

import sys

import torch
from tests.graph import opinfo
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pliant.graph import effects


class Unsaid(TorchDispatchMode):
    """Compares the arguments, the random generator and the results' memory before and after each call."""

    def __init__(self):
        super().__init__()
        self.calls = set()
        self.found = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = _dense([v for i, v in enumerate(args) if not _written(func, i, None)])
        given += _dense([v for name, v in kwargs.items() if not _written(func, None, name)])
        marked = _memory(_dense([args, kwargs])) - _memory(given)
        before, state = [t.clone() for t in given], torch.get_rng_state()
        result = func(*args, **kwargs)
        self.calls.add(func)
        if any(not _same(a, b) for a, b in zip(given, before) if t_memory(a) not in marked):
            self._note(func, "writes")
        if not torch.equal(state, torch.get_rng_state()) and torch.Tag.nondeterministic_seeded not in func.tags:
            self._note(func, "draws")
        returns = list(func._schema.returns)
        if all(r.alias_info is None for r in returns) and _memory(_dense(result)) & _memory(_dense([args, kwargs])):
            self._note(func, "shares")
        if any(type(leaf) in (int, float, bool) for leaf in tree_leaves(result)):
            self._note(func, "numbers")
        return result

    def _note(self, func, what):
        self.found.setdefault(what, set()).add(func)


def _written(func, position, name):
    for i, argument in enumerate(func._schema.arguments):
        if i == position or argument.name == name:
            return argument.alias_info is not None and argument.alias_info.is_write
    return False


def _dense(tree):
    return [
        t.detach() for t in tree_leaves(tree)
        if type(t) in (torch.Tensor, torch.nn.Parameter) and t.layout is torch.strided and not t.is_quantized
    ]  # fmt: skip


def t_memory(tensor):
    return tensor.untyped_storage()._cdata


def _memory(tensors):
    return {t_memory(t) for t in tensors if t.untyped_storage().nbytes()}


def _same(one, other):
    one, other = (torch.view_as_real(t) if t.is_complex() else t for t in (one.resolve_conj(), other.resolve_conj()))
    return torch.equal(one.nan_to_num(), other.nan_to_num()) if one.is_floating_point() else torch.equal(one, other)


def look(samples, dtypes=(torch.float32,)):
    mode = Unsaid()
    opinfo.run_all(mode, dtypes, samples)
    return mode


if __name__ == "__main__":
    mode = look(int(sys.argv[1]) if len(sys.argv) > 1 else 3, (torch.float32, torch.int64, torch.complex64))
    print(len(mode.calls), "operators called")
    for what, operators in mode.found.items():
        print(what, *sorted(f"{op} ({effects.refusal(op) or 'taken'})" for op in operators), sep="\n  ")
