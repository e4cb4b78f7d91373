"""Locks, thread locals, context variables and thread identities in captured programs."""

import contextvars
import sys
import threading

import torch

import pliant


def compile_fresh(function, whole=True):
    pliant.reset()
    return pliant.compile(function, backend="eager", fullgraph=whole)


class Counter:
    def __init__(self):
        self.lock = threading.Lock()
        self.count = 0
        self.seen = []

    def step(self, x):
        with self.lock:
            self.count += 1
            count = self.count
        return x + count


def run_threads(work, count=4):
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_updates_under_a_lock_are_not_lost():
    counter = Counter()
    compiled = compile_fresh(counter.step)
    compiled(torch.zeros(1))
    compiled(torch.zeros(1))
    run_threads(lambda i: [counter.seen.append(float(compiled(torch.zeros(1)))) for _ in range(50)])
    assert counter.count == 202
    assert sorted(counter.seen) == list(range(3, 203))
    assert not counter.lock.locked()


def test_the_lock_is_free_after_an_error_and_waited_for():
    lock = threading.Lock()

    def program(x):
        with lock:
            y = x + 1
        return y * 2

    compiled = compile_fresh(program)
    compiled(torch.zeros(1))
    done = threading.Event()
    with lock:
        thread = threading.Thread(target=lambda: (compiled(torch.zeros(1)), done.set()))
        thread.start()
        assert not done.wait(0.1)
    thread.join()
    assert done.is_set() and not lock.locked()


def test_a_break_under_a_lock_takes_the_lock_itself():
    lock = threading.Lock()
    held = []

    def program(x):
        x = x + 1
        with lock:
            if x.sum() > 0:
                x = x * 2
            held.append(lock.locked())
        return x

    compiled = compile_fresh(program, whole=False)
    for value in (1.0, -5.0, 1.0):
        x = torch.full((2,), value)
        assert torch.equal(compiled(x), program(x))
    assert held == [True] * 6 and not lock.locked()


def test_a_break_behind_a_lock():
    lock = threading.RLock()

    def program(x):
        with lock, lock:
            x = x + 1
        if x.sum() > 0:
            x = x * 2
        with lock:
            return x + 1

    compiled = compile_fresh(program, whole=False)
    for value in (1.0, -5.0, 1.0):
        x = torch.full((2,), value)
        assert torch.equal(compiled(x), program(x))


def test_each_thread_reads_its_own_locals():
    local = threading.local()
    local.scale = 1.0

    def program(x):
        if hasattr(local, "seen"):
            local.seen += 1
        return x * getattr(local, "scale", 7.0)

    compiled = compile_fresh(program)
    found = {}

    def work(i):
        if i:
            local.scale = float(i)
        local.seen = i
        found[i] = (float(compiled(torch.ones(1))), local.seen)

    assert float(compiled(torch.ones(1))) == 1.0
    run_threads(work)
    assert found == {0: (7.0, 1), 1: (1.0, 2), 2: (2.0, 3), 3: (3.0, 4)}
    assert float(compiled(torch.ones(1))) == 1.0 and not hasattr(local, "seen")


def test_which_thread():
    def program(x):
        return x + 1, threading.current_thread() is threading.main_thread(), threading.get_ident()

    compiled = compile_fresh(program)
    assert compiled(torch.ones(1))[1:] == (True, threading.get_ident())
    found = []
    run_threads(lambda i: found.append((compiled(torch.ones(1))[1:], threading.get_ident())), 2)
    assert all(answer == (False, ident) for answer, ident in found)


def test_a_break_while_a_lock_is_held():
    lock = threading.RLock()

    def program(x):
        with lock:
            x = x + 1
            pliant.graph_break()
            x = x * 2
        return x - 1

    compiled = compile_fresh(program, whole=False)
    for value in range(4):
        assert compiled(torch.tensor(value)) == program(torch.tensor(value))
        assert not lock._is_owned()
    stats = pliant.stats()
    assert (stats["graph_breaks"], stats["recompiles"]) == (2, 0)


def test_locks_that_differ_by_call_and_errors_under_them():
    def program(x, lock):
        with lock:
            pliant.graph_break()
            x = x / x.shape[0]
            assert x.shape[0] < 4
        return x, lock.locked()

    compiled = compile_fresh(program, whole=False)
    for n in (2, 3, 4, 3, 3, 3):
        lock, before = threading.Lock(), pliant.stats()["recompiles"]
        try:
            assert not compiled(torch.ones(n), lock)[1]
        except AssertionError:
            assert n == 4
        assert not lock.locked()
    assert pliant.stats()["recompiles"] == before


def test_a_lock_that_is_not_held_is_released():
    def program(x, lock):
        pliant.graph_break()
        x = x + 1
        lock.release()
        return x

    compiled = compile_fresh(program, whole=False)
    held = threading.Lock()
    held.acquire()
    assert compiled(torch.ones(1), held) == 2 and not held.locked()
    for _ in range(2):
        try:
            compiled(torch.ones(1), threading.Lock())
        except RuntimeError as error:
            assert "release unlocked lock" in str(error)
        else:
            raise AssertionError("released")


def test_a_lock_that_stays_held():
    lock = threading.Lock()

    def take(x):
        lock.acquire()
        return x + 1

    def program(x):
        y = take(x)
        pliant.graph_break()
        held = lock.locked()
        lock.release()
        return y, held

    compiled = compile_fresh(program, whole=False)
    compiled_take = pliant.compile(take, backend="eager")
    for _ in range(2):
        assert compiled(torch.ones(1))[1] and not lock.locked()
        compiled_take(torch.ones(1))
        assert lock.locked()
        lock.release()


def test_threads_wait_for_each_other_inside():
    def program(x, barrier):
        x = x + 1
        barrier.wait()
        return x * 2

    compiled, barrier = compile_fresh(program, whole=False), threading.Barrier(2)
    found = []
    for _ in range(3):
        run_threads(lambda i: found.append(float(compiled(torch.zeros(1), barrier))), 2)
    assert found == [2.0] * 6


def test_own_locks_stay_held_behind_a_break():
    def program(x, make):
        lock = make()
        lock.acquire()
        if hasattr(lock, "_is_owned"):
            lock.acquire()
        pliant.graph_break()
        held = 0
        while True:
            try:
                lock.release()
            except RuntimeError:
                return x + held
            held += 1

    def waits(x):
        lock = threading.Lock()
        return x + lock.acquire() + lock.acquire(False) + lock.acquire(True, 0.01)

    compiled = compile_fresh(program, whole=False)
    assert compiled(torch.zeros(1), threading.Lock) == 1 and compiled(torch.zeros(1), threading.RLock) == 2
    assert compile_fresh(waits, whole=False)(torch.zeros(1)) == 1
    assert pliant.stats()["graph_breaks"] == 1


def test_the_default_of_a_context_variable_is_an_object_of_the_program():
    """Which it changes, as compiled code does."""
    counts = [2.0]
    variable = contextvars.ContextVar("variable", default=counts)

    def counted(x):
        found = variable.get()
        found[0] += 1
        found.append(x.shape[0])
        return x * found[0] * len(variable.get())

    compiled, x = compile_fresh(counted), torch.ones(3)
    assert compiled(x)[0] == 6
    assert counts == [3.0, 3]
    counts[0] = 7.0
    assert compiled(x)[0] == 24
    assert counts == [8.0, 3, 3]
    variable.set([0.0])
    assert compiled(x)[0] == 2
    assert counts == [8.0, 3, 3]


def in_time(work):
    """What the work gives in a thread of its own, which may hang."""
    given = []
    thread = threading.Thread(target=lambda: given.append(work()), daemon=True)
    thread.start()
    thread.join(60)
    assert given, "it hangs"
    return given[0]


def test_threads_that_are_started_and_joined_behind_breaks():
    """Also where new entries are kept on disk, by a thread that takes the locks which the program holds meanwhile."""

    def program(x):
        seen = []
        one = threading.Thread(target=seen.append, args=(1,), daemon=False)
        one.start()
        one.join()
        return x + len(seen), threading.active_count()

    def calls():
        with pliant.config.patch(keep_entries=True):
            compiled = pliant.compile(program)
            return [compiled(torch.zeros(1))[0].item() for _ in range(2)]

    pliant.reset()
    assert in_time(calls) == [1, 1]


def test_no_lock_of_the_compiler_is_held_while_the_program_waits_for_its_own():
    lock, captures, go_on = threading.RLock(), threading.Event(), threading.Event()

    def backend(graph, inputs):
        captures.set()
        go_on.wait(30)
        return graph.forward

    def program(x):
        with lock:
            return x + 1

    def last():
        with lock:
            go_on.set()
            second.join(0.3)  # it comes to the lock
            return compiled(torch.zeros(2))

    pliant.reset()
    compiled = pliant.compile(program, backend=backend, dynamic=False)
    first, second = (threading.Thread(target=compiled, args=(torch.zeros(1),), daemon=True) for _ in range(2))
    first.start()
    assert captures.wait(30)
    second.start()  # which waits for the entry of the first, and runs it
    assert in_time(last).tolist() == [1, 1]


def test_what_runs_eagerly_as_a_whole_may_wait_for_a_thread_that_is_compiled():
    done = []

    def wait(x):
        other = threading.Thread(target=lambda: done.append(compiled(x, False)), daemon=True)
        other.start()
        other.join(20)

    def program(x, waits):
        frame = sys._getframe()
        if waits:
            wait(x)
        return x + ("waits" in frame.f_locals)

    compiled = compile_fresh(program, whole=False)
    assert in_time(lambda: compiled(torch.zeros(1), True)).item() == 1
    assert pliant.stats()["fallbacks"] and done[0].item() == 1
