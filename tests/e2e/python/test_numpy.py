# SPDX-License-Identifier: Apache-2.0
"""Zero-copy NumPy arrays."""

import time
import unittest

import numpy

from with_daemon import WithDaemon

W = numpy.arange(0x3F80, 0x3F80 + 15, dtype=numpy.uint16).reshape(3, 5)


class Arrays(WithDaemon):
    def test_show_the_bytes_in_place(self):
        with self.attach() as shard:
            w = shard["w"].numpy()
            self.assertEqual(w.dtype, numpy.uint16)
            numpy.testing.assert_array_equal(w, W)
            self.assertEqual(w.ctypes.data, shard["w"].data_ptr)
            self.assertTrue(numpy.shares_memory(w, shard["tied"].numpy()))

    def test_are_read_only_unless_private(self):
        with self.attach() as shard, self.attach() as other:
            with self.assertRaises(ValueError):
                shard["w"].numpy()[0, 0] = 1
            with self.assertRaises(ValueError):
                shard["w"].numpy().setflags(write=True)
            scale = shard["scale"].numpy()
            numpy.testing.assert_array_equal(scale, numpy.float32([1, 2]))
            scale[0] = 42
            numpy.testing.assert_array_equal(shard["scale"].numpy(), numpy.float32([42, 2]))
            numpy.testing.assert_array_equal(other["scale"].numpy(), numpy.float32([1, 2]))

    def test_keep_scalars_empties_and_strides(self):
        with self.attach() as shard:
            scalar = shard["scalar"].numpy()
            self.assertEqual((scalar.shape, float(scalar)), ((), 3.5))
            self.assertEqual(shard["empty"].numpy().shape, (0, 4))
            strided = shard["strided"].numpy()
            self.assertEqual(strided.strides, (4, 16))
            expected = numpy.add.outer(10 * numpy.arange(4), numpy.arange(3))
            numpy.testing.assert_array_equal(strided, expected)

    def test_have_numpys_type_or_raw_bits(self):
        expected = {
            "BOOL": "bool", "U8": "uint8", "I8": "int8", "F8_E5M2": "uint8", "F8_E4M3": "uint8",
            "F8_E8M0": "uint8", "F8_E4M3FNUZ": "uint8", "F8_E5M2FNUZ": "uint8", "I16": "int16",
            "U16": "uint16", "F16": "float16", "BF16": "uint16", "I32": "int32", "U32": "uint32",
            "F32": "float32", "F64": "float64", "I64": "int64", "U64": "uint64",
            "C64": "complex64",
        }  # fmt: skip
        with self.attach() as shard:
            for name, dtype in expected.items():
                array = shard["dtype." + name].numpy()
                self.assertEqual((name, array.dtype, array.shape), (name, numpy.dtype(dtype), (2, 4)))
                if name != "BOOL":
                    raw = numpy.arange(16, 16 + array.nbytes, dtype=numpy.uint8)
                    numpy.testing.assert_array_equal(array.view(numpy.uint8).ravel(), raw)
            self.assertEqual(shard["dtype.F4"].numpy().shape, (2, 2))
            self.assertEqual(shard["dtype.F6_E2M3"].numpy().shape, (2, 3))

    def test_come_through_dlpack_too(self):
        with self.attach() as shard:
            self.assertEqual(shard["scalar"].__dlpack_device__(), (1, 0))
            for name in ("strided", "scalar", "dtype.I32", "dtype.U8", "dtype.F16", "empty"):
                numpy.testing.assert_array_equal(
                    numpy.from_dlpack(shard[name]), shard[name].numpy()
                )
            with self.assertRaises(BufferError):
                shard["dtype.F4"].__dlpack__()
            with self.assertRaises(BufferError):
                shard["w"].__dlpack__(copy=True)
            with self.assertRaises(BufferError):
                shard["w"].__dlpack__(dl_device=(2, 0))


class ArrayLifetimes(WithDaemon):
    def test_an_array_keeps_it_mapped_after_detach(self):
        for take in (lambda t: t.numpy(), lambda t: numpy.from_dlpack(t)):
            shard = self.attach()
            array = take(shard["strided"])[1:]
            shard.detach()
            del shard
            self.assertEqual(self.mappings(), 2)
            self.assertEqual(array[0, 1], 11)
            del array
            self.assertEqual(self.mappings(), 0)


class ManyTensors(WithDaemon):
    arguments = ("--many", "1000")

    def test_come_quickly(self):
        self.attach().detach()
        best = min(self.time_of_all() for _ in range(5))
        print(f"1000 tensors: attach to the last array in {best * 1000:.1f} ms")
        self.assertLess(best, 0.5)  # a bound for loaded machines; the bench has the figure

    def time_of_all(self):
        start = time.perf_counter()
        with self.attach() as shard:
            arrays = {name: tensor.numpy() for name, tensor in shard.items()}
            elapsed = time.perf_counter() - start
        self.assertEqual(len(arrays), 1000)
        self.assertEqual(int(arrays["model.layers.7.self_attn.qkv_proj.weight"][0, 0]), 0x0707)
        return elapsed


if __name__ == "__main__":
    unittest.main()
