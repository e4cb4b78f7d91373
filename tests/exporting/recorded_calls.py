"""Calls of ATen's operators, recorded from torch's own samples: what `hostile_calls.py` changes.

    python -m tests.exporting.recorded_calls PATH

Each is an operator and its arguments. Operators that write arguments have no calls: no exported program has them.
"""

import argparse
import contextlib
import pickle
import random
import warnings
from collections import Counter
from itertools import islice

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

EACH = 12  # calls that are kept of an operator
SAMPLES = 6  # of a database's row
LARGEST = 1 << 14  # elements of a tensor
PLAIN = (torch.Tensor, type(None), bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format)


class Recorder(TorchDispatchMode):
    """Keeps some calls of each operator, of different kinds of arguments."""

    def __init__(self, file):
        super().__init__()
        self.file, self.seen = file, Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        kept = self._kept(func, args, kwargs)
        found = func(*args, **kwargs)
        if kept is not None:
            with contextlib.suppress(TypeError, AttributeError, pickle.PicklingError):  # of objects among arguments
                self.file.write(pickle.dumps((str(func), kept)))
        return found

    def _kept(self, func, args, kwargs):
        if func.namespace != "aten" or func._schema.is_mutable or self.seen[func] >= EACH:
            return None
        leaves = pytree.tree_leaves((args, kwargs))
        if not all(isinstance(one, PLAIN) for one in leaves):
            return None
        if not all(one.layout is torch.strided and type(one) in (torch.Tensor, torch.nn.Parameter) and one.device.type == "cpu"
                   and one.numel() <= LARGEST and not one.is_quantized for one in leaves if isinstance(one, torch.Tensor)):  # fmt: skip
            return None
        kind = (func, *[(one.dtype, one.dim()) if isinstance(one, torch.Tensor) else type(one) for one in leaves])
        if self.seen[kind] >= 4:
            return None
        self.seen[func] += 1
        self.seen[kind] += 1
        return pytree.tree_map_only(torch.Tensor, copied, (list(args), dict(kwargs)))


def copied(tensor):
    if 0 in tensor.stride():  # it is read at one place several times
        return tensor.detach().clone()
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor.detach())


def _summed(found):
    leaves = [one for one in pytree.tree_leaves(found) if isinstance(one, torch.Tensor) and one.requires_grad]
    return sum((one.abs() if one.is_complex() else one).sum() for one in leaves) if leaves else None


def _attempt(recorder, call):
    try:
        with recorder:
            total = _summed(call())
            if total is not None:
                total.backward()
    except Exception:
        return


def record(file, rows=""):
    """Write calls of modules, and of the functions whose names have `rows` in them."""
    torch.manual_seed(0)
    random.seed(0)
    recorder = Recorder(file)
    for info in module_db:
        for training in (True, False):
            _record_module(recorder, info, training)
    for op in op_db:
        if rows in op.name:
            for dtype in (torch.float32, torch.int64, torch.complex64, torch.bool):
                _record_function(recorder, op, dtype)


def _record_module(recorder, info, training):
    found = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=training)
    for given in found[:SAMPLES]:
        if given.forward_input is not None:
            made, call = given.constructor_input, given.forward_input
            module = info.module_cls(*made.args, **made.kwargs).train(training)
            _attempt(recorder, lambda: module(*call.args, **call.kwargs))  # noqa: B023
            with torch.no_grad():
                _attempt(recorder, lambda: module(*call.args, **call.kwargs))  # noqa: B023


def _record_function(recorder, op, dtype):
    if dtype in op.supported_dtypes("cpu"):
        gradients = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
        for sample in islice(op.sample_inputs("cpu", dtype, requires_grad=gradients), SAMPLES):
            _attempt(recorder, lambda: op.op(sample.input, *sample.args, **sample.kwargs))  # noqa: B023


def read(path):
    """Calls by the operator's name."""
    found = {}
    with open(path, "rb") as file, contextlib.suppress(EOFError):
        while True:
            name, call = pickle.load(file)
            found.setdefault(name, []).append(call)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--rows", default="", help="functions whose names have this in them")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with open(options.path, "wb") as file:
        record(file, options.rows)


if __name__ == "__main__":
    main()
