# SPDX-License-Identifier: Apache-2.0
"""Models built without their weights: whatever still has no memory is found; skipped without torch."""

import functools
import types
import unittest
from collections import deque

from optional_torch import needs_torch, torch

import preload

if torch is not None:
    from preload._meta import WeightsOnMeta, left_on_meta

    class Slotted:
        __slots__ = ("table", "unset")

    class NamedList(list):
        pass

    class NamedDict(dict):
        pass

    class Reads(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.empty(1))
            self.factor = self.scale.item()


def of_slots(table):
    held = Slotted()
    held.table = table
    return held


def of_subclass(kind, table):
    held = kind()
    held.table = table
    return held


def of_default(table):
    def function(_=table):
        return _

    return function


def of_keyword_default(table):
    def function(*, _=table):
        return _

    return function


def of_function(table):
    def function():
        return None

    function.table = table
    return function


def of_class(table):
    return type("Cached", (), {"table": table})()


def of_base_class(table):
    return type("Child", (type("Cached", (), {"tables": [table]}),), {})()


HOLDERS = {
    "a slot": of_slots,
    "a slot below": lambda table: [of_slots(table)],
    "a deque": lambda table: deque([table]),
    "a dict's key": lambda table: {table: 1},
    "a tuple in a dict's key": lambda table: {(1, table): 1},
    "a mappingproxy": lambda table: types.MappingProxyType({"table": table}),
    "a class": of_class,
    "a base class's list": of_base_class,
    "a function's default": of_default,
    "a function's keyword default": of_keyword_default,
    "a function": of_function,
    "a list of a type of its own": lambda table: of_subclass(NamedList, table),
    "a dict of a type of its own": lambda table: of_subclass(NamedDict, table),
    "a partial": lambda table: functools.partial(print, table),
    "a set": lambda table: {table},
}


@needs_torch
class LeftOnMeta(unittest.TestCase):
    def test_finds_a_tensor_wherever_it_is_held(self):
        for what, holder in HOLDERS.items():
            with self.subTest(what):
                model = torch.nn.Module()
                model.held = holder(torch.empty(1, device="meta"))
                found = left_on_meta(model)
                self.assertEqual(len(found), 1, found)
                self.assertIn("held", found[0])
                model.held = holder(torch.empty(1))
                self.assertEqual(left_on_meta(model), [])

    def test_a_modules_class_may_hold_one(self):
        class Cached(torch.nn.Module):
            table = torch.empty(1, device="meta")

        self.assertEqual(len(left_on_meta(torch.nn.Sequential(Cached()))), 1)


@needs_torch
class Constructors(unittest.TestCase):
    def test_one_that_reads_its_weights_is_named(self):
        with self.assertRaisesRegex(preload.Unsupported, r"Reads .*test_meta.*load it from disk"):
            with WeightsOnMeta("cpu"):
                torch.nn.Sequential(torch.nn.Linear(2, 2), Reads())

    def test_other_errors_are_as_they_are(self):
        with self.assertRaisesRegex(RuntimeError, "^unlike$"), WeightsOnMeta("cpu"):
            raise RuntimeError("unlike")
        self.assertFalse(torch.empty(1).is_meta)


if __name__ == "__main__":
    unittest.main()
