// SPDX-License-Identifier: Apache-2.0
#include "load/receipt.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/hash.hpp"
#include "load/run_threads.hpp"

namespace preload {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kSampleBlocks = 16;
constexpr std::uint64_t kSampleBytes = 4 * kKiB;

std::string path_of(const Checkpoint& checkpoint, const std::string& name) {
  return checkpoint.directory + "/" + name;
}

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Whether the times prove anything: the file is still the one that was read, and old enough that
// another write would show.
bool is_settled(const std::string& path, const SourceFile& file) {
  constexpr std::int64_t kFineNs = 100'000'000;      // above any kernel's clock tick
  constexpr std::int64_t kCoarseNs = 2'000'000'000;  // file systems that keep whole seconds
  timespec clock{};
  ::clock_gettime(CLOCK_REALTIME, &clock);
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return false;
  const std::int64_t age = nanoseconds(clock) - std::max(file.mtime_ns, file.ctime_ns);
  const std::int64_t needed = file.ctime_ns % 1'000'000'000 == 0 ? kCoarseNs : kFineNs;
  return static_cast<std::uint64_t>(status.st_size) == file.bytes && status.st_ino == file.inode &&
         nanoseconds(status.st_mtim) == file.mtime_ns &&
         nanoseconds(status.st_ctim) == file.ctime_ns && age > needed;
}

std::string digest(const std::string& text) { return sha256_hex(text).substr(0, 32); }

// The wanted tensors of one file as one stream of bytes.
class TensorStream {
 public:
  TensorStream(std::vector<const SourceTensor*> tensors, const std::string& path)
      : tensors_(std::move(tensors)),
        path_(path),
        fd_(open_fd(AT_FDCWD, path, O_RDONLY, 0, Errc::kCheckpoint)) {
    std::ranges::sort(tensors_, {}, &SourceTensor::name);
    for (const SourceTensor* tensor : tensors_) bytes_ += tensor->bytes;
  }

  std::string list_digest() const {
    std::string text;
    for (const SourceTensor* tensor : tensors_) {
      text += fmt::format("{} {} {}\n", tensor->name, dtype_name(tensor->dtype),
                          to_string(tensor->shape));
    }
    return digest(text);
  }

  std::string sample() const {
    std::string text;
    const std::uint64_t last = bytes_ > kSampleBytes ? bytes_ - kSampleBytes : 0;
    for (std::uint64_t block = 0; block + 1 < kSampleBlocks; ++block) {
      add_block(last / (kSampleBlocks - 1) * block, text);
    }
    add_block(last, text);
    return digest(text);
  }

 private:
  // One block from `at` of the stream, over the ends of tensors.
  void add_block(std::uint64_t at, std::string& text) const {
    std::uint64_t left = kSampleBytes;
    for (const SourceTensor* tensor : tensors_) {
      if (at >= tensor->bytes) {
        at -= tensor->bytes;
        continue;
      }
      if (left == 0) return;
      std::vector<std::byte> buffer(std::min(left, tensor->bytes - at));
      if (pread_full(fd_.get(), buffer, tensor->offset + at, "'" + path_ + "'") != buffer.size()) {
        throw Error(Errc::kCheckpoint, fmt::format("'{}' was cut short while it was read", path_));
      }
      text += fmt::format("{} {} {}\n", tensor->name, at, to_hex(hash_bytes(buffer, at)));
      left -= buffer.size();
      at = 0;
    }
  }

  std::vector<const SourceTensor*> tensors_;
  std::string path_;
  Fd fd_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

Receipt take_receipt(const Checkpoint& checkpoint) {
  Receipt receipt;
  for (const SourceFile& file : checkpoint.files) {
    const std::string path = path_of(checkpoint, file.name);
    receipt.push_back({file.name, file.bytes, file.inode, file.mtime_ns, file.ctime_ns,
                       is_settled(path, file), "", ""});
  }
  std::ranges::sort(receipt, {}, &FileReceipt::name);
  return receipt;
}

void add_samples(Receipt& receipt, const Checkpoint& checkpoint, const std::vector<bool>& wanted) {
  std::map<std::string, std::vector<const SourceTensor*>> tensors;  // by file
  for (std::size_t i = 0; i < checkpoint.tensors.size(); ++i) {
    if (!wanted.empty() && !wanted[i]) continue;
    const SourceTensor& tensor = checkpoint.tensors[i];
    tensors[checkpoint.files.at(tensor.file).name].push_back(&tensor);
  }
  // On a network file system each of the small reads takes its time.
  constexpr std::size_t kThreads = 16;
  std::atomic<std::size_t> next{0};
  run_threads(static_cast<int>(std::min(kThreads, receipt.size())),
              [&](int, const std::atomic<bool>& stop) {
                for (std::size_t i; !stop.load() && (i = next.fetch_add(1)) < receipt.size();) {
                  FileReceipt& file = receipt[i];
                  const auto of_file = tensors.find(file.name);
                  const TensorStream stream(of_file == tensors.end()
                                                ? std::vector<const SourceTensor*>{}
                                                : std::move(of_file->second),
                                            path_of(checkpoint, file.name));
                  file.tensors = stream.list_digest();
                  file.sample = stream.sample();
                }
              });
}

std::string to_json(const Receipt& receipt) {
  Json files = Json::array();
  for (const FileReceipt& file : receipt) {
    files.push_back({{"name", file.name},
                     {"bytes", file.bytes},
                     {"inode", file.inode},
                     {"mtime_ns", file.mtime_ns},
                     {"ctime_ns", file.ctime_ns},
                     {"settled", file.settled},
                     {"tensors", file.tensors},
                     {"sample", file.sample}});
  }
  return files.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Receipt receipt_from_json(std::string_view text) {
  try {
    Receipt receipt;
    for (const Json& entry : Json::parse(text)) {
      FileReceipt file;
      entry.at("name").get_to(file.name);
      entry.at("bytes").get_to(file.bytes);
      entry.at("inode").get_to(file.inode);
      entry.at("mtime_ns").get_to(file.mtime_ns);
      entry.at("ctime_ns").get_to(file.ctime_ns);
      entry.at("settled").get_to(file.settled);
      entry.at("tensors").get_to(file.tensors);
      entry.at("sample").get_to(file.sample);
      receipt.push_back(std::move(file));
    }
    std::ranges::sort(receipt, {}, &FileReceipt::name);
    return receipt;
  } catch (const Json::exception& error) {
    throw Error(Errc::kProtocol, fmt::format("receipt: {}", error.what()));
  }
}

}  // namespace preload
