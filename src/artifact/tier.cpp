// SPDX-License-Identifier: Apache-2.0
#include "artifact/tier.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <span>

#include "base/cancel.hpp"
#include "base/log.hpp"

namespace preload::artifact {

std::string Found::text() const {
  std::string text(entry.bytes, '\0');
  const std::size_t read =
      pread_full(content.get(), std::as_writable_bytes(std::span(text)), 0, entry.key.text());
  if (read == text.size()) return text;
  throw Error(Errc::kInternal, fmt::format("artifact '{}' ended after {} of {} bytes: someone "
                                           "shortens files of the cache; remove it",
                                           entry.key.text(), read, text.size()));
}

Put Tier::put_bytes(const Key& key, std::string_view bytes, const Metadata& metadata,
                    Overwrite overwrite) try {
  const Fd memfd = make_memfd("preload-artifact", 0);
  write_full(memfd.get(), std::as_bytes(std::span(bytes)), "a memfd");
  check_sys(::lseek(memfd.get(), 0, SEEK_SET), "cannot rewind a memfd");
  return put(key, memfd.get(), metadata, overwrite);
} catch (const Cancelled&) {
  throw;
} catch (const std::exception& error) {
  log::warn(fmt::format("artifact '{}' is not kept: {}", key.text(), error.what()));
  return Put::kFailed;
}

}  // namespace preload::artifact
