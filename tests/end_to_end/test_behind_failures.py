"""Graphs that are compiled behind calls: failures, budgets, what cannot be put off, other processes."""

import os
import threading

import pytest
import torch

import pliant
from behind_calls import BEHIND, Gate, compiled, told
from own_process import ran
from pliant.errors import BackendError, ConfigError, FallbackWarning, GraphBreakError, InternalError, Unsupported


@pytest.fixture
def gate(monkeypatch):
    yield from Gate.installed(monkeypatch)


# ---- errors


def failing(gate, error, **options):
    run, x = compiled(lambda x: torch.sin(x) + 1, options=options), torch.randn(4)
    run(x)
    gate.fails = error
    return run, x


def test_a_failure_is_told_once_and_calls_go_on(gate):
    run, x = failing(gate, ZeroDivisionError("mine"))
    with pytest.warns(FallbackWarning, match="operator by operator") as warned:
        gate.open()
    assert len(warned) == 1
    for _ in range(3):
        assert torch.allclose(run(x), torch.sin(x) + 1)
    assert told()["fails"] == pliant.stats()["fallbacks"] == 1
    assert "ZeroDivisionError: mine" in next(iter(pliant.stats()["fallback_reasons"]))


def test_a_failure_under_strict_is_raised_by_a_later_call(gate):
    run, x = failing(gate, ZeroDivisionError("mine"), strict=True)
    gate.open()
    with pytest.raises(InternalError, match="mine"):
        run(x)


@pytest.mark.filterwarnings("error")
def test_a_warning_that_is_wanted_as_an_error(gate):
    run, x = failing(gate, ZeroDivisionError("mine"))
    gate.open()
    with pytest.raises(FallbackWarning, match="mine"):
        run(x)
    gate.fails = None
    assert torch.allclose(run(x), torch.sin(x) + 1)


def test_what_is_refused_is_met_in_a_call(gate):
    run, x = failing(gate, Unsupported("that"))
    gate.open()
    assert told()["is compiled again in a call"] == 1
    assert torch.allclose(run(x), torch.sin(x) + 1)
    assert pliant.stats()["fallbacks"] == 1
    gate.fails = None
    assert torch.allclose(run(x), torch.sin(x) + 1)
    assert told()["has begun"] == 1 and pliant.stats()["graphs"] == 1


def test_errors_of_backends_are_raised_by_a_call():
    pliant.reset()

    def backend(module, inputs):
        raise KeyError("mine")

    run = compiled(lambda x: x + 1, backend=backend)
    assert torch.equal(run(torch.ones(2)), torch.full((2,), 2.0))
    assert pliant.wait(60)
    with pytest.raises(BackendError, match="raised KeyError"):
        run(torch.ones(2))


def test_backends_of_the_program():
    pliant.reset()
    threads = []

    def backend(module, inputs):
        threads.append(threading.current_thread().name)
        return module.forward

    run = compiled(lambda x: x + 1, backend=backend)
    run(torch.ones(2))
    assert pliant.wait(60)
    assert torch.equal(run(torch.ones(2)), torch.full((2,), 2.0)) and threads == ["pliant-background"]


def _scaled(x):
    return x * 2


pliant.allow_in_graph(_scaled)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: torch.func.jacfwd(torch.sin)(x), lambda x: torch.func.vmap(torch.sin)(x), _scaled,
        lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)),
    ],
    ids=["forward derivatives", "vmap", "in graph", "cond"],
)  # fmt: skip
def test_what_cannot_be_put_off_is_compiled_in_the_call(gate, program):
    gate.opened.set()
    run, x = compiled(lambda x: program(x) + 1), torch.ones(3)
    assert torch.allclose(run(x), program(x) + 1)
    assert set(told()) <= {"is compiled in the call"} and pliant.stats()["pending"] == 0


def test_an_explanation_waits_for_the_compiler():
    pliant.reset()
    seen = pliant.explain(lambda x: torch.sin(x) + 1, options=BEHIND)(torch.ones(3))
    assert seen.operators == 2


def test_a_break_under_fullgraph_is_an_error_of_the_call(gate):
    def program(x):
        pliant.graph_break()
        return x + 1

    with pytest.raises(GraphBreakError):
        compiled(program, fullgraph=True)(torch.ones(2))
    assert told() == {}


# ---- the budget


def test_what_is_not_ready_in_time_is_given_up(gate):
    run, x = compiled(lambda x: torch.sin(x) + 1, options={"background_budget": 0.0}), torch.randn(4)
    with pytest.warns(FallbackWarning, match="not compiled within 0 s"):
        run(x)
        gate.open()
    for _ in range(3):
        assert torch.allclose(run(x), torch.sin(x) + 1)
    assert told() == {"has begun": 1, "is given up": 1} and pliant.stats()["fallbacks"] == 1


@pytest.mark.parametrize(
    "options",
    [{"background": "yes"}, {"background": 1}, {"background_budget": -1.0}, {"background_budget": "5"}, {"background_budgt": 1.0}],
)
def test_wrong_values(options):
    with pytest.raises(ConfigError):
        pliant.compile(lambda x: x, options=options)


def test_the_option_of_a_block(gate):
    with pliant.config.patch(background=True):
        pliant.compile(lambda x: x + 1)(torch.ones(2))
    assert told() == {"has begun": 1}


# ---- processes

_PROGRAM = """
import os, sys, threading, time, torch, pliant
from pliant import backends
from pliant.background import give_way
from pliant.compiler import compile_captured
begun = threading.Event()
def slow(captured):
    begun.set()
    while not os.path.exists(sys.argv[1]):
        give_way(at_once=True)
        time.sleep(0.001)
    return compile_captured(captured)
backends.BACKENDS["pliant"] = slow
run = pliant.compile(lambda x: torch.sin(x) + 1, options={"background": True})
run(torch.ones(3))
assert begun.wait(60)
"""


def test_the_end_of_a_program_waits_for_nothing(tmp_path):
    done = ran(_PROGRAM + "print('end')", tmp_path / "never")
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_a_forked_child_compiles_anew(tmp_path):
    child = """
if os.fork() == 0:
    open(sys.argv[1], "w")
    run(torch.ones(3))
    assert pliant.wait(60) and pliant.stats()["background"]["is ready"] == 1, pliant.stats()
    print(float(run(torch.zeros(3)).sum()))
    sys.exit(0)
assert os.wait()[1] == 0
run(torch.ones(3))
assert pliant.wait(60) and pliant.stats()["background"]["is ready"] == 1
"""
    done = ran(_PROGRAM + child, tmp_path / "go")
    assert (done.returncode, done.stdout) == (0, "3.0\n"), done.stderr


_KEEPING = """
import torch, pliant
from pliant.dispatch import trial
trial._CLEARLY = 0.0  # the compiled callable stays
def program(x):
    return torch.sin(x).softmax(-1) * torch.exp(x) + torch.cos(x)
run = pliant.compile(program, options={"background": True})
x = torch.randn(200, 500)
run(x)
assert pliant.wait(60)
for _ in range(40):
    assert torch.allclose(run(x), program(x))
from pliant import background
background.finish()
seen = pliant.stats()
print(seen["entries"], seen["background"].get("has begun", 0))
"""


def test_entries_are_kept_once_their_graphs_are_compiled(tmp_path):
    environment = {"PLIANT_KEEP_ENTRIES": "1", "PLIANT_CACHE_DIR": str(tmp_path)}
    first, second = (ran(_KEEPING, env={**os.environ, **environment}, check=True).stdout for _ in range(2))
    assert first == "{'kept': 1} 1\n"
    assert second == "{'found': 1} 0\n"

