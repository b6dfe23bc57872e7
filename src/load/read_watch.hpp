// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace preload {

// Shows the reads under way to whoever looks. It costs a read a few stores: no clock, no lock.
// Thread-safe.
class ReadWatch {
  struct Slot;

 public:
  static constexpr std::size_t kSlots = 128;  // threads beyond these read unseen

  struct Read {
    std::uint64_t turn = 0;  // tells the reads of one slot apart
    std::uint32_t file = 0;  // index into the paths
    std::uint64_t offset = 0, bytes = 0;
  };

  // The files that reads name from here on.
  void set_paths(std::vector<std::string> paths);
  std::string path(std::uint32_t file) const;

  // What is being read in a slot (< kSlots); nothing also when that changes during the look.
  std::optional<Read> look(std::size_t slot) const noexcept;

  // Shows one read until the end of the scope; without a watch, none.
  class Scope {
   public:
    Scope(ReadWatch* watch, std::uint32_t file, std::uint64_t offset, std::uint64_t bytes) noexcept;
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Slot* slot_ = nullptr;
  };

 private:
  // The reader stores with release, the looker loads with acquire: values of a later read are never
  // taken for those of `turn`.
  struct alignas(64) Slot {
    std::atomic<bool> taken{false};
    std::atomic<std::uint64_t> turn{0};  // odd while there is a read
    std::atomic<std::uint32_t> file{0};
    std::atomic<std::uint64_t> offset{0}, bytes{0};
  };
  Slot* take() noexcept;

  std::array<Slot, kSlots> slots_;
  mutable std::mutex mutex_;  // of what follows
  std::vector<std::string> paths_;
};

}  // namespace preload
