// SPDX-License-Identifier: Apache-2.0
#include "client/slab_reader.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>

#include "load/run_threads.hpp"

namespace preload::client {
namespace {

using Use = std::function<void(std::size_t, std::span<const std::byte>)>;

// A stream and a pinned buffer that it fills. The context is current.
class PinnedBuffer {
 public:
  explicit PinnedBuffer(const cu::Driver& driver) : PinnedBuffer(&driver) {
    // Delegated: from here on the destructor runs whatever fails.
    constexpr unsigned kNonBlocking = 1;
    driver.check(driver.stream_create(&stream_, kNonBlocking), "making a CUDA stream");
    driver.check(driver.host_alloc(&data_, kPieceBytes, 0), "allocating pinned memory");
  }
  ~PinnedBuffer() {
    if (stream_ != nullptr) {
      driver_->stream_synchronize(stream_);  // a copy may be under way when an exception ends us
      driver_->stream_destroy(stream_);
    }
    if (data_ != nullptr) driver_->host_free(data_);
  }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  void start(const std::byte* device, std::uint64_t bytes) {
    const auto source = static_cast<cu::Pointer>(reinterpret_cast<std::uintptr_t>(device));
    driver_->check(driver_->copy_device_to_host_async(data_, source, bytes, stream_),
                   "copying from the GPU");
    bytes_ = bytes;
  }
  std::span<const std::byte> finish() {
    driver_->check(driver_->stream_synchronize(stream_), "copying from the GPU");
    return {static_cast<const std::byte*>(data_), bytes_};
  }

 private:
  explicit PinnedBuffer(const cu::Driver* driver) : driver_(driver) {}

  const cu::Driver* driver_;
  cu::Stream stream_ = nullptr;
  void* data_ = nullptr;
  std::uint64_t bytes_ = 0;
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
  const cu::Driver& driver = attachment.context()->driver();
  std::array<PinnedBuffer, 2> buffers{PinnedBuffer(driver), PinnedBuffer(driver)};
  const auto start = [&](std::size_t side, std::size_t i) {
    buffers[side].start(attachment.slab_data(pieces[i].slab) + pieces[i].offset, pieces[i].bytes);
  };
  std::size_t side = 0;
  std::optional<std::size_t> now = queue.next(at);
  if (now) start(side, *now);
  while (now) {
    const std::optional<std::size_t> then = queue.next(at);
    if (then) start(1 - side, *then);
    use(*now, buffers[side].finish());
    now = then;
    side = 1 - side;
  }
}

}  // namespace

void read_pieces(const Attachment& attachment, std::span<const Piece> pieces, int threads,
                 const Use& use) {
  std::atomic<std::size_t> at{0};
  const auto most = static_cast<int>(std::min<std::size_t>(pieces.size(), 1024));
  run_threads(std::min(threads, most), [&](int, const std::atomic<bool>& failed) {
    const PieceQueue queue(pieces.size(), failed);
    if (attachment.on_cuda()) {
      read_device(attachment, pieces, queue, at, use);
    } else {
      read_host(attachment, pieces, queue, at, use);
    }
  });
}

int default_threads() { return std::min(usable_cpus(), 16); }

}  // namespace preload::client
