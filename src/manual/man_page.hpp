// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace preload::manual {

// "preload-plan" for "plan", "preload" for "".
std::string page_name(std::string_view command);

// The manual page of a command, or of preload itself for "", as man(1) reads it. `date` is ISO
// 8601.
std::string man_page(std::string_view command, std::string_view date);

}  // namespace preload::manual
