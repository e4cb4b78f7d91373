"""Calls that differentiate, transform or control a part of the program: each file fills rows of the table of handlers."""

from pliant.capture.autodiff import checkpoints, custom_functions, gradients, hooks, transforms

TABLES = (checkpoints, custom_functions, gradients, hooks, transforms)
