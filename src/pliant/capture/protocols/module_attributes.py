"""The namespaces of modules and functions, and attributes of modules that Python itself has to look up.

In:     a module or a function from outside, and a name.
Out:    the traced value, under guards; `Raised` with the program's error.
"""

from __future__ import annotations

import builtins
import dis
import functools
import types
from collections.abc import Callable
from typing import Any

from pliant.capture.graph_breaks import GraphBreak, Raised
from pliant.capture.outside.world import World
from pliant.capture.signatures import Tracer
from pliant.capture.value_kinds import is_function
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.sources import AttributeSource, FailureSource, held


def namespace_of(world: World, obj: Any) -> dict[str, Any]:
    """Of a module or a function."""
    if is_function(obj):
        return world.instance_dict(obj)
    return world.hold(own_namespace(obj), name_of(obj))  # type: ignore[no-any-return]


# The namespace of a module; what its class says of `__dict__` is not asked.
own_namespace: Callable[[types.ModuleType], dict[str, Any]] = vars(types.ModuleType)["__dict__"].__get__


def name_of(module: types.ModuleType) -> str:
    """For messages and paths. A class of modules with its own way to look up attributes is not asked."""
    return str(own_namespace(module).get("__name__", "a module"))


def builtins_of(namespace: dict[str, Any]) -> dict[str, Any]:
    """What code with these globals finds behind them: a module, or its dict."""
    found = namespace.get("__builtins__", builtins)
    return getattr(found, "__dict__", found)  # type: ignore[no-any-return]


def is_asked(module: types.ModuleType, name: str) -> bool:
    """Whether looking the name up is left to Python: PyTorch's own classes of modules, and what may import."""
    cls: Any = type(module)
    if cls.__module__.partition(".")[0] == "torch":
        return True
    namespace = own_namespace(module)
    hooks = (namespace.get("__getattr__"), getattr(cls, "__getattr__", None))
    return name not in namespace and any(
        is_function(h) and _imports(h.__code__) for h in hooks
    )


@functools.lru_cache(maxsize=4096)
def _imports(code: types.CodeType) -> bool:
    return any(one.opname == "IMPORT_NAME" or one.argval == "import_module" for one in dis.get_instructions(code))


def asked_attribute(t: Tracer, module: types.ModuleType, name: str) -> Any:
    """What Python finds now, and is asked again in each call if it is not in the module's namespace."""
    world, place = t.world, held(module, name_of(module))
    namespace = namespace_of(world, module)
    if name in namespace or world.has_changes(namespace):
        value = world.dict_get(namespace, name)
        if value is not MISSING:
            return world.resolve(value)
    if name in namespace:
        raise GraphBreak("unknown-object", f"`{name}` of {name_of(module)}, which the program has deleted")
    try:
        value = t.native(getattr, module, name)
    except Raised as raised:
        world.guard(FailureSource(place, name), Kind.IDENTITY, type(raised.error))
        raise
    if name in namespace:  # imported just now
        return world.resolve(world.dict_get(namespace, name))
    return namespace if name == "__dict__" else world.bring(value, AttributeSource(place, name))
