"""The number that `id()` gives for an object of the trace, which the entry makes anew.

In:     the object.
Out:    an integer that compares and hashes as such within the trace; outside it is `id()` of the object that was made.
Holds:  its value itself is never used: arithmetic with it, its order and its text are graph breaks.
"""

from __future__ import annotations

from typing import Any, NoReturn

from pliant.capture.graph_breaks import GraphBreak


class TracedId(int):
    """`id(obj)`"""

    obj: Any

    @staticmethod
    def of(obj: Any) -> TracedId:
        made = TracedId(id(obj))
        made.obj = obj
        return made


def _refuse(self: TracedId, *others: Any) -> NoReturn:
    raise GraphBreak("unknown-call", f"the address of a {type(self.obj).__name__} made here is used as a number")


_USES = """add radd sub rsub mul rmul floordiv rfloordiv truediv rtruediv mod rmod divmod rdivmod pow rpow lshift rlshift
rshift rrshift and rand or ror xor rxor neg pos abs invert lt le gt ge str repr format float trunc round""".split()
for _name in _USES:
    setattr(TracedId, f"__{_name}__", _refuse)
