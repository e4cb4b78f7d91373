"""Suspended generators that C code drops are closed where eager closes them."""

import torch

import pliant


def careful(log, n):
    try:
        for i in range(n):
            got = yield i
            log.append(("got", got))
    finally:
        log.append("finally")


def test_a_generator_beside_one_that_ends_first():
    def program(x, log):
        log.append(list(zip((i for i in range(2)), careful(log, 3))))
        return x + 1

    mine, theirs = [], []
    pliant.compile(program)(torch.ones(1), mine)
    program(torch.ones(1), theirs)
    assert mine == theirs
