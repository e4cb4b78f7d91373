"""Kernels as C text, and the Python function that calls them.

c and native (translation units), sharing (kernels that differ in numbers), kernel_writer and reducing_writer (loops and
statements), loops (which loops), reductions, expressions, prelude (C snippets); wrapper (the Python side).
"""
