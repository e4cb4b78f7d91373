"""Calls that differentiate, transform or control a part of the program: each file fills rows of the table of handlers."""

from pliant.capture.autodiff import amp, checkpoints, control_flow, custom_functions, gradients, hooks, transforms

TABLES = (amp, checkpoints, control_flow, custom_functions, gradients, hooks, transforms)
