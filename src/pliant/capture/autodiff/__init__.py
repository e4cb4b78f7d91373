"""Calls that differentiate, transform or control a part of the program: each file fills rows of the table of handlers."""

from pliant.capture.autodiff import checkpoints, custom_functions, gradients, hooks

TABLES = (checkpoints, custom_functions, gradients, hooks)
