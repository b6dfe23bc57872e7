// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <utility>

#include "load/uring.hpp"

namespace preload {

struct Uring::Ring {};

bool Uring::is_built() noexcept { return false; }
int Uring::requests_for(std::uint64_t) noexcept { return 1; }
std::optional<int> Uring::refusal() noexcept { return ENOSYS; }
std::unique_ptr<Uring> Uring::open() noexcept { return nullptr; }
Uring::Uring(std::unique_ptr<Ring> ring) noexcept : ring_(std::move(ring)) {}
Uring::~Uring() = default;
DirectRead Uring::read(const DirectRange& range, int) noexcept { return read_direct(range); }

}  // namespace preload
