"""The table of operations is complete: the interpreter has a handler for each, and real code reaches nearly all opcodes."""

import dis
import opcode

from tests.bytecode.roundtrip import MODULES, codes_of, disassemble

import pliant.capture.tracer  # fills the handlers
from pliant.bytecode.decode import decode
from pliant.bytecode.ops import OPS
from pliant.capture.frame import HANDLERS

assert pliant.capture.tracer

# Only in the code of modules and of the prompt, which is never captured, and in that of coroutines, whose calls break.
NEVER_CAPTURED = {
    "IMPORT_STAR", "PRINT_EXPR", "ASYNC_GEN_WRAP", "BEFORE_ASYNC_WITH", "END_ASYNC_FOR", "GET_AITER", "GET_ANEXT", "GET_AWAITABLE",
}  # fmt: skip
# Emitted for sources that the sample has not, or kept by CPython for other uses.
RARE = {
    "CACHE", "RESERVED", "INTERPRETER_EXIT", "ENTER_EXECUTOR", "PRINT_EXPR", "IMPORT_STAR", "LOAD_CLASSDEREF",
    "SETUP_ANNOTATIONS", "LOAD_LOCALS", "EXTENDED_ARG", "DELETE_DEREF", "DELETE_GLOBAL", "DELETE_NAME", "UNARY_POSITIVE",
    "PREP_RERAISE_STAR", "CHECK_EG_MATCH", "NOP", "LOAD_ASSERTION_ERROR", "GET_ANEXT", "GET_AITER", "ASYNC_GEN_WRAP",
    "END_ASYNC_FOR", "MATCH_KEYS", "MATCH_MAPPING", "MATCH_CLASS", "MATCH_SEQUENCE", "LOAD_FROM_DICT_OR_DEREF",
    "LOAD_FROM_DICT_OR_GLOBALS", "CLEANUP_THROW", "CALL_INTRINSIC_2", "GET_LEN", "JUMP_BACKWARD_NO_INTERRUPT",
    "LOAD_FAST_CHECK", "WITH_EXCEPT_START", "BEFORE_ASYNC_WITH", "SETUP_CLEANUP", "STORE_GLOBAL", "SET_ADD", "EXIT_INIT_CHECK",
    "POP_JUMP_BACKWARD_IF_NOT_NONE", "POP_JUMP_BACKWARD_IF_NONE",
}  # fmt: skip


def test_every_operation_has_a_handler():
    assert set(OPS) - set(HANDLERS) <= NEVER_CAPTURED


def test_real_code_reaches_nearly_every_opcode():
    seen = set()
    for path in MODULES:
        for code in codes_of(path):
            seen |= {item.name for item in disassemble(code) if hasattr(item, "name")}
            assert {op.name for op in decode(code).ops} <= set(OPS)
    real = {name for name, number in opcode.opmap.items() if number < 236 and not name.startswith("INSTRUMENTED_")}
    assert real - seen - set(getattr(dis, "_specialized_opmap", ())) <= RARE
