"""Callables that are not simply interpreted: built-ins that need guards or re-entry, pure C functions, effects, refusals.

In:     `table.find(function)` and `classes.find_class(cls)` give the row of the table, if there is one;
        `c_functions.call_native` decides for C functions, `given` says what they get for arguments.
Out:    traced results.
Holds:  one module a theme, whose `ROWS` go into the tables (`capture/callables.py`).
"""

from importlib import import_module

_THEMES = """
    classes collectives copies data_dependent effects frames iteration modes optimizers packed_sequences
    parameters python_twins questions random_numbers rewrites standard_library text_and_numbers threads warning_filters
"""
THEMES = tuple(import_module(f"{__name__}.{name}") for name in _THEMES.split())
