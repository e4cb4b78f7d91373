"""Numbers that stand for objects of the trace, which the entry makes anew: what `id()` gives, keys of hooks.

In:     the object.
Out:    an integer that compares and hashes as such within the trace; outside it is `id()` of the object that was made.
Holds:  its value itself is never used: arithmetic with it, its order and its text are graph breaks.
"""

from __future__ import annotations

from typing import Any, NoReturn

from torch.utils.hooks import RemovableHandle

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.value_kinds import exactly


class TracedId(int):
    """`id(obj)`"""

    obj: Any

    @staticmethod
    def of(obj: Any) -> TracedId:
        made = TracedId(id(obj))
        made.obj = obj
        return made


class HookId(int):
    """The key of a hook that the trace registers: a number that differs from call to call."""


is_hook_id = exactly(HookId)


def take_hook_id() -> int:
    """A key for a hook; in a trace a `HookId`."""
    taken: int = RemovableHandle.next_id
    RemovableHandle.next_id += 1
    return taken


def _refuse(self: TracedId, *others: Any) -> NoReturn:
    raise GraphBreak("unknown-call", f"the address of a {type(self.obj).__name__} made here is used as a number")


_USES = """add radd sub rsub mul rmul floordiv rfloordiv truediv rtruediv mod rmod divmod rdivmod pow rpow lshift rlshift
rshift rrshift and rand or ror xor rxor neg pos abs invert lt le gt ge str repr format float trunc round""".split()
for _name in _USES:
    setattr(TracedId, f"__{_name}__", _refuse)
