"""CPython's bytecode, 3.11 to 3.13, without PyTorch: decoded into one vocabulary, analysed, assembled again.

Version differences stand in `versions.py`.
"""
