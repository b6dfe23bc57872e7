// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "doctor/check.hpp"
#include "doctor/variables.hpp"

namespace preload::doctor {

// Where receipts and tunings are kept: it can be written, or nothing is remembered.
Check check_cache(const Variables& variables);
// $TMPDIR as engines use it: there, writable, and short enough for the names of their sockets.
Check check_tmpdir(const Variables& variables);
// $LD_LIBRARY_PATH: no stub of the driver before the driver, no list that makes each start slow.
Check check_library_path(const Variables& variables);

}  // namespace preload::doctor
