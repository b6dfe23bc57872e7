// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "preload/client.h"

// RAII over the C ABI of client.h, header only.
namespace preload {

// A call that failed. The text names the thing and the remedy.
class ClientError : public std::exception {
 public:
  ClientError(preload_status status, std::string text) : status_(status), text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }
  preload_status status() const noexcept { return status_; }

 private:
  preload_status status_;
  std::string text_;
};

namespace detail {
inline void check(preload_status status) {
  if (status != PRELOAD_OK) throw ClientError(status, preload_last_error());
}
template <class Struct>
Struct sized() {
  Struct value{};
  value.struct_size = sizeof(Struct);
  return value;
}
}  // namespace detail

// One tensor as it lies in this process: a view, valid as long as its Attachment.
class Tensor {
 public:
  explicit Tensor(const preload_tensor& tensor) : tensor_(tensor) {}

  std::string_view name() const noexcept { return tensor_.name; }
  std::string_view dtype() const noexcept { return tensor_.dtype; }  // "BF16", "F8_E4M3", …
  std::span<const std::int64_t> shape() const noexcept { return {tensor_.shape, tensor_.ndim}; }
  std::span<const std::int64_t> strides() const noexcept {  // elements
    return {tensor_.strides, tensor_.ndim};
  }
  // First element: an address of host or of device memory. Read-only unless private.
  const std::byte* data() const noexcept { return static_cast<const std::byte*>(tensor_.data); }
  std::byte* private_data() const noexcept {  // nullptr for a shared tensor
    return is_private() ? static_cast<std::byte*>(tensor_.data) : nullptr;
  }
  std::uint64_t bytes() const noexcept { return tensor_.bytes; }  // of the extent
  // The extent; to be read by the CPU on host memory only.
  std::span<const std::byte> extent() const noexcept { return {data(), tensor_.bytes}; }
  bool is_buffer() const noexcept { return tensor_.is_buffer != 0; }
  bool is_private() const noexcept { return tensor_.is_private != 0; }
  std::optional<std::uint64_t> alias_of() const noexcept {
    if (tensor_.alias_of < 0) return std::nullopt;
    return static_cast<std::uint64_t>(tensor_.alias_of);
  }
  std::string_view hash() const noexcept { return tensor_.hash; }
  const preload_tensor& raw() const noexcept { return tensor_; }

 private:
  preload_tensor tensor_;
};

struct AttachOptions {
  std::string socket_dir;             // empty: $PRELOAD_SOCKET_DIR, else /tmp/preload-<uid>
  std::optional<std::string> device;  // GPU UUID, CUDA index or "host:N"; unset: the only daemon
  std::string slot;
  std::string role;  // empty: the target
  std::string expect_json;
  std::string client_name;
  std::chrono::milliseconds connect_timeout{5000};
  std::chrono::milliseconds wait{0};  // for a daemon that is loading or not there yet
  bool copy = false;                  // see PRELOAD_MODE_COPY
  std::uint64_t base_address = 0;     // of all slabs as one range; 0: anywhere
  std::string socket_path;            // instead of socket_dir: this very socket
  // For a daemon of which there is no sign, instead of `wait`; see absent_timeout_ms.
  std::optional<std::chrono::milliseconds> absent_wait;
  std::string allow_uids;  // users whose daemons are trusted, too: "990" or "990,1000"
};

namespace detail {
inline const char* text_or_null(const std::string& text) noexcept {
  return text.empty() ? nullptr : text.c_str();
}
// The C ABI counts up to 24.8 days; a longer wait is that long.
inline std::int32_t c_milliseconds(std::chrono::milliseconds wait) noexcept {
  using Limits = std::numeric_limits<std::int32_t>;
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(wait.count(), Limits::min(), Limits::max()));
}
// Points into `options`.
inline preload_attach_options c_options(const AttachOptions& options) {
  auto c = sized<preload_attach_options>();
  c.socket_dir = text_or_null(options.socket_dir);
  c.socket_path = text_or_null(options.socket_path);
  c.device = options.device ? options.device->c_str() : nullptr;
  c.slot = text_or_null(options.slot);
  c.role = text_or_null(options.role);
  c.expect_json = text_or_null(options.expect_json);
  c.client_name = text_or_null(options.client_name);
  c.connect_timeout_ms = c_milliseconds(options.connect_timeout);
  c.wait_timeout_ms = c_milliseconds(options.wait);
  if (options.absent_wait) {
    const auto ms = c_milliseconds(*options.absent_wait);
    c.absent_timeout_ms = ms > 0 ? ms : -1;
  }
  c.mode = options.copy ? PRELOAD_MODE_COPY : PRELOAD_MODE_MAP;
  c.base_address = options.base_address;
  c.allow_uids = text_or_null(options.allow_uids);
  return c;
}
}  // namespace detail

// What one look at a daemon tells; no lease is taken.
struct Daemon {
  preload_daemon_state state = PRELOAD_DAEMON_ABSENT;
  preload_memory memory = PRELOAD_MEMORY_HOST;
  std::optional<int> cuda_device;  // its ordinal in this process
  std::uint64_t bytes = 0;
  std::uint64_t generation = 0;
  std::string device, slot, role, job, model, key, text;
};

inline Daemon find_daemon(const AttachOptions& options = {}) {
  const preload_attach_options c = detail::c_options(options);
  auto found = detail::sized<preload_daemon>();
  detail::check(preload_find_daemon(&c, &found));
  Daemon daemon;
  daemon.state = static_cast<preload_daemon_state>(found.state);
  daemon.memory = static_cast<preload_memory>(found.memory);
  if (found.cuda_device >= 0) daemon.cuda_device = found.cuda_device;
  daemon.bytes = found.bytes;
  daemon.generation = found.generation;
  daemon.device = found.device;
  daemon.slot = found.slot;
  daemon.role = found.role;
  daemon.job = found.job;
  daemon.model = found.model;
  daemon.key = found.key;
  daemon.text = found.text;
  return daemon;
}

// One attached shard: a range of Tensors. Move-only; the destructor detaches.
class Attachment {
 public:
  explicit Attachment(const AttachOptions& options = {}) {
    const preload_attach_options c = detail::c_options(options);
    preload_attachment* attachment = nullptr;
    detail::check(preload_attach(&c, &attachment));
    attachment_.reset(attachment);
    info_ = detail::sized<preload_info>();
    detail::check(preload_get_info(attachment, &info_));
  }

  const preload_info& info() const noexcept { return info_; }
  std::string_view device() const noexcept { return info_.device; }
  std::string_view key() const noexcept { return info_.key; }
  std::string_view metadata_json() const noexcept { return info_.metadata_json; }
  std::string_view evidence() const noexcept { return info_.evidence; }
  bool on_cuda() const noexcept { return info_.memory == PRELOAD_MEMORY_CUDA; }
  preload_attachment* get() const noexcept { return attachment_.get(); }

  std::size_t size() const noexcept { return info_.tensor_count; }
  Tensor operator[](std::uint64_t index) const {
    auto tensor = detail::sized<preload_tensor>();
    detail::check(preload_get_tensor(attachment_.get(), index, &tensor));
    return Tensor(tensor);
  }
  Tensor at(const std::string& name) const {  // throws ClientError(PRELOAD_E_NOT_FOUND)
    std::uint64_t index = 0;
    detail::check(preload_find_tensor(attachment_.get(), name.c_str(), &index));
    return (*this)[index];
  }
  std::optional<Tensor> find(const std::string& name) const {
    std::uint64_t index = 0;
    const preload_status status = preload_find_tensor(attachment_.get(), name.c_str(), &index);
    if (status == PRELOAD_E_NOT_FOUND) return std::nullopt;
    detail::check(status);
    return (*this)[index];
  }

  // A tensor's elements in row-major order, in host memory.
  std::vector<std::byte> read(const Tensor& tensor) const {
    std::vector<std::byte> bytes(tensor.raw().row_major_bytes);
    std::uint64_t index = 0;
    detail::check(preload_find_tensor(attachment_.get(), tensor.raw().name, &index));
    detail::check(preload_read_tensor(attachment_.get(), index, bytes.data(), bytes.size()));
    return bytes;
  }

  class Iterator {
   public:
    using value_type = Tensor;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;

    Iterator() = default;
    Iterator(const Attachment* attachment, std::uint64_t index)
        : attachment_(attachment), index_(index) {}
    Tensor operator*() const { return (*attachment_)[index_]; }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    Iterator operator++(int) {
      const Iterator before = *this;
      ++index_;
      return before;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) = default;

   private:
    const Attachment* attachment_ = nullptr;
    std::uint64_t index_ = 0;
  };
  Iterator begin() const noexcept { return {this, 0}; }
  Iterator end() const noexcept { return {this, info_.tensor_count}; }

 private:
  struct Detach {
    void operator()(preload_attachment* attachment) const noexcept { preload_detach(attachment); }
  };
  std::unique_ptr<preload_attachment, Detach> attachment_;
  preload_info info_{};
};

}  // namespace preload
