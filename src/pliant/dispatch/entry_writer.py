"""One capture -> one generated Python function that serves later calls of the same kind.

In:     a `Trace`, how to compile its graph, and how to get the resume function of a frame.
Out:    `Entry.run(args, kwargs)`: the result, or MISS if a guard does not hold (nothing has happened then).
Holds:  the text is straight-line and readable: guards and loads, the graph, values made anew, effects in order, the
        end.
        Every load comes before the graph and every value is made before the first effect, so stores cannot disturb
        them.
Reads on: `capture/reconstruct/` for values, `resume_function.py` for what follows a break.
"""

from __future__ import annotations

import itertools
import textwrap
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from pliant.bytecode.cfg import layouts, loop_variables
from pliant.bytecode.decode import decode
from pliant.bytecode.ops import FORMS, Form
from pliant.bytecode.resume import is_generator, point_at
from pliant.bytecode.steps import StepCode, step_code
from pliant.capture.graph_breaks import told_of
from pliant.capture.iterators.carried import is_counted
from pliant.capture.iterators.standing_iterators import END
from pliant.capture.iterators.suspended import stepped
from pliant.capture.reconstruct.effects import effect_lines
from pliant.capture.reconstruct.objects import Rebuilder, name_of_lazy
from pliant.capture.structures import is_node
from pliant.capture.trace import NULL, TRACEBACK, Break, DrawnState, FrameState, Return, Trace
from pliant.capture.value_kinds import (
    SYMBOLIC_TYPES,
    by_kind,
    is_exception,
    is_int,
    is_list,
    is_str,
    is_symbolic,
    plain_class,
)
from pliant.dispatch.dim_marks import marks_of
from pliant.dispatch.entry import (
    CallShape,
    Entry,
    EntryForm,
    GraphCallable,
    GraphCompiler,
    ResumeMaker,
    ResumesForm,
    StepForm,
    Symbolic,
    failure,
    is_of_operator,
    state_of,
)
from pliant.dispatch.own_frames import hiding, tail_of
from pliant.dispatch.running_frames import through_modules
from pliant.graph.contracts import CapturedGraph
from pliant.graph.fake_tensor import is_fake
from pliant.graph.generator_states import gpus_in, random_bytes
from pliant.guards import alike
from pliant.guards.codegen import ARGUMENT, AROUND, HELD, RELATION, SHAPE, STATE, GuardWriter, rank
from pliant.guards.generated import define_entry, holding, holds
from pliant.guards.held_section import HeldSection
from pliant.guards.kinds import Guard, Kind
from pliant.guards.names import Names
from pliant.guards.replay import Held, Replay
from pliant.guards.sources import DrawSource, Source


def make_entry(
    trace: Trace,
    compile_graph: GraphCompiler,
    resume: ResumeMaker,
    *,
    shape: CallShape,
    name: str = "entry",
    extra_guards: Iterable[Guard] = (),
    eager: Callable[..., Any] | None = None,
    is_behind: bool = False,
) -> Entry:
    """Compile the graph and write the entry's function. CannotReconstruct if a value has no recipe.

    `eager`: what serves a call on which the graph finds data that its code was not compiled for. `is_behind`: a resume function
    runs the entry, and what it returns.
    """
    graph = _compiled(trace.graph, compile_graph)  # first: backward may add shape guards
    writer = GuardWriter(Names(), _symbol_sources(trace))
    writer.require(shape.failing_test(), None)
    guards = [*extra_guards, *trace.guards, *_shape_guards(trace)]
    section, place = _write_guards(writer, guards)
    before, behind = writer.steps[:place], writer.steps[place:]  # code behind the guards adds to them
    outputs = [writer.names.fresh(f"out{i}") for i in range(max(trace.outputs.values(), default=-1) + 1)]
    values = Rebuilder(trace, writer, outputs)
    end = _Body(trace, values, resume, is_behind and trace.lock is None)
    body = _body(trace, end, section, graph, eager)
    passed = end.passed
    steps, tensors = _steps(writer, section, place)
    if shape.given_up:
        _give_up_arguments(steps, body, passed)
    text = _function_text(steps, body, passed)
    run = define_entry(text, writer.names.values, name, section, tensors)
    held = Held(len(before), len(behind), holds(run)) if section else None
    marks = [(one.source, marks_of(one.example)) for one in trace.inputs if one.kind == "tensor" and not one.static]
    names = writer.names
    told = None if trace.end.reason is None else told_of(trace.end.reason)
    runs = (names(one) if one is not None and graph is not None else "" for one in (graph, eager))
    form = EntryForm(
        text, writer.names.values, section, [*before, *behind], tensors, trace.codes, trace.process_bound, marks, end.behind, told,
        next(runs), next(runs), trace.answers, trace.orders, trace.lock,
    )  # fmt: skip
    if trace.lock is not None:
        run = holding(trace.lock, run)
    ended = "return" if trace.end.reason is None else trace.end.reason.kind
    for one in trace.graph.inputs if trace.graph is not None else ():
        one.example = None  # the first call's arguments are not the entry's
    later = [lazy for one in values.keep if (lazy := name_of_lazy(one)) is not None] if ended == "return" else []
    checks = Replay(lambda: [*before, *(section.steps if section else ()), *behind], writer.names.values, held)
    return Entry(run, name, text, checks, guards, ended, later, trace.graph, form)


def _compiled(captured: CapturedGraph | None, compile_graph: GraphCompiler) -> GraphCallable | None:
    """What runs the graph; None if it computes nothing."""
    if captured is None or all(node.op in ("placeholder", "output") for node in captured.module.graph.nodes):
        return None
    return compile_graph(captured)


def _body(
    trace: Trace, end: _Body, section: HeldSection | None, graph: GraphCallable | None, eager: Callable[..., Any] | None
) -> list[str]:
    """The statements behind the guards: draws, the graph, what follows it."""
    writer, outputs = end.values.writer, end.values.outputs
    tail = end.statements()
    tail = [*_classes(trace, writer, outputs), *tail]
    draws = [*_draws(trace, writer), *(f"{writer.read(source)}.requires_grad_()" for source in trace.told)]
    call = _graph_call(trace, writer, section, graph, outputs, eager, end.passed) if graph is not None else []
    return [*draws, *call, *tail]


def _steps(writer: GuardWriter, section: HeldSection | None, place: int) -> tuple[list[str], dict[str, Sequence[int]]]:
    """The statements of the check, the section's at their place, and which tensors are learnt to be known."""
    early, indexes = alike.arguments(writer.steps[:place])
    late, others = alike.others(writer.steps[place:], writer.locals)
    return [*early, *(section.use() if section else []), *late], {alike.ARGUMENTS: indexes, alike.OTHERS: others}


def _give_up_arguments(steps: list[str], body: list[str], passed: int | None) -> None:
    """Arguments come in a list; where there is a break, what the program has let go of dies with the frame before it."""
    if passed is None:
        steps.insert(0, "args = tuple(args)")
    else:
        steps.insert(0, "_given, args = args, tuple(args)")
        body.insert(-1, "_given.clear()")


def _write_guards(writer: GuardWriter, guards: list[Guard]) -> tuple[HeldSection | None, int]:
    """Write all guards, those on held objects in a section of their own if there are many. Also where its use
    belongs."""
    by_rank: dict[int, list[Guard]] = {}
    for guard in guards:
        by_rank.setdefault(rank(guard), []).append(guard)
    held_ones = by_rank.get(HELD, [])
    section = writer.section = HeldSection(writer.names) if len(held_ones) > _FEW else None
    for early in (AROUND, ARGUMENT, STATE):
        writer.add_each(by_rank.get(early, []))
    place = len(writer.steps)
    writer.add_each(g for g in held_ones if section is None or not section.add(g))
    for late in (SHAPE, RELATION):
        writer.add_each(by_rank.get(late, []))
    return section, place


_FEW = 3  # so many guards cost less than looking whether they must be checked


def _symbol_sources(trace: Trace) -> dict[Any, Source]:
    if trace.graph is None:
        return {}
    return {symbol: sources[0] for symbol, sources in trace.graph.shape_env.sources.items()}


def _shape_guards(trace: Trace) -> list[Guard]:
    """Sizes that share a symbol are equal, and what the shape engine assumed of the symbols."""
    if trace.graph is None:
        return []
    env = trace.graph.shape_env
    equal = [
        Guard(source, Kind.EXPRESSION, symbol)
        for symbol, sources in env.sources.items()
        for source in sources[1:]
    ]
    return [*equal, *(Guard(None, Kind.SHAPE, g.expr, g.origin) for g in env.final_guards())]


def _graph_call(
    trace: Trace,
    writer: GuardWriter,
    section: HeldSection | None,
    graph: GraphCallable,
    outputs: list[str],
    eager: Callable[..., Any] | None,
    passed: int | None,
) -> list[str]:
    assert trace.graph is not None
    inputs = _graph_inputs(writer, section, [i.source for i in trace.graph.inputs])
    call = f"{writer.names(graph, 'graph')}([{', '.join(inputs)}])"
    line = f"[{', '.join(outputs)}] = {call}" if outputs else call
    if eager is None:
        return [line]
    instead = writer.names(eager, "eager")
    draws = trace.graph.attributes.get("draws")
    gpus = gpus_in(trace.graph.module.graph.nodes) if draws else ()
    state = f"({writer.names(random_bytes, 'random_bytes')}({gpus}), {gpus})" if draws else "None"
    again = ["    for _restore, _state in _generators:", "        _restore(_state)"] if trace.draws else []
    fails = writer.names(is_of_operator, "is_of_operator")
    refuse = [f"    if not {fails}(_error):", "        raise"]
    tail = ["except Exception as _error:", *refuse, *again, f"    _failed = {writer.names(failure, 'failure')}(_error)"]
    # Outside the handler: what eager raises has nothing to do with what is handled there.
    served = f"{instead}(_failed, args, kwargs, _random_state)"
    if passed is not None:
        served = f"[*[None] * {passed - 1}, lambda *_rest: {served}]"
    serve = ["if _failed is not None:", f"    return {served}"]
    return [f"_random_state = {state}", "_failed = None", "try:", f"    {line}", *tail, *serve]


def _classes(trace: Trace, writer: GuardWriter, outputs: list[str]) -> list[str]:
    """Outputs that the program made into parameters or gave a class become such; each is new in every call."""
    lines = []
    for node, name in zip(trace.output_nodes, outputs):
        made = node.meta.get("val") if is_node(node) and node.op != "placeholder" else None
        if is_fake(made) and made.__class__ is not torch.Tensor:
            lines.append(f"{name}.__class__ = {writer.names(made.__class__)}")
    return lines


def _draws(trace: Trace, writer: GuardWriter) -> list[str]:
    """The calls of Python's random generators, before the graph: it gets the numbers."""
    state = writer.names(state_of, "state_of")
    owners = ", ".join([f"{state}({name})" for name in {writer.read(one.source): 0 for one in trace.draws}])
    lines = [f"_generators = [{owners}]"] if owners else []
    for index, one in enumerate(trace.draws):
        owner = writer.read(one.source)
        parts = [_drawn_argument(writer, a) for a in one.args]
        parts += [f"{name}={_drawn_argument(writer, value)}" for name, value in one.kwargs.items()]
        is_method = is_str(one.method)
        called = f"{owner}.{one.method}" if is_method else writer.names(one.method)
        call = f"{called}({', '.join(parts if is_method else [owner, *parts])})"
        if one.is_array:
            call = f"{writer.names(torch.as_tensor, 'as_tensor')}({call})"
        sources = [DrawSource(index)] if one.count is None else [DrawSource(index, i) for i in range(one.count)]
        targets = ", ".join([source.code(writer.names) for source in sources])
        lines.append(f"{targets if one.count is None else f'[{targets}]'} = {call}")
    return lines


_drawn_argument: Callable[[GuardWriter, Any], str] = by_kind(
    lambda writer, value: writer.names(value),
    {
        DrawnState: lambda writer, state: DrawSource(state.index).code(writer.names),
        **dict.fromkeys(SYMBOLIC_TYPES, lambda writer, number: writer.expression(number.node.expr)),
        **dict.fromkeys((int, str, bool, type(None)), lambda writer, value: repr(value)),
        tuple: lambda writer, value: f"({''.join([_drawn_argument(writer, one) + ', ' for one in value])})",
    },
    place=1,
)


def _graph_inputs(writer: GuardWriter, section: HeldSection | None, sources: Sequence[Source]) -> list[str]:
    """Items of the list of inputs; many parameters in a row are one."""
    found: list[str] = []
    for watched, group in itertools.groupby(sources, lambda s: section is not None and section.watches(s)):
        run = list(group)
        if section is not None and watched and len(run) >= _MANY:
            found.append("*" + section.read_all(run))
        else:
            found += map(writer.read, run)
    return found


_MANY = 8  # so many variables cost more than a tuple that is spread


def _function_text(steps: list[str], body: list[str], passed: int | None) -> str:
    """The function of checks and body. At a break the body returns `passed` values, a function and its arguments from the
    last to the first: no frame keeps them during the call, so objects die when the program lets go of them."""
    lines = ["try:", *(f"    {step}" for step in steps), "except READ_ERRORS:", "    return MISS", *body]
    head = "entry" if passed is None else "prepare"
    text = f"def {head}(args, kwargs):\n" + textwrap.indent("\n".join(lines), "    ") + "\n"
    if passed is None:
        return text
    take = f"_take()({', '.join(['_take()'] * (passed - 1))})"
    text += "\ndef entry(args, kwargs, prepare=prepare):\n    _pending = prepare(args, kwargs)\n    if _pending is MISS: return MISS\n"
    return text + f"    _take = _pending.pop\n    return {take}\n"


class _Body:
    """What follows the graph: values, effects, the end."""

    def __init__(self, trace: Trace, values: Rebuilder, resume: ResumeMaker, is_behind: bool) -> None:
        self.is_behind = is_behind
        self.trace = trace
        self.values = values
        self.resume = resume
        self.passed: int | None = None  # at a break, how many values the body returns
        self.behind: dict[str, StepForm | ResumesForm] = {}  # by name in the text

    def statements(self) -> list[str]:
        stores = [line for effect in self.trace.effects for line in effect_lines(self.values, effect)]
        early = [line for line in stores if not self.values.is_late(line)]
        late = [line for line in stores if self.values.is_late(line)]
        match self.trace.end:
            case Break() as stop:
                end = self._break(stop)
            case Return(value, suspended):
                made = self.values.value(value) if suspended is None else self.values.items((value, suspended))
                end = [f"return {made}"]
        return [*self.values.lines, *early, *self.values.late, *late, *end]

    # ---- breaks
    def _break(self, stop: Break) -> list[str]:
        """The innermost frame's step runs first, as the callee of the call at which the next outer frame stands, and
        so on out."""
        function, values = "", list[str]()
        for depth, frame in enumerate(reversed(stop.frames)):
            stack = [NULL if v is NULL else self.values.value(v) for v in frame.stack]
            if depth:
                stack.append(self._continuation(frame, stop.frames[-depth], function, values))
            in_tail = self.is_behind and frame is stop.frames[0] and not is_generator(frame.code)
            function, values = self._step(frame, stack, in_tail, again=stop.reason.again and not depth)
        if stop.frames[0].through:
            function, values = self._rest(stop.frames[0], function, values), []
        self.passed = len(values) + 1
        return [f"return [{', '.join([*reversed(values), function])}]"]

    def _continuation(self, frame: FrameState, inner: FrameState, function: str, values: list[str]) -> str:
        """Text of what lies in place of the operands of the operation that has entered the frame `inner`."""
        program = decode(frame.code)
        form = FORMS[program.ops[program.index_of(frame.offset)].name]
        called = self._rest(inner, function, values, is_item=form is Form.NEXT)
        if program.ops[program.index_of(frame.offset)].handler is not None:  # the program can see the traceback
            called = f"{self.values.hold(hiding)}({called})"
        return f"iter({called}, {self.values.hold(END)})" if form is Form.NEXT else called

    def _rest(self, inner: FrameState, function: str, values: list[str], is_item: bool = False) -> str:
        """Text of what calls the frame's step, from the frames of a module's call if that has entered it.

        It takes the values out of a list, so that it keeps none of them while it runs.
        """
        rest = f"_take()({', '.join(['_take()'] * len(values))})"
        if is_generator(inner.code):
            known = f", {self.values.value(inner.generator)}" if inner.generator is not None else ""
            rest = f"{self.values.hold(stepped)}(lambda: {rest}{known})" + "[0]" * (not is_item)
        called = f"(lambda _take: lambda: {rest})([{', '.join([*reversed(values), function])}].pop)"
        return f"{self.values.hold(through_modules)}({inner.through}, {called})" if inner.through else called

    def _step(self, frame: FrameState, stack: list[Any], in_tail: bool, again: bool = False) -> tuple[str, list[str]]:
        """Texts of the function that executes the operation at which the frame stands, and then the rest of the frame,
        and of its arguments."""
        b, names = self.values, self.values.names
        program = decode(frame.code)
        bound = [v is not NULL for v in stack]
        point = point_at(program, program.index_of(frame.offset), bound, frame.locals, frame.locals, frame.entered)
        again = again and not is_generator(frame.code)
        step: StepCode | None = None if again else step_code(point)
        layout = layouts(program)[program.index_of(frame.offset)]
        for place in layout.handling if layout is not None else ():
            for handled in frame.stack[place + 1 : place + 2]:
                if is_exception(handled) and id(handled) not in self.trace.origins:
                    b.lines.append(f"{b.hold(raised)}({b.value(handled)})")
        known = _symbolic(frame, self.trace.origins)
        points = step.successors if step is not None else (point,)
        resumes = tuple(self.resume(p, frame.globals, frame.function_name, known) for p in points)
        resumes = tuple(map(tail_of, resumes)) if in_tail else resumes
        label = f"{frame.function_name}_at_{frame.offset}"
        cells = f"({b.items(frame.cells)},)" if frame.cells else "()"
        rest = ResumesForm(points, frame.globals, frame.function_name, known, step is None, in_tail)
        first = cells if step is None else self._named(resumes, label + "_resumes", rest)
        values = [first, *(v for v in stack if v is not NULL)]
        values += [b.value(frame.handled)] if point.handled else []
        values += [b.value(frame.locals[name]) for name in point.locals]
        if step is None:
            head = self._named(resumes[0], label, rest)
        elif frame.cells:
            make = names(types.FunctionType, "FunctionType")
            code = self._named(step.code, label, StepForm(point, None))
            head = f"{make}({code}, {names(frame.globals)}, None, None, ({b.items(frame.cells)},))"
        else:
            function = types.FunctionType(step.code, frame.globals)
            head = self._named(function, label, StepForm(point, frame.globals))
        return head, values

    def _named(self, value: Any, hint: str, form: StepForm | ResumesForm) -> str:
        """A name of the text for what another process makes from the form."""
        name = self.values.names(value, hint)
        self.behind[name] = form
        return name


def raised(error: BaseException) -> None:
    """Give an exception of the traced program a traceback, as all have that were raised: one that keeps no frame."""
    if error.__traceback__ is None:
        BaseException.with_traceback(error, TRACEBACK)


def _symbolic(frame: FrameState, origins: dict[int, tuple[Any, Source]]) -> Symbolic:
    """What stays symbolic across the break, so that the code behind it need not learn it again; what loops count;
    sources of lists."""
    found: Symbolic = {}
    for name, value in [*((f"stack{i}", v) for i, v in enumerate(frame.stack)), *frame.locals.items()]:
        if is_fake(value):
            dims = frozenset(d for d, n in enumerate(value.shape) if is_symbolic(n))
            if dims:
                found[name] = (value.dim(), dims)
        elif plain_class(value) is not type(value) and plain_class(value) is not bool:
            found[name] = plain_class(value)
        elif is_list(value) and id(value) in origins:
            found[name] = origins[id(value)][1]
    program = decode(frame.code)
    op = program.ops[program.index_of(frame.offset)]
    found.update({name: int for name in loop_variables(program, op.index) if is_int(frame.locals.get(name))})
    if op.name == "FOR_ITER" and not frame.entered and is_counted(frame.stack[-1]):
        found[f"stack{len(frame.stack)}"] = int  # the item that the operation pushes
    return found
