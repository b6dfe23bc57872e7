// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "load/hash_files.hpp"
#include "support/safetensors_writer.hpp"
#include "support/temp_dir.hpp"

namespace preload {
namespace {

namespace fs = std::filesystem;
using test::ScopedEnv;
using test::stored;
using test::TempDir;

class ReceiptStore : public testing::Test {
 protected:
  // A checkpoint old enough for its time stamps to prove something.
  ReceiptStore() {
    write_checkpoint(model_, {{stored("a", "U8", {100}), stored("b", "U8", {50})}});
    settle();
    checkpoint_ = open_checkpoint(model_.path(), {});
  }
  static void settle() { std::this_thread::sleep_for(std::chrono::milliseconds(150)); }

  std::string entry() const {
    for (const auto& file : fs::directory_iterator(cache_ / "hashes")) return file.path().string();
    return {};
  }

  TempDir model_;
  TempDir cache_;
  ScopedEnv root_{"PRELOAD_CACHE_ROOT", cache_.path().c_str()};
  Checkpoint checkpoint_;
  const SourceHash a_{0, {.lo = 1, .hi = 2}};
  const SourceHash b_{1, {.lo = 3, .hi = ~0ULL}};
};

TEST_F(ReceiptStore, RemembersHashesUnderTheReceipt) {
  EXPECT_EQ(recall_hashes(checkpoint_), std::nullopt);
  remember_hashes(checkpoint_, {a_, b_});
  const auto known = recall_hashes(checkpoint_);
  ASSERT_TRUE(known.has_value());
  ASSERT_EQ(known->size(), 2U);
  EXPECT_EQ((*known)[0].hash, a_.hash);
  EXPECT_EQ((*known)[1].source, 1U);
  EXPECT_EQ((*known)[1].hash, b_.hash);
}

TEST_F(ReceiptStore, AddsToWhatItKnows) {
  remember_hashes(checkpoint_, {a_});
  remember_hashes(checkpoint_, {b_});
  EXPECT_EQ(recall_hashes(checkpoint_)->size(), 2U);
}

TEST_F(ReceiptStore, AnyChangeOfTheReceiptForgets) {
  remember_hashes(checkpoint_, {a_, b_});
  const auto forgets = [&](auto change) {
    Checkpoint other = checkpoint_;
    change(other.files[0]);
    return recall_hashes(other) == std::nullopt;
  };
  EXPECT_FALSE(forgets([](SourceFile&) {}));
  EXPECT_TRUE(forgets([](SourceFile& f) { f.name = "other.safetensors"; }));
  EXPECT_TRUE(forgets([](SourceFile& f) { ++f.bytes; }));
  EXPECT_TRUE(forgets([](SourceFile& f) { ++f.inode; }));
  EXPECT_TRUE(forgets([](SourceFile& f) { ++f.mtime_ns; }));
  EXPECT_TRUE(forgets([](SourceFile& f) { ++f.ctime_ns; }));
}

TEST_F(ReceiptStore, AByteFlippedWithTheTimeSetBackIsStillNoticed) {
  remember_hashes(checkpoint_, {a_, b_});
  const auto before = fs::last_write_time(model_ / "model.safetensors");
  model_.flip_byte("model.safetensors", model_.size("model.safetensors") - 1);
  fs::last_write_time(model_ / "model.safetensors", before);
  EXPECT_EQ(recall_hashes(open_checkpoint(model_.path(), {})), std::nullopt);
}

// A hub cache keeps a file under the SHA-256 that its bytes had when it was downloaded.
class HubReceiptStore : public ReceiptStore {
 protected:
  static constexpr std::uint64_t kTensorBytes = 1'000'000;

  Checkpoint in_hub_cache(const TempDir& hub) {
    TempDir files;
    write_checkpoint(files, {{stored("a", "U8", {kTensorBytes})}});
    for (const char* name : {"config.json", "model.safetensors"}) {
      hub.write("models--m/blobs/" + blob(name), files.read(name));
      hub.link(std::string("models--m/snapshots/main/") + name, "../../blobs/" + blob(name));
    }
    settle();
    return open_checkpoint(hub / "models--m/snapshots/main", {});
  }
  static std::string blob(const std::string& name) {
    return name == "config.json" ? std::string(40, 'c') : std::string(64, 'a');
  }
};

TEST_F(HubReceiptStore, TakesNoBlobsNameForItsBytes) {
  const TempDir damaged;
  const TempDir good;
  // Far from what any sample looks at; the cache then learns the damaged copy's hashes first.
  const Checkpoint copy = in_hub_cache(damaged);
  damaged.flip_byte("models--m/blobs/" + blob("model.safetensors"),
                    damaged.size("models--m/blobs/" + blob("model.safetensors")) - 11'111);
  settle();
  const Checkpoint flipped = open_checkpoint(damaged / "models--m/snapshots/main", {});
  EXPECT_EQ(recall_hashes(flipped), std::nullopt);
  remember_hashes(flipped, {a_});
  EXPECT_EQ(recall_hashes(flipped)->size(), 1U);
  EXPECT_EQ(recall_hashes(in_hub_cache(good)), std::nullopt);
}

TEST_F(HubReceiptStore, ForgetsABlobThatWasChangedInItsPlace) {
  const TempDir hub;
  remember_hashes(in_hub_cache(hub), {a_});
  const std::string path = "models--m/blobs/" + blob("model.safetensors");
  hub.flip_byte(path, hub.size(path) - 11'111);
  EXPECT_EQ(recall_hashes(open_checkpoint(hub / "models--m/snapshots/main", {})), std::nullopt);
}

TEST_F(ReceiptStore, DoesNotRememberFilesThatChangedWhileTheyWereRead) {
  model_.flip_byte("model.safetensors", model_.size("model.safetensors") - 1);
  settle();
  remember_hashes(checkpoint_, {a_, b_});
  EXPECT_EQ(recall_hashes(checkpoint_), std::nullopt);
}

TEST_F(ReceiptStore, DoesNotTrustTimeStampsOfFilesJustWritten) {
  const TempDir fresh;
  write_checkpoint(fresh, {{stored("a", "U8", {100})}});
  const Checkpoint checkpoint = open_checkpoint(fresh.path(), {});
  remember_hashes(checkpoint, {a_});
  EXPECT_EQ(recall_hashes(checkpoint), std::nullopt);
}

TEST_F(ReceiptStore, DamagedEntriesCountAsAbsentAndAreReplaced) {
  remember_hashes(checkpoint_, {a_, b_});
  const std::string name = fs::relative(entry(), cache_.path()).string();
  const std::string good = cache_.read(name);
  for (const std::string& bad :
       {std::string(), good.substr(0, good.size() / 2), std::string("[]"), std::string("{}"),
        std::string(R"({"version":3,"files":[],"hashes":{"a":"00"}})")}) {
    cache_.write(name, bad);
    EXPECT_EQ(recall_hashes(checkpoint_), std::nullopt) << bad;
  }
  remember_hashes(checkpoint_, {a_});
  EXPECT_EQ(recall_hashes(checkpoint_)->size(), 1U);
}

TEST_F(ReceiptStore, IsPrivateAndLeavesNoTemporaryFile) {
  const TempDir parent;
  const ScopedEnv root("PRELOAD_CACHE_ROOT", (parent / "new/cache").c_str());
  remember_hashes(checkpoint_, {a_});
  struct stat status {};
  ASSERT_EQ(::stat((parent / "new/cache").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700U);
  const fs::directory_iterator entries(parent / "new/cache/hashes");
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
}

TEST_F(ReceiptStore, AStoreThatCannotBeKeptIsNoError) {
  cache_.write("file", "x");
  const ScopedEnv root("PRELOAD_CACHE_ROOT", (cache_ / "file/below").c_str());
  EXPECT_NO_THROW(remember_hashes(checkpoint_, {a_}));
  EXPECT_EQ(recall_hashes(checkpoint_), std::nullopt);
}

TEST_F(ReceiptStore, FollowsTheUsualVariables) {
  const ScopedEnv none("PRELOAD_CACHE_ROOT", nullptr);
  {
    const ScopedEnv xdg("XDG_CACHE_HOME", (cache_ / "xdg").c_str());
    remember_hashes(checkpoint_, {a_});
    EXPECT_TRUE(fs::is_directory(cache_ / "xdg/preload/hashes"));
  }
  const ScopedEnv xdg("XDG_CACHE_HOME", nullptr);
  const ScopedEnv home("HOME", cache_.path().c_str());
  remember_hashes(checkpoint_, {a_});
  EXPECT_TRUE(fs::is_directory(cache_ / ".cache/preload/hashes"));
}

}  // namespace
}  // namespace preload
