// SPDX-License-Identifier: Apache-2.0
#include "serve/package.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>

#include "unit/serve/live_server.hpp"
#include "unit/wire/socket_pair.hpp"

namespace preload {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Lease lease_of(Fd pipe, int pid = 7, std::uint64_t generation = 1) {
  Lease lease;
  lease.pipe = std::move(pipe);
  lease.pid = pid;
  lease.name = "engine";
  lease.since = std::chrono::steady_clock::now() - std::chrono::seconds(90);
  lease.generation = generation;
  return lease;
}

std::vector<Fd> packed(const Residency& residency, const LeaseTable* leases = nullptr) {
  PackageView view;
  view.generations = {&residency};
  view.leases = leases;
  return pack(view);
}

// The papers of a package, changed, in front of its other descriptors.
std::vector<Fd> with_papers(std::vector<Fd> fds, const std::function<void(json&)>& change) {
  const std::string text = [&] {
    std::string bytes(4 << 20, '\0');
    bytes.resize(
        pread_full(fds.front().get(), std::as_writable_bytes(std::span(bytes)), 0, "papers"));
    return bytes;
  }();
  json papers = json::parse(text);
  change(papers);
  fds.front() = sealed_memfd(papers.dump());
  return fds;
}

std::string rejection(std::vector<Fd> fds) {
  try {
    unpack(std::move(fds));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kProtocol) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

TEST(Package, BringsAResidencyAndItsLeasesWhole) {
  Residency residency = sample_residency();
  residency.generation = 5;
  LeasePipe pipe;
  LeaseTable leases;
  leases.add(lease_of(std::move(pipe.read), 42, 4));
  Package package = unpack(packed(residency, &leases));

  ASSERT_EQ(package.generations.size(), 1U);
  const Residency& got = package.generations.front();
  EXPECT_TRUE(is_same_place(got.endpoint, residency.endpoint));
  EXPECT_EQ(got.job, "job-1");
  EXPECT_EQ(got.model, "/models/sample");
  EXPECT_EQ(got.coords, residency.coords);
  EXPECT_EQ(got.fields, residency.fields);
  EXPECT_EQ(got.key, residency.key);
  EXPECT_EQ(got.checkpoint, residency.checkpoint);
  EXPECT_EQ(got.receipt_json, "[]");
  EXPECT_EQ(got.generation, 5U);
  EXPECT_EQ(got.tensor_count, residency.tensor_count);
  ASSERT_EQ(got.slabs.size(), 2U);
  EXPECT_EQ(got.slabs[1].cls, TensorClass::kPrivate);
  const Mapping slab = map_fd(got.slabs[0].fd.get(), got.slabs[0].bytes, false, "slab");
  EXPECT_EQ(static_cast<char>(slab.bytes()[17]), 'a');

  ASSERT_EQ(package.leases.size(), 1U);
  EXPECT_EQ(package.leases[0].pid, 42);
  EXPECT_EQ(package.leases[0].name, "engine");
  EXPECT_EQ(package.leases[0].generation, 4U);
  EXPECT_NEAR(age_s(package.leases[0]), 90, 5);
  EXPECT_FALSE(package.draining);
  EXPECT_FALSE(package.lock);
}

TEST(Package, OfMoreDescriptorsThanAFrameTakesIsWhole) {
  const Residency residency = sample_residency();
  LeaseTable leases;
  std::vector<Fd> ends;
  for (int i = 0; i < 600; ++i) {
    LeasePipe pipe;
    leases.add(lease_of(std::move(pipe.read), i));
    ends.push_back(std::move(pipe.write));
  }
  EXPECT_EQ(unpack(packed(residency, &leases)).leases.size(), 600U);
}

Artifact artifact_of(const std::string& key, const std::string& text,
                     const std::string& metadata = "") {
  return {{key, text.size(), metadata}, sealed_memfd(text)};
}

std::vector<Fd> packed_with(const Residency& residency, const ArtifactStore& artifacts) {
  PackageView view;
  view.generations = {&residency};
  view.artifacts = &artifacts;
  return pack(view);
}

TEST(Package, BringsArtifactsInTheOrderOfTheirUse) {
  const Residency residency = sample_residency();
  ArtifactStore artifacts;
  artifacts.put(artifact_of("a/1", "one", "line\nline \"quoted\""));
  artifacts.put(artifact_of("a/2", "second"));
  std::vector<Fd> answer;
  artifacts.get({"a/1"}, answer);
  const Package package = unpack(packed_with(residency, artifacts));
  ASSERT_EQ(package.artifacts.size(), 2U);
  EXPECT_EQ(package.artifacts[0].about, (wire::PutArtifactRequest{"a/2", 6, ""}));
  EXPECT_EQ(package.artifacts[1].about,
            (wire::PutArtifactRequest{"a/1", 3, "line\nline \"quoted\""}));
  const Mapping content = map_fd(package.artifacts[0].content.get(), 6, false, "it");
  EXPECT_EQ(std::memcmp(content.data(), "second", 6), 0);
}

TEST(Package, BringsAsManyArtifactsAsADaemonKeepsWithAllTheirMetadata) {
  const Residency residency = sample_residency();
  ArtifactStore artifacts({.count = 200});
  const std::string metadata(wire::kMaxArtifactMetadataBytes, '\x01');  // six bytes each in JSON
  for (int i = 0; i < 300; ++i)
    artifacts.put(artifact_of("k" + std::to_string(i), "x", i < 250 ? metadata : ""));
  EXPECT_EQ(unpack(packed_with(residency, artifacts)).artifacts.size(), artifacts.size());
  EXPECT_LE(artifacts.size(), 200U);
}

TEST(Package, RefusesArtifactsThatDoNotFitTheirList) {
  const Residency residency = sample_residency();
  ArtifactStore artifacts;
  artifacts.put(artifact_of("a", "one"));
  const auto changed = [&](const std::function<void(std::vector<Fd>&)>& change) {
    std::vector<Fd> fds =
        packed_with(residency, artifacts);  // papers, manifest, slabs, list, content
    change(fds);
    return rejection(std::move(fds));
  };
  EXPECT_THAT(changed([](auto& fds) { fds.back() = sealed_memfd("four"); }), HasSubstr("'a'"));
  EXPECT_THAT(changed([](auto& fds) { fds.back() = make_memfd("unsealed", 3); }), HasSubstr("'a'"));
  EXPECT_THAT(changed([](auto& fds) { fds[4] = make_memfd("unsealed", 3); }), HasSubstr("sealed"));
  EXPECT_THAT(changed([](auto& fds) { fds[4] = sealed_memfd("{}\n"); }), HasSubstr("key"));
  const std::string line = R"({"key":"a","bytes":3})";
  EXPECT_THAT(changed([&](auto& fds) { fds[4] = sealed_memfd(line); }), HasSubstr("lines"));
  EXPECT_THAT(changed([&](auto& fds) { fds[4] = sealed_memfd(line + "\n" + line + "\n"); }),
              HasSubstr("lines"));
  EXPECT_THAT(changed([](auto& fds) { fds.pop_back(); }), HasSubstr("artifact is missing"));
  EXPECT_THAT(rejection(with_papers(packed_with(residency, artifacts),
                                    [](json& papers) { papers["artifacts"] = 2; })),
              HasSubstr("missing"));
  EXPECT_THAT(rejection(with_papers(packed_with(residency, artifacts),
                                    [](json& papers) { papers["artifacts"] = 0; })),
              HasSubstr("too many"));
}

TEST(Package, IgnoresMembersThatALaterReleaseMayAdd) {
  const Residency residency = sample_residency();
  const auto fds = with_papers(packed(residency), [](json& papers) {
    papers["later"] = {{"x", 1}};
    papers["generations"][0]["later"] = "y";
    papers["generations"][0]["slabs"][0]["later"] = 2;
  });
  std::vector<Fd> copy;
  for (const Fd& fd : fds) copy.push_back(duplicate(fd.get()));
  EXPECT_EQ(unpack(std::move(copy)).generations.front().key, residency.key);
}

TEST(Package, RefusesWhatIsIncomplete) {
  const Residency residency = sample_residency();
  EXPECT_THAT(rejection({}), HasSubstr("papers"));
  for (std::size_t missing = 1; missing < 4; ++missing) {
    std::vector<Fd> fds = packed(residency);
    fds.resize(missing);
    EXPECT_THAT(rejection(std::move(fds)), HasSubstr("missing"));
  }
  std::vector<Fd> more = packed(residency);
  more.push_back(sealed_memfd("x"));
  EXPECT_THAT(rejection(std::move(more)), HasSubstr("too many"));
}

TEST(Package, RefusesMemoryThatCouldChangeOrIsTooSmall) {
  const Residency residency = sample_residency();
  for (std::size_t at = 0; at < 4; ++at) {
    std::vector<Fd> fds = packed(residency);
    fds[at] = make_memfd("unsealed", 8192);
    EXPECT_THAT(rejection(std::move(fds)), HasSubstr("sealed"));
    fds = packed(residency);
    fds[at] = Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    EXPECT_THAT(rejection(std::move(fds)), HasSubstr("sealed"));
  }
  std::vector<Fd> fds = packed(residency);
  fds[2] = sealed_memfd("short");
  EXPECT_THAT(rejection(std::move(fds)), HasSubstr("shorter than 4096"));
  fds = packed(residency);
  fds[1] = sealed_memfd("no manifest at all");
  rejection(std::move(fds));
}

TEST(Package, RefusesPapersThatDoNotFitTheManifest) {
  const Residency residency = sample_residency();
  const auto refused = [&](const std::function<void(json&)>& change) {
    return rejection(
        with_papers(packed(residency), [&](json& papers) { change(papers["generations"][0]); }));
  };
  EXPECT_THAT(refused([](json& r) { r["slabs"][0]["bytes"] = 2048; }), HasSubstr("manifest"));
  EXPECT_THAT(refused([](json& r) { r["slabs"][1]["class"] = "shared"; }), HasSubstr("manifest"));
  EXPECT_THAT(refused([](json& r) { r["tensors"] = 1; }), HasSubstr("manifest"));
  EXPECT_THAT(refused([](json& r) { r["key"] = "short"; }), HasSubstr("key"));
  EXPECT_THAT(refused([](json& r) { r["slot"] = "../x"; }), HasSubstr("slot"));
  EXPECT_THAT(refused([](json& r) { r["role"] = "king"; }), HasSubstr("role"));
  EXPECT_THAT(refused([](json& r) { r.erase("fields"); }), HasSubstr("fields"));
  EXPECT_THAT(refused([](json& r) { r["gpu_uuid"] = ""; }), HasSubstr("gpu_uuid"));
  EXPECT_THAT(refused([](json& r) { r["global_rank"] = -1; }), HasSubstr("global_rank"));
  EXPECT_THAT(refused([](json& r) { r["ep"] = -1; }), HasSubstr("ep"));
  EXPECT_THAT(refused([](json& r) { r["local_size"] = 0; }), HasSubstr("local_size"));
  EXPECT_THAT(refused([](json& r) { r["slabs"][0]["bytes"] = ~std::uint64_t{0}; }),
              HasSubstr("slabs"));
  EXPECT_THAT(refused([](json& r) { r["receipt"] = "no JSON"; }), HasSubstr("receipt"));
  EXPECT_THAT(refused([](json& r) {  // written by recursion, it would end the keeper
                r["shard"] = std::string(100'000, '[') + std::string(100'000, ']');
              }),
              HasSubstr("shard"));
  EXPECT_THAT(refused([](json& r) {
                r["slabs"][0]["kind"] = "cuda-ipc";
                r["slabs"][0]["handle"] = std::string(128, '0');
              }),
              HasSubstr("outlives"));
}

TEST(Package, RefusesGenerationsOfOtherPlacesAndFarTooMany) {
  const Residency residency = sample_residency();
  EXPECT_THAT(rejection(with_papers(packed(residency),
                                    [](json& papers) {
                                      papers["generations"].push_back(papers["generations"][0]);
                                      papers["generations"][1]["gpu_uuid"] = "host:1";
                                    })),
              HasSubstr("one place"));
  EXPECT_THAT(rejection(with_papers(packed(residency),
                                    [](json& papers) {
                                      for (int i = 0; i < 64; ++i)
                                        papers["generations"].push_back(papers["generations"][0]);
                                    })),
              HasSubstr("64"));
  EXPECT_THAT(rejection(with_papers(packed(residency),
                                    [](json& papers) { papers["generations"] = json::array(); })),
              HasSubstr("generations"));
  EXPECT_THAT(rejection(with_papers(
                  packed(residency),
                  [](json& papers) { papers["generations"].push_back(papers["generations"][0]); })),
              HasSubstr("a number each"));
  EXPECT_THAT(rejection(with_papers(packed(residency),
                                    [](json& papers) { papers["artifacts"] = ~std::uint64_t{0}; })),
              HasSubstr("artifacts"));
}

TEST(Package, RefusesALeaseThatNeverWouldHangUp) {
  const Residency residency = sample_residency();
  const auto with_lease = [&](Fd pipe) {
    std::vector<Fd> fds = with_papers(packed(residency), [](json& papers) {
      papers["leases"] = {{{"pid", 1}, {"name", "x"}, {"age_s", 1e300}}};
    });
    fds.push_back(std::move(pipe));
    return fds;
  };
  LeasePipe pipe;
  EXPECT_THAT(rejection(with_lease(std::move(pipe.write))), HasSubstr("lease"));
  EXPECT_THAT(rejection(with_lease(sealed_memfd("x"))), HasSubstr("lease"));
  EXPECT_EQ(age_s(unpack(with_lease(std::move(pipe.read))).leases.at(0)), 0) << "an absurd age";
}

TEST(Package, OfMemoryThatEndsWithItsProcessIsRefusedWithTheRemedy) {
  Residency residency = sample_residency();
  residency.slabs.front().kind = HandleKind::kCudaIpc;
  try {
    packed(residency);
    ADD_FAILURE() << "packed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("--export vmm"));
  }
}

TEST(Package, LeaksNoDescriptorWhateverIsRefused) {
  const Residency residency = sample_residency();
  const std::size_t before = wire::open_descriptors();
  for (int i = 0; i < 1000; ++i) {
    std::vector<Fd> fds = packed(residency);
    if (i % 2 == 0) fds.pop_back();
    try {
      unpack(std::move(fds));
    } catch (const Error&) {
    }
  }
  EXPECT_EQ(wire::open_descriptors(), before);
}

}  // namespace
}  // namespace preload
