// SPDX-License-Identifier: Apache-2.0
#include "hash.hpp"
#include "load/device_sums.cuh"
#include "load/load_job.hpp"
#include "memory/device.hpp"
#include "plan/served_rows.hpp"

namespace preload {

std::vector<Hash128> hash_device_tensors(const LoadWork& work,
                                         const std::vector<std::uint32_t>& tensors, int device,
                                         const Cancel& cancel) {
  set_device(device);
  DeviceSums sums(tensors.size(), 0);
  const Stream stream = make_stream();
  sums.clear(stream.get());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    cancel.check();
    const std::byte* const data = work.address(tensors[i]);
    for_each_served_rows(work.program.tensors[tensors[i]], [&](const ServedRows& rows) {
      check_launch(kernels::hash_rows({data + rows.memory_offset, rows.rows, rows.row_bytes,
                                       rows.memory_stride, rows.index_offset, rows.index_stride},
                                      sums.source(i), stream.get()),
                   "hashing on the GPU");
    });
  }
  return sums.download(stream.get()).source;
}

}  // namespace preload
