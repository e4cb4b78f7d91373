"""The standard library's builtins and containers as they were when Pliant was imported.

Programs put their own in their place, as for a `print` of one rank alone, or a class of their own for `collections.deque`:
what tables know of the one does not hold of the other. Classes made in C are had from where those are made.
"""

import _collections  # type: ignore[import-not-found]
import _functools  # type: ignore[import-not-found]
import builtins
import collections
import functools
import types
from typing import TYPE_CHECKING

__all__ = ["BUILTINS", "COLLECTIONS", "FUNCTOOLS"]

BUILTINS = types.SimpleNamespace(**vars(builtins))
if TYPE_CHECKING:
    import collections as COLLECTIONS
    import functools as FUNCTOOLS
else:
    _MADE_IN_C = {name: getattr(_collections, name) for name in ("deque", "defaultdict", "OrderedDict")}
    COLLECTIONS = types.SimpleNamespace(**{**vars(collections), **_MADE_IN_C})
    FUNCTOOLS = types.SimpleNamespace(**{**vars(functools), "partial": _functools.partial})
