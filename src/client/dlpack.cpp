// SPDX-License-Identifier: Apache-2.0
#include "client/dlpack.hpp"

#include <memory>
#include <utility>

namespace preload::client {
namespace {

constexpr std::int32_t kCpu = 1;
constexpr std::int32_t kCuda = 2;
constexpr std::uint64_t kReadOnlyFlag = 1;

// The managed tensor and what its pointers point to, in one allocation.
template <class Managed>
struct Holder {
  Managed managed;
  DlpackView view;
};

template <class Managed>
Managed* hold(DlpackView view) {
  auto holder = std::make_unique<Holder<Managed>>();
  holder->view = std::move(view);
  dl::Tensor& tensor = holder->managed.tensor;
  tensor.data = holder->view.data;
  tensor.device_type = holder->view.cuda_ordinal ? kCuda : kCpu;
  tensor.device_id = holder->view.cuda_ordinal.value_or(0);
  tensor.ndim = static_cast<std::int32_t>(holder->view.shape.size());
  tensor.dtype = holder->view.dtype;
  tensor.shape = holder->view.shape.data();
  tensor.strides = holder->view.strides.data();
  holder->managed.context = holder.get();
  holder->managed.deleter = [](Managed* managed) {
    const std::unique_ptr<Holder<Managed>> owned(static_cast<Holder<Managed>*>(managed->context));
    owned->view.release();
  };
  return &holder.release()->managed;
}

}  // namespace

std::optional<dl::DataType> dlpack_type(DType dtype) noexcept {
  const auto type = [dtype](std::uint8_t code) {
    return dl::DataType{code, static_cast<std::uint8_t>(dtype_bits(dtype)), 1};
  };
  switch (dtype) {
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
      return type(0);
    case DType::kU8:
    case DType::kU16:
    case DType::kU32:
    case DType::kU64:
      return type(1);
    case DType::kF16:
    case DType::kF32:
    case DType::kF64:
      return type(2);
    case DType::kBF16:
      return type(4);
    case DType::kC64:
      return type(5);
    case DType::kBool:
      return type(6);
    case DType::kF8E4M3:
      return type(10);
    case DType::kF8E4M3Fnuz:
      return type(11);
    case DType::kF8E5M2:
      return type(12);
    case DType::kF8E5M2Fnuz:
      return type(13);
    case DType::kF8E8M0:
      return type(14);
    case DType::kF4:
    case DType::kF6E2M3:
    case DType::kF6E3M2:
      return std::nullopt;
  }
  return std::nullopt;
}

void* make_dlpack(DlpackView view, bool versioned) {
  if (!versioned) return hold<dl::ManagedTensor>(std::move(view));
  const bool read_only = view.read_only;
  dl::ManagedTensorVersioned* managed = hold<dl::ManagedTensorVersioned>(std::move(view));
  managed->flags = read_only ? kReadOnlyFlag : 0;
  return managed;
}

void free_dlpack(void* managed, bool versioned) {
  if (managed == nullptr) return;
  if (versioned) {
    auto* tensor = static_cast<dl::ManagedTensorVersioned*>(managed);
    tensor->deleter(tensor);
  } else {
    auto* tensor = static_cast<dl::ManagedTensor*>(managed);
    tensor->deleter(tensor);
  }
}

}  // namespace preload::client
