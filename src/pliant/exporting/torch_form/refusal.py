"""The error for what PyTorch's programs cannot say."""

from __future__ import annotations

from typing import Any

from pliant.errors import ExportError


def refused(what: str, why: str, do: str = "run it as a Pliant program, or export it with other sizes", where: Any = None) -> ExportError:
    return ExportError(what, kind="torch-export", where=where, why=why, do=do, doc="docs/export.md#pytorchs-own-programs")
