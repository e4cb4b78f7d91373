"""Iterators and generators of the traced program, across graph breaks too.

generators            frames that yield, as iterators that C code may drive
carried               iterators of loops, carried over a break
loops                 what is made for a loop, and loops that turn as often as something varies
standing_iterators    Python's own iterators as they stand
endings               objects whose end the program notices
"""
