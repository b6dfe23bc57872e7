// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "artifact/disk_record.hpp"
#include "artifact/tree_bundle.hpp"
#include "base/error.hpp"
#include "base/fd.hpp"
#include "support/temp_dir.hpp"
#include "unit/artifact/tar_file.hpp"

// Tar files put together from hostile parts, with right and with damaged bytes: whatever is in one,
// nothing outside the directory changes and no link in it leads out.

namespace preload::artifact {
namespace {

namespace fs = std::filesystem;
using test::TempDir;

class HostileTar {
 public:
  explicit HostileTar(std::uint64_t seed) : random_(seed) {}

  std::string operator()() {
    TarFile tar;
    if (random_() % 2 == 0) tar.directory("d").file("d/f", "content").symbolic_link("l", "d");
    const std::uint64_t hostile = random_() % 4;
    for (std::uint64_t n = hostile; n > 0; --n) add_entry(tar);
    std::string bytes = tar.finish();
    if (random_() % 4 == 0) bytes[random_() % bytes.size()] = static_cast<char>(random_());
    if (random_() % 8 == 0) bytes.resize(random_() % bytes.size());
    return bytes;
  }

 private:
  template <class Values>
  auto pick(const Values& values) {
    return values[random_() % std::size(values)];
  }

  void add_entry(TarFile& tar) {
    static const std::vector<std::string> kNames{
        "a",         "b",      "d",  "d/",     "d/a",       "d/l",    "l",        "l/a",
        "l/l/a",     "../x",   "..", "../out", "/tmp/evil", "a/../b", "./a",      "d//a",
        "l/../../x", "d/d/d/", "",   ".",      "d/..",      "canary", "../canary"};
    static const std::vector<std::string> kTargets{
        "a", "d", "..", "../x", "../canary", "/", "/tmp", "d/..", "l/..", "../out", ".", ""};
    static const std::vector<std::uint64_t> kSizes{0, 0, 5, 512, 1 << 20, 077777777777};
    // Files, links, devices, extended headers of pax and of GNU.
    constexpr std::string_view kTypes = "0001122225555346xgLKSM7";
    TarFile::Header header;
    header.name = pick(kNames);
    header.type = pick(kTypes);
    header.link = pick(kTargets);
    header.bytes = pick(kSizes);
    header.mode = random_() % 8 == 0 ? 04755 : 0644;
    tar.header(header);
    if (header.bytes > 0 && random_() % 4 != 0) {
      const std::string content = header.type == 'x' || header.type == 'g'
                                      ? "20 path=../../evil\n\n"
                                      : std::string(header.bytes % 600, '/');
      tar.raw(content);
    }
  }

  std::mt19937_64 random_;
};

// That it leads to something in `directory`, now and whatever will be put there.
void expect_inside(const fs::path& link, const fs::path& directory) {
  const std::string target = fs::weakly_canonical(link).string();
  EXPECT_TRUE(target == directory.string() || target.starts_with(directory.string() + "/"))
      << link << " -> " << fs::read_symlink(link);
}

TEST(BundleFuzz, NothingEverLeavesTheDirectory) {
  if (!bundles_problem().empty()) GTEST_SKIP() << bundles_problem();
  const TempDir directory;
  directory.write("canary", "alive");
  const fs::path out = fs::canonical(directory.path()) / "out";
  HostileTar make(1);
  int taken = 0;
  int refused = 0;
  for (int round = 0; round < 1000; ++round) {
    fs::remove_all(out);
    const std::string bytes = make();
    const Fd bundle = make_memfd("bundle", 0);
    write_full(bundle.get(), std::as_bytes(std::span(bytes)), "a bundle");
    try {
      extract_bundle(bundle.get(), out, {.bytes = 2 << 20});
      ++taken;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Errc::kCheckpoint) << error.what();
      ASSERT_FALSE(fs::exists(out)) << error.what();
      ++refused;
    }
    ASSERT_EQ(directory.read("canary"), "alive");
    for (const auto& entry : fs::directory_iterator(directory.path())) {
      const std::string name = entry.path().filename();
      ASSERT_TRUE(name == "canary" || name == "out") << name;
    }
    if (!fs::exists(out)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(out)) {
      ASSERT_TRUE(entry.is_symlink() || entry.is_directory() || entry.is_regular_file());
      if (entry.is_symlink()) expect_inside(entry.path(), out);
    }
  }
  EXPECT_GT(taken, 100);
  EXPECT_GT(refused, 300);
}

TEST(BundleFuzz, ARecordIsReadOrIsNone) {
  const std::string original = to_json(
      DiskRecord{7, std::string(64, 'a'), {{{"gpu", "H200"}}, {{"model", "x"}}}, "host", 1});
  ASSERT_TRUE(record_from_json(original));
  std::mt19937_64 random(2);
  int none = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string bytes = original;
    for (int n = 0; n < 3; ++n) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (!record_from_json(bytes)) ++none;
  }
  EXPECT_GT(none, 1000);
}

}  // namespace
}  // namespace preload::artifact
