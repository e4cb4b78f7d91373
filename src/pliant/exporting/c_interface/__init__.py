"""Programs as shared libraries with a C interface, for processes without Python.

- `writer.py`: a program as C++ text that calls operators.
- `library.py`: that text, the runner and the weights as files.
- `runner.cc`, `frame.h`: what runs the text, by PyTorch's operators; `pliant_program.h`: what callers include.
"""
