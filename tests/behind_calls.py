"""A compiler that a test holds back, behind calls: what the program does meanwhile is then no matter of time."""

import threading

import pliant
from pliant import backends
from pliant.compiler import compile_captured

BEHIND = {"background": True}


class Gate:
    """Holds the compiler back until it is opened; `fails`: with what it then ends. `begun`: once it is there."""

    def __init__(self):
        self.opened, self.begun, self.fails = threading.Event(), threading.Event(), None

    @classmethod
    def installed(cls, monkeypatch):
        """In place of the compiler: the body of a fixture."""
        pliant.reset()
        gate = cls()
        monkeypatch.setitem(backends.BACKENDS, "pliant", gate)
        yield gate
        gate.open()
        pliant.reset()

    def __call__(self, captured):
        self.begun.set()
        assert self.opened.wait(60)
        if self.fails is not None:
            raise self.fails
        return compile_captured(captured)

    def open(self):
        self.opened.set()
        assert pliant.wait(60)


def told():
    return pliant.stats()["background"]


def compiled(program, **arguments):
    options = {**BEHIND, **arguments.pop("options", {})}
    return pliant.compile(program, options=options, **arguments)
