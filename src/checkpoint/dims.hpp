// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace preload {

// A short list of extents or strides, in elements, held inline: plans of 100,000 tensors are made
// of these.
class Dims {
 public:
  static constexpr std::size_t kMax = 8;

  constexpr Dims() = default;
  constexpr Dims(std::initializer_list<std::int64_t> values) {
    for (std::int64_t v : values) push_back(v);
  }
  constexpr void push_back(std::int64_t v) { values_[size_++] = v; }  // size() < kMax
  constexpr std::size_t size() const noexcept { return size_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr std::int64_t& operator[](std::size_t i) noexcept { return values_[i]; }
  constexpr std::int64_t operator[](std::size_t i) const noexcept { return values_[i]; }
  constexpr const std::int64_t* begin() const noexcept { return values_.data(); }
  constexpr const std::int64_t* end() const noexcept { return values_.data() + size_; }
  friend constexpr bool operator==(const Dims& a, const Dims& b) noexcept {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::array<std::int64_t, kMax> values_{};
  std::uint8_t size_ = 0;
};

std::int64_t element_count(const Dims& shape) noexcept;  // 1 for a scalar
Dims contiguous_strides(const Dims& shape) noexcept;     // row-major
std::string to_string(const Dims& dims);                 // "[128, 64]"

}  // namespace preload
