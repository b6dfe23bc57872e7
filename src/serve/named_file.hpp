// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "serve/socket_dir.hpp"

namespace preload {

// Whether `name` in the directory is the very file behind `fd`; a lock on one that lost its name
// locks nobody out. False for no descriptor.
bool is_named(const SocketDir& directory, const std::string& name, int fd) noexcept;

}  // namespace preload
