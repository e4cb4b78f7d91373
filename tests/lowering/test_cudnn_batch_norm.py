"""The form of batch norm that eager takes on GPUs becomes the one that every device has."""

import torch

from lowering.tracing import trace

aten = torch.ops.aten


def targets(f, *args):
    return [str(node.target) for node in trace(f, args).graph.nodes if node.op == "call_function"]


def test_forward_in_training_updates_statistics():
    def f(x, weight, bias, mean, var):
        return aten.cudnn_batch_norm(x, weight, bias, mean, var, True, 0.1, 1e-5)[:3]

    found = targets(f, torch.randn(2, 3, 4, 4), *(torch.rand(3) for _ in range(4)))
    assert "aten._native_batch_norm_legit_functional.default" in found and not any("cudnn" in name for name in found)


def test_forward_in_inference():
    def f(x, weight, bias, mean, var):
        return aten.cudnn_batch_norm(x, weight, bias, mean, var, False, 0.1, 1e-5)[0]

    found = targets(f, torch.randn(2, 3, 4, 4), *(torch.rand(3) for _ in range(4)))
    assert "aten.native_batch_norm.default" in found and not any("cudnn" in name for name in found)


def test_backward_is_the_same():
    x, grad = torch.randn(4, 3, 5, 5, dtype=torch.float64), torch.randn(4, 3, 5, 5, dtype=torch.float64)
    weight, bias = torch.rand(2, 3, dtype=torch.float64)
    _, mean, inverse = aten.native_batch_norm(x, weight, bias, None, None, True, 0.1, 1e-5)

    def f(x, grad, weight, mean, inverse):
        room = torch.empty(0, dtype=torch.uint8)
        return aten.cudnn_batch_norm_backward(x, grad, weight, None, None, mean, inverse, 1e-5, room)

    from pliant.runtime.compile_graph import compile_graph

    found = compile_graph(trace(f, (x, grad, weight, mean, inverse)))([x, grad, weight, mean, inverse])
    expected = aten.native_batch_norm_backward(grad, x, weight, None, None, mean, inverse, True, 1e-5, [True, True, True])
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs)
