"""The types that options are declared with: bool, int, float, str, tuples of these, `Literal`s, unions.

In:     a type as an annotation has it; a value, or the text of an environment variable.
Out:    whether the value has the type, the value that the text stands for, the type as messages name it.
"""

import types
from typing import Any, Literal, Union, get_args, get_origin


def type_text(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(repr(a) for a in get_args(hint))
    return str(hint) if get_args(hint) else str(getattr(hint, "__name__", hint))


def fits(value: object, hint: Any) -> bool:
    """Whether the value has the type; a bool is not an int, an int is a float."""
    origin = get_origin(hint)
    if origin is Literal:
        return any(value == a and type(value) is type(a) for a in get_args(hint))
    if origin is tuple:
        return isinstance(value, tuple) and all(fits(v, get_args(hint)[0]) for v in value)
    if origin in (Union, types.UnionType):
        return any(fits(value, a) for a in get_args(hint))
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


_WORDS = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off", ""), False)


def parsed(text: str, hint: Any) -> object:
    """The value that an environment variable's text stands for."""
    if hint is bool:
        return _WORDS.get(text.lower(), text)
    if hint in (int, float):
        try:
            return hint(text)
        except ValueError:
            return text
    if get_origin(hint) is tuple:
        return tuple(text.replace(",", " ").split())
    return text
