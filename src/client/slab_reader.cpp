// SPDX-License-Identifier: Apache-2.0
#include "client/slab_reader.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

namespace preload::client {
namespace {

using Use = std::function<void(std::size_t, std::span<const std::byte>)>;

// One thread's way to device memory: a stream and two pinned buffers. The context is current.
class DeviceLane {
 public:
  explicit DeviceLane(const cu::Driver& driver) : driver_(driver) {
    for (Buffer& buffer : buffers_) buffer.open(driver_);
  }
  ~DeviceLane() {
    for (Buffer& buffer : buffers_) buffer.close(driver_);
  }
  DeviceLane(const DeviceLane&) = delete;
  DeviceLane& operator=(const DeviceLane&) = delete;

  void start(std::size_t side, const std::byte* device, std::uint64_t bytes) {
    const auto source = static_cast<cu::Pointer>(reinterpret_cast<std::uintptr_t>(device));
    driver_.check(driver_.copy_device_to_host_async(buffers_[side].data, source, bytes,
                                                    buffers_[side].stream),
                  "copying from the GPU");
  }
  std::span<const std::byte> finish(std::size_t side, std::uint64_t bytes) {
    driver_.check(driver_.stream_synchronize(buffers_[side].stream), "copying from the GPU");
    return {static_cast<const std::byte*>(buffers_[side].data), bytes};
  }

 private:
  struct Buffer {
    void* data = nullptr;
    cu::Stream stream = nullptr;

    void open(const cu::Driver& driver) {
      constexpr unsigned kNonBlocking = 1;
      driver.check(driver.stream_create(&stream, kNonBlocking), "making a CUDA stream");
      driver.check(driver.host_alloc(&data, kPieceBytes, 0), "allocating pinned memory");
    }
    void close(const cu::Driver& driver) noexcept {
      // A copy may be under way when an exception ends the loop.
      if (stream != nullptr) {
        driver.stream_synchronize(stream);
        driver.stream_destroy(stream);
      }
      if (data != nullptr) driver.host_free(data);
    }
  };

  const cu::Driver& driver_;
  std::array<Buffer, 2> buffers_;
};

// Hands out piece numbers to the threads.
class PieceQueue {
 public:
  PieceQueue(std::size_t count, const std::atomic<bool>& failed) : count_(count), failed_(failed) {}
  std::optional<std::size_t> next(std::atomic<std::size_t>& at) const {
    if (failed_.load(std::memory_order_relaxed)) return std::nullopt;
    const std::size_t index = at.fetch_add(1, std::memory_order_relaxed);
    return index < count_ ? std::optional(index) : std::nullopt;
  }

 private:
  std::size_t count_;
  const std::atomic<bool>& failed_;
};

void read_host(const Attachment& attachment, std::span<const Piece> pieces, const PieceQueue& queue,
               std::atomic<std::size_t>& at, const Use& use) {
  while (const auto i = queue.next(at)) {
    const Piece& piece = pieces[*i];
    use(*i, {attachment.slab_data(piece.slab) + piece.offset, piece.bytes});
  }
}

void read_device(const Attachment& attachment, std::span<const Piece> pieces,
                 const PieceQueue& queue, std::atomic<std::size_t>& at, const Use& use) {
  const cu::CurrentContext current(*attachment.context());
  DeviceLane lane(attachment.context()->driver());
  const auto start = [&](std::size_t side, std::size_t i) {
    lane.start(side, attachment.slab_data(pieces[i].slab) + pieces[i].offset, pieces[i].bytes);
  };
  std::size_t side = 0;
  std::optional<std::size_t> now = queue.next(at);
  if (now) start(side, *now);
  while (now) {
    const std::optional<std::size_t> then = queue.next(at);
    if (then) start(1 - side, *then);
    use(*now, lane.finish(side, pieces[*now].bytes));
    now = then;
    side = 1 - side;
  }
}

}  // namespace

void read_pieces(const Attachment& attachment, std::span<const Piece> pieces, int threads,
                 const Use& use) {
  std::atomic<std::size_t> at{0};
  const auto most = static_cast<int>(std::min<std::size_t>(pieces.size(), 1024));
  run_threads(std::min(threads, most), [&](const std::atomic<bool>& failed) {
    const PieceQueue queue(pieces.size(), failed);
    if (attachment.on_cuda()) {
      read_device(attachment, pieces, queue, at, use);
    } else {
      read_host(attachment, pieces, queue, at, use);
    }
  });
}

void run_threads(int threads, const std::function<void(const std::atomic<bool>& failed)>& work) {
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::exception_ptr first;
  {
    std::vector<std::jthread> running;
    for (int i = 0; i < threads; ++i) {
      running.emplace_back([&] {
        try {
          work(failed);
        } catch (...) {
          failed.store(true, std::memory_order_relaxed);
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
      });
    }
  }
  if (first) std::rethrow_exception(first);
}

int default_threads() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (::sched_getaffinity(0, sizeof(cpus), &cpus) != 0) return 1;
  return std::clamp(CPU_COUNT(&cpus), 1, 16);
}

}  // namespace preload::client
