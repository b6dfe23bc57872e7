# SPDX-License-Identifier: Apache-2.0
"""Zero-copy torch tensors, on host or GPU memory; skipped where there is no torch."""

import time
import unittest

from optional_torch import TORCH_DEVICE, needs_torch, torch
from with_daemon import WithDaemon

if torch is not None:
    import preload



@needs_torch
class TorchTensors(WithDaemon):
    def test_are_on_the_daemons_device(self):
        with self.attach() as shard:
            memory = "host" if TORCH_DEVICE == "cpu" else "cuda"
            self.assertEqual((shard.info.memory, shard.memory_bytes), (memory, 4 << 20))
            for name in ("w", "scalar", "empty", "strided", "scale"):
                self.assertEqual(shard[name].torch().device, torch.device(TORCH_DEVICE))

    def test_show_the_bytes_in_place(self):
        with self.attach() as shard:
            w = shard["w"].torch()
            self.assertEqual((w.dtype, tuple(w.shape)), (torch.bfloat16, (3, 5)))
            self.assertEqual(w.data_ptr(), shard["w"].data_ptr)
            bits = torch.arange(0x3F80, 0x3F80 + 15, dtype=torch.int16, device=TORCH_DEVICE).reshape(3, 5)
            self.assertTrue(torch.equal(w.view(torch.int16), bits))

    def test_are_one_object_for_all_names(self):
        with self.attach() as shard:
            self.assertIs(shard["tied"].torch(), shard["w"].torch())
            self.assertIs(shard["strided"].torch(), shard["strided"].torch())

    def test_keep_scalars_empties_and_strides(self):
        with self.attach() as shard:
            self.assertEqual(shard["scalar"].torch().item(), 3.5)
            self.assertEqual(tuple(shard["empty"].torch().shape), (0, 4))
            strided = shard["strided"].torch()
            self.assertEqual(strided.stride(), (1, 4))
            expected = 10 * torch.arange(4.0)[:, None] + torch.arange(3.0)
            self.assertTrue(torch.equal(strided, expected.to(TORCH_DEVICE)))

    def test_have_torchs_types(self):
        names = {"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "BF16": "bfloat16",
                 "BOOL": "bool", "I64": "int64", "F16": "float16", "C64": "complex64"}  # fmt: skip
        with self.attach() as shard:
            for name, dtype in names.items():
                tensor = shard["dtype." + name].torch()
                self.assertEqual((tensor.dtype, tuple(tensor.shape)), (getattr(torch, dtype), (2, 4)))
            with self.assertRaises(TypeError):
                shard["dtype.F6_E2M3"].torch()

    def test_private_ones_are_writable(self):
        with self.attach() as shard, self.attach() as other:
            shard["scale"].torch()[0] = 42
            self.assertEqual(shard["scale"].torch().tolist(), [42, 2])
            self.assertEqual(other["scale"].torch().tolist(), [1, 2])

    def test_of_a_copy_are_writable_and_nobody_elses(self):
        with self.attach() as other:
            with self.attach(copy=True) as shard:
                self.assertTrue(shard.info.is_copy)
                self.assertEqual(shard.shared_ranges(), [])
                w, strided = shard["w"].torch(), shard["strided"].torch()
                w.zero_()
                strided.add_(1)
                self.assertEqual(shard["tied"].torch().count_nonzero().item(), 0)
                self.assertEqual((strided[1, 2].item(), strided.stride()), (13, (1, 4)))
            self.assertEqual(other["w"].torch().count_nonzero().item(), 15)
            self.assertEqual(other["strided"].torch()[1, 2].item(), 12)
            with self.assertRaises(preload.Released):  # a copy asks for that
                self.attach()

    @staticmethod
    def addresses(shard):
        return [shard[name].torch().data_ptr() for name in ("w", "tied", "scalar", "strided", "dtype.I64")]

    def test_lie_where_an_earlier_attachment_had_them(self):
        with self.attach() as shard:
            base, addresses = shard.info.base_address, self.addresses(shard)
        with self.attach(base_address=base) as shard:
            self.assertEqual(self.addresses(shard), addresses)
            self.assertEqual(shard["strided"].torch()[1, 2].item(), 12)
            with self.assertRaises(preload.DeviceError):
                self.attach(base_address=base)

    def test_come_through_dlpack_too(self):
        with self.attach() as shard:
            for name in ("w", "strided", "scalar", "dtype.F8_E4M3", "dtype.BOOL"):
                tensor = torch.from_dlpack(shard[name])
                self.assertEqual(tensor.dtype, shard[name].torch().dtype)
                self.assertEqual(tensor.data_ptr(), shard[name].data_ptr)

    def test_outlive_detach(self):
        shard = self.attach()
        strided = shard["strided"].torch()[1:]
        shard.detach()
        del shard
        self.assertEqual(strided[0, 1].item(), 11)

    def test_become_parameters(self):
        with self.attach() as shard:
            linear = torch.nn.Linear(3, 4, bias=False, device="meta")
            linear.weight = torch.nn.Parameter(shard["strided"].torch(), requires_grad=False)
            ones = linear(torch.ones(3, device=TORCH_DEVICE))
            self.assertEqual(ones.tolist(), [3, 33, 63, 93])


@needs_torch
class ManyTorchTensors(WithDaemon):
    arguments = ("--many", "1000")

    def test_come_quickly(self):
        self.attach().torch()
        best = min(self.time_of_all() for _ in range(5))
        print(f"1000 tensors: attach to the last torch tensor in {best * 1000:.1f} ms")
        self.assertLess(best, 0.5)  # a bound for loaded machines; the bench has the figure

    def time_of_all(self):
        start = time.perf_counter()
        with self.attach() as shard:
            tensors = shard.torch()
            elapsed = time.perf_counter() - start
        self.assertEqual(len(tensors), 1000)
        return elapsed


if __name__ == "__main__":
    unittest.main()
