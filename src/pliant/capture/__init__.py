"""Python bytecode to a torch-level graph: interpretation, what it changes outside, breaks, and the entry that replays it.

Interpretation:       bytecode/ (decoded, normalised, assembled), attempt (one capture, its restarts), tracer, frame, opcodes/,
                      calls, attributes, attribute_stores, operators, subscripts, iteration, handlers/ (C functions and
                      effects, by table), generators, class_statements, plain_methods, rewritten.
The world outside:    world (reads under guards, buffered writes), bringing (the traced form of a value), whole_containers,
                      constant_items, structural_classes, made_again, inputs, identity, snapshots, settings, value_kinds,
                      marked.
The graph:            recorder, torch_calls, regions, autodiff/, arrays, overrides, symbol_nodes, tensor_index,
                      elements, element_rules (numbers in small tensors), tensor_errors, number_domains, varying_text.
Its end:              trace (what a capture found), collect, entry, reconstruct/.
Breaks:               graph_breaks (kinds and advice), entering, spelled_out, carried, endings.

Read `trace.py`, `attempt.py` and `tracer.py` first; `dispatch/` is who asks for a capture.
"""
