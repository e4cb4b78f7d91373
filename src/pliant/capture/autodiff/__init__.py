"""Calls that differentiate, transform or control a part of the program: each file fills rows of the table of handlers."""

from pliant.capture.autodiff import custom_functions, gradients

TABLES = (custom_functions, gradients)
