# SPDX-License-Identifier: Apache-2.0
"""Models whose weights are shared refuse to write to them; skipped without torch."""

import copy
import io
import os
import pickle
import tempfile
import unittest

from optional_torch import TORCH_DEVICE, needs_torch, torch
from with_daemon import WithDaemon

if torch is not None:
    import preload
    from preload._assign import assign
try:
    import peft
except ImportError:
    peft = None

WRITES = {
    "a method": lambda w: w.add_(1),
    "a method of data": lambda w: w.data.mul_(2),
    "an operator on data": lambda w: w.data.__iadd__(1),
    "a part": lambda w: w.__setitem__(0, 0),
    "a part of data": lambda w: w.data.__setitem__(0, 0),
    "an initializer": lambda w: torch.nn.init.normal_(w),
    "a copy": lambda w: w.copy_(torch.zeros_like(w)),
    "new gradients": lambda w: w.requires_grad_(),
    "gradients by name": lambda w: setattr(w, "requires_grad", True),
}


@needs_torch
class Guard(WithDaemon):
    """A linear layer around the fixture's ``strided``, 4 x 3, element (i, j) is 10 i + j."""

    def linear(self, **options):
        shard = self.attach(**options)
        layer = torch.nn.Linear(3, 4, bias=False, device="meta")
        assign(layer, {"weight": shard["strided"].torch()}, read_only=shard.shared_ranges())
        return layer

    def test_refuses_every_write_by_the_tensors_name(self):
        layer = self.linear()
        before = layer.weight.detach().clone()
        for what, write in WRITES.items():
            with self.subTest(what), self.assertRaises(preload.Unsupported) as caught:
                write(layer.weight)
            self.assertRegex(str(caught.exception), "write to weight, .*copy=True")
        with self.assertRaisesRegex(RuntimeError, "write to weight"):
            layer.load_state_dict({"weight": torch.zeros(4, 3, device=TORCH_DEVICE)})
        self.assertTrue(torch.equal(layer.weight, before))

    def test_refuses_every_initializer_but_those_that_documentation_names(self):
        arguments = {
            "constant_": (1,),
            "sparse_": (0.5,),
        }
        layer = self.linear()
        names = {name for name in vars(torch.nn.init) if name.endswith("_") and name[0] != "_"}
        self.assertGreater(len(names), 10)
        for name in sorted(names - {"dirac_", "eye_", "orthogonal_"}):  # dirac_ is for three dimensions or more
            with self.subTest(name), self.assertRaisesRegex(preload.Unsupported, "write to weight"):
                getattr(torch.nn.init, name)(layer.weight, *arguments.get(name, ()))

    @unittest.skipUnless(torch is not None and torch.distributed.is_available(), "torch has no torch.distributed")
    def test_data_parallelism_is_refused_unless_it_leaves_the_weights_alone(self):
        """With an adapter that trains beside them, as PEFT has it."""
        ddp, scratch = torch.nn.parallel.DistributedDataParallel, tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        store = torch.distributed.FileStore(os.path.join(scratch.name, "store"), 1)
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        self.addCleanup(torch.distributed.destroy_process_group)
        module = torch.nn.Sequential(self.linear(), torch.nn.Linear(4, 2, device=TORCH_DEVICE))
        with self.assertRaisesRegex(preload.Unsupported, "would write to 0.weight.*copy=True"):
            ddp(module)
        ddp._set_params_and_buffers_to_ignore_for_model(module, ["0.weight"])
        wrapped = ddp(module)
        wrapped(torch.ones(1, 3, device=TORCH_DEVICE)).sum().backward()
        self.assertIsNotNone(module[1].weight.grad)
        copied = torch.nn.Sequential(torch.nn.Linear(3, 4, device=TORCH_DEVICE))
        self.assertIsNotNone(ddp(copied))

    def test_reads_as_ever(self):
        layer = self.linear()
        self.assertEqual(layer(torch.ones(3, device=TORCH_DEVICE)).tolist(), [3, 33, 63, 93])
        x = torch.ones(3, requires_grad=True, device=TORCH_DEVICE)  # as an adapter beside it trains
        layer(x).sum().backward()
        self.assertEqual(x.grad.tolist(), [60, 64, 68])
        compiled = torch.compile(layer, fullgraph=True, backend="eager")
        self.assertEqual(compiled(torch.ones(3, device=TORCH_DEVICE)).tolist(), [3, 33, 63, 93])

    def test_copies_are_ordinary_and_writable(self):
        layer = self.linear()
        saved = io.BytesIO()
        torch.save(layer.weight, saved)
        saved.seek(0)
        copies = [
            copy.deepcopy(layer).weight,
            pickle.loads(pickle.dumps(layer.weight)),
            torch.load(saved, weights_only=False),
            copy.deepcopy(layer).to(torch.float64).weight,
            type(layer.weight)(layer.weight.detach().clone(), requires_grad=False),
        ]
        for weight in copies:
            self.assertIs(type(weight), torch.nn.Parameter)
            self.assertTrue(torch.equal(weight.float(), layer.weight))
            weight.add_(1)
        self.assertFalse(torch.equal(copies[0], layer.weight))

    def test_is_off_once_a_parameter_has_memory_of_its_own(self):
        layer = self.linear()
        layer.weight.data = layer.weight.data.clone()
        layer.weight.add_(1)
        self.assertEqual(layer.weight[0].tolist(), [1, 2, 3])

    def test_is_not_for_copies_and_private_tensors(self):
        shard = self.attach()
        module = torch.nn.Module()
        module.scale = torch.nn.Parameter(torch.empty(2, device="meta"), False)
        assign(module, {"scale": shard["scale"].torch()}, read_only=shard.shared_ranges())
        module.scale.fill_(7)
        self.assertEqual(module.scale.tolist(), [7, 7])
        layer = self.linear(copy=True)
        self.assertIs(type(layer.weight), torch.nn.Parameter)
        layer.weight.zero_()

    def test_holds_for_loaded_buffers_too(self):
        shard = self.attach()
        module = torch.nn.Module()
        module.register_buffer("strided", torch.empty(4, 3, device="meta"))
        assign(module, {"strided": shard["strided"].torch()}, read_only=shard.shared_ranges())
        with self.assertRaisesRegex(preload.Unsupported, "strided"):
            module.strided.zero_()
        with self.assertRaisesRegex(preload.Unsupported, "strided"):
            module.strided.data.zero_()
        self.assertIs(type(copy.deepcopy(module).strided), torch.Tensor)

    def test_a_merge_in_place_is_refused_and_a_safe_one_is_not(self):
        """As adapters' layers merge."""
        layer, delta = self.linear(), torch.ones(4, 3, device=TORCH_DEVICE)
        with self.assertRaises(preload.Unsupported):
            layer.weight.data += delta
        merged = layer.weight.data.clone()
        merged += delta
        layer.weight.data = merged
        layer.weight.data -= delta
        self.assertEqual(layer(torch.ones(3, device=TORCH_DEVICE)).tolist(), [3, 33, 63, 93])

    @unittest.skipIf(peft is None, "peft is not installed here")
    def test_peft_merges_safely_or_not_at_all(self):
        config = {"target_modules": ["layer"], "r": 2, "init_lora_weights": False}
        for name in ("merge_adapter", "merge_and_unload"):
            module = torch.nn.Sequential()
            module.layer = self.linear()
            adapted = peft.get_peft_model(module, peft.LoraConfig(**config))
            with self.subTest(name), torch.no_grad():
                expected = adapted(torch.ones(1, 3, device=TORCH_DEVICE))
                with self.assertRaisesRegex(preload.Unsupported, "safe_merge"):
                    getattr(adapted, name)()
                self.assertTrue(torch.equal(adapted(torch.ones(1, 3, device=TORCH_DEVICE)), expected))
                merged = getattr(adapted, name)(safe_merge=True) or adapted
                torch.testing.assert_close(merged(torch.ones(1, 3, device=TORCH_DEVICE)), expected)


if __name__ == "__main__":
    unittest.main()
