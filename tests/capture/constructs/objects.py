"""Classes, attributes, descriptors, dunder methods, dataclasses, enums, closures, calls."""

import abc
import collections
import dataclasses
import enum
import functools
import operator
import typing

import torch
from tests.capture.constructs.harness import program


class Base:
    scale = 2

    def __init__(self, value):
        self.value = value

    def double(self):
        return self.value * self.scale


class Child(Base):
    def double(self):
        return super().double() + 1


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Point:
    a: torch.Tensor
    b: int = 3
    c: list = dataclasses.field(default_factory=list)


class Pair(typing.NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


GLOBAL = Base(5.0)
COUNTER = 0


@program("objects")
def class_instance(x, y):
    return Base(x).double()


@program("objects")
def inheritance_super(x, y):
    return Child(x).double()


@program("objects")
def return_instance(x, y):
    return Child(x + y)


@program("objects")
def property_and_setter(x, y):
    class P:
        @property
        def v(self):
            return self._v + 1

        @v.setter
        def v(self, value):
            self._v = value * 2

    p = P()
    p.v = x
    return p.v


@program("objects")
def classmethod_staticmethod(x, y):
    class C:
        @classmethod
        def make(cls, v):
            c = cls()
            c.v = v
            return c

        @staticmethod
        def twice(v):
            return v * 2

    return C.twice(C.make(x).v)


@program("objects")
def getattr_fallback(x, y):
    class G:
        def __getattr__(self, name):
            return len(name)

    return x * G().abc


@program("objects")
def descriptor(x, y):
    class D:
        def __get__(self, obj, owner):
            return obj.base + 1

    class C:
        d = D()

    c = C()
    c.base = x
    return c.d


@program("objects")
def slots(x, y):
    class S:
        __slots__ = ("a", "b")

        def __init__(self, a, b):
            self.a, self.b = a, b

    s = S(x, y)
    s.a = s.a + 1
    return s.a * s.b


@program("objects")
def operators_reflected(x, y):
    class V:
        def __init__(self, v):
            self.v = v

        def __add__(self, other):
            return V(self.v + (other.v if isinstance(other, V) else other))

        def __radd__(self, other):
            return V(other + self.v)

        def __mul__(self, other):
            return NotImplemented

        def __rmul__(self, other):
            return V(self.v * other)

    return (V(x) + V(y)).v, (1 + V(x)).v, (2 * V(y)).v


@program("objects")
def comparison_dunders(x, y):
    class N:
        def __init__(self, n):
            self.n = n

        def __lt__(self, other):
            return self.n < other.n

        def __eq__(self, other):
            return self.n == other.n

    return x if N(1) < N(2) and N(1) == N(1) and N(1) != N(2) else y


@program("objects")
def container_dunders(x, y):
    class Box:
        def __init__(self, items):
            self.items = items

        def __len__(self):
            return len(self.items)

        def __getitem__(self, i):
            return self.items[i]

        def __contains__(self, v):
            return v == 1

        def __iter__(self):
            return iter(self.items)

        def __bool__(self):
            return True

    box = Box([x, y])
    return box[0], len(box), 1 in box, [v + 1 for v in box], (x if box else y)


@program("objects")
def callable_object(x, y):
    class F:
        def __init__(self, k):
            self.k = k

        def __call__(self, v, *, bias=0):
            return v * self.k + bias

    return F(3)(x, bias=1)


@program("objects")
def abstract_base(x, y):
    class A(abc.ABC):
        @abc.abstractmethod
        def f(self, v): ...

    class B(A):
        def f(self, v):
            return v + 1

    return B().f(x)


@program("objects")
def metaclass_without_init(x, y):
    class M(type):
        def __new__(meta, name, bases, namespace, **options):
            made = super().__new__(meta, name, bases, namespace)
            made.options = options
            return made

    class B(metaclass=M):
        pass

    class C(B, gain=3):
        pass

    return x * C.options["gain"] + len(M("D", (C,), {"n": 2}).options)


@program("objects")
def metaclass_call(x, y):
    class M(type):
        def __call__(cls, *args):
            obj = super().__call__(*args)
            obj.extra = 1
            return obj

    class C(metaclass=M):
        def __init__(self, v):
            self.v = v

    c = C(x)
    return c.v + c.extra


@program("objects")
def multiple_inheritance(x, y):
    class A:
        def f(self):
            return [1]

    class B(A):
        def f(self):
            return [2] + super().f()

    class C(A):
        def f(self):
            return [3] + super().f()

    class D(B, C):
        pass

    return x, D().f()


@program("objects")
def dataclass_instance(x, y):
    p = Point(x)
    p.c.append(y)
    return p.a + p.b, p.c


@program("objects")
def return_dataclass(x, y):
    return Point(x + 1, 4)


@program("objects")
def dataclass_replace(x, y):
    return dataclasses.replace(Point(x), a=y).a


@program("objects")
def named_tuple(x, y):
    p = Pair(x, y)
    left, right = p
    return p.left + right, p._replace(left=y)


@program("objects")
def collections_namedtuple(x, y):
    return PointTuple(x, 1)


PointTuple = collections.namedtuple("PointTuple", "a b")


@program("objects")
def enum_members(x, y):
    return x * Color.BLUE.value, Color.RED.name, Color(1) is Color.RED, Color["BLUE"] == Color.BLUE


@program("objects")
def enum_dispatch(x, y):
    table = {Color.RED: 1, Color.BLUE: 2}
    return x * table[Color.BLUE]


@program("objects")
def closure_read(x, y):
    k = 3

    def f(v):
        return v * k

    return f(x)


@program("objects")
def closure_write(x, y):
    n = 0

    def f():
        nonlocal n
        n += 1
        return n

    f()
    f()
    return x * n


@program("objects")
def returned_closure(x, y):
    k = x + 1

    def f(v):
        return v + k

    return f(y)


@program("objects")
def defaults_and_kwonly(x, y):
    def f(a, b=2, *args, c=3, **kwargs):
        return a * b + c + len(args) + len(kwargs)

    return f(x), f(x, 1, 2, 3, c=4, d=5)


@program("objects")
def lambda_and_map(x, y):
    return list(map(lambda v: v + 1, [x, y]))


@program("objects")
def filter_builtin(x, y):
    return [x * i for i in filter(lambda i: i > 1, range(4))]


@program("objects")
def partial(x, y):
    return functools.partial(torch.add, alpha=2)(x, y), functools.partial(lambda a, b: a - b, x)(y)


@program("objects")
def reduce(x, y):
    return functools.reduce(lambda a, b: a * b, [x, y, x])


@program("objects")
def wraps_decorator(x, y):
    def deco(f):
        @functools.wraps(f)
        def inner(*args, **kwargs):
            return f(*args, **kwargs) + 1

        return inner

    @deco
    def g(v):
        """Doc."""
        return v * 2

    return g(x), g.__name__, g.__doc__


@functools.lru_cache
def cached(n):
    return n * 2


@program("objects")
def lru_cache(x, y):
    return x * cached(3)


@functools.singledispatch
def kind_of(v):
    return 0


@kind_of.register
def _(v: int):
    return 1


@program("objects")
def singledispatch(x, y):
    return x * kind_of(3), x * kind_of("a")


@program("objects")
def global_read(x, y):
    return x * GLOBAL.value


@program("objects")
def global_write(x, y):
    global COUNTER
    COUNTER = x.dim()
    return x + COUNTER


@program("objects")
def setattr_getattr_hasattr(x, y):
    b = Base(x)
    setattr(b, "extra", y)
    return getattr(b, "extra"), hasattr(b, "nope"), getattr(b, "nope", 3)


@program("objects")
def isinstance_checks(x, y):
    return isinstance(x, torch.Tensor), isinstance(3, (int, str)), issubclass(Child, Base), type(x) is torch.Tensor


@program("objects")
def dict_of_instance(x, y):
    b = Base(x)
    b.__dict__["other"] = y
    return sorted(vars(b)), b.other


@program("objects")
def delete_attribute(x, y):
    b = Base(x)
    del b.value
    return hasattr(b, "value"), x


@program("objects")
def operator_module(x, y):
    return operator.add(x, y), operator.itemgetter(1)([x, y]), operator.attrgetter("value")(Base(x)), operator.mul(3, 4)


@program("objects")
def user_list_subclass(x, y):
    class L(list):
        def total(self):
            return sum(self)

    v = L([x, y])
    v.append(x)
    return v.total(), len(v)


@program("objects")
def user_dict_subclass(x, y):
    class D(dict):
        def __missing__(self, key):
            return key * 2

    d = D(a=x)
    return d["a"], d[4], dict(d)


@program("objects")
def ordered_dict_subclass(x, y):
    class Out(collections.OrderedDict):
        def __getattr__(self, k):
            return self[k]

    out = Out(first=x)
    out["second"] = y
    return out.second, list(out)


@program("objects")
def context_manager_class(x, y):
    log = []

    class C:
        def __enter__(self):
            log.append("in")
            return 5

        def __exit__(self, *exc):
            log.append("out")
            return True

    with C() as n:
        x = x + n
        raise ValueError
    return x, log


@program("objects")
def contextmanager_decorator(x, y):
    import contextlib

    @contextlib.contextmanager
    def scope(n):
        yield n + 1

    with scope(2) as n:
        return x * n


@program("objects")
def bound_method_value(x, y):
    f = Base(x).double
    return f()


@program("objects")
def class_attribute_lookup(x, y):
    return x * Child.scale, Child.__name__, Child.__mro__[1] is Base


@program("objects")
def new_method(x, y):
    class C:
        def __new__(cls, v):
            self = super().__new__(cls)
            self.v = v
            return self

    return C(x).v


@program("objects")
def init_subclass(x, y):
    class A:
        def __init_subclass__(cls, **kw):
            cls.tag = kw.get("tag")

    class B(A, tag=4):
        pass

    return x * B.tag
