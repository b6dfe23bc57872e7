// SPDX-License-Identifier: Apache-2.0
#include "serve/artifact_store.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace preload {
namespace {

Fd content(const std::string& text, bool sealed = true) {
  Fd fd = make_memfd("artifact", text.size());
  write_full(fd.get(), std::as_bytes(std::span(text)), "an artifact");
  if (sealed) seal_memfd(fd.get());
  return fd;
}

bool put(ArtifactStore& store, const std::string& key, const std::string& text) {
  return store.put({{key, text.size(), "about " + key}, content(text)}).replaced;
}

std::optional<std::string> get(ArtifactStore& store, const std::string& key) {
  std::vector<Fd> fds;
  const wire::GetArtifactReply reply = store.get({key}, fds);
  if (!reply.found) return std::nullopt;
  EXPECT_EQ(reply.metadata, "about " + key);
  std::string text(reply.bytes, '\0');
  EXPECT_EQ(pread_full(fds.at(0).get(), std::as_writable_bytes(std::span(text)), 0, "it"),
            reply.bytes);
  return text;
}

TEST(ArtifactStore, GivesBackWhatWasPut) {
  ArtifactStore store;
  EXPECT_FALSE(put(store, "table/a/1.json", "one"));
  EXPECT_FALSE(put(store, "table/a/2.json", "second"));
  EXPECT_EQ(get(store, "table/a/1.json"), "one");
  EXPECT_EQ(get(store, "table/a/2.json"), "second");
  EXPECT_EQ(get(store, "table/a"), std::nullopt);
  EXPECT_EQ(store.bytes(), 9U);
}

TEST(ArtifactStore, ReplacesWhatHasTheSameKeyAndSaysSo) {
  ArtifactStore store;
  put(store, "k", "old one");
  EXPECT_TRUE(put(store, "k", "new"));
  EXPECT_EQ(get(store, "k"), "new");
  EXPECT_EQ(store.size(), 1U);
  EXPECT_EQ(store.bytes(), 3U);
}

TEST(ArtifactStore, LetsGoOfWhatWasNotUsedForLongest) {
  ArtifactStore store({.bytes = 10, .count = 100});
  put(store, "a", "1234");
  put(store, "b", "1234");
  get(store, "a");
  put(store, "c", "1234");
  EXPECT_EQ(get(store, "b"), std::nullopt);
  EXPECT_EQ(get(store, "a"), "1234");
  EXPECT_EQ(get(store, "c"), "1234");
  EXPECT_EQ(store.bytes(), 8U);
}

TEST(ArtifactStore, KeepsNoMoreThanItsCount) {
  ArtifactStore store({.bytes = 1000, .count = 2});
  for (const char* key : {"a", "b", "c"}) put(store, key, "x");
  EXPECT_EQ(store.size(), 2U);
  EXPECT_EQ(get(store, "a"), std::nullopt);
}

TEST(ArtifactStore, KeepsMetadataInBoundsAndSaysWhatMadeRoom) {
  ArtifactStore store({.bytes = 1000, .metadata_bytes = 10, .count = 100});
  put(store, "a", "x");  // "about a" is 7 bytes
  const auto result = store.put({{"b", 1, "about b"}, content("y")});
  EXPECT_EQ(result.forgotten, std::vector<std::string>{"a"});
  EXPECT_FALSE(result.replaced);
  EXPECT_EQ(get(store, "a"), std::nullopt);
  EXPECT_EQ(get(store, "b"), "y");
}

TEST(ArtifactStore, ListsWhatWasPutSinceInTheOrderOfUse) {
  ArtifactStore store;
  for (const char* key : {"a", "b", "c"}) put(store, key, "x");
  get(store, "a");
  const std::uint64_t then = store.puts();
  put(store, "b", "new");
  std::vector<std::string> all, young;
  for (const Artifact* artifact : store.put_since(0)) all.push_back(artifact->about.key);
  for (const Artifact* artifact : store.put_since(then)) young.push_back(artifact->about.key);
  EXPECT_EQ(all, (std::vector<std::string>{"c", "a", "b"}));
  EXPECT_EQ(young, std::vector<std::string>{"b"});
}

TEST(ArtifactStore, ForgetsWhatItIsToldTo) {
  ArtifactStore store;
  put(store, "a", "1234");
  store.forget("a");
  store.forget("never there");
  EXPECT_EQ(store.find("a"), nullptr);
  EXPECT_EQ(store.bytes(), 0U);
}

TEST(ArtifactStore, AnAnswerUnderWayOutlivesItsArtifact) {
  ArtifactStore store;
  put(store, "k", "old");
  std::vector<Fd> fds;
  store.get({"k"}, fds);
  put(store, "k", "new");
  std::string text(3, '\0');
  pread_full(fds.at(0).get(), std::as_writable_bytes(std::span(text)), 0, "it");
  EXPECT_EQ(text, "old");
}

TEST(ArtifactStore, TakesSealedContentOfTheStatedSizeAlone) {
  ArtifactStore store;
  EXPECT_THROW(store.put({{"k", 3, ""}, content("abc", false)}), Error);
  EXPECT_THROW(store.put({{"k", 4, ""}, content("abc")}), Error);
  EXPECT_THROW(store.put({{"k", 3, ""}, open_fd(AT_FDCWD, "/dev/null", 0, 0, Errc::kInternal)}),
               Error);
  EXPECT_EQ(store.size(), 0U);
}

}  // namespace
}  // namespace preload
