"""Nothing of ours outlives the program, delays its end, or waits for a thread that a forked child does not have."""

import ast
import contextvars
import itertools
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time

import pytest

import architecture
from pliant import background

# One process for all: each end is a forked child's, which finalizes an interpreter as any program does.
_PROGRAM = """
import atexit, os, signal, sys, tempfile, threading, time
import torch, pliant
from pliant.guards import native_watch

run = pliant.compile(lambda x: torch.sin(x) + 1)

def left():  # runs behind the join of all threads
    names = [t.name for t in threading.enumerate() if t.name.startswith("pliant")]
    if names:
        print("left:", names, flush=True)

def begin(beside, delay):
    atexit.register(left)
    if beside:
        native_watch.prepare_beside()
    else:
        run(torch.ones(4))
    time.sleep(delay)

def raising():
    raise LookupError("mine")

def interrupted():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(200)

def use(count):
    assert run(torch.ones(count)).sum() > count

def forking():
    if os.fork() == 0:
        use(5)
        sys.exit(0)
    assert os.wait()[1] == 0
    sys.exit(0)

def in_thread():
    threading.Thread(target=lambda: (use(5), sys.exit(3))).start()
    sys.exit(0)

def with_a_daemon():
    threading.Thread(target=lambda: [use(5) for _ in iter(int, 1)], daemon=True).start()
    sys.exit(0)

def at_exit():
    atexit.register(use, 5)
    sys.exit(0)

class Finalized:
    def __del__(self):
        run(torch.ones(4)), run(torch.ones(2, 3))

def finalizing():
    global kept
    kept = Finalized()
    sys.exit(0)

ENDS = {  # what ends the program, its status, the last line of what it says
    "the last line": (lambda: sys.exit(0), 0, ""),
    "sys.exit": (lambda: sys.exit(3), 3, ""),
    "os._exit": (lambda: os._exit(3), 3, ""),
    "an exception": (raising, 1, "LookupError: mine"),
    "KeyboardInterrupt": (interrupted, -signal.SIGINT, "KeyboardInterrupt"),
    "a forked child": (forking, 0, ""),
    "sys.exit in a thread": (in_thread, 0, ""),
    "a call as it ends": (at_exit, 0, ""),
    "a finalizer": (finalizing, 0, ""),
    "a daemon thread": (with_a_daemon, 0, ""),  # or, as of any that the end meets within PyTorch, an abort
}
ABORTED = (-signal.SIGABRT, "terminate called without an active exception")

def end_of(end, beside, delay):
    said = os.open(os.path.join(FOLDER, "stderr"), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    child = os.fork()
    if child == 0:
        os.dup2(said, 2)
        begin(beside, delay)
        ENDS[end][0]()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(said)
    lines = open(os.path.join(FOLDER, "stderr")).read().splitlines() or [""]
    return status, lines[-1]

for end, beside, delay in CASES:
    folder = tempfile.mkdtemp(dir=FOLDER)  # which nobody removes: a child that ends here, too, might while it writes
    os.environ["PLIANT_CACHE_DIR"] = folder
    with pliant.config.patch(cache_dir=folder):
        found = end_of(end, beside, delay)
    _, status, line = ENDS[end]
    if found not in ((status, line), (128 + abs(status), line)) and not (end == "a daemon thread" and found == ABORTED):
        print(end, beside, delay, "ends with", *found)
"""
ENDS = (
    "the last line", "sys.exit", "os._exit", "an exception", "KeyboardInterrupt", "a forked child",
    "sys.exit in a thread", "a call as it ends", "a finalizer",
)  # fmt: skip
WIDE = (*ENDS, "a daemon thread")


def _run(cases, **environment):
    """What a program with these ends, (which, whether only threads of ours work, after how long), complains of."""
    with tempfile.TemporaryDirectory() as folder:
        program = _PROGRAM.replace("CASES", repr(cases)).replace("FOLDER", repr(folder))
        return subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=550, env={**os.environ, **environment}
        )


def _check(done):
    assert done.returncode == 0 and done.stdout == "", done.stdout + done.stderr
    assert "terminate called" not in done.stderr and "Fatal" not in done.stderr, done.stderr
    assert "PliantWarning" not in done.stderr, done.stderr


def _slow_compiler(folder):
    """A C compiler that takes minutes, in a process of its own."""
    path = folder / "slow-cc"
    path.write_text("#!/bin/sh\nsleep 200\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_build_in_flight_does_not_hold_up_the_end(tmp_path):
    started = time.monotonic()
    cases = [(end, True, 0.05) for end in ("the last line", "sys.exit", "an exception", "KeyboardInterrupt")]
    _check(_run(cases, PLIANT_CC=_slow_compiler(tmp_path), TMPDIR=str(tmp_path)))
    assert time.monotonic() - started < 150  # one compiler alone takes longer
    assert [p.name for p in tmp_path.iterdir()] == ["slow-cc"] and _started_in(tmp_path) == []


def _started_in(folder):
    """Processes whose command names the folder."""
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = open(f"/proc/{process}/cmdline", encoding="utf-8").read()
        except OSError:
            continue
        if str(folder) in command and int(process) != os.getpid():
            found.append(command)
    return found


def test_programs_end_as_they_say():
    _check(_run([(end, k % 2 == 1, 0.03 * k) for k, end in enumerate(ENDS)], PLIANT_KEEP_ENTRIES="1"))


def test_a_forked_child_finds_locks_free():
    locks = background.lock(), background.reentrant_lock()
    held, end = threading.Event(), threading.Event()

    def hold():
        with locks[0], locks[1]:
            held.set()
            end.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if all(one.acquire(timeout=5) for one in locks) else 1)
    end.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_every_lock_is_free_in_a_forked_child():
    """Locks that modules and objects keep are made by `background`."""
    offenders = []
    for path in architecture.SOURCE.rglob("*.py"):
        if path.name == "background.py" or "capture/handlers" in str(path) or "capture/reconstruct" in str(path):
            continue  # those name the types of the program's locks
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("threading.Lock", "threading.RLock"):
                offenders.append(f"{path}:{node.lineno}")
    assert offenders == []


def test_commands_run_at_once_and_none_is_left(tmp_path):
    started = time.monotonic()
    with pytest.raises(background.Failed, match="no such luck"):
        background.run_all(
            [["sh", "-c", "echo no such luck; exit 3"], ["sleep", "200"], ["sleep", "200"]], at_once=2, timeout=50
        )
    with pytest.raises(subprocess.TimeoutExpired):
        background.run_all([["sleep", "200"]], at_once=1, timeout=0.05)
    assert time.monotonic() - started < 150
    marks = [["touch", str(tmp_path / str(k))] for k in range(5)]
    background.run_all(marks, at_once=2, timeout=50)
    assert len(list(tmp_path.iterdir())) == 5


def main():
    """Ends at every 10 ms: `python -m tests.test_background`."""
    for end, beside, keeping in itertools.product(WIDE, (False, True), "01"):
        _check(_run([(end, beside, k / 100) for k in range(31)], PLIANT_KEEP_ENTRIES=keeping))
        print(f"{end}, {'beside' if beside else 'after a call'}, keeping {keeping}: 31 ends as eager's")


if __name__ == "__main__":
    main()


def test_for_each_does_all_in_this_context():
    where, done, setting = set(), [], contextvars.ContextVar("setting", default=0)
    setting.set(7)

    def work(k):
        time.sleep(0.01)
        where.add(threading.get_ident())
        done.append((k, setting.get()))

    background.for_each(work, range(12), at_once=3)
    assert sorted(done) == [(k, 7) for k in range(12)] and 1 < len(where) <= 3
    background.for_each(work, [], at_once=3)
    background.for_each(work, [12], at_once=1)
    assert len(done) == 13


def test_for_each_raises_the_first_error_and_begins_nothing_more():
    begun = []

    def work(k):
        begun.append(k)
        if k in (2, 3):
            time.sleep(0.02 * (4 - k))
            raise ValueError(k)
        time.sleep(0.01)

    with pytest.raises(ValueError, match=r"^[23]$"):
        background.for_each(work, range(100), at_once=4)
    assert len(begun) < 20 and not [t for t in threading.enumerate() if t.name == "pliant-build"]


def test_for_each_without_threads(monkeypatch):
    monkeypatch.setattr(background, "_ended", True)
    done = []
    background.for_each(done.append, range(5), at_once=4)
    assert sorted(done) == list(range(5))


def test_who_waits_for_the_work_ends_its_waits():
    begun, waited = threading.Event(), []

    def work():
        begun.set()
        waited.append(background.wait(threading.Event(), 300))

    background.start(work, "pliant-test")
    begun.wait()
    background.finish("pliant-test")
    assert waited == [False]


def test_threads_that_others_start_are_waited_for():
    """A thread that is being started cannot be joined yet, though it is told of."""
    done = []

    def begin():
        for _ in range(100):
            background.start(lambda: done.append(1), "pliant-test-inner")

    background.start(begin, "pliant-test-outer")
    for _ in range(100):
        background.finish("pliant-test-inner")
    background.finish("pliant-test-outer")
    background.finish("pliant-test-inner")
    assert len(done) == 100


def test_work_that_starts_a_process_has_begun_when_it_runs():
    ended = threading.Event()

    def work():
        background.run_all([[sys.executable, "-c", "import time; time.sleep(0.3)"]], at_once=1, timeout=60)
        ended.set()

    start = time.monotonic()
    background.begin(work, "pliant-test")
    assert background._children and not ended.is_set()
    background.finish("pliant-test")
    assert ended.is_set() and time.monotonic() - start >= 0.3


def test_work_without_a_process_has_begun_when_it_is_done_or_soon():
    done, go = [], threading.Event()
    background.begin(lambda: done.append(1), "pliant-test")
    assert done == [1]
    background.begin(lambda: (go.wait(60), done.append(2)), "pliant-test")  # nobody is waited for that waits himself
    assert done == [1]
    go.set()
    background.finish("pliant-test")
    assert done == [1, 2]
