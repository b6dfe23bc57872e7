// SPDX-License-Identifier: Apache-2.0
#include "artifact/tree_store.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "artifact/content_hash.hpp"
#include "base/error.hpp"
#include "base/log.hpp"

namespace preload::artifact {
namespace {

using nlohmann::json;

constexpr const char* kBundle = "bundle.tar";

// A file without a name on the file system of `directory`: it goes with the process.
Fd scratch_file(const std::string& directory) {
  const int raw = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (raw >= 0) return Fd(raw);
  std::string name = (std::filesystem::path(directory).parent_path() / ".bundle-XXXXXX").string();
  Fd fd(static_cast<int>(check_sys(::mkostemp(name.data(), O_CLOEXEC),
                                   fmt::format("cannot make a file beside '{}'", directory))));
  ::unlink(name.c_str());
  return fd;
}

std::string reference_text(const std::string& sha256, const BundleSummary& summary) {
  const json value{{"bundle", sha256}, {"files", summary.files}, {"bytes", summary.bytes}};
  return value.dump() + "\n";
}

// The key of the bundle that a reference names.
Key bundle_key(const std::string& text) {
  const json value = json::parse(text, nullptr, false);
  if (!value.is_object() || !value.contains("bundle") || !value["bundle"].is_string()) {
    throw Error(Errc::kCheckpoint, "it names no bundle");
  }
  Key key{std::string(kCompileCache), value["bundle"].get<std::string>(), kBundle};
  check_key(key);
  return key;
}

}  // namespace

Put store_tree(Tier& tier, const Key& reference, const std::string& directory,
               const Metadata& metadata, const BundleLimits& limits, const Cancel* cancel) try {
  const Fd bundle = scratch_file(directory);
  const BundleSummary summary = write_bundle(directory, bundle.get(), limits, cancel);
  if (summary.skipped > 0) {
    log::info(fmt::format("'{}' is kept without {} of its entries: {}", directory, summary.skipped,
                          summary.first_skipped));
  }
  if (summary.files == 0) return Put::kPresent;
  const std::string sha256 = content_hash(bundle.get(), "a bundle", cancel);
  check_sys(::lseek(bundle.get(), 0, SEEK_SET), "cannot rewind a bundle");
  // What is in it is the same everywhere; the reference says where it is of use.
  const Key key{std::string(kCompileCache), sha256, kBundle};
  if (!tier.get(key, {})) {
    const Put stored = tier.put(key, bundle.get(), {{}, metadata.labels});
    if (stored != Put::kStored && stored != Put::kPresent) return stored;
  }
  return tier.put_bytes(reference, reference_text(sha256, summary), metadata,
                        Overwrite::kSameEnvironment);
} catch (const Cancelled&) {
  throw;
} catch (const std::exception& error) {
  log::warn(fmt::format("'{}' is not kept for later jobs: {}", directory, error.what()));
  return Put::kFailed;
}

std::optional<BundleSummary> restore_tree(Tier& tier, const Key& reference, const Environment& here,
                                          const std::string& directory, const BundleLimits& limits,
                                          const Cancel* cancel) try {
  const auto found = tier.get(reference, here);
  if (!found) return std::nullopt;
  const Key key = bundle_key(found->text());
  const auto bundle = tier.get(key, {});
  if (!bundle) return std::nullopt;
  if (bundle->entry.sha256 != key.config_hash) {
    throw Error(Errc::kCheckpoint, fmt::format("'{}' holds something else", key.text()));
  }
  return extract_bundle(bundle->content.get(), directory, limits, cancel);
} catch (const Cancelled&) {
  throw;
} catch (const std::exception& error) {
  log::warn(fmt::format("artifact '{}' is not used, '{}' stays as it is: {}", reference.text(),
                        directory, error.what()));
  return std::nullopt;
}

}  // namespace preload::artifact
