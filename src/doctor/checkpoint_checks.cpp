// SPDX-License-Identifier: Apache-2.0
#include "doctor/checkpoint_checks.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/fd.hpp"

namespace preload::doctor {

CheckpointFacts gather_checkpoint_facts(const Checkpoint& checkpoint) {
  CheckpointFacts facts;
  for (const SourceFile& file : checkpoint.files) {
    const Fd fd =
        open_fd(AT_FDCWD, checkpoint.directory + "/" + file.name, O_RDONLY, 0, Errc::kCheckpoint);
    ++facts.files;
    facts.bytes += file.bytes;
    if (is_in_page_cache(fd.get(), file.bytes)) facts.cached_bytes += file.bytes;
    if (file_system_kind(fd.get()) != FileSystemKind::kLocal)
      facts.kind = file_system_kind(fd.get());
  }
  return facts;
}

Check check_checkpoint(const CheckpointFacts& facts, const std::string& directory) {
  std::string where = "a local disk";
  if (facts.kind == FileSystemKind::kMemory) where = "memory";
  if (facts.kind == FileSystemKind::kNetwork)
    where = "a network file system, which is read with at most 32 reads in flight a node";
  const double share = facts.bytes == 0 ? 0
                                        : 100 * static_cast<double>(facts.cached_bytes) /
                                              static_cast<double>(facts.bytes);
  return ok("checkpoint",
            fmt::format("'{}': {} in {} files on {}; {:.0f} % of it in the page cache", directory,
                        format_bytes(facts.bytes), facts.files, where, share));
}

}  // namespace preload::doctor
