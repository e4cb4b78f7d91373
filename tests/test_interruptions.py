"""What a signal handler or another thread throws into the compiler reaches the program, and the next call compiles."""

import ast
import ctypes
import gc
import os
import signal
import sys
import threading

import pytest
import torch

import architecture
import own_process
import pliant
from pliant import interruptions
from pliant.debug import events
from pliant.entries import keeper
from pliant.errors import BackendError


class Limit(Exception):
    """A time limit's exception."""


def with_names(signum, frame):
    raise Limit


def with_anything(*given):
    raise TimeoutError("late")


class Bound:
    def handle(self, signum, frame):
        raise RuntimeError("a limit of the program's")


def built_in(signum, frame):
    raise KeyboardInterrupt


HANDLERS = {with_names: Limit, with_anything: TimeoutError, Bound().handle: RuntimeError, built_in: KeyboardInterrupt}


def program(w):
    def run(x):
        parts = [p.tanh() for p in torch.split(x @ w, 2, dim=-1)]
        return torch.cat(parts).sort().values.sum() * w.sum()

    return run


class Interrupted:
    """The n-th call that the block makes is interrupted by an alarm."""

    def __init__(self, handler, number):
        self.handler, self.left, self.lost = handler, number, False

    def __enter__(self):
        self.before = signal.signal(signal.SIGALRM, self.handler)
        self.hook, sys.unraisablehook = sys.unraisablehook, self.lose
        sys.setprofile(self.profile)
        return self

    def profile(self, frame, event, argument):
        self.left -= 1
        if self.left == 0:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGALRM)

    def lose(self, unraisable):
        """It came while an object was dropped, where Python itself drops it."""
        self.lost = True

    def __exit__(self, *_):
        sys.setprofile(None)
        signal.signal(signal.SIGALRM, self.before)
        sys.unraisablehook = self.hook


def check(handler, number):
    """Whether the alarm came in time."""
    torch.manual_seed(0)
    w, x = torch.randn(4, 6), torch.randn(3, 4, requires_grad=True)
    pliant.reset()
    run = pliant.compile(program(w))
    came = False
    try:
        with Interrupted(handler, number) as alarm:
            run(x).backward()
    except HANDLERS[handler]:
        came = True
    assert came == (alarm.left <= 0 and not alarm.lost), "the alarm was swallowed"
    counted = pliant.stats()
    assert not counted["fallbacks"] and not counted["graph_breaks"], counted
    assert gc.isenabled() and torch.is_grad_enabled()
    expected, again = program(w)(x), run(x)
    torch.testing.assert_close(again, expected)
    torch.testing.assert_close(torch.autograd.grad(again, x), torch.autograd.grad(expected, x))
    counted = pliant.stats()
    assert counted["graphs"] >= 1 and not counted["fallbacks"] and not counted["graph_breaks"], counted
    return alarm.left <= 0


def in_its_own_process(call):
    """What runs the tests takes interruptions for its own, and has alarms of its own."""
    told = "import faulthandler; faulthandler.dump_traceback_later(180, exit=True)"  # where it stands, if it stands still
    code = f"{told}\nfrom tests import test_interruptions as tests; tests.{call}; print('done')"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = own_process.ran(code, env=environment)
    assert done.stdout.endswith("done\n"), done.stderr[-3000:]


@pytest.mark.multiprocess
def test_an_alarm_reaches_the_program():
    in_its_own_process("alarms()")


def alarms():
    for k, handler in enumerate(HANDLERS):
        first = 500 + 300 * k
        assert all([check(handler, number) for number in (first, first * 7, first * 16)][:2])


@pytest.mark.multiprocess
def test_an_exception_from_another_thread_reaches_the_program():
    in_its_own_process("thrown()")


def thrown():
    started = threading.Event()
    main = threading.get_ident()

    def throw():
        started.wait()
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(Limit))

    thread = threading.Thread(target=throw)
    thread.start()
    pliant.reset()
    end = events.subscribe(lambda event: started.set(), frozenset({"capture"}))
    w = torch.randn(4, 6)
    run = pliant.compile(program(w))
    with pytest.raises(Limit):
        run(torch.randn(3, 4))
        thread.join()
        sum(range(1000))
    end()
    assert pliant.stats()["fallbacks"] == 0
    torch.testing.assert_close(run(torch.ones(3, 4)), program(w)(torch.ones(3, 4)))


def test_what_the_program_handles_meanwhile_is_no_news():
    w = torch.randn(4, 6)

    def unfit(gm, inputs):
        raise ValueError("mine")

    try:
        with_names(0, sys._getframe())
    except Limit:
        with pytest.raises(BackendError):
            pliant.compile(program(w), backend=unfit)(torch.randn(3, 4))


def test_what_the_program_handles_is_no_news_while_entries_are_looked_for(monkeypatch, tmp_path):
    """A fault there leaves the old way; an exception thrown into a generator has come from no `raise`."""

    def at_fault(*given):
        raise ValueError("mine")

    def generator():
        yield

    monkeypatch.setattr(keeper, "key_of", at_fault)
    x, items = torch.ones(3, 4), generator()
    next(items)
    with pliant.config.patch(keep_entries=True, cache_dir=str(tmp_path)):
        pliant.compile(program(torch.ones(4, 6)))(x)  # the store is not empty
        try:
            items.throw(Limit)
        except Limit:
            run = pliant.compile(program(torch.ones(4, 8)))
            torch.testing.assert_close(run(x), program(torch.ones(4, 8))(x))


def test_our_own_errors_are_not_the_programs():
    def called(number, frame):
        raise ValueError("no handler: it was not given the frame that called it")

    with pytest.raises(ValueError) as caught:
        called(1, sys)
    assert interruptions.interruption_in(caught.value) is None
    with pytest.raises(Limit) as raised:
        raise Limit
    assert interruptions.interruption_in(raised.value) is None


def test_who_swallows_any_exception_passes_interruptions_on():
    """A handler of `Exception` or `OSError` (a time limit's may be one) raises in the end, since the chain is looked at
    later, or passes on first."""
    silent = []
    for path in architecture.SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "contextlib.suppress":
                silent += [path.name for kind in ("Exception", "OSError") if kind in ast.unparse(node)]
            if isinstance(node, ast.ExceptHandler) and node.type is not None and _is_broad(node):
                text = ast.unparse(node)
                if not isinstance(node.body[-1], ast.Raise) and "pass_on(" not in text and "raise" not in text:
                    silent.append(path.name)
    # The one raises it in the thread that waits; the other runs in the program, and hands the exception to `__exit__`.
    assert sorted(silent) == ["polyfills.py", "together.py"]


def _is_broad(handler):
    return {"Exception", "BaseException", "OSError"} & {ast.unparse(t) for t in getattr(handler.type, "elts", [handler.type])}


def main():
    """Alarms all over a compilation: `python -m tests.test_interruptions`."""
    for handler in HANDLERS:
        number, came = 50, 0
        while check(handler, number):
            number, came = int(number * 1.1) + 1, came + 1
        print(f"{HANDLERS[handler].__name__}: {came} alarms, all reach the program; {number} calls")


if __name__ == "__main__":
    main()
