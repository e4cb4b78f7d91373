"""Every exception and warning that Pliant raises.

In:     what happened, and where, why and what to do about it.
Out:    exceptions whose text answers these four questions in this order.
Holds:  a user never sees `Unsupported`; only `UserError` blames the program, everything else is ours.
Reads on: `docs/graph-breaks.md`, `docs/debugging.md`.

    GraphBreakError [side-effect-call]: `print` cannot be captured
      train.py:42 in step       print(loss)
      why  it writes to the terminal while the graph is being recorded
      do   print after the compiled call, or drop fullgraph=True    (docs/graph-breaks.md#side-effect-call)
"""

from collections.abc import Callable
from typing import ClassVar


def _indented(label: str, text: str) -> str:
    """`  label  text`, further lines of the text aligned under its first."""
    gap = "\n" + " " * 7
    return f"  {label:<3}  " + text.replace("\n", gap)


def render(heading: str, what: str, where: object, why: str, do: str, doc: str) -> str:
    """The four-part message; a part that is empty is left out. A remedy of several lines, which may be code to paste, has the
    page below it."""
    lines = [f"{heading}: {what}"]
    if where is not None and str(where):
        lines.append("  " + str(where).replace("\n", "\n  "))
    if why:
        lines.append(_indented("why", why))
    gap = "\n" if "\n" in do else "    "
    remedy = do + (f"{gap}({doc})" if doc else "")
    if remedy:
        lines.append(_indented("do", remedy.strip()))
    return "\n".join(lines)


class PliantError(Exception):
    """Base of all errors. `where` is anything that prints as `file:line in function    text`.

    A class gives the `why` and `do` that hold for all its mistakes; an instance may be more exact.
    """

    default_why: ClassVar[str] = ""
    default_do: ClassVar[str] = ""
    page: ClassVar[str] = ""
    anchor: ClassVar[str] = ""  # the page's section for all mistakes of a class; if empty, one a kind

    def __init__(
        self, what: str, *, kind: str = "", where: object = None, why: str = "", do: str = "", doc: str = ""
    ) -> None:
        super().__init__(what)
        self.what = what
        self.kind = kind
        self.where = where
        self.why = why or self.default_why
        self.do = do or self.default_do
        section = kind and (self.anchor or kind)
        self.doc = doc or (f"{self.page}#{section}" if self.page and section else self.page)

    def __str__(self) -> str:
        heading = type(self).__name__ + (f" [{self.kind}]" if self.kind else "")
        return render(heading, self.what, self.where, self.why, self.do, self.doc)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...], dict[str, object]]:
        # Keyword-only fields would be lost by the default protocol; worker processes send errors back.
        return _rebuild, (type(self), self.what), dict(self.__dict__)


def _rebuild(cls: type[PliantError], what: str) -> PliantError:
    error = cls.__new__(cls)
    Exception.__init__(error, what)
    return error


class UserError(PliantError):
    """The program or the call asks for something that cannot be done."""


class GraphBreakError(UserError):
    """`fullgraph=True` and a statement that cannot be captured."""

    default_do = "change this line, or drop fullgraph=True"
    page = "docs/graph-breaks.md"


class ConstraintError(UserError):
    """A size broke a range, a marked dynamic dimension was specialized, or dims disagree."""

    default_do = "widen the range, drop the mark, or change the line that fixes the size"
    page = "docs/dynamic-shapes.md"
    anchor = "saying-it-beforehand"


class DataDependentError(UserError):
    """A decision needs the value of a tensor's element, which is known only at run time."""

    default_why = "the value is computed by the graph that is being recorded, so it is not known yet"
    default_do = "state what is true of it with torch's _check(...), or branch with torch.cond"
    page = "docs/dynamic-shapes.md"
    anchor = "data-dependent-values"


class ExportError(UserError):
    """A program that cannot be exported as one graph of tensors, or saved."""

    default_do = "change what the model does there, or export a part of it"
    page = "docs/export.md"
    anchor = "what-cannot-be-exported"


class FileError(UserError):
    """A file of an exported program that is damaged, or of another kind or version."""

    default_why = "it is not what `Exported.save` or `aot_compile` wrote"
    default_do = "export and save the model again"
    page = "docs/export.md"
    anchor = "files"


class AssumptionError(PliantError):
    """A number that the running graph computed is not what its code was compiled for; the call then runs eagerly."""

    assumed = ""  # the condition as it was written
    default_why = "the code was compiled for values of which this holds"
    default_do = "none: the function runs eagerly on such values"
    page = "docs/dynamic-shapes.md"
    anchor = "data-dependent-values"


class BackendError(UserError):
    """The callable that was given as `backend=` raised; the cause is its own exception."""


class PatternError(UserError):
    """A pattern that cannot be traced, or a replacement that makes something else than what it replaces."""

    default_do = "correct the functions of the pattern"
    page = "docs/patterns.md"
    anchor = "errors"


class ConfigError(UserError):
    """An unknown option, a value of the wrong type, an unknown mode or backend."""

    default_do = "see `python -m pliant.config` for every option, its type and its default"


class RecompileError(UserError):
    """A recompilation where the program forbade it (`set_stance("fail_on_recompile")`)."""

    page = "docs/debugging.md"


class CompileError(PliantError):
    """The C or Triton compiler refused text that we wrote. The text is kept on disk."""

    default_why = "the generated code is wrong, or the toolchain does not support it"
    default_do = "report it with the file named above; the program goes on eagerly unless strict is set"
    page = "docs/debugging.md"


class NoKernels(CompileError):
    """This machine, or its disk, cannot build code: nobody's mistake. Graphs run operator by operator."""

    default_why = "kernels cannot be built here"
    default_do = "none: graphs run operator by operator"


class InternalError(PliantError):
    """A stage failed on input it should have handled."""

    default_why = "a stage of the compiler failed; the program itself may be fine"
    default_do = "report it with the repro; the program goes on eagerly unless strict is set"
    page = "docs/debugging.md"
    anchor = "crash"


class VerifyError(InternalError):
    """A pass left an invalid program behind."""

    default_why = "a pass broke a rule of the representation it returns"

    def __init__(self, what: str, *, pass_name: str, node: object = None, where: object = None, dump: str = "") -> None:
        place = f"after `{pass_name}`" + (f", at `{node}`" if node is not None else "")
        why = f"{self.default_why} ({place})" + (f"\ndump: {dump}" if dump else "")
        super().__init__(what, kind=pass_name, where=where, why=why, doc=self.page)
        self.pass_name = pass_name
        self.node = node
        self.dump = dump

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...], dict[str, object]]:
        state = dict(self.__dict__)
        state["node"] = None if self.node is None else str(self.node)  # IR nodes need not pickle
        return _rebuild, (type(self), self.what), state


class Unsupported(Exception):
    """A stage meets what it does not know: its caller falls back (graph break, extern call, eager).

    Control flow inside the compiler, never shown to a user as such. `kind` is a stable id, `do` the advice.
    """

    def __init__(
        self, what: str, *, kind: str = "unsupported", where: object = None, why: str = "", do: str = ""
    ) -> None:
        super().__init__(what)
        self.what = what
        self.kind = kind
        self.where = where
        self.why = why
        self.do = do


class WantsNumbers(Unsupported):
    """Code (a backend's, a derivative's) holds for the numbers that it is shown alone: it is to be given a graph without
    symbols."""


class PliantWarning(UserWarning):
    """Base of Pliant's warnings: something still works, but not as well as it could."""


class FallbackWarning(PliantWarning):
    """Part of the program runs eagerly because the compiler could not serve it."""


class CacheWarning(PliantWarning):
    """The on-disk cache is unusable or held something corrupt."""
