"""The standard library, a module a program or more: what it computes is known at capture, or replayed."""

import abc
import bisect
import collections
import collections.abc
import contextlib
import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import hashlib
import heapq
import importlib.metadata
import importlib.util
import inspect
import io
import itertools
import json
import logging
import math
import numbers
import operator
import os
import pathlib
import platform
import pprint
import random
import re
import statistics
import string
import struct
import sys
import textwrap
import threading
import time
import types
import typing
import uuid
import warnings
import weakref

import numpy as np
import torch
from tests.capture.constructs.harness import program

LOCK = threading.Lock()
RLOCK = threading.RLock()
LOCAL = threading.local()
LOCAL.scale = 2.0
LOG = logging.getLogger("constructs.standard_library")
PATTERN = re.compile(r"(?P<name>[a-z]+)_(\d+)")
COUNTER = itertools.count(3)


class Config:
    def __init__(self, size=4, layers=None):
        self.size = size
        self.layers = layers or [1, 2]
        self.nested = {"a": [1, (2, 3)]}


CONFIG = Config()


@dataclasses.dataclass
class Options:
    size: int = 3
    names: list = dataclasses.field(default_factory=lambda: ["a"])


@dataclasses.dataclass(frozen=True, order=True)
class Point:
    a: int
    b: int = 2


class Mode(enum.Enum):
    FAST = "fast"
    SLOW = "slow"

    @property
    def factor(self):
        return 2 if self is Mode.FAST else 3

    @classmethod
    def default(cls):
        return cls.FAST


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Kind(str, enum.Enum):
    A = "a"
    B = "b"


class Entry(typing.NamedTuple):
    value: object
    weight: int = 2

    def total(self):
        return self.value * self.weight


@functools.total_ordering
class Ranked:
    def __init__(self, rank):
        self.rank = rank

    def __eq__(self, other):
        return self.rank == other.rank

    def __lt__(self, other):
        return self.rank < other.rank


class Lazy:
    @functools.cached_property
    def table(self):
        return {"n": 3}


LAZY = Lazy()


class Methods:
    def scaled(self, x, by):
        return x * by

    twice = functools.partialmethod(scaled, by=2)


@functools.singledispatch
def describe(value):
    return 1


@describe.register(list)
def _(value):
    return len(value)


@describe.register(torch.Tensor)
def _(value):
    return value.dim()


@functools.lru_cache(maxsize=None)
def power(n):
    return n**2


@functools.cache
def table(n):
    return tuple(range(n))


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...


class Square(Shape):
    def area(self):
        return 4


@typing.runtime_checkable
class Sized(typing.Protocol):
    def area(self): ...


class Owner:
    def __init__(self):
        self.items = [1]
        self.ref = weakref.ref(self)


def area(function):
    return program("standard library")(function)


def broken(function):
    return program("standard library", whole=False)(function)


# ---- copy, weakref, types
@area
def copy_of_a_config(x, y):
    other = copy.copy(CONFIG)
    other.size = 7
    return x * other.size, CONFIG.size, other.layers is CONFIG.layers


@area
def deepcopy_of_a_config(x, y):
    other = copy.deepcopy(CONFIG)
    other.layers.append(3)
    other.nested["a"].append(x)
    return x * other.size, len(CONFIG.layers), other.layers, len(CONFIG.nested["a"])


@area
def deepcopy_of_containers(x, y):
    source = {"k": [1, [2, (3, [4])]], "s": {1, 2}}
    other = copy.deepcopy(source)
    other["k"][1].append(3)
    return x, source, other


@area
def deepcopy_keeps_sharing(x, y):
    inner = [1]
    a, b = copy.deepcopy((inner, inner))
    loop = []
    loop.append(loop)
    other = copy.deepcopy(loop)
    return x, a is b, a is inner, other[0] is other


@area
def copy_of_a_tensor_container(x, y):
    found = copy.copy({"a": x, "b": [y]})
    return found["a"] + found["b"][0]


@area
def copy_of_own_object(x, y):
    made = Config(5)
    other = copy.deepcopy(made)
    other.nested["a"][1] = 5
    return x * made.size, made.nested, other.nested


@area
def weak_references(x, y):
    config = Config()
    ref = weakref.ref(config)
    return x * ref().size, ref() is config


@area
def weak_reference_in_an_object(x, y):
    owner = Owner()
    return x * len(owner.ref().items)


@area
def weak_reference_from_outside(x, y):
    ref = weakref.ref(CONFIG)
    return x * ref().size if ref() is not None else x


@broken
def weak_value_dictionary(x, y):
    found = weakref.WeakKeyDictionary()
    found[CONFIG] = 3
    return x * found[CONFIG], CONFIG in found


@area
def simple_namespace(x, y):
    space = types.SimpleNamespace(a=1, b=x)
    space.c = 3
    return space.b * space.a + space.c, sorted(vars(space))


@area
def method_types(x, y):
    def scaled(self, by):
        return x * by + self.size

    bound = types.MethodType(scaled, CONFIG)
    return bound(3), isinstance(scaled, types.FunctionType), isinstance(bound, types.MethodType)


@area
def mapping_proxy(x, y):
    view = types.MappingProxyType({"a": 2})
    return x * view["a"], list(view), "a" in view


# ---- text
@area
def regular_expression_search(x, y):
    found = re.search(r"(\d+)", "layer12")
    return x * int(found.group(1)), found.span(), re.findall("a+", "aabca"), re.sub("a", "b", "cat")


@area
def compiled_pattern(x, y):
    match = PATTERN.match("layer_12")
    return x, match["name"], match.groups(), match.groupdict(), PATTERN.fullmatch("x") is None


@area
def regular_expression_split(x, y):
    return x, re.split(r"[,;]", "a,b;c"), [m.group() for m in re.finditer("a.", "abac")], re.escape("a.b")


@area
def json_text(x, y):
    data = json.loads('{"a": [1, 2.5, null], "b": true}')
    return x * data["a"][0], json.dumps({"z": [1, "é"], "a": None}, sort_keys=True, indent=1)


@area
def string_module(x, y):
    text = string.Template("$name is $n").substitute(name="a", n=3)
    return x, text, string.ascii_lowercase[:3], string.capwords("a b"), string.Formatter().format("{0}", 1)


@area
def text_wrapping(x, y):
    return (
        x,
        textwrap.dedent("  a\n  b"),
        textwrap.indent("a", "  "),
        textwrap.shorten("a b c d", 5),
        textwrap.wrap("a b", 1),
    )


@area
def format_specs(x, y):
    n, v = x.shape[0], 3.14159
    return x, f"{n:>5}|{v:.2f}|{n!r:^3}|{v:{n}.{1}}", f"{'a':*^5} {n:03d} {n:,} {255:#x} {0.5:%}", "{:>4}".format("a")


@area
def percent_format(x, y):
    return x, "%s %d %.1f %r" % ("a", 3, 2.5, "b"), "%(k)s" % {"k": 1}


@area
def text_methods(x, y):
    text = "Hello, World"
    return (
        x,
        text.lower().replace("l", "L").partition(","),
        text.translate(str.maketrans("lo", "01")),
        text.encode().decode("ascii"),
        "a-b".rsplit("-", 1),
        text.startswith(("He", "x")),
        "x".join(["a", "b"]).zfill(6),
        "abc".isalpha(),
        text.count("l"),
        "A".casefold(),
    )


@area
def print_to_text(x, y):
    buffer = io.StringIO()
    buffer.write("a")
    print("b", file=buffer)
    return x, buffer.getvalue()


@area
def pretty_printed(x, y):
    return x, pprint.pformat({"a": [1, 2]})


# ---- files and environment
@area
def os_paths(x, y):
    path = os.path.join("a", "b.txt")
    return x, os.path.splitext(path), os.path.basename(path), os.path.dirname(path), os.fspath("a"), os.sep


@area
def environment(x, y):
    return x * int(os.environ.get("CONSTRUCTS_SCALE", "2")), os.getenv("CONSTRUCTS_NONE"), "HOME_NONE" in os.environ


@area
def path_objects(x, y):
    path = pathlib.PurePosixPath("a") / "b.txt"
    return x, path.name, path.suffix, str(path.parent)


@area
def interpreter_facts(x, y):
    return x, sys.version_info >= (3, 8), sys.platform, sys.maxsize > 5, platform.system()


@area
def package_version(x, y):
    return x, importlib.metadata.version("torch").split(".")[0], importlib.util.find_spec("torch") is not None


# ---- threads and time
@area
def lock(x, y):
    with LOCK:
        z = x + 1
    return z * 2


@area
def recursive_lock(x, y):
    with RLOCK, RLOCK:
        z = x + 1
    return z - 1


@area
def own_lock(x, y):
    made = threading.Lock()
    with made:
        z = x + 1
    return z - 1


@area
def thread_local_read(x, y):
    return x * LOCAL.scale, getattr(LOCAL, "missing", 3), hasattr(LOCAL, "scale")


@area
def thread_identity(x, y):
    return x, threading.current_thread() is threading.main_thread()


@broken
def clock(x, y):
    start = time.time()
    return x + 1, time.perf_counter() >= 0, time.monotonic() >= 0, time.time() >= start


@area
def dates(x, y):
    day = datetime.date(2024, 2, 29)
    return x * day.day, day.isoformat(), (day + datetime.timedelta(days=1)).month


# ---- itertools
@area
def group_by(x, y):
    return (
        x,
        [(k, len(list(g))) for k, g in itertools.groupby("aabc")],
        [k for k, _ in itertools.groupby([1, 3, 2], key=lambda v: v % 2)],
    )


@area
def all_of_itertools(x, y):
    return (
        x,
        list(itertools.accumulate([1, 2, 3], operator.mul)),
        list(itertools.accumulate([1, 2], initial=5)),
        list(itertools.chain.from_iterable([[1], [2]])),
        list(itertools.combinations("abc", 2)),
        list(itertools.combinations_with_replacement("ab", 2)),
        list(itertools.compress("abc", [1, 0, 1])),
        list(itertools.dropwhile(lambda v: v < 2, [1, 2, 1])),
        list(itertools.filterfalse(lambda v: v % 2, range(4))),
        list(itertools.islice(itertools.cycle("ab"), 1, 5, 2)),
        list(itertools.pairwise("abc")),
        list(itertools.permutations([1, 2])),
        list(itertools.product("ab", repeat=2)),
        list(itertools.repeat(1, 2)),
        list(itertools.starmap(pow, [(2, 3)])),
        list(itertools.takewhile(lambda v: v < 2, [1, 2, 1])),
        list(itertools.zip_longest([1], [2, 3], fillvalue=0)),
    )


@area
def itertools_on_tensors(x, y):
    parts = list(itertools.accumulate(x.unbind(0)))
    pairs = [a + b for a, b in itertools.pairwise(y.unbind(0))]
    return parts[-1], sum(pairs), [a * b for a, b in itertools.product(x.unbind(0)[:2], [1, 2])]


@area
def tee(x, y):
    a, b = itertools.tee(iter([1, 2, 3]))
    next(a)
    return x, list(a), list(b)


@area
def counter_from_outside_copied(x, y):
    return x * next(copy.copy(itertools.count(2)))


# ---- contextlib
@area
def exit_stack(x, y):
    log = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(KeyError))
        stack.callback(log.append, 3)
        stack.push(lambda *exc: log.append(exc[0] is KeyError))
        z = x + 1
        raise KeyError
    return z, log


@area
def exit_stack_of_no_grad(x, y):
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        z = x * 2
    return z, torch.is_grad_enabled()


@area
def suppressed(x, y):
    with contextlib.suppress(ValueError, KeyError):
        x = x + 1
        raise KeyError("gone")
    return x


@area
def closing(x, y):
    class Closes:
        closed = False

        def close(self):
            self.closed = True

    with contextlib.closing(Closes()) as thing:
        z = x + 1
    return z, thing.closed


@area
def redirected(x, y):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        print("hidden")
    return x, out.getvalue()


@area
def null_context(x, y):
    with contextlib.nullcontext() as none, contextlib.nullcontext(x) as z:
        return z + 1, none


@area
def context_decorator(x, y):
    class Noted(contextlib.ContextDecorator):
        def __enter__(self):
            log.append("in")
            return self

        def __exit__(self, *exc):
            log.append("out")

    log = []

    @Noted()
    def add(a):
        return a + 1

    return add(x), log


@area
def context_manager_that_catches(x, y):
    @contextlib.contextmanager
    def catching():
        try:
            yield 3
        except ValueError:
            log.append("caught")

    log = []
    with catching() as n:
        x = x * n
        raise ValueError
    return x, log


# ---- functools
@area
def cached_property_of_own(x, y):
    lazy = Lazy()
    return x * lazy.table["n"], lazy.table is lazy.table, "table" in vars(lazy)


@area
def cached_property_from_outside(x, y):
    return x * LAZY.table["n"]


@area
def caches(x, y):
    return x * power(3) + len(table(4)), power(3)


@area
def dispatch_by_type(x, y):
    return x * describe([1, 2]) + describe(x) + describe("a")


@area
def partial_methods(x, y):
    return Methods().twice(x), functools.partial(Methods().scaled, by=3)(x)


@area
def ordered_completely(x, y):
    a, b = Ranked(1), Ranked(2)
    return x, a < b, a >= b, a <= b, a != b, max(a, b) is b, sorted([b, a])[0] is a


@area
def reduced(x, y):
    return functools.reduce(lambda a, b: a * b, [x, y, x]), functools.reduce(operator.add, [1, 2], 5)


@area
def compare_by_key(x, y):
    return x, sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a))


@area
def wrapped(x, y):
    def outer(function):
        @functools.wraps(function)
        def inner(*args):
            """Inner."""
            return function(*args) * 2

        return inner

    @outer
    def add(a, b):
        """Adds."""
        return a + b

    return add(x, y), add.__name__, add.__doc__, add.__wrapped__(x, y)


# ---- warnings and logging
@area
def warned(x, y):
    warnings.warn("careful", stacklevel=1)
    return x + 1


@area
def warned_with_category(x, y):
    warnings.warn("old", DeprecationWarning)
    warnings.warn(UserWarning("an object"), stacklevel=2)
    return x + 1


@area
def warnings_caught(x, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("unseen", stacklevel=1)
        z = x + 1
    return z - 1


@area
def warnings_caught_by_pattern(x, y):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="un.*", category=UserWarning)
        warnings.warn("unseen", stacklevel=1)
        z = x + 1
    return z - 1


class Backwards:
    def __init__(self, items):
        self.items = items

    def __reversed__(self):
        return iter([item * 2 for item in self.items[::-1]])


@area
def reversed_by_its_own_method(x, y):
    return [item + 1 for item in reversed(Backwards([x, y]))]


@area
def logged(x, y):
    LOG.debug("value %d", 3)
    LOG.info("shape %s", x.shape)
    return x + 1, LOG.isEnabledFor(logging.DEBUG)


@area
def logger_by_name(x, y):
    logging.getLogger("constructs.other").debug("a")
    return x + 1


# ---- data
@area
def dataclass_helpers(x, y):
    options = Options()
    options.names.append("b")
    other = dataclasses.replace(options, size=5)
    return (
        x * other.size,
        dataclasses.asdict(options),
        dataclasses.astuple(Point(1)),
        [f.name for f in dataclasses.fields(options)],
        dataclasses.is_dataclass(options),
        Point(1) < Point(1, 3),
        Point(1) == Point(1),
        repr(Point(1)),
    )


@area
def dataclass_made_inside(x, y):
    made = dataclasses.make_dataclass("Made", ["a", ("b", int, 3)])
    return x * made(2).b, made(2).a


@area
def enum_forms(x, y):
    return (
        x * Mode.FAST.factor,
        Mode("slow").name,
        Mode["FAST"] is Mode.default(),
        [m.value for m in Mode],
        len(Mode),
        Mode.FAST in Mode,
        Level.HIGH > Level.LOW,
        Level.HIGH + 1,
        Kind.A == "a",
        Kind("b").value,
        str(Mode.FAST),
        {Mode.FAST: 1}[Mode.FAST],
    )


@area
def named_tuples(x, y):
    entry = Entry(x, 3)
    point = collections.namedtuple("Two", "a b", defaults=[4])(1)
    return entry.total(), entry._replace(weight=1).weight, point.b, point._asdict(), Entry._fields, tuple(point)


@area
def collection_types(x, y):
    counter = collections.Counter("aabb")
    counter.update("a")
    counter.subtract({"b": 1})
    chain = collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
    ordered = collections.OrderedDict([("b", 1), ("a", 2)])
    ordered.move_to_end("b")
    queue = collections.deque([1, 2, 3], maxlen=3)
    queue.appendleft(0)
    queue.rotate(1)
    missing = collections.defaultdict(lambda: 7)
    return (
        x * missing["q"],
        counter.most_common(1),
        counter + collections.Counter(a=1),
        chain["a"],
        chain["b"],
        list(chain),
        list(ordered),
        ordered.popitem(last=False),
        list(queue),
        sum(counter.values()),
        sorted(counter.elements()),
        dict(missing),
    )


@area
def user_containers(x, y):
    class Names(collections.UserDict):
        def __getitem__(self, key):
            return super().__getitem__(key.lower())

    names = Names(a=2)
    return x * names["A"], len(names), collections.UserList([1, 2])[1]


@area
def abstract_classes(x, y):
    square = Square()
    return (
        x * square.area(),
        isinstance(square, Shape),
        isinstance(square, Sized),
        isinstance([], collections.abc.Sequence),
        isinstance({}, collections.abc.Mapping),
        issubclass(int, numbers.Number),
        isinstance(3, numbers.Integral),
    )


# ---- algorithms and numbers
@area
def heaps(x, y):
    heap = [3, 1, 2]
    heapq.heapify(heap)
    heapq.heappush(heap, 0)
    return x * heapq.heappop(heap), heap, heapq.nlargest(2, [1, 3, 2]), heapq.nsmallest(1, [2, 1], key=lambda v: -v)


@area
def heap_merge(x, y):
    return x, list(heapq.merge([1, 3], [2])), heapq.heappushpop([1, 2], 0), heapq.heapreplace([1, 2], 3)


@area
def bisection(x, y):
    items = [1, 3, 5]
    bisect.insort(items, 4)
    return x * bisect.bisect_left(items, 3), bisect.bisect(items, 3), items, bisect.bisect([1, 2], 1, key=lambda v: v)


@area
def math_functions(x, y):
    return (
        x * math.sqrt(x.shape[0]),
        math.log2(8),
        math.ceil(2.1),
        math.prod([2, 3]),
        math.comb(4, 2),
        math.isclose(0.1, 0.1),
        math.hypot(3, 4),
        math.inf > 1,
        math.isnan(math.nan),
        math.gcd(12, 18),
        math.exp(0),
        math.pow(2, 3),
        math.frexp(8.0),
        math.floor(x.shape[1] / 3),
        math.copysign(1, -2),
        math.fsum([0.1, 0.2]),
    )


@area
def statistics_module(x, y):
    return x * statistics.mean([1, 2, 3]), statistics.median([1, 3, 2]), statistics.pstdev([1.0, 2.0])


@area
def fractions_and_decimals(x, y):
    half = fractions.Fraction(1, 2)
    return x * float(half + 1), half.numerator, str(decimal.Decimal("1.10"))


@area
def operator_module(x, y):
    return (
        operator.add(x, y),
        operator.itemgetter(0, 1)("ab"),
        operator.attrgetter("shape")(x),
        operator.methodcaller("sum", 0)(x),
        operator.index(3),
        operator.concat([1], [2]),
        operator.countOf([1, 1], 1),
        operator.indexOf([1, 2], 2),
        operator.length_hint([1]),
        operator.truth([]),
        operator.is_(None, None),
        operator.xor(1, 3),
        operator.matmul(x, y.T),
        operator.iadd([1], [2]),
    )


@area
def numpy_scalars(x, y):
    scale = np.sqrt(4)
    return x * scale, x * float(np.float32(2.0)), int(np.prod([2, 3])), np.pi * 1, float(np.log(np.e))


@area
def numpy_of_shapes(x, y):
    n = np.prod(x.shape)
    return x * int(n), int(np.ceil(x.shape[0] / 2)), int(np.int64(3) + 1), isinstance(np.float64(1.0), float)


@area
def struct_and_hash(x, y):
    return x * struct.calcsize("ff"), struct.pack("<i", 3), hashlib.sha256(b"a").hexdigest()[:4]


@area
def random_numbers(x, y):
    random.seed(0)
    a = random.random()
    return x * a, random.randint(1, 3), random.choice([1, 2, 3])


@area
def own_random_generator(x, y):
    generator = random.Random(3)
    return x * generator.random(), generator.randint(1, 9), generator.sample(range(9), 2)


@broken
def unique_name(x, y):
    return x, len(str(uuid.uuid4()))


# ---- introspection
@area
def signatures(x, y):
    def function(a, b=2, *rest, c, **more):
        return a

    found = inspect.signature(function)
    bound = found.bind(1, c=3)
    bound.apply_defaults()
    return x * len(found.parameters), list(found.parameters), bound.arguments["b"], found.parameters["c"].kind.name


@area
def inspections(x, y):
    return (
        x,
        inspect.isfunction(describe),
        inspect.isclass(Config),
        inspect.ismethod(CONFIG.__init__),
        inspect.getmro(Square)[1] is Shape,
        inspect.isabstract(Shape),
        callable(describe),
        inspect.isgeneratorfunction(describe),
        inspect.getfullargspec(power.__wrapped__).args,
    )


@area
def type_hints(x, y):
    return x, typing.get_type_hints(Entry.total), typing.get_origin(list[int]) is list, typing.get_args(dict[str, int])


@area
def typing_helpers(x, y):
    t = typing.TypeVar("t")
    number: typing.Optional[int] = typing.cast(int, 3)
    return x * number, t.__name__, typing.TYPE_CHECKING


@area
def attributes_by_name(x, y):
    config = Config()
    setattr(config, "scale", 3)
    delattr(config, "layers")
    return x * getattr(config, "scale"), hasattr(config, "layers"), sorted(vars(config)), config.__dict__["size"]


@area
def module_attributes(x, y):
    return x * getattr(math, "pi"), math.__name__, hasattr(torch, "nothing"), sys.modules["math"] is math
