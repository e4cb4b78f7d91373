"""Objects of a trace made again by the entry: `objects.py` chooses, the other modules are recipes by theme."""
