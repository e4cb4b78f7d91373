"""Plain Python that capture interprets in place of functions written in C.

Holds:  it knows no trace: what each does is what CPython, or PyTorch, says of the function.
"""
