// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/watchdog.hpp"

namespace preload {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kShortestPause = std::chrono::microseconds(20);
constexpr auto kShortPause = std::chrono::microseconds(160);
constexpr auto kLongestPause = std::chrono::microseconds(10'000);
constexpr auto kUnderWay = std::chrono::seconds(1);
constexpr auto kReminder = std::chrono::seconds(30);
constexpr auto kFinalizeTimeout = std::chrono::seconds(30);
constexpr int kExchangeTag = 1;  // collectives have none

// What is left of `size` from `offset`, at most `most`: an MPI count.
int round_count(std::uint64_t size, std::uint64_t offset, std::uint64_t most) {
  return offset >= size ? 0 : static_cast<int>(std::min(size - offset, most));
}

}  // namespace

void check_mpi(int result, std::string_view what, std::source_location where) {
  if (result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(result, text.data(), &length) != MPI_SUCCESS) length = 0;
  throw Error(Errc::kLauncher,
              fmt::format("{}: MPI error {}: {}", what, result,
                          std::string_view(text.data(), static_cast<std::size_t>(length))),
              where);
}

struct MpiGroup::Buffers {
  std::vector<std::uint64_t> sizes_out, sizes_in;
  std::string send, receive;
  std::vector<int> send_counts, send_places, counts, places;
};

MpiGroup::MpiGroup(MPI_Comm comm, std::size_t max_round_bytes)
    : comm_(comm), max_round_bytes_(std::min(max_round_bytes, kMaxRoundBytes)) {
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "setting MPI's error handler");
  check_mpi(MPI_Comm_rank(comm_, &rank_), "asking MPI for the rank");
  check_mpi(MPI_Comm_size(comm_, &size_), "asking MPI for the number of ranks");
}

MpiGroup::~MpiGroup() = default;

void MpiGroup::check_usable(const Wait& wait) const {
  wait.cancel.check();
  if (!usable_) {
    throw Error(
        Errc::kInternal,
        fmt::format("rank {} has left the group and cannot take part in: {}", rank_, wait.what));
  }
}

// Sleeps between tests, so that a rank that waits for minutes does not take a core from one that
// loads.
void MpiGroup::wait_all(std::span<MPI_Request> requests, const Wait& wait) const {
  const auto start = Clock::now();
  auto pause = kShortestPause;
  auto reminder = start + kReminder;
  for (;;) {
    int done = 0;
    check_mpi(
        MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
        wait.what);
    if (done != 0) return;
    wait.cancel.check();
    if (wait.stop != nullptr && wait.stop->load(std::memory_order_relaxed)) {
      throw Error(Errc::kInternal, fmt::format("stopped while waiting for {}", wait.what));
    }
    const auto now = Clock::now();
    const auto waited = std::chrono::duration_cast<std::chrono::seconds>(now - start);
    if (waited >= wait.timeout) {
      throw Error(Errc::kLauncher,
                  fmt::format("rank {} waited {} s for {}: a rank is missing or stuck; look for "
                              "its last line in the job's output",
                              rank_, waited.count(), wait.what));
    }
    if (now >= reminder) {
      log::info(fmt::format("waiting for {} ({} s)", wait.what, waited.count()));
      reminder = now + kReminder;
    }
    std::this_thread::sleep_for(pause);
    // MPI moves bytes only while it is asked: what is under way is asked for often.
    pause = std::min(pause * 2, now - start < kUnderWay ? kShortPause : kLongestPause);
  }
}

// MPI may still write to the buffers of a collective that was given up: they are leaked.
void MpiGroup::complete(MPI_Request request, std::unique_ptr<Buffers>& buffers, const Wait& wait) {
  try {
    wait_all({&request, 1}, wait);
  } catch (...) {
    usable_ = false;
    static_cast<void>(buffers.release());
    throw;
  }
}

std::vector<std::string> MpiGroup::all_gather(std::string_view mine, const Wait& wait) {
  check_usable(wait);
  const auto ranks = static_cast<std::size_t>(size_);
  auto buffers = std::make_unique<Buffers>();
  buffers->sizes_out.assign(1, mine.size());
  buffers->sizes_in.resize(ranks);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgather(buffers->sizes_out.data(), 1, MPI_UINT64_T, buffers->sizes_in.data(), 1,
                           MPI_UINT64_T, comm_, &request),
            wait.what);
  complete(request, buffers, wait);

  const std::uint64_t most = std::max<std::uint64_t>(1, max_round_bytes_ / ranks);
  const std::uint64_t end = *std::max_element(buffers->sizes_in.begin(), buffers->sizes_in.end());
  std::vector<std::string> parts(ranks);
  for (std::size_t i = 0; i < ranks; ++i) parts[i].reserve(buffers->sizes_in[i]);
  buffers->counts.resize(ranks);
  buffers->places.resize(ranks);
  for (std::uint64_t offset = 0; offset < end; offset += most) {
    int total = 0;
    for (std::size_t i = 0; i < ranks; ++i) {
      buffers->counts[i] = round_count(buffers->sizes_in[i], offset, most);
      buffers->places[i] = std::exchange(total, total + buffers->counts[i]);
    }
    buffers->send.assign(mine.substr(std::min<std::size_t>(offset, mine.size()), most));
    buffers->receive.resize(static_cast<std::size_t>(total));
    check_mpi(MPI_Iallgatherv(buffers->send.data(), static_cast<int>(buffers->send.size()),
                              MPI_BYTE, buffers->receive.data(), buffers->counts.data(),
                              buffers->places.data(), MPI_BYTE, comm_, &request),
              wait.what);
    complete(request, buffers, wait);
    for (std::size_t i = 0; i < ranks; ++i) {
      parts[i].append(buffers->receive, static_cast<std::size_t>(buffers->places[i]),
                      static_cast<std::size_t>(buffers->counts[i]));
    }
  }
  return parts;
}

std::string MpiGroup::broadcast(std::string_view mine, int root, const Wait& wait) {
  check_usable(wait);
  auto buffers = std::make_unique<Buffers>();
  buffers->sizes_in.assign(1, rank_ == root ? mine.size() : 0);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibcast(buffers->sizes_in.data(), 1, MPI_UINT64_T, root, comm_, &request),
            wait.what);
  complete(request, buffers, wait);

  const std::uint64_t size = buffers->sizes_in[0];
  std::string whole;
  whole.reserve(size);
  for (std::uint64_t offset = 0; offset < size; offset += max_round_bytes_) {
    const int count = round_count(size, offset, max_round_bytes_);
    buffers->receive.resize(static_cast<std::size_t>(count));
    if (rank_ == root) buffers->receive.assign(mine.substr(offset, max_round_bytes_));
    check_mpi(MPI_Ibcast(buffers->receive.data(), count, MPI_BYTE, root, comm_, &request),
              wait.what);
    complete(request, buffers, wait);
    whole += buffers->receive;
  }
  return whole;
}

std::uint64_t MpiGroup::largest(std::uint64_t mine, const Wait& wait) {
  auto buffers = std::make_unique<Buffers>();
  buffers->sizes_out.assign(1, mine);
  buffers->sizes_in.resize(1);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallreduce(buffers->sizes_out.data(), buffers->sizes_in.data(), 1, MPI_UINT64_T,
                           MPI_MAX, comm_, &request),
            wait.what);
  complete(request, buffers, wait);
  return buffers->sizes_in[0];
}

std::vector<std::string> MpiGroup::all_to_all(const std::vector<std::string>& out,
                                              const Wait& wait) {
  check_usable(wait);
  const auto ranks = static_cast<std::size_t>(size_);
  if (out.size() != ranks) {
    throw Error(Errc::kInternal, fmt::format("{} parts for a group of {}", out.size(), ranks));
  }
  auto buffers = std::make_unique<Buffers>();
  for (const std::string& part : out) buffers->sizes_out.push_back(part.size());
  buffers->sizes_in.resize(ranks);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ialltoall(buffers->sizes_out.data(), 1, MPI_UINT64_T, buffers->sizes_in.data(), 1,
                          MPI_UINT64_T, comm_, &request),
            wait.what);
  complete(request, buffers, wait);

  const std::uint64_t most = std::max<std::uint64_t>(1, max_round_bytes_ / ranks);
  const std::uint64_t end =
      largest(*std::max_element(buffers->sizes_out.begin(), buffers->sizes_out.end()), wait);
  std::vector<std::string> parts(ranks);
  for (auto* list :
       {&buffers->send_counts, &buffers->send_places, &buffers->counts, &buffers->places}) {
    list->resize(ranks);
  }
  for (std::uint64_t offset = 0; offset < end; offset += most) {
    int total = 0;
    buffers->send.clear();
    for (std::size_t i = 0; i < ranks; ++i) {
      buffers->counts[i] = round_count(buffers->sizes_in[i], offset, most);
      buffers->places[i] = std::exchange(total, total + buffers->counts[i]);
      buffers->send_counts[i] = round_count(buffers->sizes_out[i], offset, most);
      buffers->send_places[i] = static_cast<int>(buffers->send.size());
      if (buffers->send_counts[i] > 0) buffers->send.append(out[i], offset, most);
    }
    buffers->receive.resize(static_cast<std::size_t>(total));
    check_mpi(
        MPI_Ialltoallv(buffers->send.data(), buffers->send_counts.data(),
                       buffers->send_places.data(), MPI_BYTE, buffers->receive.data(),
                       buffers->counts.data(), buffers->places.data(), MPI_BYTE, comm_, &request),
        wait.what);
    complete(request, buffers, wait);
    for (std::size_t i = 0; i < ranks; ++i) {
      parts[i].append(buffers->receive, static_cast<std::size_t>(buffers->places[i]),
                      static_cast<std::size_t>(buffers->counts[i]));
    }
  }
  return parts;
}

void MpiGroup::exchange(std::span<const GroupMessage> out, std::span<const GroupMessage> in,
                        const Wait& wait) {
  check_usable(wait);
  std::vector<MPI_Request> requests;
  const auto each_round = [&](const GroupMessage& message, const auto& start) {
    for (std::uint64_t offset = 0; offset < message.bytes; offset += max_round_bytes_) {
      requests.push_back(MPI_REQUEST_NULL);
      check_mpi(start(message.data + offset, round_count(message.bytes, offset, max_round_bytes_),
                      message.rank, &requests.back()),
                wait.what);
    }
  };
  try {
    for (const GroupMessage& message : in) {
      each_round(message, [&](std::byte* data, int count, int rank, MPI_Request* request) {
        return MPI_Irecv(data, count, MPI_BYTE, rank, kExchangeTag, comm_, request);
      });
    }
    for (const GroupMessage& message : out) {
      each_round(message, [&](std::byte* data, int count, int rank, MPI_Request* request) {
        return MPI_Isend(data, count, MPI_BYTE, rank, kExchangeTag, comm_, request);
      });
    }
    wait_all(requests, wait);
  } catch (...) {
    usable_ = false;
    throw;
  }
}

void MpiGroup::barrier(const Wait& wait) {
  check_usable(wait);
  auto buffers = std::make_unique<Buffers>();
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(comm_, &request), wait.what);
  complete(request, buffers, wait);
}

void MpiGroup::finalize(const Wait& wait) {
  barrier(wait);
  usable_ = false;
  const Watchdog watchdog(kFinalizeTimeout, exit_status(Errc::kLauncher),
                          fmt::format("rank {}: MPI_Finalize did not return within {} s: a rank "
                                      "died meanwhile, or MPI's transport hangs",
                                      rank_, kFinalizeTimeout.count()));
  check_mpi(MPI_Finalize(), "MPI_Finalize");
}

}  // namespace preload
