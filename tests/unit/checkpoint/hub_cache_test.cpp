// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "support/safetensors_writer.hpp"
#include "support/temp_dir.hpp"
#include "unit/checkpoint/refusal.hpp"

namespace preload {
namespace {

using test::refusal;
using test::ScopedEnv;
using test::stored;
using test::TempDir;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kCommit(40, 'a');
const std::string kOther = "0123456789abcdef0123456789abcdef01234567";

// A repository as the hub's tools lay it out: blobs, links to them in snapshots, refs.
void write_repository(const TempDir& dir, const std::string& prefix, const std::string& commit,
                      const std::string& tensor) {
  const std::string base = prefix + "models--org--tiny/";
  dir.write(base + "blobs/" + commit + "-w", test::safetensors_file({stored(tensor, "BF16", {8})}));
  dir.write(base + "blobs/" + commit + "-c", "{}");
  const std::string snapshot = base + "snapshots/" + commit + "/";
  dir.link(snapshot + "model.safetensors", "../../blobs/" + commit + "-w");
  dir.link(snapshot + "config.json", "../../blobs/" + commit + "-c");
}

class HubCache : public testing::Test {
 protected:
  HubCache() { write_repository(dir_, "hub/", kCommit, "main_tensor"); }

  OpenOptions options(const std::string& revision = "main") const {
    return {.revision = revision, .hub_cache = dir_ / "hub"};
  }
  TempDir dir_;
  // No variable of the caller may lead to a real cache.
  ScopedEnv hub_{"HF_HUB_CACHE", nullptr};
  ScopedEnv old_hub_{"HUGGINGFACE_HUB_CACHE", nullptr};
  ScopedEnv home_{"HF_HOME", nullptr};
  ScopedEnv cache_{"XDG_CACHE_HOME", nullptr};
  ScopedEnv user_{"HOME", "/nonexistent"};
};

TEST_F(HubCache, ResolvesABranchThroughItsReference) {
  dir_.write("hub/models--org--tiny/refs/main", kCommit + "\n");
  const Checkpoint checkpoint = open_checkpoint("org/tiny", options());
  EXPECT_EQ(checkpoint.name, "org/tiny");
  EXPECT_EQ(checkpoint.directory, dir_ / "hub/models--org--tiny/snapshots/" + kCommit);
  EXPECT_EQ(checkpoint.tensors.at(0).name, "main_tensor");
  EXPECT_EQ(checkpoint.files.at(0).name, "model.safetensors");
}

TEST_F(HubCache, ResolvesTagsAndPullRequests) {
  write_repository(dir_, "hub/", kOther, "pr_tensor");
  dir_.write("hub/models--org--tiny/refs/refs/pr/7", kOther);
  EXPECT_EQ(open_checkpoint("org/tiny", options("refs/pr/7")).tensors.at(0).name, "pr_tensor");
}

TEST_F(HubCache, TakesACommitAsRevision) {
  EXPECT_EQ(resolve_model("org/tiny", options(kCommit)),
            dir_ / "hub/models--org--tiny/snapshots/" + kCommit);
}

TEST_F(HubCache, IsFoundByTheVariablesOfTheHubsOwnTools) {
  dir_.write("hub/models--org--tiny/refs/main", kCommit);
  write_repository(dir_, "home/.cache/huggingface/hub/", kCommit, "t");
  dir_.write("home/.cache/huggingface/hub/models--org--tiny/refs/main", kCommit);
  const std::string tail = "/models--org--tiny/snapshots/" + kCommit;
  {
    const ScopedEnv hub("HF_HUB_CACHE", (dir_ / "hub").c_str());
    EXPECT_EQ(resolve_model("org/tiny", {}), dir_ / "hub" + tail);
  }
  {
    const ScopedEnv home("HF_HOME", dir_.path().c_str());
    EXPECT_EQ(resolve_model("org/tiny", {}), dir_ / "hub" + tail);
  }
  {
    const ScopedEnv home("HOME", (dir_ / "home").c_str());
    EXPECT_EQ(resolve_model("org/tiny", {}), dir_ / "home/.cache/huggingface/hub" + tail);
  }
}

TEST_F(HubCache, RefusalsListWhatWasTriedAndWhatIsThere) {
  dir_.write("hub/models--org--tiny/refs/main", kCommit);
  EXPECT_THAT(refusal("org/tiny", options("v2")),
              AllOf(HasSubstr("\"org/tiny\""), HasSubstr("\"v2\""),
                    HasSubstr(dir_ / "hub/models--org--tiny/refs/v2"), HasSubstr("\"main\""),
                    HasSubstr(kCommit), HasSubstr("never downloads"),
                    HasSubstr("hf download org/tiny --revision v2")));
  EXPECT_THAT(refusal("org/absent", options()), AllOf(HasSubstr(dir_ / "hub/models--org--absent"),
                                                      HasSubstr("hf download org/absent")));
}

TEST_F(HubCache, ReferencesToSnapshotsThatAreGoneAreRefused) {
  dir_.write("hub/models--org--tiny/refs/main", kOther);
  EXPECT_THAT(refusal("org/tiny", options()), HasSubstr("snapshots/" + kOther));
}

TEST_F(HubCache, NeitherIdsNorRevisionsNorReferencesLeaveIt) {
  write_repository(dir_, "outside/", kCommit, "secret");
  dir_.write("hub/models--org--tiny/refs/evil",
             "../../../outside/models--org--tiny/snapshots/" + kCommit);
  EXPECT_THAT(refusal("org/tiny", options("evil")), HasSubstr("hf download"));
  EXPECT_THAT(refusal("org/tiny", options("../../../outside/models--org--tiny/refs/main")),
              HasSubstr("neither a directory nor"));
  EXPECT_THAT(refusal("../outside", options()), HasSubstr("no hub id"));
  EXPECT_THAT(refusal("org/../tiny", options()), HasSubstr("no hub id"));
}

TEST_F(HubCache, ABlobThatWasNotDownloadedIsNamed) {
  dir_.write("hub/models--org--tiny/refs/main", kCommit);
  dir_.remove("hub/models--org--tiny/blobs/" + kCommit + "-w");
  EXPECT_THAT(refusal("org/tiny", options()),
              AllOf(HasSubstr("model.safetensors: is a link to"), HasSubstr("blobs/" + kCommit)));
}

TEST(ResolveModel, TakesADirectoryAsItIs) {
  const TempDir dir;
  EXPECT_EQ(resolve_model(dir.path(), {}), dir.path());
  EXPECT_EQ(resolve_model(dir.path() + "/", {}), dir.path());
  EXPECT_EQ(resolve_model(dir.path() + "/./", {}), dir.path());
}

TEST(ResolveModel, RefusesFilesAndPathsThatAreNotThere) {
  const TempDir dir;
  dir.write("model.safetensors", "x");
  EXPECT_THAT(refusal(dir / "model.safetensors"),
              AllOf(HasSubstr("is a file"), HasSubstr("directory")));
  EXPECT_THAT(refusal(dir / "absent"),
              AllOf(HasSubstr(dir / "absent"), HasSubstr("no such directory")));
  EXPECT_THAT(refusal(""), HasSubstr("no model is named"));
}

}  // namespace
}  // namespace preload
