"""Handlers of normalised operations, by group: `frame.HANDLERS` has all of them."""

from pliant.capture.frame import HANDLERS
from pliant.capture.opcodes import build, control, exceptions, names, operators

GROUPS = (build, control, exceptions, names, operators)

for group in GROUPS:
    HANDLERS.add(group.ROWS)
