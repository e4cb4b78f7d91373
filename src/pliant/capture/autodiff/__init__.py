"""Calls that differentiate, transform or control a part of the program: each file fills rows of the table of handlers."""
