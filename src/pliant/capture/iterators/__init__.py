"""Iterators and generators of the traced program, across graph breaks too.

generators            frames that yield, as iterators that C code may drive
carried               iterators of loops as a trace sees them, carried over a break; loops whose number of turns varies
suspended             what goes over a break: a loop's iterator, the state of a generator
standing_iterators    Python's own iterators as they stand
looped                iterators of `itertools` that a loop alone sees
endings               objects whose end the program notices
"""
