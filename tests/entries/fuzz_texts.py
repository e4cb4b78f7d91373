"""The program of the fuzzer of pairs of processes: a text with slots; `fuzz_slots` says what may stand in each."""

PROGRAM = """
import collections, contextlib, contextvars, dataclasses, datetime, enum, functools, inspect, logging, math, operator, os, re
import string, sys, threading, types, warnings, weakref
from typing import NamedTuple
import numpy as np
import torch
from torch import nn
from torch._higher_order_ops.while_loop import while_loop
import torch.nn.functional as F
import pliant
import fuzz_library as library
from fuzz_library import imported

SCALE = {global_number}
TABLE = {{"a": {table_item}, "b": [1.0, {nested_item}]}}
MODE = {global_text}
PATTERN = re.compile({pattern})
NAMES = {names}

class Kind(enum.Enum):
    ONE = {member}
    TWO = "two"

@dataclasses.dataclass
class Settings:
    alpha: float = {field_default}
    flag: bool = {field_flag}

def inner(x, factor={default}, *, shift={keyword_default}):
    x = {inner_body} * factor
    {inner_break}
    return x + shift

def helper(x):
    return inner(x) + {helper_constant}

def decorated(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args) {wrapper_tail}
    return wrapper

@decorated
def wrapped(x):
    return x.sin()

def make(amount):
    def closure(x):
        return x * amount
    return closure

closure = make({closed_over})
step = functools.partial(torch.add, alpha={partial_number})
choose = lambda x: {lambda_body}
operations = [torch.{listed}, torch.tanh]
by_name = {{"shift": lambda x: x {table_tail}}}

@functools.lru_cache
def cached(count):
    return count * {cached_number}

class Callable:
    amount = {callable_number}
    def __call__(self, x):
        return x * self.amount {callable_tail}

callable_object = Callable()

class Descriptor:
    def __get__(self, obj, owner=None):
        return {descriptor}

class Meta(type):
    factor = {meta_number}

class Described(metaclass=Meta):
    __slots__ = ("held",)
    number = Descriptor()
    def __init__(self):
        self.held = {slot_number}
    def __getattr__(self, name):
        return {missing_attribute}
    def __getitem__(self, index):
        return index + {subscript}
    def __len__(self):
        return {length}
    def __bool__(self):
        return {truth}
    def __eq__(self, other):
        return {equality}
    @functools.cached_property
    def late(self):
        return 1

described = Described()

class Point(NamedTuple):
    a: float = {tuple_default}
    b: tuple = (1, {nested_default})

class Left:
    def side(self):
        return 1.0

class Right:
    def side(self):
        return 2.0

class Both({mixed_bases}):
    def __init_subclass__(cls, **given):
        cls.given = {subclass_hook}

class Under(Both):
    pass

@functools.singledispatch
def by_kind(value):
    return {single_default}

@by_kind.register
def _(value: float):
    return {single_float}

@contextlib.contextmanager
def scaled(x):
    yield x * {context_number}

def generated():
    for name in ORDER:
        yield SIDES[name]

ORDER = {order}
SIDES = {{"a": 1.0, "b": 2.0}}
MEMBERS = frozenset({members})

LIMITS = torch.finfo(torch.{limits})
PAIR = collections.namedtuple("PAIR", {pair_fields}, defaults=(1.0, {pair_default}))
SPACE = {{"__name__": "nowhere", "K": {space_number}}}
exec("def executed(x):\\n    return x * K + {executed_constant}", SPACE)
executed = SPACE["executed"]
MADE = types.ModuleType("fuzz_made")
exec("L = {made_number}\\ndef made(x):\\n    return x * L", vars(MADE))
FLAGS = {flags}
take = operator.itemgetter({taken})
SPAN = datetime.timedelta(seconds={seconds})
READ_ONLY = types.MappingProxyType({{"a": {proxied}}})
LOCK = threading.{lock}()

class Permission(enum.Flag):
    READ = 1
    WRITE = {flag_number}
    EXECUTE = 4

class Number(int):
    pass

NUMBER = Number({number_of_class})

class Referred:
    k = {referred}

referred = Referred()
REFERENCE = weakref.ref(referred)

class Slotted:
    __slots__ = {slots}
    b = {behind_slot}

def standard(x):
    with LOCK:
        x = x * LIMITS.eps + PAIR().b + executed(x) + MADE.made(x)
    x = x * take((1.0, 2.0)) + SPAN.total_seconds() + READ_ONLY["a"] + NUMBER + REFERENCE().k
    x = x * (Permission.READ | Permission.{permission}).value
    try:
        warnings.warn("fuzz", UserWarning)
    except UserWarning:
        x = x + 9
    if "b" in Slotted.__slots__:
        x = x + 4
    return x + len(Slotted.__mro__) + torch.get_num_threads()

class Hooked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin() * {saved_forward}
    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].cos() * {saved_backward}

def derivatives(x):
    y = Hooked.apply(x)
    if y.requires_grad:
        y.register_hook(lambda grad: grad * {hook_factor})
    return y + torch.vmap(lambda row: row.sum() * {mapped_factor})(x)[..., None]

class Remembering:
    def __init__(self, function):
        self.function, self.factor = function, {decorator_state}
    def __call__(self, x):
        return self.function(x) * self.factor

@Remembering
def remembered(x):
    return x + 1

class Naming:
    def __set_name__(self, owner, name):
        self.length = len(name) * {set_name}
    def __get__(self, obj, owner=None):
        return self.length

class Asked(type):
    def __instancecheck__(cls, obj):
        return {instance_check}
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.by_meta = {meta_call}
        return made
    def __contains__(cls, item):
        return item in {class_contains}

class Made(metaclass=Asked):
    named = Naming()
    partly = functools.partialmethod(lambda self, a, b: a * 2 + b, {partial_method})
    def __new__(cls, *args):
        made = super().__new__(cls)
        made.by_new = {by_new}
        return made
    def __class_getitem__(cls, item):
        return item * {class_item}
    def __iter__(self):
        return iter({iterated})
    def __enter__(self):
        return {entered}
    def __exit__(self, *error):
        return {swallows}
    def __format__(self, spec):
        return spec * {formatted}
    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        return found + {each_attribute} if name == "by_new" else found

class Missing(dict):
    def __missing__(self, key):
        return {missing_item}

@functools.total_ordering
class Ordered:
    def __init__(self, n):
        self.n = n
    def __lt__(self, other):
        return {ordering}
    def __eq__(self, other):
        return self.n == other.n
    def __hash__(self):
        return 1

def typed(a: {annotation}, b={second_default}):
    "{documentation}"
    return a

typed.tag = {function_attribute}
MISSING = Missing(a=1.0)
CHAIN = collections.ChainMap({{"a": {chained}}}, {{"a": 5.0, "b": 2.0}})
GIVEN = collections.defaultdict({factory}, a=1.0)
LAST = collections.deque([1.0, 2.0, 3.0], maxlen={longest})
VARIABLE = contextvars.ContextVar("VARIABLE", default={context_default})
ARRAY = np.array([{array_item}, 2.0], dtype=np.{array_dtype})
CONSTANT = torch.tensor([{tensor_item}])
STRIDED = torch.arange(4.0).reshape(2, 2){tensor_strides}
LOGGER = logging.getLogger("fuzz_program")
CALLS = [{called_first}, torch.sin]

def caught(x):
    try:
        raise {raised}("a")
    except ({caught_classes}) as error:
        return x * len(error.args) + {handled}
    except Exception:
        return x - 1
    finally:
        x = x + 1

def matched(value):
    match value:
        case {{"a": {pattern_literal}}}:
            return 1.0
        case [_, {pattern_second}]:
            return 2.0
        case Settings(alpha=0.1):
            return 3.0
    return 4.0

def noisy(x):
    torch.manual_seed({generator_seed})
    return x + torch.rand(x.shape, dtype=torch.float32).to(x.dtype)

def further(x):
    made = Made()
    x = remembered(x) * made.named + made.by_meta + made.by_new + made.partly(1.0) + Made[2.0] + sum(made)
    with made as amount:
        x = x + amount
        if {raises_inside}:
            raise ValueError
    if isinstance(x, Made):
        x = x * 2
    if "a" in Made:
        x = x + 3
    x = x + len(f"{{made:ab}}") + MISSING["z"] + CHAIN["a"] + GIVEN["z"] + LAST[0]
    if Ordered(1) >= Ordered(2):
        x = x * 3
    x = x + inspect.signature(typed).parameters["b"].default + len(typed.__doc__) + typed.tag + (typed.__annotations__["a"] is int)
    x = x * float(ARRAY[0]) + CONSTANT.to(x.dtype) + STRIDED.stride()[0] + ARRAY.itemsize + len(CALLS)
    x = caught(x) + matched({{"a": 1}}) + matched([0, 2]) + matched(Settings()) + library.absent + library.Inside.value
    if LOGGER.isEnabledFor(logging.INFO):
        x = x + 6
    x = x + float(string.Template({template}).substitute(a=2)) + sys.getrecursionlimit() % 7 + CALLS[0](x)
    return noisy(x)

def pick(x, f={default_function}, *rest, **more):
    return f(x)

def outer():
    level = {nonlocal_number}
    def raised(x):
        nonlocal level
        level = level + 1
        return x + level
    return raised

@torch.library.custom_op("{namespace}::custom", mutates_args=())
def custom(x: torch.Tensor) -> torch.Tensor:
    return {operator_body}

@custom.register_fake
def _(x):
    return torch.empty_like(x)

custom.register_autograd(lambda ctx, grad: grad * {operator_gradient})

class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * {function_forward}
    @staticmethod
    def backward(ctx, grad):
        return grad * {function_backward}

class Sub(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        found = super().__torch_function__(function, types, args, kwargs or {{}})
        return {subclass_body}

def protocols(x):
    x = x * described.number + Described.factor + described.held + described.missing
    x = x + described[2] * len(described)
    if described:
        x = x - 1
    if described == 3:
        x = x * 2
    x = x + Point().a * Point().b[1] + Under().side() + Under.given + by_kind(1.5) + by_kind("")
    with scaled(x) as y:
        x = x + y
    for number in generated():
        x = x * number + 1
    if "b" in MEMBERS:
        x = x + 3
    {creation}
    x = pick(x) + math.sqrt({root}) + float(os.getenv("FUZZ_OTHER", {environment_default}))
    return outer()(x)

def controlled(x):
    def body(count, x):
        return count + 1, x * {loop_factor}
    y = torch.cond(x.sum() > {threshold}, lambda x: x * {branch_number} + TABLE["a"], lambda x: {other_branch}, (x,))
    return while_loop(lambda count, x: count < {turns}, body, (torch.tensor(0), y))[1]

def gradients(x):
    return custom(x) + Doubled.apply(x)

class Base(nn.Module):
    gain = {base_attribute}
    def finish(self, x):
        return x * {base_constant}

class Part({part_base}):
    limit = {class_number}
    kind = {class_text}
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps={eps})
        self.slope = {hyperparameter}
        self.settings = Settings({field_value})
        self.options = {{"bias": {option}}}
        self.chain = nn.Sequential({chain})
        self.table = nn.ParameterDict({{"one": torch.full((width,), {entry_of_table}), "two": torch.ones(width)}})
        self.register_buffer("mask", torch.full((width,), {buffer}))
        self.register_buffer("kind_of", torch.ones(width, 2, dtype=torch.{buffer_dtype}){buffer_strides}, persistent={persistent})
        self.batch = nn.BatchNorm1d(width, momentum={momentum}, affine={affine}, track_running_stats={tracking})
        self.{submodule} = nn.Identity()
    @property
    def double(self):
        return self.slope * {property_constant}
    @staticmethod
    def still(x):
        return x - {static_constant}
    @classmethod
    def named(cls, x):
        return x + cls.limit
    def finish(self, x):
        return {finish}
    def forward(self, x):
        x = self.norm(self.linear(self.batch(x))) * self.double + self.kind_of.stride()[0] + self.kind_of.to(x.dtype).sum()
        x = x * len(self._modules) + len(next(reversed(self._modules)))
        x = x * self.double + self.mask * {forward_constant}
        {forward_break}
        x = F.leaky_relu(x, self.settings.alpha) if self.settings.flag else F.{activation}(x)
        if self.kind == "wide":
            x = x * 2
        if self.options["bias"]:
            x = x + 1
        x = self.chain(x) + self.table[{key_of_table}]
        return self.finish(self.named(self.still(x)))

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.parts = nn.ModuleList([Part(width) for _ in range({depth})])
        self.drop = nn.Dropout({dropout})
    def forward(self, x):
        for part in self.parts:
            x = part(x)
        x = self.drop(x)
        {model_line}
        return function(x)

def function(x):
    y = helper(x) * SCALE + TABLE["a"] + TABLE["b"][1]
    {function_break}
    y = wrapped(y) + closure(y) + choose(y) + operations[0](y) + step(y, y)
    if MODE == "plus":
        y = y + 1
    if PATTERN.match("layer.1"):
        y = y * 3
    y = y + Kind.ONE.value + len(NAMES)
    y = imported(library.outside(y)) + library.tools.scale(y) + by_name["shift"](y) + callable_object(y) * cached(2)
    if os.environ.get("FUZZ_MODE") == "double":
        y = y * 2
    if library.__version__ >= "1.1":
        y = y + 7
    if torch.{question}():
        y = y + 5
    if torch.get_default_dtype() == torch.float64:
        y = y - 2
    {more}
    return {result}
"""

LIBRARY = """
import types
import torch
__version__ = {library_version}
tools = types.SimpleNamespace(scale=lambda x: x * {reached_number}, unused={unused})
FACTOR = {library_number}
class Above:
    value = {inherited}
class Aside:
    value = 7.0
class Inside({inside_base}):
    pass
def __getattr__(name):
    if name == "absent":
        return {module_attribute}
    raise AttributeError(name)
def outside(x):
    return x * FACTOR {library_tail}
def imported(x):
    return x.{library_method}()
"""
