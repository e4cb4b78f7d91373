"""The program of the fuzzer of pairs of processes: a text with slots, and what may stand in each."""

PROGRAM = """
import collections, contextlib, dataclasses, datetime, enum, functools, math, operator, os, re, threading, types, warnings, weakref
from typing import NamedTuple
import torch
from torch import nn
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
        x = self.norm(self.linear(x)) * self.double + self.mask * {forward_constant}
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
def outside(x):
    return x * FACTOR {library_tail}
def imported(x):
    return x.{library_method}()
"""

# Slot -> texts of which any may stand there; what follows them in the process is `SETTINGS`.
SLOTS: dict[str, list[str]] = {
    "global_number": ["2.0", "3.0", "2"], "table_item": ["0.5", "-0.0", "1.5"], "nested_item": ["1.0", "4.0"],
    "global_text": ['"plus"', '"minus"'], "pattern": ['"layer"', '"block"', '"Layer", re.I'],
    "names": ['["a"]', '["a", "b"]', '("a",)'], "member": ["1", "2", "1.5"], "field_default": ["0.1", "0.3"],
    "field_flag": ["True", "False"], "default": ["1.0", "2.0", "1"], "keyword_default": ["0.0", "1.0"],
    "inner_body": ["x.relu()", "x.sigmoid()", "(x + 1).relu()"], "helper_constant": ["1", "2", "1.0"],
    "wrapper_tail": ["", "+ 1", "* 2"], "closed_over": ["1.5", "2.5"], "partial_number": ["1", "3"],
    "lambda_body": ["x.abs()", "x.neg()"], "listed": ["exp", "cos"], "base_attribute": ["1.0", "2.0"],
    "base_constant": ["1.0", "2.0"], "part_base": ["Base", "nn.Module"], "class_number": ["1.0", "2.0", "1"],
    "class_text": ['"wide"', '"narrow"'], "eps": ["1e-5", "1e-1"], "hyperparameter": ["1.0", "0.5", "2"],
    "field_value": ["", "0.2", "0.1, True"], "option": ["True", "False"], "buffer": ["0.0", "1.0"],
    "property_constant": ["2.0", "3.0"], "static_constant": ["1.0", "0.25"], "finish": ["x.tanh()", "x * 0.5"],
    "forward_constant": ["1.0", "2.0"], "activation": ["gelu", "silu", "relu"], "depth": ["1", "2"],
    "dropout": ["0.0", "0.5"], "model_line": ["pass", "x = x + 1", "x = x.transpose(0, 1)"],
    "question": ["is_grad_enabled", "is_autocast_enabled", "is_anomaly_enabled", "are_deterministic_algorithms_enabled", "is_inference_mode_enabled"],
    "result": ["y", "(y, y.sum())", "{'out': y, 'n': SCALE}", "[y, x]", "y.view(-1)", "y, y.shape[0]"],
    "forward_break": ["pass", "pliant.graph_break()"], "function_break": ["pass", "pliant.graph_break()", "print(end='')"],
    "inner_break": ["pass", "pliant.graph_break()"],
    "library_number": ["1.0", "1.25"], "library_tail": ["", "+ 1"], "library_method": ["abs", "square"],
    "library_version": ['"1.0"', '"1.1"', '"1.2"'], "reached_number": ["0.5", "2.0"], "unused": ["0", "1"],
    "table_tail": ["+ 1", "- 1"], "cached_number": ["0.5", "3.0"], "callable_number": ["1.0", "0.5"], "callable_tail": ["", "+ 2"],
    "descriptor": ["1.0", "3.0"], "meta_number": ["1.0", "2.5"], "slot_number": ["0.5", "1.5"],
    "missing_attribute": ["0.25", "len(name)"], "subscript": ["1", "2"], "length": ["1", "0", "4"], "truth": ["True", "False"],
    "equality": ["other == 3", "False"], "tuple_default": ["1.0", "2.0"], "nested_default": ["0.5", "1.5"],
    "mixed_bases": ["Left, Right", "Right, Left"], "subclass_hook": ["0.0", "1.0"], "single_default": ["0.0", "1.0"],
    "single_float": ["0.5", "value * 2"], "context_number": ["0.1", "0.2"], "order": ['["a", "b"]', '["b", "a"]', '["a"]'],
    "members": ['("a", "b")', '("a", "c")'], "default_function": ["torch.neg", "torch.abs"], "nonlocal_number": ["0.0", "1.0"],
    "namespace": ["fuzz", "fuzz_other"], "operator_body": ["x * 2", "x + 1"], "operator_gradient": ["2", "3"],
    "function_forward": ["1.0", "2.0"], "function_backward": ["1.0", "0.5"],
    "subclass_body": ["found", "found if function is not torch.sin else super().__torch_function__(torch.cos, types, args, kwargs or {})"],
    "creation": ["pass", "x = x + torch.ones(x.shape[-1])", "x = x + torch.arange(x.shape[-1])"], "root": ["4.0", "9.0"],
    "environment_default": ['"0.0"', '"1.0"'], "chain": ["nn.Tanh(), nn.Softplus()", "nn.Softplus(), nn.Tanh()", "nn.Tanh()"],
    "entry_of_table": ["1.0", "2.0"], "key_of_table": ['"one"', '"two"'],
    "limits": ["float32", "float16"], "pair_fields": ['"a b"', '"b a"'], "pair_default": ["2.0", "3.0"], "space_number": ["1.0", "2.0"],
    "executed_constant": ["1.0", "2.0"], "made_number": ["1.0", "2.0"], "flags": ["0", "1"], "taken": ["0", "1"], "seconds": ["1", "2"],
    "proxied": ["1.0", "2.0"], "lock": ["Lock", "RLock"], "flag_number": ["2", "8"], "number_of_class": ["1", "2"], "referred": ["1.0", "2.0"],
    "slots": ['("a",)', '("a", "c")'], "behind_slot": ["1.0", "2.0"], "permission": ["WRITE", "EXECUTE"], "saved_forward": ["1.0", "2.0"],
    "saved_backward": ["1.0", "2.0"], "hook_factor": ["1.0", "2.0"], "mapped_factor": ["1.0", "2.0"],
    "more": ["y = standard(y)", "y = derivatives(y)", "y = standard(derivatives(protocols(y)))", "y = protocols(y)",
             "y = gradients(y)", "y = gradients(protocols(y))", "pass"],
}  # fmt: skip


# What a process does behind the program's text, by name: (it, the call's block).
SETTINGS: dict[str, list[str]] = {
    "grad": ["off", "on", "inference"], "autocast": ["", "bfloat16"], "deterministic": ["", "yes"],
    "default dtype": ["", "float64"], "parameters": ["", "float64", "bfloat16", "frozen", "one frozen"],
    "sizes": ["4 8", "5 8", "1 8", "4 16"], "layout": ["", "transposed", "expanded", "offset", "every other"],
    "input": ["", "requires_grad", "subclass", "parameter", "integer"], "options": ["", "fuse", "dynamic", "duck", "specialize"],
    "patched": ["", "relu", "linear", "module", "class", "rebound", "disabled", "hook", "global hook", "default", "code",
                "instance", "bound method", "reached", "in a dict", "static method", "keyword default", "closure cell",
                "pre hook", "backward hook", "parameter hook", "global pre hook", "operator of tensors", "functional", "math",
                "builtin", "class of a part", "another part", "parts reversed", "deleted method", "found by getattr",
                "setattr", "in the dict of a part", "weight strides", "weight subclass", "module call", "property",
                "metaclass", "registered kind", "order", "descriptor", "parametrized", "added base"],
    "training": ["", "yes"], "target": ["function", "model", "method", "closure", "partial", "object", "class method"], "weights": ["", "other", "tied"],
    "precision": ["", "medium"], "environment": ["", "double", "other", "number"], "mkldnn": ["", "off"],
    "threads": ["", "2"], "warnings": ["", "error"],
    "default device": ["", "cpu", "meta"], "anomaly": ["", "yes"], "mode": ["", "function", "dispatch", "saved tensors"],
}  # fmt: skip
