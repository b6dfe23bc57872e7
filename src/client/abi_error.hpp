// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "preload/client.h"

namespace preload::client {

// Runs `body`; what it throws becomes a status, and text and fields of this thread's last error.
// Clears both first.
preload_status guarded(const std::function<void()>& body) noexcept;

// No tensor of that name.
class NotFound : public std::exception {
 public:
  explicit NotFound(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

const char* last_error_text() noexcept;
const char* last_error_fields() noexcept;

}  // namespace preload::client
