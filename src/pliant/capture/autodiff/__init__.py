"""Calls that differentiate, transform or control a part of the program: each file has rows of the table of callables."""

from pliant.capture.autodiff import checkpoints, control_flow, custom_functions, gradients, transforms

THEMES = (checkpoints, control_flow, custom_functions, gradients, transforms)
