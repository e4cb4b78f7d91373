"""Handlers of normalised operations, by group. Importing this package fills `frame.HANDLERS`."""

from pliant.capture.opcodes import build, calls, control, exceptions, names, operators

__all__ = ["build", "calls", "control", "exceptions", "names", "operators"]
