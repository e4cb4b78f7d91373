"""Python bytecode to a torch-level graph: interpretation, what it changes outside, breaks, and how values are made again.

The engine:           attempt (one capture, its restarts), tracer, frame, opcodes/, iterators/ (generators, loops), tracebacks,
                      program_stack (the frames that the program would have, as values too). It knows no library; code is what `bytecode/`,
                      beside this folder, makes of it.
What things mean:     protocols/ (Python's, by kind of value), callables (the table: handlers/, and autodiff/), numbers/ (that vary,
                      in arrays and tensors).
Values:               value_kinds (kinds that are told apart), varying_values (those that vary from call to call), structures (what is
                      in containers); signatures (what annotations name).
The world outside:    outside/ (reads under guards, buffered writes).
The graph:            recording/ (calls of PyTorch as nodes).
Its end:              trace (what a capture found), collect, reconstruct/; graph_breaks (kinds and advice), idle_runs (what is left to Python).

Read `trace.py`, `attempt.py` and `tracer.py` first; `dispatch/` is who asks for a capture, and writes the entry
that replays it.
"""
