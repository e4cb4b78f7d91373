"""A recorder for CPU tensors that behaves as a GPU's: nothing runs while work is recorded, and a replay does the same
operators on the same memory."""

import contextlib
import ctypes

import torch
from torch.utils._python_dispatch import TorchDispatchMode


def storages(values):
    return {t.untyped_storage().data_ptr() for t in values if isinstance(t, torch.Tensor)}


def unowned(value):
    """A tensor in the same memory, which it does not keep: as kernels of a recording have addresses alone."""
    if not isinstance(value, torch.Tensor) or not value.untyped_storage().nbytes():
        return value
    storage = value.untyped_storage()
    memory = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
    whole = torch.frombuffer(memory, dtype=torch.uint8).view(value.dtype)
    return whole.as_strided(value.shape, value.stride(), value.storage_offset())


class _Recording(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.steps, self.undo = [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        flat = [a for one in (*args, *kwargs.values()) for a in (one if isinstance(one, (list, tuple)) else [one])]
        if func.name() in REFUSED:
            raise RuntimeError(f"{func.name()} is not permitted while work is recorded")
        if func._schema.is_mutable:
            self.undo += [(t, t.clone()) for t in flat if isinstance(t, torch.Tensor)]
        result = func(*args, **kwargs)
        made = [result] if isinstance(result, torch.Tensor) else list(result or [])
        fresh = [(k, t) for k, t in enumerate(made) if not storages([t]) <= storages(flat)]
        self.steps.append((func, args, kwargs, fresh, isinstance(result, torch.Tensor)))
        return result

    def forget_inputs(self):
        """Keep what was made while recording, and addresses of what was there before."""
        own = storages(t for *_, fresh, _ in self.steps for _, t in fresh)

        def kept(a):
            if isinstance(a, (list, tuple)):
                return type(a)(kept(one) for one in a)
            return a if storages([a]) <= own else unowned(a)

        self.steps = [
            (func, kept(args), {k: kept(a) for k, a in kwargs.items()}, *rest) for func, args, kwargs, *rest in self.steps
        ]
        self.undo.clear()

    def take_back(self):
        for tensor, before in reversed(self.undo):
            tensor.copy_(before)
        for *_, fresh, _ in self.steps:
            for _, tensor in fresh:
                tensor.fill_(77)

    def replay(self):
        for func, args, kwargs, fresh, is_one in self.steps:
            result = func(*args, **kwargs)
            for k, tensor in fresh:
                tensor.copy_(result if is_one else result[k])


REFUSED = {"aten::_local_scalar_dense", "aten::nonzero"}


class FakeRecorder:
    def __init__(self):
        self.recorded = 0
        self.generators = []
        self.capturing = False
        self.kept = 0.0  # share of the memory that a recording takes
        self.times = iter(())  # of calls that are timed: seconds until launched, and until done

    def is_capturing(self):
        return self.capturing

    def memory(self):
        return self.recorded * self.kept

    def timed(self, work):
        return work(), *next(self.times)

    @contextlib.contextmanager
    def turn(self):
        yield 0

    def record(self, work, generators):
        mode, numbers = _Recording(), torch.get_rng_state()
        self.generators += generators
        with mode:
            result = work()
        mode.take_back()
        mode.forget_inputs()
        torch.set_rng_state(numbers)
        self.recorded += 1
        return result, mode.replay
