// SPDX-License-Identifier: Apache-2.0
#include "load/uring.hpp"

#include <liburing.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

#include "base/bytes.hpp"

namespace preload {

namespace {

// Large enough that a request costs little beside its transfer, small enough that a chunk keeps
// several in flight.
constexpr std::uint64_t kRequestBytes = 256 * kKiB;

// A request, from its first submission until all its bytes are there.
struct Request {
  std::uint64_t begin = 0, end = 0;  // in the range's memory; begin moves with short reads
  bool busy = false;
};

// One DirectRange on its way: cut into requests, resubmitted where short, ended by the first error.
class Transfer {
 public:
  Transfer(io_uring& ring, const DirectRange& range, int in_flight) noexcept
      : ring_(ring),
        range_(range),
        step_(align_up(kRequestBytes, range.alignment)),
        requests_(static_cast<std::size_t>(std::clamp(in_flight, 1, Uring::kDepth))),
        file_end_(range.out.size()) {}

  DirectRead run() noexcept {
    while (true) {
      if (result_.error == 0) queue_more();
      if (busy_ == 0) break;
      const int submitted = io_uring_submit_and_wait(&ring_, 1);
      if (submitted < 0 && !is_transient(-submitted)) {
        abandon(-submitted);
        break;
      }
      reap();
    }
    if (result_.error == 0) result_.bytes = file_end_;
    return result_;
  }
  // The kernel takes no more requests from this ring, which still holds some: of no further use.
  bool is_abandoned() const noexcept { return abandoned_; }

 private:
  static bool is_transient(int error) noexcept {
    return error == EINTR || error == EAGAIN || error == EBUSY;
  }

  void queue_more() noexcept {
    for (std::size_t i = 0; i < requests_ && next_ < file_end_; ++i) {
      if (all_[i].busy) continue;
      all_[i] = {next_, std::min(next_ + step_, range_.out.size()), true};
      next_ = all_[i].end;
      ++busy_;
      submit(all_[i]);
    }
  }

  // The ring has an entry for every request: there is always one.
  void submit(Request& request) noexcept {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    io_uring_prep_read(entry, range_.fd, range_.out.data() + request.begin,
                       static_cast<unsigned>(request.end - request.begin),
                       range_.offset + request.begin);
    io_uring_sqe_set_data(entry, &request);
  }

  void reap() noexcept {
    io_uring_cqe* completion = nullptr;
    while (io_uring_peek_cqe(&ring_, &completion) == 0 && completion != nullptr) {
      Request& request = *static_cast<Request*>(io_uring_cqe_get_data(completion));
      const int n = completion->res;
      io_uring_cqe_seen(&ring_, completion);
      if (!finish(request, n)) {
        submit(request);
        continue;
      }
      request.busy = false;
      --busy_;
    }
  }

  // False when the request is to be submitted again for what is left of it.
  bool finish(Request& request, int n) noexcept {
    if (n < 0) {
      if (is_transient(-n) && result_.error == 0) return false;
      if (result_.error == 0) result_ = {0, -n, range_.offset + request.begin};
      return true;
    }
    request.begin += static_cast<unsigned>(n);
    if (request.begin >= request.end) return true;
    // A short read that ends off the grid, or holds nothing, is the end of the file.
    if (n == 0 || request.begin % range_.alignment != 0) {
      file_end_ = std::min(file_end_, request.begin);
      return true;
    }
    return result_.error != 0;
  }

  // What is in flight writes into the range's memory: waited for, even without the system call.
  void abandon(int error) noexcept {
    abandoned_ = true;
    if (result_.error == 0) result_ = {0, error, range_.offset};
    busy_ -= static_cast<int>(io_uring_sq_ready(&ring_));
    while (busy_ > 0) {
      reap();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  io_uring& ring_;
  const DirectRange& range_;
  const std::uint64_t step_;
  const std::size_t requests_;
  std::array<Request, Uring::kDepth> all_{};
  std::uint64_t next_ = 0;
  std::uint64_t file_end_;  // as far as is known, from the range's first byte
  int busy_ = 0;
  bool abandoned_ = false;
  DirectRead result_;
};

// One request that does nothing shows that the kernel lets this thread submit at all.
int try_submission(io_uring& ring) noexcept {
  io_uring_prep_nop(io_uring_get_sqe(&ring));
  const int submitted = io_uring_submit_and_wait(&ring, 1);
  if (submitted < 0) return -submitted;
  io_uring_cqe* completion = nullptr;
  const int got = io_uring_peek_cqe(&ring, &completion);
  if (got != 0) return -got;
  io_uring_cqe_seen(&ring, completion);
  return 0;
}

bool knows_reads(io_uring& ring) noexcept {
  io_uring_probe* const probe = io_uring_get_probe_ring(&ring);
  const bool known = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ) != 0;
  if (probe != nullptr) io_uring_free_probe(probe);
  return known;
}

}  // namespace

struct Uring::Ring {
  Ring() noexcept : error(-io_uring_queue_init(kDepth, &ring, 0)) {}
  ~Ring() {
    if (error == 0) io_uring_queue_exit(&ring);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  io_uring ring{};
  const int error;  // errno of its set-up
};

bool Uring::is_built() noexcept { return true; }

int Uring::requests_for(std::uint64_t bytes) noexcept {
  const std::uint64_t requests = (bytes + kRequestBytes - 1) / kRequestBytes;
  return static_cast<int>(std::clamp<std::uint64_t>(requests, 1, kDepth));
}

std::optional<int> Uring::refusal() noexcept {
  Ring ring;
  if (ring.error != 0) return ring.error;
  if (!knows_reads(ring.ring)) return ENOSYS;  // Linux before 5.6
  const int error = try_submission(ring.ring);
  return error == 0 ? std::nullopt : std::optional(error);
}

std::unique_ptr<Uring> Uring::open() noexcept {
  auto ring = std::unique_ptr<Ring>(new (std::nothrow) Ring);
  if (!ring || ring->error != 0) return nullptr;
  return std::unique_ptr<Uring>(new (std::nothrow) Uring(std::move(ring)));
}

Uring::Uring(std::unique_ptr<Ring> ring) noexcept : ring_(std::move(ring)) {}
Uring::~Uring() = default;

DirectRead Uring::read(const DirectRange& range, int in_flight) noexcept {
  if (!ring_) return read_direct(range);
  Transfer transfer(ring_->ring, range, in_flight);
  const DirectRead result = transfer.run();
  if (transfer.is_abandoned()) ring_.reset();
  return result;
}

}  // namespace preload
