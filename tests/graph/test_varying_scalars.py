"""Every differentiable operator with numbers among its arguments: at the third number, nothing is compiled any more.

The rows are found in the operators' own schemas. Each is called with tensors that suit its argument types; operators that
eager refuses so are not rows.
"""

import math

import pytest
import torch

import pliant
from older_pytorch import OLD

VALUES = (0.25, 0.375, 0.4375)
SPECIAL = (0.0, 1.0, math.nan)
EXCEPTIONS = {
    "rrelu.default[lower]": "one of the numbers is above the upper bound, where eager has an error",
    "linalg_lstsq.default[rcond]": "eager's own answer changes from call to call",
}
if tuple(map(int, torch.__version__.split(".")[:2])) < OLD:
    EXCEPTIONS |= dict.fromkeys(("quantile.scalar[q]", "nanquantile.scalar[q]"), "this PyTorch asks in C++ for the number")
# Those of which eager reads memory that wrong arguments do not have.
CRASH = ("batch_norm", "instance_norm", "quantize", "fbgemm")
PARTS = 4
NUMBERS = ("number", "float", "Optional[float]", "Optional[number]")
OTHERS = {"number": 0.5, "float": 0.5, "int": 1, "SymInt": 1, "bool": False, "str": "none", "List[int]": [0], "List[SymInt]": [1, 1]}


def rows():
    for qualified in sorted(torch._C._dispatch_get_all_op_names()):
        space, _, full = qualified.partition("::")
        name, _, overload = full.partition(".")
        hidden = name.startswith("_") or name.endswith(("_", "_backward", "_copy")) or overload.endswith("out")
        if space != "aten" or hidden or any(one in name for one in CRASH):
            continue
        func = getattr(getattr(torch.ops.aten, name), overload or "default", None)
        arguments = func._schema.arguments if func is not None else ()
        if not any("Tensor" in str(one.type) for one in arguments):
            continue
        for place, one in enumerate(arguments):
            if str(one.type) in NUMBERS:
                yield f"{name}.{overload or 'default'}[{one.name}]", func, place


def argument(one, generator):
    kind = str(one.type)
    if "Tensor" in kind and "List" in kind:
        return [torch.rand(3, 3, generator=generator) + 0.1 for _ in range(2)]
    if kind == "Tensor":
        return torch.rand(3, 3, generator=generator) * 0.8 + 0.1
    if one.has_default_value():
        return one.default_value
    return OTHERS.get(kind)


def called(func, place):
    """The operator as a function of the number and of its other arguments."""
    names = [f"a{at}" for at in range(len(func._schema.arguments))]
    given = [f"{one.name}={name}" if one.kwarg_only else name for one, name in zip(func._schema.arguments, names)]
    rest = names[:place] + names[place + 1 :]
    return eval(f"lambda {', '.join([names[place], *rest])}: func({', '.join(given)})", {"func": func})


def outcome(f, number, given):
    torch.manual_seed(0)
    leaves = []

    def leaf(one):
        if isinstance(one, list) and one and isinstance(one[0], torch.Tensor):
            return [leaf(t) for t in one]
        if isinstance(one, torch.Tensor):
            leaves.append(one.clone().requires_grad_())
            return leaves[-1] * 1
        return one

    try:
        outs = f(number, *map(leaf, given))
        outs = [t for t in (outs if isinstance(outs, (tuple, list)) else [outs]) if isinstance(t, torch.Tensor)]
        roots = [t for t in outs if t.requires_grad]
        grads = torch.autograd.grad([r.sum() for r in roots], leaves, allow_unused=True) if roots else ()
        grads = [torch.zeros_like(leaf) if grad is None else grad for grad, leaf in zip(grads, leaves)]
    except (RuntimeError, ValueError, IndexError, NotImplementedError, TypeError) as error:
        return type(error), str(error).splitlines()[0][:30]
    return [t.detach() for t in outs], grads, bool(roots)


def problems(func, place, wanted, given):
    """What differs from eager, and whether the third number compiles."""
    compiled = pliant.compile(called(func, place), backend="aot_eager")
    for n, (number, expected) in enumerate(wanted.items()):
        found = outcome(compiled, number, given)
        if n == len(VALUES) - 1:
            stats = pliant.stats()
            if stats["recompiles"] > 1 or stats["graph_breaks"] or stats["fallbacks"]:
                yield f"at {number}: {stats['recompiles']} recompiles, {stats['graph_breaks']} breaks, {stats['fallbacks']} fallbacks"
        try:
            if isinstance(expected[0], type):
                assert found == expected
            else:
                torch.testing.assert_close(found, expected, equal_nan=True)
        except AssertionError as error:
            yield f"at {number}: {error}"


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.filterwarnings("ignore")
def test_third_number(part):
    generator, seen, wrong = torch.Generator().manual_seed(0), 0, []
    for name, func, place in list(rows())[part::PARTS]:
        given = [argument(one, generator) for at, one in enumerate(func._schema.arguments) if at != place]
        wanted = {number: outcome(called(func, place), number, given) for number in (*VALUES, *SPECIAL)}
        first = wanted[VALUES[0]]
        if name in EXCEPTIONS or isinstance(first[0], type) or not first[2]:
            continue
        pliant.reset()
        seen += 1
        wrong += [f"{name} {one}" for one in problems(func, place, wanted, given)]
    assert seen > 20 and not wrong, "\n".join(wrong)
