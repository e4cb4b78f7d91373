"""CPython's own tests, each test method under `pliant.compile`: `python -m benchmarks.cpython_tests test_list test_dict`.

In:     names of files of the interpreter's `test` package (`test_dict`; a test: `test_dict.DictTest.test_copy`); none: FILES.
Out:    a line a file: tests that ran, that pass plain, that pass compiled too, the seconds of both; below it each test
        that passes plain and not compiled, or takes far longer, with the last line of its error. `--verbose`: all of it.

A test runs in a child process, which tells of each as it begins and ends: one that crashes or takes longer than `--limit`
seconds is counted so, and a fresh child goes on behind it. The interpreter that runs the module is the one whose tests run.
"""

import argparse
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
import traceback
import types
import unittest
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

START_LIMIT = 120.0  # seconds in which a child has imported PyTorch and the tests
SLOW, FACTOR = 10.0, 20.0  # seconds more than plain, and times as many, that are told

FILES = """
    abc annotationlib array asyncgen augassign baseexception bdb binop bisect bool builtin bytes call class closures cmath code
    collections compare complex comprehensions contains contextlib context copy coroutines dataclasses datetime decimal
    decorators deque descr dict dict_version dictcomps dictviews dynamic dynamicclassattribute enum enumerate except_star
    exception_group exception_hierarchy exception_variations exceptions extcall float flow fnmatch format fractions
    fstring funcattrs functools future_stmt genericclass genericalias generator_stop generators genexps getopt global
    graphlib hash heapq html index inspect int int_literal isinstance iter itertools json keyword keywordonlyarg lambda
    linecache list listcomps long lambda math memoryview metaclass module named_expressions ntpath numbers numeric_tower
    opcodes operator ordered_dict patma pep646_syntax pkgutil positional_only_arg posixpath pow pprint print property
    pyclbr queue raise random range re reprlib richcmp scope set setcomps shelve shlex slice sort statistics
    strftime string string_literals strptime strtod struct structseq super syntax sys_setprofile textwrap threadedtempfile
    threading_local tokenize traceback tuple type_aliases type_annotations type_comments type_params typechecks types
    typing unary unicode str unicodedata unpack unpack_ex urlparse userdict userlist userstring utils uuid weakref weakset
    with yield_from zip zipfile
""".split()


@dataclass
class Outcome:
    """How one test went: `passed`, `skipped`, or `failed`, `crashed`, `hung`; the error's text; what Pliant recorded."""

    name: str
    how: str
    error: str = ""
    seconds: float = 0.0
    events: dict[str, Any] = field(default_factory=dict)


# ---- in the child


def flat(suite: unittest.TestSuite | unittest.TestCase) -> Iterator[unittest.TestCase]:
    if isinstance(suite, unittest.TestSuite):
        for each in suite:
            yield from flat(each)
    else:
        yield suite


def compile_methods() -> None:
    """Each test's method runs compiled; what is before and after it runs as it is."""
    import pliant

    def call(case: unittest.TestCase, method: Any) -> None:
        del case
        if isinstance(method, types.MethodType):
            method = pliant.compile(method.__func__).__get__(method.__self__)
        if method() is not None:
            warnings.warn("a test returned a value", DeprecationWarning, stacklevel=2)

    unittest.TestCase._callTestMethod = call  # type: ignore[attr-defined]


def recorded() -> dict[str, Any]:
    import pliant

    seen = pliant.stats()
    pliant.reset()
    return {k: v for k in ("graph_breaks", "fallbacks", "break_reasons", "fallback_reasons") if (v := seen.get(k))}


class Told(unittest.TestResult):
    """Writes a line as each test begins and ends."""

    def __init__(self, to: IO[str]) -> None:
        super().__init__()
        self.to = to
        self.last = ""  # its name

    def tell(self, outcome: Outcome) -> None:
        self.to.write(json.dumps(asdict(outcome), default=repr) + "\n")
        self.to.flush()

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.before = len(self.failures), len(self.errors), len(self.unexpectedSuccesses), len(self.skipped)
        self.last = test.id()
        self.tell(Outcome(self.last, "begun"))
        self.start = time.perf_counter()

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        seconds = time.perf_counter() - self.start
        failed, erred, unexpected, skipped = self.before
        texts = [text for _, text in self.failures[failed:] + self.errors[erred:]]
        texts += ["unexpected success"] * (len(self.unexpectedSuccesses) - unexpected)
        how = "failed" if texts else "skipped" if len(self.skipped) > skipped else "passed"
        self.tell(Outcome(test.id(), how, "\n".join(texts), seconds, recorded()))


def child(name: str, compiled: bool, done: set[str], to: IO[str]) -> int:
    """Zero once all tests were run."""
    import pliant  # imported for plain runs too: the same modules are there

    del pliant
    try:
        tests = list(flat(unittest.defaultTestLoader.loadTestsFromName(f"test.{name}")))
    except unittest.SkipTest:
        tests = []
    if compiled:
        compile_methods()
    kept = [test for test in tests if test.id() not in done]  # a suite: with what classes and modules set up
    result = Told(to)
    try:
        unittest.TestSuite(kept).run(result)
    except BaseException:  # a `KeyboardInterrupt`, an error while an error was told
        result.tell(Outcome(result.last, "failed", traceback.format_exc()))
        return 1
    return 0


# ---- in the parent


def lines(stream: IO[str], limit: float) -> Iterator[str]:
    """Lines as they come; ends where the stream does, or none has come for `limit` seconds (raises TimeoutError)."""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        pending, wait = "", max(limit, START_LIMIT)
        while selector.select(wait):
            read = os.read(stream.fileno(), 1 << 16).decode()
            if not read:
                return
            *whole, pending = (pending + read).split("\n")
            yield from whole
            wait = limit
    raise TimeoutError


def run_once(name: str, compiled: bool, done: set[str], limit: float, folder: str) -> tuple[list[Outcome], bool]:
    """What one child told, and whether it came to its end."""
    read, write = os.pipe()
    command = [sys.executable, "-m", "benchmarks.cpython_tests", name, "--child", str(write)]
    command += ["--compiled"] if compiled else []
    root = str(Path(__file__).parents[1])
    paths = {"PYTHONPATH": os.pathsep.join([root, os.path.join(root, "src"), os.environ.get("PYTHONPATH", "")])}
    (Path(folder) / "done").write_text("\n".join(done))
    with subprocess.Popen(command, cwd=folder, env={**os.environ, **paths}, pass_fds=[write], stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True) as process:  # fmt: skip
        os.close(write)
        outcomes: list[Outcome] = []
        with open(read) as stream:
            try:
                for line in lines(stream, limit):
                    outcome = Outcome(**json.loads(line))
                    outcomes = [*outcomes[:-1], outcome] if outcomes and outcomes[-1].how == "begun" else [*outcomes, outcome]
                lost = "crashed"
            except TimeoutError:
                process.kill()
                lost = "hung"
        status = process.wait()
    if outcomes and outcomes[-1].how == "begun":
        outcomes[-1].how, outcomes[-1].error = lost, f"{lost}, exit status {status}"
        return outcomes, False
    return outcomes, status == 0


def run(name: str, compiled: bool, limit: float) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory(prefix="pliant-cpython-") as folder:
        whole = False
        while not whole:
            outcomes, whole = run_once(name, compiled, set(found), limit, folder)
            whole = whole or not outcomes
            found.update({outcome.name: outcome for outcome in outcomes})
    return found


def differing(plain: dict[str, Outcome], compiled: dict[str, Outcome]) -> Iterator[tuple[Outcome, str]]:
    for name, outcome in plain.items():
        if outcome.how != "passed":
            continue
        other = compiled.get(name, Outcome(name, "lost"))
        if other.how != "passed":
            yield other, f"{other.how}: {(other.error.strip().splitlines() or [''])[-1][:150]}"
        elif other.seconds > outcome.seconds + SLOW and other.seconds > outcome.seconds * FACTOR:
            yield other, f"slow: {other.seconds:.1f} s, plain {outcome.seconds:.2f} s"


def report(names: Iterable[str], limit: float, verbose: bool) -> None:
    totals = [0, 0, 0]
    for name in names:
        plain, compiled = run(name, False, limit), run(name, True, limit)
        passed = [o for o in plain.values() if o.how == "passed"]
        both = [o for o in passed if o.name in compiled and compiled[o.name].how == "passed"]
        counts = [sum(o.how != "skipped" for o in plain.values()), len(passed), len(both)]
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
        spent = [sum(o.seconds for o in run.values()) for run in (plain, compiled)]
        print(f"{name}: ran {counts[0]}, plain {counts[1]}, compiled {counts[2]} ({spent[0]:.1f} s, {spent[1]:.1f} s)")
        for outcome, why in differing(plain, compiled):
            print(f"    {outcome.name.removeprefix('test.')}  {why}")
            if verbose:
                print(outcome.error, outcome.events)
        sys.stdout.flush()
    ran, plainly, both_ways = totals
    print(f"{ran} tests ran, {plainly} pass plain, {both_ways} compiled too: {100 * both_ways / max(plainly, 1):.2f}%")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one test")
    parser.add_argument("--verbose", action="store_true", help="print whole errors, and what was recorded")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--compiled", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        done = set(Path("done").read_text().splitlines())
        with open(arguments.child, "w") as to:
            status = child(arguments.names[0], arguments.compiled, done, to)
        os._exit(status)  # threads that a test left behind hold nothing up
    import importlib.util

    there = [f"test_{name}" for name in FILES if importlib.util.find_spec(f"test.test_{name}")]
    report(arguments.names or there, arguments.limit, arguments.verbose)


if __name__ == "__main__":
    main()
