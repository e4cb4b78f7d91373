"""Splitting a function's execution anywhere changes nothing: result, exception, its context, its lines, its effects."""

import sys
import types

import pytest
from harness import Stepper, outcome
from programs import CASES, LOG

from pliant.bytecode.decode import decode
from pliant.bytecode.resume import ResumePoint, generator_code, parameters, point_at, resume_code
from pliant.bytecode.steps import step_code
from pliant.errors import Unsupported

ROWS = [(function, args) for function, rows in CASES for args in rows]
NAMES = [f"{function.__qualname__}-{number}" for function, rows in CASES for number in range(len(rows))]
MOST_STEPS = 4000


def observed(function, args):
    LOG.clear()
    result = outcome(function, *args)
    return repr(result), list(LOG)


def may_refuse(function):
    """Inlined comprehensions shelve the cells of their own variables; nobody can stop there."""
    return sys.version_info >= (3, 12) and function.__name__ in ("shelved", "closures")


@pytest.mark.parametrize(("function", "args"), ROWS, ids=NAMES)
def test_all_in_steps(function, args):
    expected = observed(function, args)
    stepper = Stepper(function)
    try:
        assert observed(stepper, args) == expected
    except Unsupported as error:
        assert may_refuse(function), error


@pytest.mark.parametrize(("function", "args"), ROWS, ids=NAMES)
def test_resumed_after_each_step(function, args):
    expected = observed(function, args)
    for splits in range(MOST_STEPS):
        stepper = Stepper(function, splits)
        try:
            assert observed(stepper, args) == expected, stepper.points[-1]
        except Unsupported as error:
            assert may_refuse(function), error
            break
        if stepper.steps < splits:
            break


def test_point_behind_a_call():
    def outer(x):
        return [x, len(x), x]

    program = decode(outer.__code__)
    call = next(op for op in program if op.name == "CALL")
    point = point_at(program, program.index_of(call.offset) + 1, (True, True), ("x",))
    assert parameters(point) == (".s0", ".s1", "x")
    resumed = types.FunctionType(resume_code(point), globals())
    assert resumed(["first"], 17, ["last"]) is not None


def test_code_keeps_its_names_and_lines():
    def outer(x):
        y = x + 1
        return 1 / y

    point = point_at(decode(outer.__code__), 0, (), ("x",))
    code = resume_code(point)
    assert (code.co_name, code.co_qualname, code.co_filename) == (
        "outer",
        outer.__code__.co_qualname,
        outer.__code__.co_filename,
    )
    with pytest.raises(ZeroDivisionError) as caught:
        types.FunctionType(code, globals())(-1)
    assert caught.tb.tb_next.tb_lineno == outer.__code__.co_firstlineno + 2


def refused():
    def generator(x):
        yield x

    def handling(x):
        try:
            x()
        except ValueError:
            return x + 1

    body = compile("class A:\n    x = 1\n", "<text>", "exec").co_consts[0]
    add = next(op for op in decode(handling.__code__) if op.name == "BINARY_OP")
    return [
        (ResumePoint(generator.__code__, decode(generator.__code__).ops[-1].offset, (), ("x",)), "resume-frame"),
        (ResumePoint(body, decode(body).ops[0].offset, (), ()), "resume-frame"),
        (ResumePoint(handling.__code__, decode(handling.__code__).ops[0].offset, (True,) * 7, ("x",)), "resume-frame"),
        (ResumePoint(handling.__code__, add.offset, (True,) * 3, ("x",)), "resume-in-except"),
    ]


@pytest.mark.parametrize("make", [resume_code, step_code])
@pytest.mark.parametrize("number", range(4))
def test_refuses_what_it_cannot_resume(make, number):
    point, kind = refused()[number]
    with pytest.raises(Unsupported) as caught:
        make(point)
    assert caught.value.kind == kind


def test_a_generator_that_goes_on_shows_what_it_delegates_to():
    """`close` and `throw` go to the inner generator first."""

    def inner(log):
        try:
            yield 1
            yield 2
        except KeyError:
            yield "caught"
        finally:
            log.append("finally")

    def outer(it):
        yield from it

    program = decode(outer.__code__)
    index = next(op.index for op in program.ops if op.name == "SEND")
    code = generator_code(point_at(program, index, (True, True), ("it",)))
    log = []
    first, second = inner(log), inner(log)
    generator = types.FunctionType(code, {})(first, None)
    assert next(generator) == 1 and generator.gi_yieldfrom is first
    assert generator.throw(KeyError()) == "caught"
    generator.close()
    assert log == ["finally"]
    generator = types.FunctionType(code, {})(second, None)
    next(generator)
    del generator
    assert log == ["finally"] * 2
