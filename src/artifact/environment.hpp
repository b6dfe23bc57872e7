// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

namespace preload::artifact {

// What an artifact was made under, by field; what is not known is not there. Usual fields: "gpu"
// (the name), "compute_capability" (9.0), "driver", "cuda", "nccl", "cudnn", "flashinfer"
// (versions as their makers write them).
using Environment = std::map<std::string, std::string>;

// The value of a field that decides and that nothing tells. It equals nothing, itself included.
inline constexpr const char* kUnknown = "unknown";
bool is_known(const Environment& environment);  // no field is kUnknown

// "driver 570.86 (580.95 here), nccl 2.28.3 (unknown here)"; empty when both are the same. A field
// that one side alone knows differs, and so does one that neither knows: it cannot be relied on.
std::string differences(const Environment& stored, const Environment& here);

// SHA-256 of the canonical JSON, 64 digits.
std::string environment_digest(const Environment& environment);

}  // namespace preload::artifact
