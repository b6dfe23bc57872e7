// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "checkpoint/dtype.hpp"

namespace preload::client {

// The DLPack ABI (version 1.1), as far as it is handed out.
namespace dl {
struct DataType {
  std::uint8_t code = 0;
  std::uint8_t bits = 0;
  std::uint16_t lanes = 1;
};
struct Tensor {
  void* data = nullptr;
  std::int32_t device_type = 0;  // 1: CPU, 2: CUDA
  std::int32_t device_id = 0;
  std::int32_t ndim = 0;
  DataType dtype;
  std::int64_t* shape = nullptr;
  std::int64_t* strides = nullptr;
  std::uint64_t byte_offset = 0;
};
struct ManagedTensor {
  Tensor tensor;
  void* context = nullptr;
  void (*deleter)(ManagedTensor*) = nullptr;
};
struct ManagedTensorVersioned {
  std::uint32_t major = 1;
  std::uint32_t minor = 1;
  void* context = nullptr;
  void (*deleter)(ManagedTensorVersioned*) = nullptr;
  std::uint64_t flags = 0;  // bit 0: read-only
  Tensor tensor;
};
}  // namespace dl

// Nothing for types that DLPack can only express packed.
std::optional<dl::DataType> dlpack_type(DType dtype) noexcept;

// What a view shows; `release` runs once, when its consumer is done with it.
struct DlpackView {
  void* data = nullptr;
  bool read_only = true;
  std::optional<int> cuda_ordinal;  // unset: host memory
  dl::DataType dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // elements
  std::function<void()> release;
};

// A ManagedTensor or ManagedTensorVersioned that its deleter frees.
void* make_dlpack(DlpackView view, bool versioned);
void free_dlpack(void* managed, bool versioned);

}  // namespace preload::client
