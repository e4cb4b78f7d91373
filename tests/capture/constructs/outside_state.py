"""What a program keeps outside itself: weak references, context variables, random generators, data of tensors, hooks, lazy modules."""

import contextvars
import enum
import functools
import inspect
import itertools
import random
import weakref

import numpy as np
import torch
from tests.capture.constructs.harness import program
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

whole = program("outside")
broken = program("outside", whole=False)


class Owner:
    scale = 2.0
    count = 0


class Itself:
    def __init__(self):
        self.v = 2.0


KEPT = [Itself(), Itself()]
WEAK_SET = weakref.WeakSet(KEPT)
WEAK_KEYS = weakref.WeakKeyDictionary({KEPT[0]: 3.0})
WEAK_VALUES = weakref.WeakValueDictionary({"k": KEPT[0]})
NOTES = []
VARIABLE = contextvars.ContextVar("variable", default=2.0)
UNSET = contextvars.ContextVar("unset")
LINEAR = nn.Linear(4, 4)
MODULES = {LINEAR}
BY_MODULE = {LINEAR: 2.0}
PARAMETER = nn.Parameter(torch.ones(4))
LAYER = nn.Linear(4, 2)
BUFFER = torch.ones(4)


# ---- weak references
@whole
def weak_callback(x, y):
    seen, o = [], Itself()
    r = weakref.ref(o, lambda ref: seen.append(ref() is None))
    z = x * r().v
    del o
    return z, r() is None, seen


@whole
def weak_callback_that_stays(x, y):
    o = Itself()
    r = weakref.ref(o, lambda ref: NOTES.append(1))
    return x * r().v, o, r() is o


@whole
def weak_containers_made_here(x, y):
    s, k, v = weakref.WeakSet(), weakref.WeakKeyDictionary(), weakref.WeakValueDictionary()
    a, b = Itself(), Itself()
    s.add(a)
    s.add(b)
    k[a], v["a"] = x * 2, a
    s.discard(b)
    gone = Itself()
    v["gone"] = gone
    del gone
    return k[a] + len(s), b in s, v["a"] is a, "gone" in v, len(k)


@whole
def weak_containers_from_outside(x, y):
    t = x
    for o in WEAK_SET:
        t = t + o.v
    for _, o in WEAK_VALUES.items():
        t = t * o.v
    return t * WEAK_KEYS[KEPT[0]] + WEAK_KEYS.get(KEPT[1], 5.0) + (KEPT[1] in WEAK_SET) + WEAK_VALUES["k"].v


@whole
def weak_method(x, y):
    o = Itself()
    o.twice = None
    return weakref.WeakMethod(LINEAR.forward)()(x), weakref.ref(o) == weakref.ref(o)


@broken  # the break must not let go of what the weak reference needs
def weak_proxy(x, y):
    o = Itself()
    p = weakref.proxy(o)
    return x * p.v


@whole
def single_dispatch_method(x, y):
    class A:
        @functools.singledispatchmethod
        def m(self, v):
            return v

        @m.register
        def _(self, v: int):
            return v + 1

    return A().m(x), A().m(2)


# ---- containers whose keys are objects
@whole
def modules_in_sets(x, y):
    t = x
    for m in MODULES:
        t = m(t)
    return t, LINEAR in MODULES, BY_MODULE[LINEAR], [m is LINEAR for m in BY_MODULE], hash(LINEAR) == hash(LINEAR)


@whole
def list_that_grows(x, y):
    NOTES.append(x.shape[0])
    return x, len(NOTES) > 0


@whole
def numbers_of_classes(x, y):
    before = Owner.count
    Owner.count += 1
    return x * Owner.scale, Owner.count - before


@whole
def attributes_that_go(x, y):
    torch.of_this_test = 3
    z = x * torch.of_this_test
    del torch.of_this_test
    Owner.of_this_test = 4
    del Owner.of_this_test
    return z, hasattr(torch, "of_this_test"), hasattr(Owner, "of_this_test"), vars(torch)["exp"](x)


@whole
def attribute_of_function(x, y):
    found = getattr(attribute_of_function, "calls", 0)
    attribute_of_function.calls = 1
    del attribute_of_function.calls
    return x + found


# ---- context variables
@whole
def context_variables(x, y):
    token = VARIABLE.set(5.0)
    z = x * VARIABLE.get()
    VARIABLE.reset(token)
    try:
        UNSET.get()
    except LookupError:
        z = z + 1
    inner = UNSET.set(x * 2)
    try:
        z = z + UNSET.get()
    finally:
        UNSET.reset(inner)
    return z * VARIABLE.get() + UNSET.get(3.0)


@broken
def context_variable_over_break(x, y):
    token = VARIABLE.set(5.0)
    z = x * VARIABLE.get()
    open("/dev/null").close()
    VARIABLE.reset(token)
    return z * VARIABLE.get()


# ---- random generators
@whole
def drawn_lists(x, y):
    values = [1, 2, 3, 4]
    random.seed(3)
    random.shuffle(values)
    state = random.getstate()
    a = random.random()
    random.setstate(state)
    b = random.random()
    c, d = random.sample(range(10), 2)
    return x * values[0] + values[3] + a - b + c * d, [x * w for w in random.choices([1.0, 2.0], weights=[1, 2], k=2)]


SHUFFLED = [1, 2, 3]
GENERATOR = np.random.default_rng(5)


@whole
def list_from_outside_is_shuffled(x, y):
    random.seed(x.shape[0])
    random.shuffle(SHUFFLED)
    found = x * SHUFFLED[0]
    SHUFFLED[:] = [1, 2, 3]
    return found


@whole
def generator_of_numpy_from_outside(x, y):
    return x.shape, GENERATOR.normal(size=4).shape, int(GENERATOR.integers(0, 1))


@whole
def drawn_by_keyword(x, y):
    random.seed(4)
    return x * random.uniform(a=1, b=2) + random.randint(a=1, b=3)


@whole
def generator_made_here(x, y):
    r, values = random.Random(3), [1, 2, 3]
    r.shuffle(values)
    n = np.random.RandomState(3)
    return x * r.random() + values[0], r.choices(values, k=2), torch.from_numpy(n.normal(size=4)), n.rand()


@whole
def drawn_with_numpy(x, y):
    np.random.seed(3)
    order = torch.from_numpy(np.random.permutation(4))
    noise = torch.from_numpy(np.random.randn(4)).float()
    lam = np.random.beta(0.5, 0.5)
    return lam * x[:, order] + noise + int(np.random.randint(0, 10)) + np.random.default_rng(3).random()


@whole
def methods_of_universal_functions(x, y):
    a, b = x.numpy(), y.numpy()
    return (
        np.add.reduce(a),
        np.add.reduce(a, axis=1, keepdims=True),
        np.maximum.reduce(a, axis=None),
        np.multiply.accumulate(a, axis=1),
        np.subtract.outer(a[0], b[0]),
        np.logical_or.reduce(a > 0),
    )


@whole
def draws_on_known_tensors(x, y):
    torch.randperm(4)
    noise = torch.normal(torch.tensor(0.0), torch.tensor(1.0)) + torch.bernoulli(torch.tensor(0.5))
    return x[:, torch.randperm(4)] * noise, torch.randint_like(torch.tensor([1, 2]), 9)


ARRAY = np.arange(4, dtype=np.float32)


@whole
def scalars_of_arrays_beside_tensors(x, y):
    total = ARRAY[1]
    total += 1
    return ARRAY.sum() + x, x * ARRAY[1], ARRAY[1] < x, total, -ARRAY[1]


class Defaults(dict):
    def __missing__(self, key):
        self[key] = len(self)
        return self[key]


DEFAULTS = Defaults(b=2.0)


@whole
def dict_with_defaults(x, y):
    z = x * DEFAULTS["b"] + DEFAULTS["new"]
    found = "new" in DEFAULTS, list(DEFAULTS), dict(DEFAULTS)
    del DEFAULTS["new"]
    return z, found, "new" in DEFAULTS, list(DEFAULTS.items())


@whole
def settings_that_stay(x, y):
    torch.set_float32_matmul_precision(torch.get_float32_matmul_precision())
    return x @ y.T


# ---- data of tensors
@whole
def data_of_an_input(x, y):
    seen = x[0]
    x.data = y * 3
    seen.add_(1)
    return x + 1, seen


@broken  # gradients of what was computed before the second assignment would read the other memory
def data_of_a_parameter(x, y):
    old = PARAMETER.data
    PARAMETER.data = y[0] * 2
    with torch.no_grad():
        PARAMETER.mul_(2)
    z = (x * PARAMETER).sum()
    grad = torch.autograd.grad(z, PARAMETER)[0]
    PARAMETER.data = old
    return z.detach(), grad, PARAMETER * 1, PARAMETER.is_leaf


@whole
def data_of_a_module_that_stays(x, y):
    """Its parameters are given the memory that they have."""
    layer = LAYER.to(x.dtype)
    z = layer(x)
    layer.weight.data = layer.weight
    return torch.autograd.grad(z.sum(), layer.weight)[0], layer(y), layer is LAYER


@whole
def data_of_a_result(x, y):
    z = x * PARAMETER
    z.data = z.data.clamp(0)
    w = torch.zeros(2)
    w.data = y * 2
    return torch.autograd.grad((z * z).sum(), PARAMETER)[0], w.shape, w + 1


@whole
def results_onto_empty_tensors(x, y):
    a, b = torch.empty(0), torch.empty(0)
    r = torch.add(x, y, out=a)
    b.resize_(2, 2).fill_(3)
    b.add_(1)
    return a, r is a, b


# ---- packed sequences of known lengths
LSTM = nn.LSTM(4, 5, 2, batch_first=True, bidirectional=True)
RNN = nn.RNN(4, 5)


@whole
def packed_sequences(x, y):
    p = pack_padded_sequence(torch.stack([x, y]), torch.tensor([2, 3]), batch_first=True, enforce_sorted=False)
    o, (h, c) = LSTM(p)
    o2, h2 = RNN(pack_sequence([x[:3], y[:2]]))
    return (
        pad_packed_sequence(o, batch_first=True, total_length=5, padding_value=-1.0),
        h,
        c,
        o2,
        h2,
        x[: torch.tensor(2)],
    )


@whole
def known_lists_in_tensors(x, y):
    a, b, c = torch.tensor([1, 2]), torch.tensor([1, 2]), torch.tensor([1, 2])
    d = c.detach()
    b.view(2).add_(1)
    a.data.add_(1)
    d.mul_(3)
    return a.tolist(), b.tolist(), c.tolist(), [x[i] for i in torch.tensor([2, 0]).tolist()]


# ---- all of it over a break
@broken
def weak_references_over_break(x, y):
    seen, values, a, b = [], weakref.WeakValueDictionary(), Itself(), Itself()
    r = weakref.ref(a, lambda ref: seen.append(1))
    values["b"] = b
    open("/dev/null").close()
    z = x * r().v + len(values)
    del a, b
    return z, r() is None, seen, len(values)


@broken
def random_numbers_over_break(x, y):
    random.seed(3)
    np.random.seed(3)
    values, drawn, order = [1, 2, 3], np.random.rand(4), torch.randperm(4)
    random.shuffle(values)
    open("/dev/null").close()
    return x[:, order] * values[0] + random.random(), drawn, np.random.rand()


@broken
def data_over_break(x, y):
    old = PARAMETER.data
    PARAMETER.data, x.data = y[0] * 2, y * 3
    open("/dev/null").close()
    z = (x * PARAMETER).sum()
    grad = torch.autograd.grad(z, PARAMETER)[0]
    PARAMETER.data = old
    return z.detach(), grad


# ---- hooks, lazy modules, copies
@whole
def hooks_of_one_call(x, y):
    first = LINEAR.register_forward_hook(lambda m, i, o: o * 2)
    with LINEAR.register_forward_pre_hook(lambda m, i: (i[0] + 1,)):
        z = LINEAR(x)
    first.remove()
    return z, LINEAR(x)


@whole
def copied_module(x, y):
    import copy

    return copy.copy(LINEAR)(x), copy.deepcopy(x)


# ---- the rest
@whole
def repeated(x, y):
    return list(itertools.repeat(x, 2)), list(itertools.repeat(None, 2)), list(itertools.filterfalse(None, [0, 1, 2]))


@whole
def enumeration_by_call(x, y):
    made = enum.Enum("Made", ["A", "B"])
    return x * made.B.value, made.A.name


@whole
def exit_that_is_caught(x, y):
    try:
        raise SystemExit(3)
    except SystemExit as error:
        return x, error.code, len(inspect.getsource(Itself)) > 3


@whole
def questions_of_known_tensors(x, y):
    return x if torch.is_nonzero(torch.tensor(1)) and torch.tensor(2).equal(torch.tensor(2)) else y


@whole
def checks_of_values_by_torch(x, y):
    return torch.nn.functional.gaussian_nll_loss(x, y, y.exp())


@whole
def classes_of_tensors_as_kinds(x, y):
    kinds = isinstance(x, torch.FloatTensor), isinstance(x, torch.DoubleTensor), isinstance(PARAMETER, nn.Parameter)
    return x.type(torch.DoubleTensor), x.type("torch.IntTensor"), x.type() == "torch.FloatTensor", kinds
