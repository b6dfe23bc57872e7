// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "comm/mpi_session.hpp"

namespace preload {

// Throws Error(kLauncher) with MPI's own text when `result` is no success.
void check_mpi(int result, std::string_view what,
               std::source_location where = std::source_location::current());

// Collectives over one communicator, which it does not own. MPI is initialised.
class MpiGroup final : public Group {
 public:
  MpiGroup(MPI_Comm comm, std::size_t max_round_bytes);
  ~MpiGroup() override;
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  std::vector<std::string> all_gather(std::string_view mine, const Wait& wait) override;
  std::string broadcast(std::string_view mine, int root, const Wait& wait) override;
  std::vector<std::string> all_to_all(const std::vector<std::string>& out,
                                      const Wait& wait) override;
  void exchange(std::span<const GroupMessage> out, std::span<const GroupMessage> in,
                const Wait& wait) override;
  void barrier(const Wait& wait) override;
  void finalize(const Wait& wait) override;

 private:
  struct Buffers;  // of one collective; outlives it when the wait was given up
  void complete(MPI_Request request, std::unique_ptr<Buffers>& buffers, const Wait& wait);
  void wait_all(std::span<MPI_Request> requests, const Wait& wait) const;
  void check_usable(const Wait& wait) const;
  std::uint64_t largest(std::uint64_t mine, const Wait& wait);

  MPI_Comm comm_;
  std::size_t max_round_bytes_;
  int rank_ = 0;
  int size_ = 1;
  bool usable_ = true;
};

}  // namespace preload
