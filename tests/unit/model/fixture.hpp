// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "model/copy_program.hpp"

namespace preload::test {

using Bytes = std::vector<std::byte>;

// The bytes of a stored tensor by the rule of tests/support/layout_checkpoint.py.
Bytes rule_bytes(const SourceTensor& tensor);

// A checkpoint of tests/fixtures/families.json or families_more.json, with the offsets that
// layout_checkpoint.py gives its tensors; nothing is written to disk.
Checkpoint fixture_checkpoint(const std::string& family);

// A checkpoint of `tensors` in one file, offsets assigned in order.
struct Stored {
  std::string name;
  DType dtype;
  Dims shape;
};
Checkpoint make_checkpoint(const std::string& config_json, const std::vector<Stored>& tensors);

// Config and stored tensors of a Llama of any size; `tied` leaves lm_head out.
struct LlamaSize {
  int layers = 2;
  int hidden = 32;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 8;
  int intermediate = 48;
  int vocab = 100;
  bool tied = false;
};
std::string llama_config(const LlamaSize& size);
std::vector<Stored> llama_tensors(const LlamaSize& size);
Checkpoint llama_checkpoint(const LlamaSize& size);

// Has the config's quantization_config name a module in one of its lists.
void leave_as_float(Checkpoint& checkpoint, const std::string& list, const std::string& module);

// Executes a program on rule_bytes, element by element: the row-major bytes of every tensor.
std::vector<Bytes> execute(const CopyProgram& program, const Checkpoint& checkpoint);

const TargetTensor& tensor_named(const CopyProgram& program, std::string_view name);

}  // namespace preload::test
