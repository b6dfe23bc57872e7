// SPDX-License-Identifier: Apache-2.0
// Writes what is installed beside the executables and made from the option table: the manual pages
// and the shells' completions. Run by the build:  preload-manual OUT_DIR DATE
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "cli/option_table.hpp"
#include "manual/completion.hpp"
#include "manual/man_page.hpp"

namespace preload::manual {
namespace {

void write(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) throw Error(Errc::kInternal, fmt::format("cannot write {}", file.string()));
}

void write_all(const std::filesystem::path& root, const std::string& date) {
  const auto page = [&](std::string_view command) {
    write(root / "man1" / (page_name(command) + ".1"), man_page(command, date));
  };
  page("");
  for (const cli::CommandSpec& command : cli::command_table()) page(command.name);
  write(root / "bash/preload", bash_completion());
  write(root / "zsh/_preload", zsh_completion());
  write(root / "fish/preload.fish", fish_completion());
}

}  // namespace
}  // namespace preload::manual

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: preload-manual OUT_DIR DATE\n", stderr);
    return 2;
  }
  try {
    preload::manual::write_all(argv[1], argv[2]);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "preload-manual: {}\n", error.what());
    return 1;
  }
}
