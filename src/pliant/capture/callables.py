"""All that is known of callables, put together: a theme a line.

In:     the `ROWS` of each theme.
Out:    `handlers/table.py` finds them; the tables are filled when this module is imported, and by nothing else.
"""

from pliant.capture import autodiff, handlers
from pliant.capture.handlers.table import ALL
from pliant.capture.numbers import arrays
from pliant.capture.outside import settings
from pliant.torch_adapter import NUMPY

for theme in (*handlers.THEMES, *autodiff.THEMES, settings):
    ALL.add(theme.ROWS)
ALL.modules[NUMPY] = arrays.find
