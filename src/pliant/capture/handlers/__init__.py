"""Callables that are not simply interpreted: built-ins that need guards or re-entry, pure C functions, effects, refusals.

In:     `find(function)` and `find_class(cls)` give the row of the table, if there is one; `call_native` decides for C functions.
Out:    traced results.
Holds:  one module a theme, whose `ROWS` go into the tables (`capture/callables.py`).
"""

from importlib import import_module

from pliant.capture.handlers.c_functions import call_native
from pliant.capture.handlers.classes import call_enum, find_accessor, find_class
from pliant.capture.handlers.effects import log
from pliant.capture.handlers.questions import class_check
from pliant.capture.handlers.random_numbers import draw, is_generator
from pliant.capture.handlers.standard_library import call_object, fold, make_reference, referent
from pliant.capture.handlers.table import find

_THEMES = """
    averaged_models classes collectives copies data_dependent effects iteration lazy_modules modes optimizers
    packed_sequences parameters python_twins questions random_numbers rewrites skipped_steps standard_library
    text_and_numbers threads warning_filters
"""
THEMES = tuple(import_module(f"{__name__}.{name}") for name in _THEMES.split())

__all__ = [
    "THEMES",
    "call_enum",
    "call_native",
    "call_object",
    "class_check",
    "draw",
    "find",
    "find_accessor",
    "find_class",
    "fold",
    "is_generator",
    "log",
    "make_reference",
    "referent",
]
