"""Objects of classes in C that have more than their items say, or end by code: struct sequences, files of own classes."""

import io
import os
import time

import pytest

import pliant


def _status(number):
    items = [33188, 10 + number, 20, 1, 0, 0, 100 + number, 1000 + number, 2000 + number, 3000 + number]
    return os.stat_result(items, {"st_atime": 1.5 + number, "st_mtime": 2.25 + number, "st_mtime_ns": 7 + number})


def times(status):
    return status.st_mtime, status[8], status.st_size, status.st_mtime_ns


def times_behind_a_break(status):
    size = status.st_size + 1
    pliant.graph_break()
    return size, status.st_mtime, status


def zone(moment):
    return moment.tm_year, moment[0], moment.tm_zone, moment


GIVEN = {
    times: [_status(number) for number in range(4)],
    times_behind_a_break: [_status(number) for number in range(4)],
    zone: [time.gmtime(number * 10**7) for number in range(4)],
}


@pytest.mark.parametrize("program", GIVEN, ids=lambda f: f.__name__)
def test_fields_beside_the_items_of_a_struct_sequence(program):
    compiled = pliant.compile(program, backend="eager")
    for given in GIVEN[program]:
        assert repr(compiled(given)) == repr(program(given))


class File(io.BufferedIOBase):
    def __init__(self, told):
        self.told = told

    def write(self, data):
        self.told.append(data)
        return len(data)

    def close(self):
        if not self.closed:
            super().close()
            self.told.append("closed")


def in_a_block(told):
    with File(told) as file:
        file.write(b"a")
    return list(told)


def dropped(told):
    File(told).write(b"a")
    told.append("behind")
    return list(told)


@pytest.mark.parametrize("program", [in_a_block, dropped], ids=lambda f: f.__name__)
def test_files_of_own_classes_are_closed_once(program):
    compiled = pliant.compile(program, backend="eager")
    for _ in range(2):
        told, expected = [], []
        assert compiled(told) == program(expected) and told == expected
