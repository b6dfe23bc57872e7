# SPDX-License-Identifier: Apache-2.0
"""Served tensors in torch models: all differences are told, nothing is left out; skipped without torch."""

import collections
import functools
import unittest

from optional_torch import needs_torch, torch
from with_daemon import WithDaemon

if torch is not None:
    import preload.torch
    from preload._assign import assign
    from preload._meta import WeightsOnMeta, left_on_meta


def model_of(**shapes):
    """A module with parameters of these shapes, without memory."""
    module = torch.nn.Module()
    for name, (shape, dtype) in shapes.items():
        module.register_parameter(
            name, torch.nn.Parameter(torch.empty(shape, dtype=dtype, device="meta"), False)
        )
    return module


@needs_torch
class Assign(WithDaemon):
    def served(self, *names):
        shard = self.attach()
        return {name: shard[name].torch() for name in names}

    def test_puts_served_memory_in_place(self):
        model = model_of(
            w=((3, 5), torch.bfloat16), scalar=((), torch.float32), empty=((0, 4), torch.float32)
        )
        held = model.w  # whoever captured it sees the new one
        served = self.served("w", "scalar", "empty")
        assign(model, served)
        self.assertIs(model.w, held)
        self.assertEqual(held.data_ptr(), served["w"].data_ptr())
        self.assertEqual((model.scalar.item(), tuple(model.empty.shape)), (3.5, (0, 4)))
        self.assertEqual(left_on_meta(model), [])

    def test_keeps_strides(self):
        model = model_of(strided=((4, 3), torch.float32))
        assign(model, self.served("strided"))
        self.assertEqual(model.strided.stride(), (1, 4))

    def test_keeps_aliases(self):
        model = model_of(w=((3, 5), torch.bfloat16), tied=((3, 5), torch.bfloat16))
        assign(model, self.served("w", "tied"))
        self.assertIs(model.w, model.tied)

    def test_tells_all_differences_and_changes_nothing(self):
        model = model_of(
            w=((5, 3), torch.bfloat16),
            scalar=((), torch.float64),
            absent=((2,), torch.float32),
            tied=((3, 5), torch.bfloat16),
        )
        with self.assertRaises(preload.TensorMismatch) as caught:
            assign(model, self.served("w", "scalar", "tied", "strided"))
        error = caught.exception
        self.assertEqual((error.missing, error.extra), (["absent"], ["strided"]))
        self.assertEqual(error.shapes, {"w": ((5, 3), (3, 5))})
        self.assertEqual(error.dtypes, {"scalar": (torch.float64, torch.float32)})
        for name in ("absent", "strided", "w", "scalar"):
            self.assertIn(name, str(error))
        self.assertTrue(all(parameter.is_meta for parameter in model.parameters()))

    def test_a_tie_that_is_not_served_is_told(self):
        model = model_of(w=((3, 5), torch.bfloat16))
        model.register_parameter("other", model.w)
        state = {"w": torch.ones(3, 5, dtype=torch.bfloat16), "other": torch.ones(3, 5, dtype=torch.bfloat16)}
        with self.assertRaises(preload.TensorMismatch) as caught:
            assign(model, state)
        self.assertEqual(caught.exception.tied, ["w = other"])

    def test_load_names_the_dtype_that_torch_lacks(self):
        with self.assertRaises(TypeError) as caught:
            preload.torch.load(socket_dir=self.directory)
        self.assertIn("F6_E2M3", str(caught.exception))


@needs_torch
class Load(WithDaemon):
    arguments = ("--many", "1000")

    def test_times_and_tells(self):
        state = preload.torch.load(socket_dir=self.directory)
        self.assertEqual((len(state), state.info.evidence), (1000, "none"))
        self.assertEqual(list(state.timing.steps), ["attach", "tensors"])
        self.assertLess(state.timing.total_ms, 500)  # a bound for loaded machines; 10 ms is the aim
        print(f"1000 tensors: {state.timing}")
        with self.assertRaises(preload.UsageError):
            preload.torch.load(socket_dir=self.directory, model="/m", expect="a" * 64)


@needs_torch
class Meta(unittest.TestCase):
    def test_weights_take_no_memory_and_what_is_computed_is_real(self):
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(4, 4)
                self.large = torch.nn.Parameter(torch.zeros(1 << 19))
                self.held = [self.large]
                self.register_buffer("table", torch.arange(8.0).cos())

        with WeightsOnMeta("cpu"):
            model = Model()
        self.assertTrue(model.linear.weight.is_meta and model.large.is_meta)
        self.assertIs(model.held[0], model.large)
        self.assertEqual(model.table[0].item(), 1.0)
        self.assertFalse(torch.nn.Linear(2, 2).weight.is_meta)

    def test_finds_what_is_left_wherever_it_is(self):
        class Holder:
            pass

        model, holder, lost = torch.nn.Module(), Holder(), torch.empty(2, device="meta")
        holder.inside = {"a": [torch.zeros(1), torch.empty(2, device="meta")]}
        model.helper, model.call = holder, lambda: lost
        self.assertEqual(left_on_meta(model), ["call", "helper.inside['a'][1]"])
        del model.helper
        self.assertEqual(left_on_meta(model), ["call"])
        del model.call
        self.assertEqual(left_on_meta(model), [])

    def test_looks_into_all_that_can_hold_a_tensor(self):
        def lost():
            return torch.empty(2, device="meta")

        class Helper:
            def __init__(self):
                self.held, self.me = lost(), self

            def call(self):
                return self.held

        model, inner = torch.nn.Module(), torch.nn.Module()
        inner.register_buffer("table", lost())
        inner.plain = collections.OrderedDict(first=lost())
        model.inner, model.twice, model.empty = inner, inner, {"a": [], "b": ()}
        model.names = ("one", {lost()})
        model.method = Helper().call
        model.partial = functools.partial(print, lost(), end=lost())
        self.assertEqual(
            left_on_meta(model),
            [
                "inner.plain['first']", "inner.table", "method.held", "names[1][0]", "partial['end']", "partial[0]",
            ],
        )  # fmt: skip


if __name__ == "__main__":
    unittest.main()
