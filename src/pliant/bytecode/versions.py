"""What differs between the bytecodes of CPython 3.11, 3.12 and 3.13: the only module that knows.

In:     real instructions (name, argument) of the running interpreter, grouped by `group_length`.
Out:    `Part`s: normalised operations, each with the real instructions that do exactly this operation.
Holds:  running the real instructions of all parts in order does what the group does, and the stack between two parts
        is a stack that CPython can go on from; a group is one or two parts, or none. So every normalised operation
        is a place where execution can be split.
Reads on: `ops.py` says what each normalised operation means.
"""

import opcode
import sys
from collections.abc import Callable, Sequence
from types import CodeType
from typing import NamedTuple

from pliant.errors import Unsupported
from pliant.records import dataclass

VERSION = sys.version_info[:2]

# CALL finds (NULL, callable) under its arguments before 3.13, (callable, NULL) from then on.
NULL_BELOW_CALLABLE = VERSION < (3, 13)
# FOR_ITER aims at these but skips them when the iterator is exhausted.
AFTER_FOR: tuple[str, ...] = {(3, 12): ("END_FOR",), (3, 13): ("END_FOR", "POP_TOP")}.get(VERSION, ())

Real = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class CallArgs:
    """How CALL is called: `count` operands above the two callable slots, the last ones named `names`."""

    count: int
    names: tuple[str, ...] = ()


class Part(NamedTuple):
    """One normalised operation: name, resolved argument, and the real instructions that do it."""

    name: str
    arg: object
    real: Real


class Names:
    """What the arguments of a code object's instructions stand for."""

    def __init__(self, code: CodeType) -> None:
        merged = [name for name in code.co_cellvars if name not in code.co_varnames]
        self.consts = code.co_consts
        self.names = code.co_names
        self.slots = (*code.co_varnames, *merged, *code.co_freevars)
        self.cells = frozenset(code.co_cellvars)
        self.first_free = len(code.co_varnames) + len(merged)

    def is_cell(self, slot: int) -> bool:
        return slot >= self.first_free or self.slots[slot] in self.cells


_OPCODES = opcode.opmap
_CACHES = opcode._inline_cache_entries  # type: ignore[attr-defined]  # no public form exists


def _cache_entries(name: str) -> int:
    if isinstance(_CACHES, dict):
        return int(_CACHES.get(name, 0))
    number = _OPCODES[name]
    return int(_CACHES[number]) if number < len(_CACHES) else 0


# How many CACHE units follow each opcode.
CACHE_ENTRIES = {name: _cache_entries(name) for name in _OPCODES}


def jump_name(name: str, *, backward: bool) -> str:
    """The opcode of this jump in the direction that it has where it is put."""
    if name in ("JUMP_FORWARD", "JUMP_BACKWARD"):
        return "JUMP_BACKWARD" if backward else "JUMP_FORWARD"
    if name == "JUMP_BACKWARD_NO_INTERRUPT" and not backward:
        return "JUMP_FORWARD"
    for direction in ("_FORWARD_IF_", "_BACKWARD_IF_"):  # of 3.11
        name = name.replace(direction, "_BACKWARD_IF_" if backward else "_FORWARD_IF_")
    return name


def without_method(real: Real) -> Real:
    """LOAD_METHOD and LOAD_SUPER_METHOD such that the attribute itself is the callable, whatever it is.

    The pair they leave is then known before: CPython leaves a function and its self only sometimes.
    """
    ((name, arg),) = real
    plain = ("LOAD_ATTR", arg) if name == "LOAD_METHOD" else (name, arg & ~1)
    null = ("PUSH_NULL", 0)
    return (plain, null, ("SWAP", 2)) if NULL_BELOW_CALLABLE else (plain, null)


def checked(name: str) -> str:
    """The opcode that raises where `name` would crash on an empty slot."""
    return "LOAD_FAST_CHECK" if name == "LOAD_FAST" and VERSION >= (3, 12) else name


def load_cell() -> str:
    """The opcode that pushes the content of a free slot, the cell."""
    return "LOAD_CLOSURE" if VERSION < (3, 13) else "LOAD_FAST"


def call_group(count: int) -> Real:
    """CALL without keywords, with what belongs to it."""
    call = ("CALL", count)
    return (("PRECALL", count), call) if VERSION < (3, 12) else (call,)


_FIRST_OF_SEVERAL = frozenset({"KW_NAMES", "PRECALL", "LOAD_CONST"})


def group_length(names: Sequence[str], start: int) -> int:
    """How many instructions from `start` make one operation together (3.11: KW_NAMES PRECALL CALL)."""
    if names[start] not in _FIRST_OF_SEVERAL:
        return 1
    match names[start : start + 3]:
        case ["KW_NAMES", "PRECALL", "CALL"]:
            return 3
        case ["PRECALL", "CALL", *_] | ["KW_NAMES", "CALL", *_] | ["LOAD_CONST", "CALL_KW", *_]:
            return 2
        case _:
            return 1


def expand(names: Names, group: Real) -> tuple[Part, ...]:
    """The normalised operations that a group of real instructions stands for; none for NOP and RESUME."""
    if group[-1][0] in ("CALL", "CALL_KW"):
        return (Part("CALL", _call_args(names, group), group),)
    name, arg = group[0]
    rule = _RULES.get(name)
    if rule is not None:
        return rule(names, arg)
    return (Part(_RENAMED.get(name, name), _resolve(names, name, arg), group),)


def _call_args(names: Names, group: Real) -> CallArgs:
    if group[-1][0] == "CALL_KW" and len(group) == 1:
        raise Unsupported("CALL_KW without constant names", kind="bytecode")
    first, index = group[0]
    keywords = names.consts[index] if first in ("KW_NAMES", "LOAD_CONST") else ()
    return CallArgs(group[-1][1], keywords)


# ---- arguments ------------------------------------------------------------------------------------------------------

_NAMED = frozenset(
    """LOAD_NAME STORE_NAME DELETE_NAME LOAD_GLOBAL STORE_GLOBAL DELETE_GLOBAL LOAD_ATTR STORE_ATTR DELETE_ATTR
    LOAD_METHOD IMPORT_NAME IMPORT_FROM LOAD_FROM_DICT_OR_GLOBALS""".split()
)
SLOT_OPCODES = frozenset(  # their argument is a slot
    """LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_AND_CLEAR STORE_FAST DELETE_FAST MAKE_CELL LOAD_CLOSURE LOAD_DEREF
    STORE_DEREF DELETE_DEREF LOAD_CLASSDEREF LOAD_FROM_DICT_OR_DEREF""".split()
)
_CONVERSIONS = ("", "str", "repr", "ascii")
_FUNCTION_PARTS = ((1, "defaults"), (2, "kwdefaults"), (4, "annotations"), (8, "closure"))
_OPERATORS: tuple[str, ...] = tuple(
    symbol
    for _, symbol in opcode._nb_ops  # type: ignore[attr-defined]  # no public form exists
)
_SPECIAL_INTRINSICS = ("UNARY_POSITIVE", "LIST_TO_TUPLE", "ASYNC_GEN_WRAP", "PREP_RERAISE_STAR")


def _function_parts(flags: int) -> tuple[str, ...]:
    return tuple(part for bit, part in _FUNCTION_PARTS if flags & bit)


_RESOLVERS: dict[str, Callable[[int], object]] = {
    "BINARY_OP": lambda arg: _OPERATORS[arg],
    "CALL_FUNCTION_EX": lambda arg: bool(arg & 1),
    "CONTAINS_OP": lambda arg: "not in" if arg else "in",
    "CONVERT_VALUE": lambda arg: _CONVERSIONS[arg],
    "IS_OP": lambda arg: "is not" if arg else "is",
    "MAKE_FUNCTION": _function_parts if VERSION < (3, 13) else lambda arg: (),
    "SEND": lambda arg: VERSION >= (3, 12),
    "SET_FUNCTION_ATTRIBUTE": lambda arg: _function_parts(arg)[0],
    "YIELD_VALUE": lambda arg: None,
    "UNPACK_EX": lambda arg: (arg & 0xFF, arg >> 8),
}


def _resolve(names: Names, name: str, arg: int) -> object:
    if name in _NAMED:
        return names.names[arg]
    if name in SLOT_OPCODES:
        return names.slots[arg]
    if name == "LOAD_CONST":
        return names.consts[arg]
    resolver = _RESOLVERS.get(name)
    if resolver is not None:
        return resolver(arg)
    return None if name in _WITHOUT_ARGUMENT else arg


if VERSION >= (3, 13):
    _takes_argument = frozenset(opcode.hasarg)  # type: ignore[attr-defined]  # since 3.12
else:
    _takes_argument = frozenset(range(opcode.HAVE_ARGUMENT, 256))
_WITHOUT_ARGUMENT = frozenset(  # or with a place to jump to
    name for name, number in _OPCODES.items() if number not in _takes_argument or number in (*opcode.hasjrel, *opcode.hasjabs)
)


# ---- operations that are not one to one -----------------------------------------------------------------------------

_RENAMED = {
    "JUMP_FORWARD": "JUMP",
    "JUMP_BACKWARD": "JUMP",
    "JUMP_BACKWARD_NO_INTERRUPT": "JUMP",
    "LOAD_FAST_CHECK": "LOAD_FAST",
    **{
        f"POP_JUMP_{direction}_IF_{test}": f"POP_JUMP_IF_{test}"
        for direction in ("FORWARD", "BACKWARD")
        for test in ("TRUE", "FALSE", "NONE", "NOT_NONE")
    },
}


_Rule = Callable[[Names, int], tuple[Part, ...]]


def _load_global(names: Names, arg: int) -> tuple[Part, ...]:
    index = arg >> 1
    load = Part("LOAD_GLOBAL", names.names[index], (("LOAD_GLOBAL", index << 1),))
    null = Part("PUSH_NULL", None, (("PUSH_NULL", 0),))
    if not arg & 1:
        return (load,)
    return (null, load) if NULL_BELOW_CALLABLE else (load, null)


def _load_attr(name: str, shift: int) -> _Rule:
    method = name.replace("ATTR", "METHOD")
    return lambda names, arg: (Part(method if arg & 1 else name, names.names[arg >> shift], ((name, arg),)),)


def _compare(shift: int) -> _Rule:
    return lambda names, arg: (Part("COMPARE_OP", opcode.cmp_op[arg >> shift], (("COMPARE_OP", arg),)),)


def _compare_313(names: Names, arg: int) -> tuple[Part, ...]:
    compare = Part("COMPARE_OP", opcode.cmp_op[arg >> 5], (("COMPARE_OP", arg & ~16),))
    return (compare, Part("TO_BOOL", None, (("TO_BOOL", 0),))) if arg & 16 else (compare,)


def _return_const(names: Names, arg: int) -> tuple[Part, ...]:
    load = Part("LOAD_CONST", names.consts[arg], (("LOAD_CONST", arg),))
    return load, Part("RETURN_VALUE", None, (("RETURN_VALUE", 0),))


def _fast_pair(first: str, second: str) -> _Rule:
    def part(names: Names, name: str, slot: int) -> Part:
        return Part(name, names.slots[slot], ((name, slot),))

    return lambda names, arg: (part(names, first, arg >> 4), part(names, second, arg & 15))


def _load_fast_313(names: Names, arg: int) -> tuple[Part, ...]:
    """3.13 has no LOAD_CLOSURE: it loads the cell as if it were a local."""
    name = "LOAD_CLOSURE" if names.is_cell(arg) else "LOAD_FAST"
    return (Part(name, names.slots[arg], (("LOAD_FAST", arg),)),)


def _format_value(names: Names, arg: int) -> tuple[Part, ...]:
    """FORMAT_VALUE of 3.11 and 3.12 in the steps of 3.13; a conversion works on the value under the format spec."""
    spec, conversion = bool(arg & 4), arg & 3
    last = Part("FORMAT_WITH_SPEC" if spec else "FORMAT_SIMPLE", None, (("FORMAT_VALUE", arg & 4),))
    if not conversion:
        return (last,)
    convert = Part("CONVERT_VALUE", _CONVERSIONS[conversion], (("FORMAT_VALUE", conversion),))
    if not spec:
        return convert, last
    swap = ("SWAP", 2)
    return Part("CONVERT_VALUE_BELOW", _CONVERSIONS[conversion], (swap, *convert.real, swap)), last


def _intrinsic(opname: str, table: str) -> _Rule:
    def rule(names: Names, arg: int) -> tuple[Part, ...]:
        text = getattr(opcode, table)[arg].removeprefix("INTRINSIC_")
        real = ((opname, arg),)
        return (Part(text, None, real) if text in _SPECIAL_INTRINSICS else Part(opname, text, real),)

    return rule


_ALWAYS: dict[str, _Rule] = {
    **dict.fromkeys(("NOP", "RESUME"), lambda names, arg: ()),
    "LOAD_GLOBAL": _load_global,
}
_UNTIL_312: dict[str, _Rule] = {"FORMAT_VALUE": _format_value}
_FROM_312: dict[str, _Rule] = {
    "LOAD_ATTR": _load_attr("LOAD_ATTR", 1),
    "LOAD_SUPER_ATTR": _load_attr("LOAD_SUPER_ATTR", 2),
    "RETURN_CONST": _return_const,
    "CALL_INTRINSIC_1": _intrinsic("CALL_INTRINSIC_1", "_intrinsic_1_descs"),
    "CALL_INTRINSIC_2": _intrinsic("CALL_INTRINSIC_2", "_intrinsic_2_descs"),
}
_BY_VERSION: dict[tuple[int, int], dict[str, _Rule]] = {
    (3, 11): {**_ALWAYS, **_UNTIL_312, "COMPARE_OP": _compare(0)},
    (3, 12): {**_ALWAYS, **_UNTIL_312, **_FROM_312, "COMPARE_OP": _compare(4)},
    (3, 13): {
        **_ALWAYS,
        **_FROM_312,
        "COMPARE_OP": _compare_313,
        "LOAD_FAST": _load_fast_313,
        "LOAD_FAST_LOAD_FAST": _fast_pair("LOAD_FAST", "LOAD_FAST"),
        "STORE_FAST_STORE_FAST": _fast_pair("STORE_FAST", "STORE_FAST"),
        "STORE_FAST_LOAD_FAST": _fast_pair("STORE_FAST", "LOAD_FAST"),
    },
}
if VERSION not in _BY_VERSION:
    raise ImportError(f"the bytecode of CPython {VERSION[0]}.{VERSION[1]} is not known")
_RULES = _BY_VERSION[VERSION]
