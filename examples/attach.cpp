// SPDX-License-Identifier: Apache-2.0
//
// attach [DEVICE]: the same as attach.c over the C++ wrapper. Attaches to the daemon of DEVICE
// ("host:0", a GPU's UUID or CUDA index; the only daemon when left out), prints a checksum of every
// tensor, recomputed from the bytes that were mapped.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <preload/client.hpp>
#include <string>

namespace {

std::uint64_t splitmix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// The hash of docs/hash.md over contiguous bytes, on a little-endian machine.
std::string hash(std::span<const std::byte> bytes) {
  __extension__ using Wide = unsigned __int128;
  Wide sum = 0;
  for (std::uint64_t i = 0; i * 8 < bytes.size(); ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, &bytes[i * 8], std::min<std::size_t>(8, bytes.size() - i * 8));
    sum += word * (((Wide{splitmix64(2 * i)} << 64) | splitmix64(2 * i + 1)) | 1);
  }
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(sum >> 64),
                static_cast<unsigned long long>(sum));
  return text;
}

int print_tensors(const preload::Attachment& attachment) {
  int differing = 0;
  for (const preload::Tensor& tensor : attachment) {
    const std::string text = hash(attachment.read(tensor));
    if (text != tensor.hash()) ++differing;
    std::printf("%s  %s  %s\n", text.c_str(), tensor.raw().dtype, tensor.raw().name);
  }
  if (differing != 0) std::fprintf(stderr, "attach: %d tensors differ\n", differing);
  return differing != 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    preload::AttachOptions options;
    if (argc > 1) options.device = argv[1];
    if (const char* slot = std::getenv("PRELOAD_SLOT")) options.slot = slot;
    return print_tensors(preload::Attachment(options));
  } catch (const preload::ClientError& error) {
    std::fprintf(stderr, "attach: %s: %s\n", preload_status_name(error.status()), error.what());
    return 7;
  }
}
