// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>

namespace preload::artifact {

// A forked process that does `work` and exits with what it returns; killed and reaped at the latest
// with this object.
class Child {
 public:
  explicit Child(const std::function<int()>& work);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  int wait();  // its exit status, or 128 + the signal that ended it
  void kill();

 private:
  pid_t pid_;
};

// Until `holds` or a minute is over; whether it did.
bool wait_until(const std::function<bool()>& holds);

}  // namespace preload::artifact
