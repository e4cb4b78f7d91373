"""Python bytecode to a torch-level graph: interpretation, what it changes outside, breaks, and the entry that replays it.

What users call:      compiled_function, dispatch (which entry serves a call), roots, dynamic_policy, stance, markers,
                      marked.
Interpretation:       bytecode/ (decoded, normalised, assembled), attempt (one capture, its restarts), tracer, frame, opcodes/,
                      calls, attributes, attribute_stores, operators, subscripts, iteration, callables (the table: handlers/,
                      C functions and effects, and autodiff/), thread_locals, generators, standing_iterators, class_statements, plain_methods,
                      rewritten, tracebacks.
The world outside:    world (reads under guards, buffered writes), bringing (the traced form of a value), whole_containers,
                      constant_items, structural_classes, nested_functions, made_again, inputs, identity, snapshots, settings, value_kinds.
The graph:            recorder, torch_calls, torch_functions (C functions that may be called), regions, arrays,
                      numpy_scalars, overrides, symbol_nodes, tensor_index,
                      elements, element_rules (numbers in small tensors), tensor_errors, number_domains, varying_text.
Its end:              trace (what a capture found), collect, entry, reconstruct/, noted (events).
Breaks:               graph_breaks (kinds and advice), entering, spelled_out, carried, resume_function, endings.

Read `trace.py`, `attempt.py`, `tracer.py` and `dispatch.py` first.
"""
