"""Lists, dicts, sets, tuples, strings, numbers, itertools; mutation of what was there before."""

import collections
import collections.abc
import copy
import dataclasses
import itertools
import math
import random
import string

import numpy
import torch
from tests.capture.constructs.harness import program

STATE = {"calls": 0, "items": []}
NUMBERS = [1, 2, 3]
NESTED = {"a": [1, {"b": 2}], "t": (1, 2)}


@program("containers")
def list_methods(x, y):
    v = [x]
    v.append(y)
    v.extend([x + 1])
    v.insert(0, y * 2)
    last = v.pop()
    v.reverse()
    return v, last, len(v)


@program("containers")
def list_slicing(x, y):
    v = [x, y, x + y]
    v[1:2] = [x, x]
    del v[0]
    return v[::-1], v[-1], v[:2]


@program("containers")
def list_operators(x, y):
    a = [1, 2]
    a += [3]
    return a * 2, a + [x], a == [1, 2, 3], 2 in a, a.index(3), a.count(1)


class Scale:
    def __init__(self, by):
        self.by = by


SCALES = [Scale(2), Scale(3), Scale(5)]


@program("containers")
def joined_lists_of_objects(x, y):
    order = list(reversed(SCALES))
    order = order[:-2] + [order[-1]]
    order += SCALES[:1]
    order *= 2
    for scale in order:
        x = x * scale.by
    return x, len((SCALES[0],) + (SCALES[1],))


@program("containers")
def lists_of_objects_compared(x, y):
    scales = SCALES[:]
    place = scales.index(SCALES[1])
    scales.remove(SCALES[0])
    return x * place, scales.count(SCALES[2]), scales == SCALES[1:], (SCALES[0],) != (SCALES[1],), SCALES[0] in scales


class Loud(str):
    """Compares with an effect."""

    __hash__ = str.__hash__

    def __eq__(self, other):
        print("asked", str(self))
        return str.__eq__(self, other)


class Alike(type):
    __hash__ = type.__hash__

    def __eq__(cls, other):
        print("asked", cls.__name__)
        return True


@dataclasses.dataclass
class Labelled:
    label: str

    def __eq__(self, other):
        print("asked", self.label)
        return True


LOUD, OTHER = Loud("a"), Loud("b")
ALIKE, SAME = Alike("ALIKE", (), {}), Alike("SAME", (), {})


@program("containers", whole=False)
def strings_and_classes_with_their_own_comparison_in_lists(x, y):
    return x * 2, [LOUD] == [OTHER], [ALIKE].index(SAME), (LOUD, 1) == ("a", 1), LOUD in {"a": 1}, {1: LOUD} == {1: "a"}


@program("containers", whole=False)
def dataclasses_with_their_own_comparison_in_lists(x, y):
    return x * 2, [Labelled("l")] == [Labelled("m")]


@program("containers")
def list_sort(x, y):
    v = [3, 1, 2]
    v.sort()
    return v, sorted(["bb", "a"], key=len), sorted(v, reverse=True), x


@program("containers")
def sort_key_function(x, y):
    return [t.dim() for t in sorted([x, x[0], x[0, 0]], key=lambda t: t.dim())]


@program("containers")
def dict_methods(x, y):
    d = {"a": x}
    d["b"] = y
    d.update(c=1, d=2)
    popped = d.pop("c")
    d.setdefault("e", 5)
    return d, popped, d.get("zz", 9), list(d.keys()), "a" in d


@program("containers")
def dict_iteration(x, y):
    d = {"a": x, "b": y}
    return [(k, v + 1) for k, v in d.items()], [v for v in d.values()]


@program("containers")
def dict_merge(x, y):
    a, b = {"p": x}, {"q": y}
    return {**a, **b}, a | b


@program("containers")
def dict_tensor_values_sum(x, y):
    d = {i: x * i for i in range(3)}
    return sum(d.values())


@program("containers")
def defaultdict(x, y):
    d = collections.defaultdict(list)
    d["a"].append(x)
    d["a"].append(y)
    return dict(d)


@program("containers")
def counter_and_deque(x, y):
    c = collections.Counter("aab")
    q = collections.deque([x, y], maxlen=2)
    q.append(x + y)
    return c["a"], list(q)


@program("containers")
def ordered_dict(x, y):
    d = collections.OrderedDict(a=x, b=y)
    d.move_to_end("a")
    return list(d), d["a"]


@program("containers")
def sets(x, y):
    s = {1, 2} | {3}
    s.add(4)
    return x * len(s), sorted(s & {1, 4}), {1} <= s


@program("containers")
def tuples(x, y):
    t = (x, y) + (1,)
    a, b, c = t
    return t[0] + b, c, t[1:], len(t), (1, 2) < (1, 3)


@program("containers")
def zip_enumerate(x, y):
    return [(i, a + b) for i, (a, b) in enumerate(zip([x, y], [y, x]))]


@program("containers")
def zip_strict_error(x, y):
    try:
        list(zip([1], [1, 2], strict=True))
    except ValueError:
        return x


@program("containers")
def itertools_functions(x, y):
    return (
        list(itertools.chain([1], [2, 3])),
        list(itertools.product([1, 2], repeat=2)),
        list(itertools.accumulate([1, 2, 3])),
        list(itertools.islice(itertools.count(3), 2)),
        x,
    )


@program("containers")
def reversed_and_range(x, y):
    return list(reversed([1, 2, 3])), list(range(5, 0, -2)), x


@program("containers")
def any_all_min_max(x, y):
    return any([0, 1]), all([]), min(3, 1, 2), max([4, 9]), max("a", "bb", key=len), x


@program("containers")
def string_methods(x, y):
    name = "Layer.{}".format(3)
    return name.lower(), name.split("."), "-".join(["a", "b"]), name.replace("L", "l"), name[::2], "%s-%d" % ("a", 3), x


@program("containers")
def f_strings(x, y):
    n = x.dim()
    return f"{n:>4}|{n!r}|{3.14159:.2f}|{'a' + 'b'}", x


@program("containers")
def f_string_of_size(x, y):
    return f"{x.shape[0]} rows", str(x.shape[0]), x


@program("containers")
def math_module(x, y):
    return x * math.sqrt(16) + math.pi, math.floor(2.7), math.ceil(2.1), math.log(math.e), math.isclose(1.0, 1.0)


@program("containers")
def numbers(x, y):
    return (
        7 // 2,
        -7 // 2,
        7 % 3,
        -7 % 3,
        2**10,
        divmod(7, 2),
        round(2.5),
        abs(-3),
        int("12"),
        float("1.5"),
        bool([]),
        x,
    )


@program("containers")
def complex_numbers(x, y):
    return (1 + 2j) * 2, x


@program("containers")
def bit_operations(x, y):
    return 5 & 3, 5 | 3, 5 ^ 3, ~5, 1 << 4, x


@program("containers")
def mutate_argument_list_inside(x, y):
    items = [x]

    def add(into):
        into.append(y)

    add(items)
    return items


@program("containers")
def global_dict_mutation(x, y):
    STATE["calls"] = x.dim()
    return x + STATE["calls"]


@program("containers")
def global_list_read(x, y):
    return x * sum(NUMBERS), len(NUMBERS), NUMBERS[-1], 2 in NUMBERS


@program("containers")
def nested_global_read(x, y):
    return x * NESTED["a"][1]["b"], NESTED["t"][0]


@program("containers")
def global_list_iterate(x, y):
    for n in NUMBERS:
        x = x + n
    return x


@program("containers")
def copy_containers(x, y):
    a = [x, [y]]
    b = copy.copy(a)
    b.append(1)
    return len(a), len(b), a[1] is b[1]


@program("containers")
def shared_identity(x, y):
    inner = [x]
    outer = [inner, inner]
    return outer, outer[0] is outer[1]


@program("containers")
def self_referential_list(x, y):
    a = [x]
    a.append(a)
    return a[1] is a, x


@program("containers")
def swap_and_multiple_targets(x, y):
    a = b = x
    a, b = y, a
    return a, b


@program("containers")
def inplace_on_tensor(x, y):
    x += y
    x.mul_(2)
    return x


@program("containers")
def tensor_setitem(x, y):
    x[0] = 1
    x[:, 1:3] = y[:, :2]
    return x


@program("containers")
def tensor_indexing(x, y):
    return x[0], x[:, None], x[..., -1], x[1:, ::2], x[[0, 2]], x[torch.tensor([0, 1])]


@program("containers")
def mask_where(x, y):
    return torch.where(x > 0, x, y), x.masked_fill(x < 0, 0.0)


@program("containers")
def shape_arithmetic(x, y):
    b, c = x.shape
    return x.reshape(b * c), x.view(c, b), x.flatten(), x.size(), x.numel()


@program("containers")
def size_in_python(x, y):
    n = x.size(0)
    return [n, n + 1, n * 2, -n, n // 2, n % 2], x * n


@program("containers")
def tensor_methods_chain(x, y):
    return x.t().contiguous().sum(0).softmax(-1).to(torch.float64)


@program("containers")
def tensor_properties(x, y):
    return x.dtype, x.device, x.ndim, x.requires_grad, x.is_floating_point(), x.T


@program("containers")
def new_tensors(x, y):
    return torch.zeros(2, 3), torch.ones_like(x), x.new_full((2,), 3.0), torch.arange(4), torch.tensor([1.0, 2.0])


@program("containers")
def cat_stack_split(x, y):
    a, b = torch.cat([x, y]).chunk(2)
    return torch.stack([a, b]).unbind(0), torch.split(x, 2, dim=1)


@program("containers")
def einsum_matmul(x, y):
    return torch.einsum("ij,kj->ik", x, y), x @ y.T


@program("containers")
def functional_calls(x, y):
    f = torch.nn.functional
    return f.relu(x), f.layer_norm(x, (4,)), f.softmax(x, dim=-1), f.gelu(y), f.pad(x, (1, 1))


@program("containers")
def no_grad_block(x, y):
    w = x.clone().requires_grad_()
    with torch.no_grad():
        a = w * 2
    b = w * 3
    return a, b.detach(), torch.is_grad_enabled()


@program("containers")
def grad_mode_decorator(x, y):
    @torch.no_grad()
    def f(v):
        return v + 1

    return f(x)


@program("containers")
def bytes_and_constants(x, y):
    return b"ab" + b"c", string.ascii_lowercase[:3], ..., None, x


@program("containers")
def print_constant(x, y):
    print("hello", 3)
    return x + 1


@program("containers")
def print_tensor_shape_then_value(x, y):
    z = x + 1
    print(z.sum().item() > -1e9)
    return z


@program("containers")
def python_random(x, y):
    random.seed(0)
    return x * random.random()


@program("containers")
def dropout_and_rand(x, y):
    return torch.nn.functional.dropout(x, 0.5, training=True), torch.rand(2)


@program("containers")
def class_of_a_generator(x, y):
    made = (i for i in range(3))
    asked = isinstance(made, (list, collections.abc.Iterator)), isinstance(made, int | str)
    return x + len(list(made)), type(made).__name__, asked


@program("containers")
def set_joined_in_place_to_keys(x, y):
    found = {1}
    found |= {5: x, 6: y}.keys()
    return x, sorted(found), 7 in found


@program("containers")
def containers_that_grow_by_themselves(x, y):
    queues = collections.deque([1, x], maxlen=5), collections.deque([2, 3]), [4, y]
    for queue in queues:
        queue.extend(queue)
        queue += queue
    queues[0].extendleft(queues[0])
    return queues


@program("containers")
def sets_given_arguments_that_they_do_not_take(x, y):
    said = []
    for name in ("pop", "clear", "copy"):
        try:
            getattr({1}, name)(2)
        except TypeError as error:
            said.append(str(error))
    return x, said


@program("containers")
def arrays_matched_against_sequences(x, y):
    """Arrays are sequences to `match` from NumPy 2.5 on."""
    found = []
    for value in (numpy.arange(2) + 1, numpy.float64(3), (x, y)):
        match value:
            case [first, second]:
                found.append((first, second))
            case _:
                found.append("other")
    return x, found
