"""Single operations: what they are called, what their argument is, on every version."""

import pytest

from pliant.bytecode.cfg import live_locals
from pliant.bytecode.decode import decode
from pliant.bytecode.ops import OPS
from pliant.bytecode.versions import NULL_BELOW_CALLABLE, CallArgs


def program_of(text):
    scope = {}
    exec(f"def f(a, b, c, *d):\n    {text}", scope)
    return decode(scope["f"].__code__)


def pairs(text):
    return [(op.name, op.arg) for op in program_of(text)]


ROWS = [
    ("a + b", "BINARY_OP", "+"),
    ("a @= b", "BINARY_OP", "@="),
    ("a < b", "COMPARE_OP", "<"),
    ("a is not b", "IS_OP", "is not"),
    ("a not in b", "CONTAINS_OP", "not in"),
    ("-a", "UNARY_NEGATIVE", None),
    ("+a", "UNARY_POSITIVE", None),
    ("a.x", "LOAD_ATTR", "x"),
    ("a.x()", "LOAD_METHOD", "x"),
    ("a.x = b", "STORE_ATTR", "x"),
    ("g(a)", "LOAD_GLOBAL", "g"),
    ("g(a, k=b)", "CALL", CallArgs(2, ("k",))),
    ("g(a, b)", "CALL", CallArgs(2)),
    ("g(*a, **b)", "CALL_FUNCTION_EX", True),
    ("g(*a)", "CALL_FUNCTION_EX", False),
    ("[*d, a]", "LIST_EXTEND", 1),
    ("(*d, a)", "LIST_TO_TUPLE", None),
    ("a, *b, c = d", "UNPACK_EX", (1, 1)),
    ("a, b = c", "UNPACK_SEQUENCE", 2),
    ("return f'{a!r}'", "CONVERT_VALUE", "repr"),
    ("return f'{a:{b}}'", "FORMAT_WITH_SPEC", None),
    ("return f'{a}{b}'", "BUILD_STRING", 2),
    ("return {'x': a, 'y': b, 'z': c}", "BUILD_CONST_KEY_MAP", 3),
    ("del a[b]", "DELETE_SUBSCR", None),
    ("del a", "DELETE_FAST", "a"),
    ("import x.y", "IMPORT_NAME", "x.y"),
    ("raise a from b", "RAISE_VARARGS", 2),
    ("return (yield a)", "YIELD_VALUE", None),
    ("return lambda: a", "LOAD_CLOSURE", "a"),
    ("return [a] if a is None else b", "POP_JUMP_IF_NOT_NONE", None),
    ("assert a", "LOAD_ASSERTION_ERROR", None),
]


@pytest.mark.parametrize(("text", "name", "arg"), ROWS, ids=[row[0] for row in ROWS])
def test_operation(text, name, arg):
    assert (name, arg) in pairs(text)


def test_null_lies_where_the_version_wants_it():
    names = [op.name for op in program_of("return g(a)")]
    expected = ["PUSH_NULL", "LOAD_GLOBAL"] if NULL_BELOW_CALLABLE else ["LOAD_GLOBAL", "PUSH_NULL"]
    assert names == [*expected, "LOAD_FAST", "CALL", "RETURN_VALUE"]


def test_every_operation_has_an_offset_of_its_own():
    for text in ("return f'{a!r:{b}} {a < b}'", "a, b = b, a", "if a < b: return c"):
        program = program_of(text)
        assert [program.index_of(op.offset) for op in program] == list(range(len(program.ops)))


def test_exhausted_loop_goes_behind_what_the_interpreter_skips():
    program = program_of("for x in a: b(x)")
    loop = next(op for op in program if op.name == "FOR_ITER")
    assert [op.name for op in program.ops[loop.target :]] == ["LOAD_CONST", "RETURN_VALUE"]


def test_decoding_is_done_once():
    code = program_of("return a").code
    assert decode(code) is decode(code)


def test_every_row_of_the_table_says_something():
    assert all(info.meaning for info in OPS.values())


def test_live_locals_are_those_still_read():
    program = program_of("x = a; y = b; b = x; return (x, y)")
    assert live_locals(program, 0) == {"a", "b"}
    assert live_locals(program, len(program.ops) - 1) == frozenset()
    stores = [op.index for op in program if op.name == "STORE_FAST" and op.arg == "y"]
    assert live_locals(program, stores[0] + 1) == {"x", "y"}


def test_live_through_an_exception():
    program = program_of(
        "x = a\n    try:\n        b()\n    except Exception:\n        return x\n    x = c\n    return x"
    )
    call = next(op.index for op in program if op.name == "CALL")
    assert live_locals(program, call) == {"x", "c"}
