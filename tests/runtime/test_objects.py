"""Kernels that graphs have in common are compiled once, and each graph has all of its code."""

import os
import threading

import pytest
import torch

import pliant
from loop_programs import Program, get
from pliant import background
from pliant.errors import CompileError
from pliant.ir.scalar import apply
from pliant.runtime import objects
from pliant.runtime.compile_program import compile_program


def steps(*rows):
    """A sum of each row and then what is left of it, for inputs of so many rows: kernels that others have, too."""
    p, outputs = Program(), []
    for count in rows:
        x = p.tensor(count, 37)
        total = p.reduce("sum", (count,), (37,), lambda i, j, x=x: get(x, i, j))
        outputs.append(p.pointwise((count, 37), lambda j, i, x=x, t=total: apply("sub", get(x, j, i), get(t, j))))
    p.done(*outputs)
    return p.program


def check(compiled, *rows):
    xs = [torch.randn(count, 37) for count in rows]
    for got, x in zip(compiled(list(xs)), xs, strict=True):
        torch.testing.assert_close(got, x - x.sum(1, keepdim=True))


@pytest.fixture
def compiled_texts(monkeypatch):
    """Nothing is known; what the compiler is given from now on."""
    pliant.reset()
    given, real = [], objects.compile_objects

    def noted(texts, *rest):
        given.append("".join(texts))
        return real(texts, *rest)

    monkeypatch.setattr(objects, "compile_objects", noted)
    return given


def functions(text):
    return text.count("_part(void**")


def test_a_kernel_is_compiled_once(compiled_texts):
    check(compile_program(steps(11, 12)), 11, 12)
    check(compile_program(steps(12, 13)), 12, 13)
    check(compile_program(steps(13, 11)), 13, 11)
    first, second, third = map(functions, compiled_texts)
    assert first == 2 * second > 0 and third == 0


def test_what_is_linked_is_what_the_graph_calls(compiled_texts):
    """Not the other graph's entries, which have the same names, nor kernels that only it calls."""
    one, other = compile_program(steps(14, 15, 16, 17)), compile_program(steps(15))
    check(one, 14, 15, 16, 17)
    check(other, 15)
    assert functions(compiled_texts[1]) == 0
    nothing_shared = compile_program(steps(15, 18))
    check(nothing_shared, 15, 18)


def test_a_reset_forgets_them(compiled_texts):
    compile_program(steps(19))
    pliant.reset()
    check(compile_program(steps(19, 20)), 19, 20)
    assert functions(compiled_texts[1]) == 2 * functions(compiled_texts[0])


def test_the_oldest_are_dropped(compiled_texts, monkeypatch):
    monkeypatch.setattr(objects, "MAX_BYTES", 0)
    compile_program(steps(21))
    check(compile_program(steps(21, 22)), 21, 22)
    assert functions(compiled_texts[1]) == 2 * functions(compiled_texts[0])


def test_a_build_waits_for_another_that_makes_its_kernels(compiled_texts, monkeypatch):
    begun, go, real = threading.Event(), threading.Event(), objects.compile_objects

    def slow(texts, *rest):
        if not begun.is_set():
            begun.set()
            assert go.wait(60)
        return real(texts, *rest)

    monkeypatch.setattr(objects, "compile_objects", slow)
    found = []
    assert background.start(lambda: found.append(compile_program(steps(23, 24))), "pliant-test")
    assert begun.wait(60)
    threading.Timer(0.2, go.set).start()
    check(compile_program(steps(24, 25)), 24, 25)
    background.finish("pliant-test")
    check(found[0], 23, 24)
    assert sum(map(functions, compiled_texts)) == 3 * functions(steps_text(23))


def steps_text(*rows):
    return compile_program(steps(*rows)).source


def test_a_build_that_fails_leaves_the_others_whole(monkeypatch):
    pliant.reset()
    begun, go, real = threading.Event(), threading.Event(), objects.compile_objects

    def fails(texts, *rest):
        if not begun.is_set():
            begun.set()
            assert go.wait(60)
            raise CompileError("no", kind="c-compiler")
        return real(texts, *rest)

    def one():
        with pytest.raises(CompileError):
            compile_program(steps(26, 27))

    monkeypatch.setattr(objects, "compile_objects", fails)
    assert background.start(one, "pliant-test")
    assert begun.wait(60)
    threading.Timer(0.2, go.set).start()
    check(compile_program(steps(27, 28)), 27, 28)
    background.finish("pliant-test")
    check(compile_program(steps(26)), 26)


def test_what_does_not_link_is_built_alone(monkeypatch):
    pliant.reset()
    real = objects.link

    def refuses(paths, texts, options, target, more):
        if more:
            raise CompileError("no such option", kind="c-compiler")
        real(paths, texts, options, target, more)

    compile_program(steps(29))
    monkeypatch.setattr(objects, "link", refuses)
    check(compile_program(steps(29, 30)), 29, 30)


def test_a_build_serves_this_process_and_other_threads():
    build = objects._Build()
    assert not build.serves()  # this very thread would wait for itself
    build.thread = -1
    assert build.serves()
    build.process = os.getppid()  # a thread of the parent: a forked child has it not
    assert not build.serves()
    build.ended.set()
    assert not build.serves()  # it failed
    build.objects = {"k": objects._Object(b"", False)}
    assert build.serves()
