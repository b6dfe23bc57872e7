// SPDX-License-Identifier: Apache-2.0
#include "load/read_watch.hpp"

#include <functional>
#include <thread>
#include <utility>

namespace preload {

void ReadWatch::set_paths(std::vector<std::string> paths) {
  const std::lock_guard lock(mutex_);
  paths_ = std::move(paths);
}

std::string ReadWatch::path(std::uint32_t file) const {
  const std::lock_guard lock(mutex_);
  return file < paths_.size() ? paths_[file] : std::string();
}

std::optional<ReadWatch::Read> ReadWatch::look(std::size_t index) const noexcept {
  const Slot& slot = slots_[index];
  Read read;
  read.turn = slot.turn.load(std::memory_order_acquire);
  if (read.turn % 2 == 0) return std::nullopt;
  read.file = slot.file.load(std::memory_order_acquire);
  read.offset = slot.offset.load(std::memory_order_acquire);
  read.bytes = slot.bytes.load(std::memory_order_acquire);
  if (slot.turn.load(std::memory_order_relaxed) != read.turn) return std::nullopt;
  return read;
}

// A thread begins its search where no other does, and finds the slot of its last read free.
ReadWatch::Slot* ReadWatch::take() noexcept {
  thread_local const std::size_t first = std::hash<std::thread::id>{}(std::this_thread::get_id());
  for (std::size_t i = 0; i < kSlots; ++i) {
    Slot& slot = slots_[(first + i) % kSlots];
    if (!slot.taken.exchange(true, std::memory_order_acquire)) return &slot;
  }
  return nullptr;
}

ReadWatch::Scope::Scope(ReadWatch* watch, std::uint32_t file, std::uint64_t offset,
                        std::uint64_t bytes) noexcept {
  if (watch != nullptr) slot_ = watch->take();
  if (slot_ == nullptr) return;
  slot_->file.store(file, std::memory_order_release);
  slot_->offset.store(offset, std::memory_order_release);
  slot_->bytes.store(bytes, std::memory_order_release);
  slot_->turn.store(slot_->turn.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

ReadWatch::Scope::~Scope() {
  if (slot_ == nullptr) return;
  slot_->turn.store(slot_->turn.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  slot_->taken.store(false, std::memory_order_release);
}

}  // namespace preload
