"""Every normalised operation in one table: what it takes from the stack, what it leaves, what it means.

In:     nothing. Out: `OPS`, the table, and `effect(op)`, the numbers of slots popped and pushed.
Holds:  the stack is CPython's own, slot for slot. Depth i counts from the top, 1 is the top.

The call convention. CALL and CALL_FUNCTION_EX find two slots `a, b` under their arguments:
  - one of them is NULL: the other one is the callable, called with the arguments;
  - both hold values: `a` is the callable and `b` is its first argument (a method and its self, or a decorator).
A NULL lies below the callable on 3.11 and 3.12 and above it on 3.13 (`versions.NULL_BELOW_CALLABLE`). A handler written
by the rule above needs not know. Who pushes a pair for a plain callable does it in the version's order: `call_pair`.
LOAD_GLOBAL with CPython's NULL bit is two operations here, PUSH_NULL and LOAD_GLOBAL in the version's order.

Names. A name of `co_varnames` or `co_cellvars` is one slot, whichever operation names it; LOAD_FAST, LOAD_CLOSURE,
STORE_FAST and LOAD_FAST_AND_CLEAR move the slot's content, which is the cell itself once MAKE_CELL has run. (Inlined
comprehensions of 3.12 use this to shelve a cell, or to keep a plain value in the slot meanwhile.) A name of
`co_freevars` is another slot, also when `co_varnames` has the same name: LOAD_CLOSURE and the DEREF operations use the
free one if there is no cell variable of that name; LOAD_FAST, STORE_FAST, DELETE_FAST always use the local one.
"""

import enum
from collections.abc import Callable
from typing import Any, TypeVar

from pliant.bytecode.decode import Op
from pliant.bytecode.versions import NULL_BELOW_CALLABLE
from pliant.records import dataclass

T = TypeVar("T")
Count = int | Callable[[Any], int]  # by the argument


@dataclass(frozen=True, slots=True)
class OpInfo:
    """A row: slots popped and pushed (for a jump: when it does not jump), what `arg` is, what it does.

    `jump` is the change of depth when it jumps. `ends` says that the next operation is not reached from here.
    """

    pops: Count
    pushes: Count
    arg: str
    meaning: str
    jump: Count = 0
    ends: bool = False


def effect(op: Op) -> tuple[int, int]:
    """(slots popped, slots pushed) of an operation that neither jumps nor raises."""
    info = OPS[op.name]
    return _count(info.pops, op), _count(info.pushes, op)


def jump_effect(op: Op) -> int:
    """By how much the stack grows where the operation jumps."""
    return _count(OPS[op.name].jump, op)


def _count(count: Count, op: Op) -> int:
    return count(op.arg) if callable(count) else count


def call_pair(callable_: T, null: T) -> tuple[T, T]:
    """The two slots under the arguments for a plain callable, bottom first."""
    return (null, callable_) if NULL_BELOW_CALLABLE else (callable_, null)


_row = OpInfo


_STACK = {
    "POP_TOP": _row(1, 0, "", "drop the top"),
    "PUSH_NULL": _row(0, 1, "", "push NULL"),
    "COPY": _row(0, 1, "depth", "push what is at this depth"),
    "SWAP": _row(0, 0, "depth", "exchange the top with this depth"),
    "LOAD_CONST": _row(0, 1, "the constant", "push it"),
}
_NAMES = {
    "LOAD_FAST": _row(0, 1, "name", "push the slot's content; UnboundLocalError if empty"),
    "LOAD_FAST_AND_CLEAR": _row(0, 1, "name", "push the slot's content, NULL if empty, and empty the slot"),
    "STORE_FAST": _row(1, 0, "name", "put the top into the slot; a NULL (of LOAD_FAST_AND_CLEAR) empties it"),
    "DELETE_FAST": _row(0, 0, "name", "empty the slot; UnboundLocalError if empty"),
    "MAKE_CELL": _row(0, 0, "name", "replace the slot's content by a new cell that holds it"),
    "COPY_FREE_VARS": _row(0, 0, "count", "fill the free slots from the function's closure"),
    "LOAD_CLOSURE": _row(0, 1, "name", "push the slot's content: the cell"),
    "LOAD_DEREF": _row(0, 1, "name", "push the content of the slot's cell; NameError if empty"),
    "STORE_DEREF": _row(1, 0, "name", "put the top into the slot's cell"),
    "DELETE_DEREF": _row(0, 0, "name", "empty the slot's cell; NameError if empty"),
    "LOAD_CLASSDEREF": _row(0, 1, "name", "3.11, class bodies: from the namespace, else the slot's cell"),
    "LOAD_FROM_DICT_OR_DEREF": _row(1, 1, "name", "pop a mapping; from it, else the slot's cell"),
    "LOAD_FROM_DICT_OR_GLOBALS": _row(1, 1, "name", "pop a mapping; from it, else globals, else builtins"),
    "LOAD_LOCALS": _row(0, 1, "", "push the namespace"),
    "LOAD_GLOBAL": _row(0, 1, "name", "from globals, else builtins"),
    "STORE_GLOBAL": _row(1, 0, "name", "globals[name] = top"),
    "DELETE_GLOBAL": _row(0, 0, "name", "del globals[name]"),
    "LOAD_NAME": _row(0, 1, "name", "from the namespace, else globals, else builtins"),
    "STORE_NAME": _row(1, 0, "name", "namespace[name] = top"),
    "DELETE_NAME": _row(0, 0, "name", "del namespace[name]"),
    "SETUP_ANNOTATIONS": _row(0, 0, "", "make __annotations__ in the namespace if missing"),
    "IMPORT_NAME": _row(2, 1, "name", "[level, fromlist] -> the module: __import__"),
    "IMPORT_FROM": _row(0, 1, "name", "push an attribute of the module on top, which stays"),
    "IMPORT_STAR": _row(1, 0, "", "3.11: import all names of the module on top"),
    "PRINT_EXPR": _row(1, 0, "", "3.11: sys.displayhook of the top"),
}
_ATTRIBUTES = {
    "LOAD_ATTR": _row(1, 1, "name", "[object] -> its attribute"),
    "LOAD_METHOD": _row(1, 2, "name", "[object] -> call pair of its attribute: (function, object), or as `call_pair`"),
    "LOAD_SUPER_ATTR": _row(3, 1, "name", "[super, class, self] -> attribute of super(class, self)"),
    "LOAD_SUPER_METHOD": _row(3, 2, "name", "the same, leaving a call pair"),
    "STORE_ATTR": _row(2, 0, "name", "[value, object]: object.name = value"),
    "DELETE_ATTR": _row(1, 0, "name", "del object.name"),
    "BINARY_SUBSCR": _row(2, 1, "", "[object, key] -> object[key]"),
    "STORE_SUBSCR": _row(3, 0, "", "[value, object, key]: object[key] = value"),
    "DELETE_SUBSCR": _row(2, 0, "", "[object, key]: del object[key]"),
    "BINARY_SLICE": _row(3, 1, "", "[object, start, stop] -> object[start:stop]"),
    "STORE_SLICE": _row(4, 0, "", "[value, object, start, stop]: object[start:stop] = value"),
}
_OPERATORS = {
    "UNARY_POSITIVE": _row(1, 1, "", "+x"),
    "UNARY_NEGATIVE": _row(1, 1, "", "-x"),
    "UNARY_NOT": _row(1, 1, "", "not x (on 3.13 x is a bool already)"),
    "UNARY_INVERT": _row(1, 1, "", "~x"),
    "TO_BOOL": _row(1, 1, "", "bool(x)"),
    "BINARY_OP": _row(2, 1, "symbol: '+' or '+='", "[left, right] -> left symbol right"),
    "COMPARE_OP": _row(2, 1, "symbol: '<' ...", "[left, right] -> left symbol right, any object"),
    "IS_OP": _row(2, 1, "'is' or 'is not'", "identity"),
    "CONTAINS_OP": _row(2, 1, "'in' or 'not in'", "[item, container] -> a bool"),
    "GET_LEN": _row(0, 1, "", "push len(top), which stays"),
}
_CONTROL = {
    "JUMP": _row(0, 0, "", "go to target", 0, True),
    "POP_JUMP_IF_TRUE": _row(1, 0, "", "pop; jump if true (on 3.13 it is a bool already)", -1),
    "POP_JUMP_IF_FALSE": _row(1, 0, "", "pop; jump if false (on 3.13 it is a bool already)", -1),
    "POP_JUMP_IF_NONE": _row(1, 0, "", "pop; jump if None", -1),
    "POP_JUMP_IF_NOT_NONE": _row(1, 0, "", "pop; jump if not None", -1),
    "JUMP_IF_TRUE_OR_POP": _row(1, 0, "", "3.11: jump if the top is true, keeping it, else pop it", 0),
    "JUMP_IF_FALSE_OR_POP": _row(1, 0, "", "3.11: jump if the top is false, keeping it, else pop it", 0),
    "GET_ITER": _row(1, 1, "", "iter(top)"),
    "FOR_ITER": _row(0, 1, "", "push the next item of the iterator on top; at its end pop the iterator and jump", -1),
    "END_FOR": _row(1, 0, "", "never reached: FOR_ITER jumps behind it (and behind the POP_TOP after it on 3.13)"),
    "RETURN_VALUE": _row(1, 0, "", "return the top", ends=True),
}
_CALLS = {
    "CALL": _row(
        lambda call: call.count + 2, 1, "CallArgs(count, names)", "[a, b, *arguments] -> result, as said above"
    ),
    "CALL_FUNCTION_EX": _row(
        lambda named: 4 if named else 3, 1, "True if there is a mapping", "[a, b, iterable, mapping?] -> result"
    ),
    "MAKE_FUNCTION": _row(
        lambda parts: len(parts) + 1, 1, "what lies below the code",
        "[defaults?, kwdefaults?, annotations?, closure?, code] -> function",
    ),
    "SET_FUNCTION_ATTRIBUTE": _row(2, 1, "which of these", "3.13: [value, function] -> the function, with it set"),
    "LOAD_BUILD_CLASS": _row(0, 1, "", "push builtins.__build_class__"),
    "CALL_INTRINSIC_1": _row(1, 1, "its name", "generic syntax, STOPITERATION_ERROR, IMPORT_STAR, PRINT"),
    "CALL_INTRINSIC_2": _row(2, 1, "its name", "generic syntax"),
}
_BUILDING = {
    "BUILD_TUPLE": _row(int, 1, "count", "a tuple of the items"),
    "BUILD_LIST": _row(int, 1, "count", "a list of the items"),
    "BUILD_SET": _row(int, 1, "count", "a set of the items"),
    "BUILD_MAP": _row(lambda count: 2 * count, 1, "pairs", "a dict of [key, value, key, value...]"),
    "BUILD_CONST_KEY_MAP": _row(lambda count: count + 1, 1, "count", "a dict of [*values, tuple of keys]"),
    "BUILD_STRING": _row(int, 1, "count", "the strings joined"),
    "BUILD_SLICE": _row(int, 1, "2 or 3", "slice(start, stop, step?)"),
    "LIST_TO_TUPLE": _row(1, 1, "", "tuple(list)"),
    "LIST_APPEND": _row(1, 0, "depth after the pop", "append the top to the list there"),
    "SET_ADD": _row(1, 0, "depth after the pop", "add the top to the set there"),
    "MAP_ADD": _row(2, 0, "depth after the pops", "[key, value]: put into the dict there"),
    "LIST_EXTEND": _row(1, 0, "depth after the pop", "extend the list there by the iterable on top"),
    "SET_UPDATE": _row(1, 0, "depth after the pop", "update the set there by the iterable on top"),
    "DICT_UPDATE": _row(1, 0, "depth after the pop", "update the dict there by the mapping on top"),
    "DICT_MERGE": _row(1, 0, "depth after the pop", "the same for keyword arguments: TypeError on a repeated key"),
    "UNPACK_SEQUENCE": _row(1, int, "count", "pop an iterable of exactly so many items; its first one on top"),
    "UNPACK_EX": _row(
        1, lambda ends: sum(ends) + 1, "(before, after)", "the same with a list for the rest; the first item on top"
    ),
    "CONVERT_VALUE": _row(1, 1, "'str', 'repr', 'ascii'", "that function of the top"),
    "CONVERT_VALUE_BELOW": _row(0, 0, "'str', 'repr', 'ascii'", "that function of what is under the top, in place"),
    "FORMAT_SIMPLE": _row(1, 1, "", "format(top, '')"),
    "FORMAT_WITH_SPEC": _row(2, 1, "", "[value, spec] -> format(value, spec)"),
}
_MATCHING = {
    "MATCH_MAPPING": _row(0, 1, "", "push whether the top, which stays, is a mapping"),
    "MATCH_SEQUENCE": _row(0, 1, "", "push whether the top, which stays, is a sequence"),
    "MATCH_KEYS": _row(0, 1, "", "[subject, keys]: push the tuple of values, or None"),
    "MATCH_CLASS": _row(3, 1, "positional count", "[subject, class, keyword names] -> tuple of attributes, or None"),
}
_EXCEPTIONS = {
    "RAISE_VARARGS": _row(int, 0, "0, 1, 2", "[exception?, cause?]: raise", ends=True),
    "RERAISE": _row(1, 0, "0, or depth of the offset", "raise the top as it is", ends=True),
    "PUSH_EXC_INFO": _row(1, 2, "", "[exc] -> [exception handled so far, exc]; exc is the handled one from now on"),
    "POP_EXCEPT": _row(1, 0, "", "pop what was handled before: it is the handled one again"),
    "CHECK_EXC_MATCH": _row(1, 1, "", "[exc, type] -> [exc, whether it matches]"),
    "CHECK_EG_MATCH": _row(2, 2, "", "[exc, types] -> [rest or None, match or None]"),
    "PREP_RERAISE_STAR": _row(2, 1, "", "[original, list of exceptions] -> what to raise, or None"),
    "LOAD_ASSERTION_ERROR": _row(0, 1, "", "push AssertionError"),
    "BEFORE_WITH": _row(1, 2, "", "[manager] -> [bound __exit__, result of __enter__()]"),
    "WITH_EXCEPT_START": _row(
        0, 1, "", "[exit, offset, previous, exc]: push exit(type, exc, traceback); all of them stay"
    ),
}
_SEND = "[receiver, value] -> [receiver, yielded]; at its end [receiver?, returned] and jump"
_GENERATORS = {
    "RETURN_GENERATOR": _row(0, 1, "", "make the generator of this frame and return it; resumed with None on top"),
    "YIELD_VALUE": _row(1, 1, "", "yield the top; resumed with the value sent on top"),
    "SEND": _row(1, 1, "True if the receiver stays (3.12+)", _SEND, lambda stays: 0 if stays else -1),
    "END_SEND": _row(2, 1, "", "[receiver, value] -> value"),
    "CLEANUP_THROW": _row(3, 2, "", "[receiver, last, exc]: StopIteration -> [None, its value], others are raised"),
    "GET_YIELD_FROM_ITER": _row(1, 1, "", "the top if it is a generator, else iter(top)"),
    "GET_AWAITABLE": _row(1, 1, "where", "the awaitable of the top"),
    "GET_AITER": _row(1, 1, "", "aiter(top)"),
    "GET_ANEXT": _row(0, 1, "", "push the awaitable of anext(top), which stays"),
    "BEFORE_ASYNC_WITH": _row(1, 2, "", "[manager] -> [bound __aexit__, result of __aenter__()]"),
    "END_ASYNC_FOR": _row(2, 0, "", "[iterator, exc]: end the loop on StopAsyncIteration, raise others"),
    "ASYNC_GEN_WRAP": _row(1, 1, "", "wrap the value that an async generator yields"),
}

OPS: dict[str, OpInfo] = {
    **_STACK, **_NAMES, **_ATTRIBUTES, **_OPERATORS, **_CONTROL, **_CALLS, **_BUILDING, **_MATCHING, **_EXCEPTIONS,
    **_GENERATORS,
}


class Form(enum.Enum):
    """What an operation does with the result of the one function that it has entered."""

    VALUE = "pushes it in place of the operands"
    NOTHING = "drops it"
    TEST = "goes on with it in place of the operand"
    KEEP = "the pair (truth, operand): jumps by the truth or pops the operand"
    PAIR = "the pair (top, below), in place of the operand"
    METHOD = "pushes the call pair of it"
    NEXT = "the pair (item, iterator), in place of the iterator; StopIteration ends the loop"


# The operations that may enter a function of the program.
FORMS: dict[str, Form] = {
    **dict.fromkeys(
        """CALL CALL_FUNCTION_EX LOAD_ATTR LOAD_SUPER_ATTR BINARY_SUBSCR BINARY_SLICE BINARY_OP COMPARE_OP CONTAINS_OP
        UNARY_POSITIVE UNARY_NEGATIVE UNARY_INVERT TO_BOOL GET_ITER WITH_EXCEPT_START FORMAT_SIMPLE FORMAT_WITH_SPEC
        CONVERT_VALUE""".split(),
        Form.VALUE,
    ),
    **dict.fromkeys("STORE_ATTR DELETE_ATTR STORE_SUBSCR DELETE_SUBSCR STORE_SLICE".split(), Form.NOTHING),
    **dict.fromkeys(
        "UNARY_NOT POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE UNPACK_SEQUENCE UNPACK_EX LIST_EXTEND SET_UPDATE".split(), Form.TEST
    ),
    **dict.fromkeys("JUMP_IF_TRUE_OR_POP JUMP_IF_FALSE_OR_POP".split(), Form.KEEP),
    "BEFORE_WITH": Form.PAIR,
    **dict.fromkeys("LOAD_METHOD LOAD_SUPER_METHOD".split(), Form.METHOD),
    "FOR_ITER": Form.NEXT,
}


def operand_count(op: Op) -> int:
    """How many slots on top of the stack are what an operation in `FORMS` works on."""
    return 1 if op.name == "FOR_ITER" else effect(op)[0]
