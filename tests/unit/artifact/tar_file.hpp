// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace preload::artifact {

// A tar file made field by field (POSIX.1-1988 "ustar"), so that it can hold what no tool writes.
class TarFile {
 public:
  struct Header {
    std::string name;
    char type = '0';  // '0' file, '1' hard link, '2' symbolic link, '3' '4' devices, '5' directory,
                      // '6' fifo
    std::string link;
    std::uint64_t bytes = 0;
    unsigned mode = 0644;
  };
  // The header alone; the content must follow in blocks.
  TarFile& header(const Header& header);
  TarFile& file(const std::string& name, std::string_view content, unsigned mode = 0644);
  TarFile& directory(const std::string& name);
  TarFile& symbolic_link(const std::string& name, const std::string& target);
  TarFile& raw(std::string_view bytes);
  std::string finish() const;  // with the two empty blocks of the end
  const std::string& bytes() const noexcept { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace preload::artifact
