"""Exceptions on their way through the frames of a trace: an entry of the traceback for each.

In:     the exception, and the frame that it passes, with the operation that this was doing.
Out:    a longer traceback; of an exception from outside, once the entry runs.
"""

from __future__ import annotations

import types
from typing import Any

import torch.nn.modules.module as nn_module

from pliant.capture.signatures import Tracer
from pliant.capture.trace import CallEffect
from pliant.dispatch.tracebacks import OWN_FOLDER, line_at, module_calls, passed, unstarted_frame
from pliant.guards.kinds import MISSING


def note_passing(
    t: Tracer, error: BaseException, code: types.CodeType, namespace: dict[str, Any], offset: int, line: int
) -> None:
    """The same in a trace. What an exception from outside went through before differs from call to call."""
    world = t.world
    if not world.is_foreign(error):
        passed(error, code, namespace, offset, line)
        return
    if code.co_filename.startswith(OWN_FOLDER):
        return
    if (stored := world.slot_get(error, "__traceback__")) is not MISSING:
        longer = types.TracebackType(stored, unstarted_frame(code, namespace), offset, line)
        world.slot_set(error, "__traceback__", longer, "plain")
        return
    t.passed[id(error)] = error
    place = world.hold(code, code.co_name), world.hold(namespace, str(namespace.get("__name__")))
    world.effects_in_order.append(CallEffect(world.hold(passed, "passed"), (error, *place, offset, line), {}))


def note_passing_module(t: Tracer, error: BaseException) -> None:
    """The exception went through the call of a module, whose own code is not interpreted."""
    for code, offset in module_calls():
        note_passing(t, error, code, vars(nn_module), offset, line_at(code, offset))
