"""The world outside a trace: what it reads there, under which guards, and how it would change it.

The whole:            world, made of origins (sources and guards), fields (cells, slots, classes) and told_by_value.
On the way in:        bringing (the traced form of a value), inputs and input_memory (of the graph), made_at_run_time,
                      unread_arguments, settings (of PyTorch).
Containers:           whole_containers (read as a whole, and whether they changed).
Which object it is:   identity (numbers that stand for objects; twins: one object met by two ways), told_by_value (values
                      that guards tell by what they are).
"""
