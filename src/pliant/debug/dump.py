"""Printed forms of every stage, on the terminal or as numbered files.

In:     events with a `text` field; options `print_stages` (`PLIANT_DEBUG`), `debug_dir` (`PLIANT_DEBUG_DIR`).
Out:    lines on stderr; files such as `0003-f-04-joint.py`, numbered in the order they were written.
Holds:  without these options nothing is subscribed, so nobody builds the texts.
"""

import functools
import itertools
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from pliant import config
from pliant.debug import events
from pliant.errors import ConfigError

# kind of event -> place in the pipeline and the file's ending
FILES: dict[str, str] = {
    "bytecode": "01-bytecode.txt",
    "graph_code": "02-graph.py",
    "guard": "03-guards.py",
    "joint": "04-joint.py",
    "partition": "05-partition.py",
    "loops": "07-loops.ir",
    "schedule": "08-fused.ir",
    "output_code": "09-output.c",
}

# How a stage is called in `PLIANT_DEBUG`; kinds and log channels are understood too.
_STAGES = {"graph": "graph_code", "guards": "guard", "kernels": "output_code", "code": "output_code"}
_numbers = itertools.count()
_latest = Path()  # the file written last


def install() -> None:
    """Subscribe to what the options ask for, now and when they change. Called once, when the pipeline is loaded."""
    config.follow("debug_dir", _write_into)
    config.follow("print_stages", _print)


def _write_into(folder: str) -> None:
    writer = functools.partial(write_event, Path(folder))
    _subscribe("debug_dir", writer, frozenset(FILES) if folder else frozenset())


def _print(stages: str) -> None:
    names = {_STAGES.get(n, n) for n in stages.replace(",", " ").split()}
    channels = {kind: events.KINDS[kind].channel for kind in FILES}
    if unknown := names - FILES.keys() - set(channels.values()) - {"all"}:
        known = ", ".join(sorted({*_STAGES, *channels.values()}))
        raise ConfigError(
            f"unknown stage `{min(unknown)}`", kind="unknown-stage", where="PLIANT_DEBUG", why=f"the stages are {known}",
            do="pick from these, or `all`",
        )  # fmt: skip
    _subscribe("print_stages", print_event, frozenset(k for k in FILES if names & {k, channels[k], "all"}))


_subscribed: dict[str, Callable[[], None]] = {}  # option -> what ends its subscription


def _subscribe(option: str, subscriber: events.Subscriber, kinds: frozenset[str]) -> None:
    if (end := _subscribed.pop(option, None)) is not None:
        end()
    if kinds:
        _subscribed[option] = events.subscribe(subscriber, kinds)


def write_event(folder: Path, event: events.Event) -> Path:
    """Write one text; returns its path. Guards follow one another: those of one program share a file."""
    global _latest
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W+", "_", str(event.fields.get("name", "graph")))
    ending = f"-{name}-{FILES[event.kind]}"
    if event.kind != "guard" or _latest.parent != folder or not _latest.name.endswith(ending):
        _latest = folder / f"{next(_numbers):04}{ending}"
        _latest.unlink(missing_ok=True)
    with _latest.open("a") as file:
        file.write(event.line + "\n")
    return _latest


def print_event(event: events.Event) -> None:
    """Print one text under a heading."""
    width = min(120, os.get_terminal_size().columns if sys.stderr.isatty() else 120)
    heading = f"-- {event.kind} {event.fields.get('name', '')} "
    print(heading.ljust(width, "-"), event.line, sep="\n", file=sys.stderr)
