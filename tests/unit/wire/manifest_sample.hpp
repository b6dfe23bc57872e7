// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "wire/manifest.hpp"

namespace preload::wire {

// A shard with everything that a manifest must carry: shared and private slabs, a strided view, an
// alias, a scalar, a tensor without elements and a sub-byte type.
inline std::vector<ManifestSlab> sample_slabs() {
  return {{4096, TensorClass::kShared}, {1024, TensorClass::kPrivate}};
}

inline std::vector<ManifestTensor> sample_tensors() {
  std::vector<ManifestTensor> t(6);
  t[0].name = "model.embed_tokens.weight";
  t[0].dtype = DType::kBF16;
  t[0].shape = {8, 16};
  t[0].strides = {16, 1};
  t[0].bytes = 256;
  t[0].hash = {0x0123456789abcdefULL, 0xfedcba9876543210ULL};
  t[1] = t[0];
  t[1].name = "lm_head.weight";
  t[1].alias = 0;
  t[2].name = "transposed";
  t[2].dtype = DType::kF32;
  t[2].shape = {3, 5};
  t[2].strides = {1, 3};
  t[2].offset = 512;
  t[2].bytes = 60;
  t[3].name = "k_scale";
  t[3].dtype = DType::kF32;
  t[3].slab = 1;
  t[3].offset = 512;
  t[3].bytes = 4;
  t[3].cls = TensorClass::kPrivate;
  t[4].name = "empty";
  t[4].dtype = DType::kI64;
  t[4].shape = {0, 4};
  t[4].strides = {4, 1};
  t[4].offset = 1024;
  t[4].kind = TensorKind::kBuffer;
  t[5].name = "packed";
  t[5].dtype = DType::kF4;
  t[5].shape = {9};
  t[5].strides = {1};
  t[5].offset = 4091;
  t[5].bytes = 5;
  return t;
}

inline std::string sample_manifest() {
  return encode_manifest(sample_slabs(), sample_tensors(), R"({"layout":"hf"})");
}

}  // namespace preload::wire
