// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <set>

namespace preload::hook {

// Should a supervisor itself be killed, by the kernel for want of memory say, what it looked after
// becomes a child of this process as long as this lives, and not of init, where nobody would end
// it.
class Orphans {
 public:
  Orphans();
  ~Orphans();
  Orphans(const Orphans&) = delete;
  Orphans& operator=(const Orphans&) = delete;

  // Ends and reaps every process below this one that was not there before. Bounded in time: what
  // hangs in a driver cannot be ended by anybody.
  void end() noexcept;

 private:
  int adopted_before_ = 0;  // as prctl has it
  std::set<pid_t> before_;
};

}  // namespace preload::hook
