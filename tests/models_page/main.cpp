// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "models_page/models_page.hpp"

// preload_models_page [--check] FILE: writes docs/models.md, or exits 1 when it is not what the
// code makes.
int main(int argc, char** argv) {
  const bool check = argc == 3 && std::string(argv[1]) == "--check";
  if (argc != 2 && !check) {
    std::cerr << "usage: preload_models_page [--check] FILE\n";
    return 2;
  }
  const std::string path = argv[argc - 1];
  try {
    for (const std::string& architecture : preload::test::architectures_without_specimen()) {
      std::cerr << architecture << " has no line: add one to tests/models_page/specimens.cpp\n";
      return 1;
    }
    const std::string page = preload::test::models_page();
    if (!check) {
      std::ofstream out(path, std::ios::binary);
      if (!out.write(page.data(), static_cast<std::streamsize>(page.size())).flush()) {
        std::cerr << "cannot write " << path << "\n";
        return 1;
      }
      return 0;
    }
    std::ifstream in(path, std::ios::binary);
    const std::string held{std::istreambuf_iterator<char>(in), {}};
    if (held == page) return 0;
    std::cerr << path << " is stale: cmake --build BUILD --target models_page\n";
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
  }
  return 1;
}
