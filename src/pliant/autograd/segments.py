"""Cut a program where the caller gets a tensor that later results are computed from.

In:     a captured program, and a trace of it on fakes with its autograd graph.
Out:    `find_cuts`: before which nodes to cut; `split`: the programs between the cuts, and which values go where.
Holds:  run one after the other the segments do what the program does. To autograd each is one function, so a returned
        intermediate, or an input as it was after a write, can be asked for its gradient, have hooks and keep its
        `.grad`, as in eager: what is computed from it lies in a later segment.
Reads on: `runtime.py`, which builds the segments.
"""

from __future__ import annotations

import bisect
import dataclasses
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from pliant import torch_adapter
from pliant.autograd.aliases import Base
from pliant.autograd.aliasing import UnsupportedAliasing, storage_of
from pliant.autograd.casts import casts_now
from pliant.autograd.history import Node, function_since, functions_behind, gradient_of
from pliant.graph.contracts import CapturedGraph, GraphInput
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.late_module import LateModule
from pliant.graph.passes.purity import binds_symbols
from pliant.graph.unbacked import assume, written
from pliant.guards.settings import NESTED, SETTINGS
from pliant.records import dataclass
from pliant.symbolic.expr import Symbol

Write = tuple[Base, fx.Node | None, bool]  # of what memory, by which node, whether the tensor's version shows it

_NUMBERS = (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)
_MODES = frozenset((*(one.setter for one in SETTINGS), *NESTED))

# Of memory that is written, the positions of the writes and, for each tensor that lies in it, where it is made.
WrittenViews = tuple[tuple[frozenset[int], tuple[frozenset[int], ...]], ...]


@dataclass(frozen=True, slots=True)
class Cuts:
    """Positions in the captured graph before which to cut, in order; `inside`: of calls that must be cut within.
    `whole`: (first, last) nodes of what must stay together, since the program asks for gradients through it, or since
    what the first may save for its derivative is written by the last, unseen by autograd.
    `hooks`: positions of calls that hook what the caller gets: they lie between segments and hook the real tensor.
    `tails`: positions of calls to be made again at the program's end, since no cut fits before them (`tails.py`).
    """

    before: tuple[int, ...]
    inside: tuple[int, ...] = ()
    whole: tuple[tuple[int, int], ...] = ()
    hooks: tuple[int, ...] = ()
    rewritten: WrittenViews = ()
    tails: tuple[int, ...] = ()


class Timeline:
    """When each node of the captured graph ran, as autograd counts, and in which mode."""

    def __init__(self, values: dict[fx.Node, Any]) -> None:
        self.values = values  # what the nodes gave
        self.starts: list[int] = []
        self.modes: list[Any] = []
        self.places: dict[fx.Node | None, int] = {}

    def note(self, node: fx.Node | None) -> None:
        self.places[node] = len(self.starts)
        self.starts.append(torch_adapter.autograd_time())
        self.modes.append((torch.is_grad_enabled(), casts_now()))

    def position_of(self, function: Node) -> int:
        """The graph node that made a function of autograd's graph."""
        return bisect.bisect_right(self.starts, function._sequence_nr()) - 1

    def made_before(self, reader: int, tensor: FakeTensor) -> int:
        """Where a tensor was made that a later node reads. A leaf became one where a node last gave it before; -1 if none did."""
        if tensor.grad_fn is not None:
            return self.position_of(tensor.grad_fn)
        places = (self.places[node] for node, value in self.values.items() if value is tensor)
        return max((place for place in places if place < reader), default=-1)


def find_cuts(
    results: list[FakeTensor],
    seen: Iterable[FakeTensor],
    timeline: Timeline,
    freed: set[Node],
    hooks: Sequence[int],
    rewritten: Callable[[], WrittenViews],
) -> Cuts:
    """Where to cut so that no result is computed in the segment of a tensor that the caller sees.

    `results`: what the program computes and has a gradient. `seen`: every tensor with a history that the caller gets.
    `freed`: functions through which the caller cannot ask gradients, since the program has. `hooks`, `rewritten`: as in `Cuts`.
    """
    readers: dict[tuple[Node, int], int] = {}
    for function in functions_behind([one.grad_fn for one in results], freed):
        for following, number in function.next_functions:
            if following is not None:
                key = (getattr(following, "variable", following), number)  # as `gradient_of`
                readers[key] = min(readers.get(key, len(timeline.starts)), timeline.position_of(function))
    spans, inside = [], set()
    for tensor in seen:
        reader = readers.get(gradient_of(tensor))
        if reader is not None:
            first = timeline.made_before(reader, tensor)
            if first < reader:
                spans.append((first, reader))
            else:
                inside.add(reader)
    spans += [(position - 1, position) for position in {*hooks, *[1 + hook for hook in hooks]}]
    if not spans:
        return Cuts((), tuple(sorted(inside)), hooks=tuple(hooks))
    views = rewritten()
    cuts = _stab(sorted(spans, key=lambda span: (span[1], -span[0])), timeline, _tearing(views, timeline))
    return Cuts(tuple(cuts), tuple(sorted(inside)), hooks=tuple(hooks), rewritten=views)


def written_views(
    values: dict[fx.Node, Any], writes: list[Write], places: dict[fx.Node | None, int]
) -> WrittenViews:
    """`Cuts.rewritten`, of memory in which several tensors lie that nodes gave (`values`)."""
    when: dict[Base, set[int]] = {}
    for base, node, _ in writes:
        when.setdefault(base, set()).add(places[node])
    lying: dict[Base, dict[int, set[int]]] = {base: {} for base in when}
    for node, value in values.items():
        if type(value) is FakeTensor and value.node.base in lying:
            lying[value.node.base].setdefault(id(value), set()).add(places[node])
    several = [(base, tensors.values()) for base, tensors in lying.items() if len(tensors) > 1]
    return tuple((frozenset(when[base]), tuple(map(frozenset, tensors))) for base, tensors in several)


def unseen_writes(
    values: dict[fx.Node, Any], writes: list[Write], places: dict[fx.Node | None, int]
) -> tuple[tuple[int, int], ...]:
    """For memory written so that no version shows it, from the first node whose derivative may read it to that write.

    A segment that is over has saved what it found there, or what it computes that from again; eager reads the memory.
    """
    last = {base: places[node] for base, node, counted in writes if not counted}
    first: dict[Base, int] = {}
    for node, value in values.items() if last else ():
        if type(value) is FakeTensor and value.node.base in last:
            base = value.node.base
            near = [one for one in (node, *node.users) if one.op != "placeholder" and _has_history(values.get(one))]
            first[base] = min([first.get(base, last[base]), *[places[one] for one in near]])
    return tuple((first[base], last[base]) for base in first if first[base] < last[base])


@dataclass(frozen=True, slots=True)
class ReadFirst:
    """`inputs`: those that are written when autograd has noted all that reads them. `views`: those of which, after the
    write, views alone are read that were there before. `partly`: those that are read in one of these ways and also as they
    are since: if they are views, their gradient is a part of what reads them."""

    inputs: frozenset[int] = frozenset()
    views: frozenset[int] = frozenset()
    partly: frozenset[int] = frozenset()

    def check(self, captured: CapturedGraph, written: set[int]) -> None:
        """Refuse part of a gradient, of an input written without autograd: it has one edge to the program. Nobody asks for
        gradients of what passes between segments."""
        for i in self.partly.intersection(written).difference(captured.attributes.get("passing_inputs", ())):
            one = captured.inputs[i]
            if (one.example if isinstance(one.example, torch.Tensor) else one.fake)._is_view():
                what = f"the view `{one.name}` is written without autograd, and read both as before and as after that"
                raise UnsupportedAliasing(what, kind="write-through-view")


def read_before_written(
    results: Iterable[torch.Tensor], histories: list[Any], writes: list[Write], timeline: Timeline
) -> ReadFirst:
    """When autograd notes what reads the inputs that are written. `histories`: the functions of the inputs.

    A view that was there when its base was written has another function since. Behind that is not the input, if it is a
    view as well, but what the input is a view of.
    """
    written: dict[int, int] = {}  # the last write that makes functions anew
    for base, node, counted in writes:
        if counted and base.input is not None and histories[base.input] is not None:
            written[base.input] = max(written.get(base.input, -1), timeline.places[node])
    of_views = {
        function_since(one)
        for node, value in (timeline.values.items() if written else ())
        for one in tree_leaves(value)
        if type(one) is FakeTensor and timeline.places[node] < written.get(_input_of(one), -1)
    }
    owners = {histories[i]: i for i in written}
    early, viewed, late = set[int](), set[int](), set[int]()
    for function in functions_behind([one.grad_fn for one in results]) if written else ():
        position = timeline.position_of(function)
        for i in {owners[history] for history, _ in function.next_functions if history in owners}:
            (early if position < written[i] else viewed if function in of_views else late).add(i)
    before = frozenset(early | viewed)
    return ReadFirst(before - viewed - late, before & viewed - late, before & late)


def _input_of(value: FakeTensor) -> int:
    """The input in whose memory it lies; -1 if there is none."""
    position = value.node.base.input
    return -1 if position is None else position


def _has_history(value: Any) -> bool:
    return any(isinstance(one, torch.Tensor) and one.requires_grad for one in tree_leaves(value))


def _tearing(rewritten: WrittenViews, timeline: Timeline) -> set[int]:
    """The positions at which a cut would hand two tensors to what writes the memory of both (`_check_written`)."""
    nodes = {place: node for node, place in timeline.places.items() if node is not None}
    found = set()
    for writes, tensors in rewritten:
        handed: Counter[int] = Counter()
        for made in tensors:
            used = max((timeline.places.get(user, 0) for place in made for user in nodes[place].users), default=0)
            handed.update(range(min(made) + 1, min(used, max(writes)) + 1))
        found |= {position for position, count in handed.items() if count > 1}
    return found


def _stab(spans: list[tuple[int, int]], timeline: Timeline, avoided: set[int]) -> list[int]:
    """Few positions so that each span (after `first`, up to `last`) holds one: where modes are as at the start if it can
    be (a cast of autocast's is then taken once), and none that is `avoided` where there is another."""
    found: list[int] = []
    for first, last in spans:
        if found and found[-1] > first:
            continue
        places = range(last, first, -1)
        possible = [place for place in places if timeline.modes[place] == timeline.modes[0]] or places
        found.append(next((place for place in possible if place not in avoided), possible[0]))
    return found


# ---------------------------------------------------------------------------------------------------- splitting


@dataclass(slots=True, eq=False)
class Segment:
    """`takes`, `gives`: nodes of the whole graph whose values come in and go out, in order. `hooks`: that is all it does."""

    graph: fx.Graph
    takes: list[fx.Node]
    gives: list[fx.Node]
    hooks: bool


def split(captured: CapturedGraph, cuts: Cuts) -> list[Segment]:
    """The segments. Nodes that compute numbers are repeated where their numbers are needed."""
    if any(first < cut <= last for first, last in cuts.whole for cut in cuts.before):
        what = "gradients are asked for, or a write hidden from autograd (through `.data`) reaches, through a tensor"
        raise UnsupportedAliasing(f"{what} that the caller gets", kind="returned-intermediate")
    nodes = list(captured.module.graph.nodes)
    number_of = _segment_numbers(nodes, cuts)
    _check_where_made(nodes, number_of)
    concerned = _concerned_by_writes(captured)
    needed: list[dict[fx.Node, None]] = [{} for _ in range(len(cuts.before) + 1)]  # what each takes
    for node in nodes:
        home = number_of[node]
        for argument in _read(node):
            if argument in concerned:  # each segment is to know it beside what it writes
                for earlier in needed[: home + 1]:
                    earlier[argument] = None
            elif argument.op == "placeholder" or number_of[argument] < home:
                needed[home][argument] = None
    _check_written(nodes, number_of, needed, cuts)
    _need_symbols(nodes, number_of, needed)
    hooks = {number_of[nodes[position]] for position in cuts.hooks}
    return [_make_segment(nodes, number_of, needed, n, n in hooks) for n in range(len(needed))]


def _check_where_made(nodes: list[fx.Node], number_of: dict[fx.Node, int]) -> None:
    """Let assumptions be checked by the segments that make what they are about: later ones know a size by what it is
    assumed to equal."""
    made: dict[Symbol, fx.Node] = {}
    for node in nodes:
        made.update({one.symbol: node for one in node.meta.get("binds", ())})
        if node.target is assume:
            homes = [number_of[made[symbol]] for symbol in written(node.meta["check"][0]).free if symbol in made]
            number_of[node] = max(homes, default=number_of[node])


def _check_written(
    nodes: list[fx.Node], number_of: dict[fx.Node, int], needed: list[dict[fx.Node, None]], cuts: Cuts
) -> None:
    """Refuse a write of what several tensors share if two of them come from earlier segments: to the segments from there on
    these are inputs that have nothing to do with each other."""
    for writes, tensors in cuts.rewritten:
        for home in {number_of[nodes[position]] for position in writes} - {0}:
            taken = {node for later in needed[home:] for node in later}
            earlier = {n for n in taken if n.op == "placeholder" or number_of[n] < home}
            if sum(any(nodes[position] in earlier for position in places) for places in tensors) > 1:
                what = "memory is written that two tensors from before a returned one share"
                raise UnsupportedAliasing(what, kind="returned-intermediate")


def _concerned_by_writes(captured: CapturedGraph) -> set[fx.Node]:
    """The inputs that the program writes, and those that share memory with one of them."""
    places = list(captured.module.graph.find_nodes(op="placeholder"))
    owners = {storage_of(captured.inputs[i].example) for i in captured.written_inputs()}
    return {place for place, one in zip(places, captured.inputs) if storage_of(one.example) in owners}


def refined(captured: CapturedGraph, cuts: Cuts, segment: Segment, further: Cuts) -> Cuts | None:
    """The cuts with those that a segment needs: what it hands on may be computed from a tensor that the caller gets.

    None if that does not help.
    """
    places = {node.name: position for position, node in enumerate(captured.module.graph.nodes)}
    inside = list(segment.graph.nodes)
    positions = [next(n for n in inside[k:] if not _changes_modes(n)).name for k in further.before]
    found = {*cuts.before, *[places[name] for name in positions if name in places]}
    if further.inside or further.hooks or found == set(cuts.before):
        return None
    return dataclasses.replace(cuts, before=tuple(sorted(found)))


def _need_symbols(nodes: list[fx.Node], number_of: dict[fx.Node, int], needed: list[dict[fx.Node, None]]) -> None:
    """Add what tells the sizes of what each segment takes and computes."""
    tellers = _tellers(nodes)
    for number, taken in enumerate(needed):
        own = [node for node in nodes if number_of[node] == number and node.op != "placeholder"]
        told = {one.symbol for node in own for one in node.meta.get("binds", ())}
        queue = [*own, *taken]
        for node in queue:
            told.update(_sizes_that_are_symbols(node) if node in taken else ())
        for node in queue:
            for symbol in _symbols_in(node) - told:
                teller = tellers.get(symbol)
                if teller is None:
                    continue
                if teller.op == "placeholder" or number_of[teller] < number:
                    taken[teller] = None
                told.update(_sizes_that_are_symbols(teller))
                queue.append(teller)


def _tellers(nodes: list[fx.Node]) -> dict[Symbol, fx.Node]:
    """For each symbol the first value that has it for a size, or is it."""
    found: dict[Symbol, fx.Node] = {}
    for node in nodes:
        if not _is_number(node):
            for symbol in _sizes_that_are_symbols(node):
                found.setdefault(symbol, node)
    return found


def _numbers_in(node: fx.Node) -> list[Any]:
    value = node.meta.get("val")
    numbers = value.size_ if isinstance(value, FakeTensor) else (value,)
    return [one.node.expr for one in numbers if isinstance(one, torch.SymInt | torch.SymFloat | torch.SymBool)]


def _sizes_that_are_symbols(node: fx.Node) -> list[Symbol]:
    return [e for e in _numbers_in(node) if isinstance(e, Symbol)]


def _symbols_in(node: fx.Node) -> set[Symbol]:
    """Of sizes, and of strides: a view that comes in has those of what it is a view of."""
    value = node.meta.get("val")
    strides = value.stride_ if isinstance(value, FakeTensor) else ()
    found = [*_numbers_in(node), *(n.node.expr for n in strides if isinstance(n, torch.SymInt))]
    return {symbol for e in found for symbol in e.free}


def _segment_numbers(nodes: list[fx.Node], cuts: Cuts) -> dict[fx.Node, int]:
    found: dict[fx.Node, int] = {}
    for position, node in enumerate(nodes):
        found[node] = bisect.bisect_right(cuts.before, position)
        if node.op == "placeholder":
            found[node] = 0
        elif node.target is operator.getitem and isinstance(node.args[0], fx.Node):
            found[node] = found[node.args[0]]  # the items of a tuple are taken where it is made
    return found


def _is_number(node: fx.Node) -> bool:
    """Whether the node computes a number from numbers and sizes."""
    if node.op in ("placeholder", "get_attr", "output") or binds_symbols(node):
        return False
    return isinstance(node.meta.get("val"), _NUMBERS) or bool(node.meta.get("number"))


def _read(node: fx.Node) -> list[fx.Node]:
    """What the node reads, through the numbers that are computed again wherever they are needed.

    The output reads numbers only: what else is returned is handed out by the segment that makes it.
    """
    found, queue = dict[fx.Node, None](), [a for a in node.all_input_nodes if node.op != "output" or _is_number(a)]
    for argument in queue:
        if argument.op == "get_attr":
            continue
        if _is_number(argument):
            queue.extend(argument.all_input_nodes)
        else:
            found[argument] = None
    return list(found)


def _make_segment(
    nodes: list[fx.Node],
    number_of: dict[fx.Node, int],
    needed: list[dict[fx.Node, None]],
    number: int,
    hooks: bool,
) -> Segment:
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    takes = [node for node in nodes if node in needed[number]]
    for node in takes:
        copies[node] = graph.placeholder(node.name)
    copy = _copier(graph, copies)
    inner = [n for n in nodes if n.op not in ("placeholder", "output", "get_attr")]
    own = [n for n in inner if number_of[n] == number or not hooks and _changes_modes(n)]
    for node in own:
        if not _is_number(node):
            copy(node)
    returned = nodes[-1].all_input_nodes
    read_later = {node for taken in needed[number + 1 :] for node in taken}.union(returned)
    gives = [node for node in own if node in read_later and not _is_number(node)]
    if number == len(needed) - 1:
        gives += [node for node in returned if _is_number(node) or node.op == "get_attr"]
    graph.output(tuple(copy(node) for node in gives))
    return Segment(graph, takes, gives, hooks)


def _changes_modes(node: fx.Node) -> bool:
    """Such calls are in every segment: a cut may lie in a block of autocast, and each ends as the program does."""
    return node.op == "call_function" and node.target in _MODES


def _copier(graph: fx.Graph, copies: dict[fx.Node, fx.Node]) -> Callable[[fx.Node], fx.Node]:
    def copy(node: fx.Node) -> fx.Node:
        known = copies.get(node)
        if known is None:
            for argument in node.all_input_nodes:
                copy(argument)
            known = copies[node] = graph.node_copy(node, copies.__getitem__)
        return known

    return copy


def as_captured(whole: CapturedGraph, segment: Segment, number: int, known: dict[fx.Node, Any]) -> CapturedGraph:
    """A segment as a program. `known`: the descriptions of the values that it takes, as they are then.

    Its attributes say which of its inputs and outputs only pass from segment to segment: nobody can ask for gradients
    of these, so no further cut is needed for them.
    """
    places = list(whole.module.graph.find_nodes(op="placeholder"))
    by_node = dict(zip(places, whole.inputs))
    moved = {places[i] for i in whole.attributes.get("moved_inputs", ())}
    inputs = [_as_input(node, by_node.get(node), known.get(node)) for node in segment.takes]
    _check_symbols(segment, inputs)
    module = LateModule(whole.module, segment.graph)
    returned = set(next(iter(whole.module.graph.find_nodes(op="output"))).all_input_nodes)
    passing = {
        "passing_inputs": frozenset(i for i, n in enumerate(segment.takes) if n not in by_node and n not in returned),
        "passing_outputs": frozenset(i for i, n in enumerate(segment.gives) if n not in returned),
        "moved_inputs": frozenset(i for i, n in enumerate(segment.takes) if n in moved),
    }
    name = f"{whole.name}_{number}"
    return CapturedGraph(module, inputs, whole.shape_env, name, whole.grad_enabled, attributes=passing)


def _as_input(node: fx.Node, given: GraphInput | None, fake: Any) -> GraphInput:
    if given is None:
        if isinstance(fake, _NUMBERS):
            return GraphInput(node.name, "symbol", fake, None, None)
        if not isinstance(fake, torch.Tensor):
            raise UnsupportedAliasing("a value that is no tensor crosses a cut", kind="returned-intermediate")
        return GraphInput(node.name, "tensor", fake, None, None)
    if fake is None or not isinstance(given.fake, torch.Tensor):
        return given
    # The same object, perhaps written by then: only its history is new.
    return GraphInput(given.name, given.kind, fake, given.source, None, given.static)


def _check_symbols(segment: Segment, inputs: list[GraphInput]) -> None:
    """Every symbol that the segment uses must be a size of something it takes."""
    have: set[Symbol] = set()
    used: set[Symbol] = set()
    for one in inputs:
        sizes = one.fake.size_ if isinstance(one.fake, FakeTensor) else (one.fake,)
        exprs = [size.node.expr for size in sizes if isinstance(size, torch.SymInt | torch.SymFloat)]
        have.update(e for e in exprs if isinstance(e, Symbol))
        used.update(symbol for e in exprs for symbol in e.free)
    for node in segment.graph.nodes:
        value = node.meta.get("val")
        have.update(binding.symbol for binding in node.meta.get("binds", ()))
        if isinstance(value, FakeTensor):
            used.update(s for size in value.size_ if isinstance(size, torch.SymInt) for s in size.node.expr.free)
    if used - have:
        raise UnsupportedAliasing("a size is not known behind a cut", kind="returned-intermediate")
