"""Objects of a trace made again by the entry: `rebuilder.py` chooses, the other modules are recipes by theme."""
