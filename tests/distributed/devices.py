"""Where each process of a table computes: on the CPU, or on a GPU of its own."""

import torch

_DEVICE = torch.device("cpu")


def use(kind, rank):
    """From now on on "cpu", or on the "cuda" device of this rank. Returns arguments of `init_process_group`."""
    global _DEVICE
    if kind == "cpu":
        return {"backend": "gloo"}
    _DEVICE = torch.device(kind, rank)
    torch.cuda.set_device(_DEVICE)
    return {"backend": "nccl", "device_id": _DEVICE}


def current():
    return _DEVICE


def kind():
    return _DEVICE.type
