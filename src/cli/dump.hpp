// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "client/attachment.hpp"

namespace preload::cli {

// Writes every tensor of the attachment to `directory`/`name` as one safetensors file: contiguous,
// each name with bytes of its own, aliases too. The directory is made; the file appears whole or
// not at all.
void dump_safetensors(const client::Attachment& attachment, const std::string& directory,
                      const std::string& name);

}  // namespace preload::cli
