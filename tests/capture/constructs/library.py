"""The standard library, torch's own styles of calling, context managers, effects."""

import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import inspect
import itertools
import json
import logging
import math
import operator
import re
import threading
import time
import typing
import warnings
import weakref

import torch
from tests.capture.constructs.harness import program

LOCAL = threading.local()
LOCAL.value = 3
LOG = logging.getLogger("constructs")


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Flags(enum.IntFlag):
    A = 1
    B = 2


@dataclasses.dataclass
class Pair:
    a: torch.Tensor
    b: int = 2
    c: list = dataclasses.field(default_factory=list)

    def total(self):
        return self.a * self.b


@dataclasses.dataclass(frozen=True)
class Frozen:
    n: int
    m: int = 4


class Named(typing.NamedTuple):
    a: torch.Tensor
    b: int = 2


class Swallow:
    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        return kind is ValueError


class Cached:
    def __init__(self):
        self.calls = 0

    @functools.cached_property
    def value(self):
        self.calls += 1
        return self.calls + 6


@contextlib.contextmanager
def recorded(log, name):
    log.append("in " + name)
    try:
        yield name
    finally:
        log.append("out " + name)


@functools.singledispatch
def dispatched(value):
    return 1


@dispatched.register
def _(value: str):
    return 2


@functools.lru_cache
def cached(n):
    return n * 2


def decorated(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs) + 1

    return inner


@decorated
def plus(x, y=2):
    return x + y


def area(function):
    return program("library")(function)


def broken(function):
    return program("library", whole=False)(function)


@area
def enum_members(x, y):
    return x * Color.RED.value, Color.BLUE.name, Color(2) is Color.BLUE, [c.name for c in Color]


@area
def enum_flags(x, y):
    return x * int(Flags.A | Flags.B), bool(Flags.A & Flags.B)


@area
def dataclass_made(x, y):
    p = Pair(x, 3)
    p.c.append(1)
    return p.total(), p.b, p.c


@area
def dataclass_replace_and_eq(x, y):
    f = dataclasses.replace(Frozen(3), m=5)
    return x * f.m, f == Frozen(3, 5), hash(f) == hash(Frozen(3, 5))


@area
def dataclass_fields(x, y):
    return x, [f.name for f in dataclasses.fields(Frozen)]


@area
def named_tuple(x, y):
    n = Named(x)
    a, b = n
    return n.a * b, n._replace(b=5).b, n._asdict()["b"], Named._fields


@area
def swallow_in_with(x, y):
    log = []
    with Swallow():
        log.append(1)
        x = x + 1
        raise ValueError("gone")
    log.append(2)
    return x, log


@area
def nested_contexts(x, y):
    log = []
    with recorded(log, "a") as a, recorded(log, "b"):
        x = x + len(a)
    return x, log


@area
def exit_stack(x, y):
    log = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(recorded(log, "a"))
        stack.callback(log.append, 3)
        x = x + 1
    return x, log


@area
def suppress(x, y):
    with contextlib.suppress(KeyError):
        {}["a"]
    return x


@area
def nullcontext(x, y):
    with contextlib.nullcontext(4) as n:
        return x * n


@area
def closing_return_in_with(x, y):
    log = []
    with recorded(log, "a"):
        return x * 2, log


@area
def no_grad_context(x, y):
    with torch.no_grad():
        z = x * 2
    return z, torch.is_grad_enabled()


@area
def set_grad_enabled(x, y):
    with torch.set_grad_enabled(False):
        inside = torch.is_grad_enabled()
    return x, inside


@area
def no_grad_decorator(x, y):
    @torch.no_grad()
    def f(a):
        return a * 2

    return f(x)


@area
def autocast(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = x @ y.T
    return z.float()


@area
def cached_property_read(x, y):
    c = Cached()
    return x * c.value, c.value, c.calls


@area
def single_dispatch(x, y):
    return x * dispatched("a") + dispatched(3)


@area
def lru_cached(x, y):
    return x * cached(3)


@area
def decorator_wraps(x, y):
    return plus(x, y=3), plus.__name__


@area
def partials(x, y):
    f = functools.partial(torch.add, alpha=2)
    return f(x, y), f.keywords


@area
def reduce_operator(x, y):
    return functools.reduce(operator.add, [x, y, x]), operator.itemgetter(1)([1, 2])


@area
def itertools_forms(x, y):
    out = list(itertools.chain([1], [2, 3]))
    out += list(itertools.islice(itertools.count(5), 2))
    out += [a * b for a, b in itertools.product(range(2), repeat=2)]
    out += list(itertools.accumulate([1, 2, 3]))
    out += [len(list(g)) for _, g in itertools.groupby("aabc")]
    return x * sum(out), list(itertools.zip_longest([1], [2, 3])), list(itertools.starmap(pow, [(2, 3)]))


@area
def itertools_tee_and_batch(x, y):
    a, b = itertools.tee([1, 2])
    return x, list(a), list(b), list(itertools.pairwise([1, 2, 3]))


@area
def collections_forms(x, y):
    d = collections.defaultdict(list)
    d["a"].append(x + 1)
    c = collections.Counter("aab")
    q = collections.deque([1, 2], maxlen=2)
    q.append(3)
    o = collections.OrderedDict(a=1)
    o.move_to_end("a")
    return d["a"][0], c["a"], list(q), list(o), c.most_common(1)


@area
def chain_map(x, y):
    m = collections.ChainMap({"a": 1}, {"b": 2})
    return x * m["b"], sorted(m)


@area
def math_functions(x, y):
    return x * math.sqrt(4.0) + math.floor(2.5) + math.prod([1, 2, 3]) + math.gcd(4, 6), math.isclose(1.0, 1.0), math.pi


@area
def json_forms(x, y):
    return x * json.loads("[1, 2]")[1], json.dumps({"a": 1})


@area
def regular_expressions(x, y):
    return x * len(re.findall("a+", "aabca")), re.sub("a", "b", "cat"), re.match(r"(\d+)", "12x").group(1)


@area
def thread_local(x, y):
    return x * LOCAL.value


@area
def inspect_signature(x, y):
    return x * len(inspect.signature(plus).parameters), inspect.isfunction(plus), inspect.isclass(Pair)


@area
def typing_forms(x, y):
    hint: int | None = None
    return x if hint is None else typing.cast(int, hint), typing.cast(int, 3)


@area
def copies_of_containers(x, y):
    a = {"k": [1, 2], "t": x}
    b = copy.copy(a)
    c = copy.deepcopy({"k": [1, [2]]})
    c["k"][1].append(3)
    return b["k"] is a["k"], c, b["t"]


@area
def weak_reference(x, y):
    p = Pair(x)
    r = weakref.ref(p)
    return r().a * 2, r() is p


@area
def prints(x, y):
    print("start", 3, sep="-")
    z = x + 1
    print(f"{len('abc')} {x.dim()}")
    return z


@area
def warns(x, y):
    warnings.warn("careful", stacklevel=2)
    return x + 1


@area
def logs(x, y):
    LOG.debug("value %d", 3)
    return x + 1


@area
def sort_with_key(x, y):
    return x, sorted([3, 1, 2], key=lambda v: -v), max([1, 5, 2], key=lambda v: v % 5), min("b", "a")


@area
def string_forms(x, y):
    n = x.dim()
    return (
        x,
        f"{n:>4}|{n!r}",
        "%d %s" % (n, "a"),
        "{} {a}".format(n, a=1),
        "a,b".split(","),
        "-".join(str(i) for i in range(3)),
    )


@area
def torch_factories(x, y):
    return (
        torch.zeros(2, 3),
        torch.ones_like(x),
        torch.full((2,), 3.0),
        torch.arange(0, 6, 2),
        torch.eye(2),
        torch.linspace(0, 1, 3),
        x.new_zeros(2),
        torch.tensor([1.0, 2.0]),
    )


@area
def torch_styles(x, y):
    return (
        torch.add(x, y, alpha=2),
        x.add(y),
        x.__add__(y),
        torch.Tensor.add(x, y),
        operator.add(x, y),
        1 + x,
        2 - x,
        1 / (x * x + 1),
    )


@area
def torch_out_argument(x, y):
    out = torch.empty_like(x)
    torch.add(x, y, out=out)
    return out


@area
def torch_multiple_results(x, y):
    values, indices = x.max(dim=1)
    m = torch.sort(y, dim=1)
    return values, indices, m.values, m.indices, torch.topk(x, 2)[0]


@area
def torch_dtypes(x, y):
    return (
        x.to(torch.float64),
        x.half().float(),
        x.int(),
        x.dtype == torch.float32,
        x.type(torch.int64),
        torch.finfo(x.dtype).eps,
    )


@area
def torch_devices(x, y):
    return x.to("cpu"), x.device.type, x.cpu(), x.is_cuda, torch.device("cpu") == x.device


@area
def torch_queries(x, y):
    return (
        x,
        x.dim(),
        x.ndim,
        x.is_floating_point(),
        x.is_contiguous(),
        torch.is_tensor(x),
        x.requires_grad,
        x.T.is_contiguous(),
    )


@area
def torch_indexing(x, y):
    return (
        x[0],
        x[:, 1:],
        x[..., -1],
        x[None],
        x[x > 0].sum() if False else x[torch.tensor([0, 1])],
        x[[0, 2]],
        x[1:, ::2],
    )


@area
def torch_index_assignment(x, y):
    z = x.clone()
    z[0] = 1.0
    z[:, 1] += y[:, 1]
    z[z > 1] = 0
    return z


@area
def torch_in_place(x, y):
    z = x.clone()
    z.add_(1).mul_(y)
    z *= 2
    return z


@area
def torch_argument_mutation(x, y):
    x.add_(1)
    return x * 2


@area
def torch_views(x, y):
    z = x.clone()
    v = z.view(-1)
    v[0] = 5
    return z, z.reshape(-1), z.permute(1, 0), z.unsqueeze(0).expand(2, -1, -1), z.flatten().unflatten(0, (-1, 2))


@area
def torch_unpacking(x, y):
    a, *b = x.unbind(1)
    c, d = x.split(2, dim=1)
    return a, b, c, d, torch.chunk(y, 2, dim=1)


@area
def torch_einsum(x, y):
    return (
        torch.einsum("ij,kj->ik", x, y),
        x @ y.T,
        torch.where(x > 0, x, y),
        torch.cat([x, y], dim=1),
        torch.stack([x, y]),
    )


@area
def torch_shape_arithmetic(x, y):
    b, n = x.shape
    return x.view(b, n // 2, 2), x.reshape(b * n), x.sum() / x.numel(), x.size(-1), list(x.stride())


@broken
def time_read(x, y):
    t = time.perf_counter()
    return x + 1, t <= time.perf_counter()


@area
def numpy_through_tensor(x, y):
    return x + 1, float(x.numpy().sum())


@broken
def item_branch(x, y):
    return x + 1 if x.sum().item() > 0 else y


@area
def nonzero_sizes(x, y):
    return x[x > 0].sum()


@broken
def exec_inside(x, y):
    scope = {}
    exec("z = 3", scope)
    return x * scope["z"]


@area
def break_in_with(x, y):
    log = []
    with recorded(log, "a"):
        x = x + x.sum().item()
        x = x * 2
    return x, log


@area
def break_in_try(x, y):
    try:
        n = x.sum().item()
        raise KeyError("k")
    except KeyError as error:
        return x + n, error.args
    finally:
        x = x + 1


@area
def break_in_loop(x, y):
    for i in range(5):
        x = x + x.mean().item() * i
    return x


@area
def break_in_inlined_call(x, y):
    def inner(a):
        b = a + 1
        return b * float(b.sum())

    return inner(x) + inner(y)


@area
def break_in_comprehension(x, y):
    return [x * row.sum().item() for row in y]


@area
def print_tensor(x, y):
    print(x.sum() > 1000)
    return x + 1
