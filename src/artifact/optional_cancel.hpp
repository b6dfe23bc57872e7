// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/cancel.hpp"

namespace preload::artifact {

// For work on GiBs, by callers some of whom nothing stops. Throws Cancelled.
inline void check_cancel(const Cancel* cancel) {
  if (cancel != nullptr) cancel->check();
}

}  // namespace preload::artifact
