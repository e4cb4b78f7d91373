"""Output that is shown by the program's own code, or depends on what the program changes: in its order with the rest."""

import logging
import sys

import pytest

import pliant

LOGGER = logging.getLogger("tests.output_and_state")
SHOWN = []


class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records, self.other = [], Counted()

    def emit(self, record):
        self.records.append(record.getMessage())
        SHOWN.append(1)


class Counted:
    count = 0

    def __str__(self):
        return f"counted {self.count}"


class Lines:
    def __init__(self):
        self.lines = []

    def write(self, text):
        self.lines.append(text)

    def flush(self):
        pass


def what_a_handler_keeps(handler):
    LOGGER.info("one")
    return len(handler.records)


def what_a_handler_counts(handler):
    LOGGER.info("one")
    return len(SHOWN)


def filters(handler):
    handler.addFilter(lambda record: "one" in record.msg)
    LOGGER.info("one")
    LOGGER.info("two")
    handler.filters.clear()
    LOGGER.info("three")


def levels(handler):
    LOGGER.setLevel(logging.ERROR)
    LOGGER.info("one")
    LOGGER.setLevel(logging.DEBUG)
    LOGGER.info("two")


def handlers(handler):
    LOGGER.removeHandler(handler)
    LOGGER.info("one")
    LOGGER.addHandler(handler)
    LOGGER.info("two")


def objects_that_change(handler):
    LOGGER.info("%s", handler.other)
    handler.other.count += 1
    LOGGER.info("%s", handler.other)
    handler.other.count += 1


def what_a_stream_keeps(handler):
    print("one")
    return list(sys.stdout.lines)


PROGRAMS = (
    what_a_handler_keeps, what_a_handler_counts, filters, levels, handlers, objects_that_change, what_a_stream_keeps,
)  # fmt: skip


@pytest.fixture
def handler(monkeypatch):
    monkeypatch.setattr(LOGGER, "handlers", [Kept()])
    monkeypatch.setattr(LOGGER, "propagate", False)
    LOGGER.setLevel(logging.DEBUG)
    SHOWN.clear()
    return LOGGER.handlers[0]


def _found(function, handler, monkeypatch):
    handler.records.clear()
    SHOWN.clear()
    handler.other.count = 0
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", Lines())
        return function(handler), list(handler.records), sys.stdout.lines


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_output_comes_in_its_order(program, handler, monkeypatch):
    compiled = pliant.compile(program, backend="eager")
    expected = _found(program, handler, monkeypatch)
    for _ in range(2):
        assert _found(compiled, handler, monkeypatch) == expected


def test_output_beside_other_state_is_put_off(handler):
    class Model:
        steps = 0

    def program(model):
        model.steps += 1
        LOGGER.info("step %d", model.steps)
        print("step", model.steps)
        return model.steps

    model, compiled = Model(), pliant.compile(program, backend="eager", fullgraph=True)
    assert [compiled(model), compiled(model)] == [1, 2]
    assert handler.records == ["step 1", "step 2"]
