// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

namespace preload {

// Owns one handle. Traits: `using Handle`, `static Handle null() noexcept`, `static void
// close(Handle) noexcept`.
template <class Traits>
class Unique {
 public:
  using Handle = typename Traits::Handle;

  Unique() noexcept : handle_(Traits::null()) {}
  explicit Unique(Handle handle) noexcept : handle_(handle) {}
  Unique(Unique&& other) noexcept : handle_(other.release()) {}
  Unique& operator=(Unique&& other) noexcept {
    reset(other.release());
    return *this;
  }
  Unique(const Unique&) = delete;
  Unique& operator=(const Unique&) = delete;
  ~Unique() { reset(); }

  Handle get() const noexcept { return handle_; }
  explicit operator bool() const noexcept { return handle_ != Traits::null(); }
  Handle release() noexcept { return std::exchange(handle_, Traits::null()); }
  void reset(Handle handle = Traits::null()) noexcept {
    Handle old = std::exchange(handle_, handle);
    if (old != Traits::null()) Traits::close(old);
  }

 private:
  Handle handle_;
};

}  // namespace preload
