"""A page about what was compiled: one HTML file that needs nothing else.

`with pliant.report.to("out.html"): ...` writes it when the block ends; `python -m pliant.report out.html script.py` runs a
script in such a block. Modules, in the order in which they are used:

    measured.py   what a call allocates
    recording.py  the events of a block, within bounds
    graphs.py     graphs and kernels of these events, joined with one another and with lines of the program
    sources.py    files of the program with what was noted at their lines
    drawing.py    small graphs as layered drawings
    charts.py     stages, memory and traffic as geometry
    page.py       all of it as what the template shows
    page.html, page.css, page.js    the template
    writing.py    the block, and the file
"""

from typing import Any


def __getattr__(name: str) -> Any:
    if name != "to":
        raise AttributeError(f"module 'pliant.report' has no attribute {name!r}")
    from pliant.report.writing import to

    return to
