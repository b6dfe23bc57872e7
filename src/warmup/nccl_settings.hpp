// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace preload::warmup {

// Files in which NCCL looks for variables, in its order: $NCCL_CONF_FILE or else ~/.nccl.conf of
// the user's entry in the password database, then /etc/nccl.conf.
std::vector<std::filesystem::path> nccl_conf_files();

// Variables NCCL_… as NCCL has them: those of this process's environment, and of the files those
// that are not set before. NCCL writes them into the environment at its first use, which changes
// nothing here. A file that cannot be read has none.
std::map<std::string, std::string> nccl_settings(
    const std::vector<std::filesystem::path>& files = nccl_conf_files());

}  // namespace preload::warmup
