"""Callables that are not simply interpreted: built-ins that need guards or re-entry, pure C functions, effects, refusals.

In:     `find(function)` and `find_class(cls)` give the row of the table, if there is one; `call_native` decides for C functions.
Out:    traced results.
Holds:  one module a theme; importing this package fills the tables.
"""

from pliant.capture.handlers import (
    averaged_models,
    classes,
    collectives,
    copies,
    data_dependent,
    effects,
    iteration,
    lazy_modules,
    modes,
    optimizers,
    packed_sequences,
    parameters,
    python_twins,
    questions,
    random_numbers,
    rewrites,
    standard_library,
    text_and_numbers,
    threads,
    warning_filters,
)
from pliant.capture.handlers.c_functions import call_native
from pliant.capture.handlers.classes import call_enum, find_accessor, find_class
from pliant.capture.handlers.effects import log
from pliant.capture.handlers.questions import class_check
from pliant.capture.handlers.random_numbers import draw, is_generator
from pliant.capture.handlers.standard_library import call_object, fold, make_reference, referent
from pliant.capture.handlers.table import find, handles
from pliant.capture.handlers.threads import local_attribute

__all__ = [
    "call_enum",
    "call_native",
    "call_object",
    "class_check",
    "draw",
    "find",
    "find_accessor",
    "find_class",
    "fold",
    "handles",
    "is_generator",
    "local_attribute",
    "log",
    "make_reference",
    "referent",
]

assert (
    averaged_models
    and classes
    and collectives
    and copies
    and warning_filters
    and data_dependent
    and effects
    and iteration
    and lazy_modules
    and modes
    and python_twins
    and optimizers
    and packed_sequences
    and parameters
    and random_numbers
    and rewrites
    and questions
    and standard_library
    and text_and_numbers
    and threads
)
