// SPDX-License-Identifier: Apache-2.0
#include "load/loader.hpp"

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>

#include "load/load_job.hpp"
#include "load/run_threads.hpp"
#include "load/uring.hpp"
#include "unit/load/random_load.hpp"

namespace preload {
namespace {

using test::RandomLoad;
using testing::HasSubstr;

struct Loaded {
  std::unique_ptr<SlabMemory> memory;
  LoadResult result;
};

Loaded load_on_host(const RandomLoad& random, const LoadOptions& options) {
  Loaded loaded;
  loaded.memory = allocate_slabs(HandleKind::kHost, random.plan.slabs.slabs, -1);
  LoadProgress progress;
  loaded.result = load_alone(random.plan, random.program, random.checkpoint, *loaded.memory,
                             options, progress, Cancel());
  EXPECT_EQ(progress.total_bytes, random.op_bytes());
  EXPECT_EQ(progress.bytes, random.op_bytes());
  return loaded;
}

void expect_right(const RandomLoad& random, const Loaded& loaded) {
  const auto extents = random.expected_extents();
  for (std::size_t t = 0; t < extents.size(); ++t) {
    const Placement& place = random.plan.slabs.placements[t];
    const std::string got(
        reinterpret_cast<const char*>(loaded.memory->address(place.slab) + place.offset),
        place.bytes);
    ASSERT_TRUE(got == extents[t]) << random.program.tensors[t].name << " differs";
  }
  EXPECT_EQ(loaded.result.served, random.expected_served());
  EXPECT_EQ(test::source_hashes(loaded.result), random.expected_source());
}

std::string error_of(const std::function<void()>& body, Errc expected) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), expected) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

int open_descriptors() {
  int count = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

TEST(Loader, GivesTheInterpretersBytesAndHashesForRandomPrograms) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    const RandomLoad random(seed);
    expect_right(random, load_on_host(random, {}));
  }
}

TEST(Loader, GivesTheSameWithOneToSixteenThreads) {
  const RandomLoad random(77);
  for (const int threads : {1, 2, 3, 8, 16}) {
    SCOPED_TRACE(threads);
    expect_right(random, load_on_host(random, {.threads = threads}));
  }
}

TEST(Loader, GivesTheSameByEveryWayOfReading) {
  const RandomLoad random(78);
  for (const ReadMethod method :
       {ReadMethod::kPread, ReadMethod::kMmap, ReadMethod::kDirect, ReadMethod::kUring}) {
    if (method == ReadMethod::kUring && !Uring::is_built()) continue;
    SCOPED_TRACE(read_method_name(method));
    expect_right(random, load_on_host(random, {.method = method}));
  }
}

TEST(Loader, GivesTheSameThroughTrialsOfWaysToRead) {
  const RandomLoad random(79);
  LoadOptions options{.threads = 0, .keep_tuning = false};
  options.least_trial_bytes = 1;
  const Loaded loaded = load_on_host(random, options);
  expect_right(random, loaded);
  EXPECT_GT(loaded.result.threads, 0);
}

TEST(Loader, WorksInTheSmallestRingAndSaysWhatThatIs) {
  const RandomLoad random(5);
  expect_right(random, load_on_host(random, {.ring_bytes = 128 * kKiB, .threads = 16}));
  const std::string text = error_of(
      [&] { load_on_host(random, {.ring_bytes = 128 * kKiB - 1, .threads = 1}); }, Errc::kUsage);
  EXPECT_THAT(text, HasSubstr("--ring-bytes"));
  EXPECT_THAT(text, HasSubstr("128.00 KiB"));
}

TEST(Loader, ReadsEachByteOfWholeTensorsOnce) {
  RandomLoad random(11);
  std::erase_if(random.plan.ops, [](const CopyOp& op) { return op.rows != 1; });
  EXPECT_EQ(load_on_host(random, {}).result.bytes_read, random.op_bytes());
}

TEST(Loader, NamesFileOffsetAndMissingBytesOfATruncatedFile) {
  RandomLoad random(21);
  const SourceFile file = random.checkpoint.files[1];
  for (const std::uint64_t missing : {std::uint64_t{1}, std::uint64_t{4096}, file.bytes / 2}) {
    SCOPED_TRACE(missing);
    random.directory.write(file.name, random.file_bytes[1]);
    random.checkpoint.files[1] = test::describe_file(random.directory, file.name);
    random.directory.truncate(file.name, file.bytes - missing);
    const std::string text = error_of([&] { load_on_host(random, {}); }, Errc::kCheckpoint);
    EXPECT_THAT(text, HasSubstr(file.name));
    EXPECT_THAT(text, HasSubstr(std::to_string(missing) + " fewer"));
    EXPECT_THAT(text, HasSubstr("start again"));
  }
}

TEST(Loader, NoticesAFileThatChangedSinceItsHeaderWasRead) {
  const RandomLoad random(22);
  const std::string name = random.checkpoint.files[2].name;
  random.directory.write(name, random.file_bytes[2]);  // same bytes, another mtime
  EXPECT_THAT(error_of([&] { load_on_host(random, {}); }, Errc::kCheckpoint),
              testing::AllOf(HasSubstr(name), HasSubstr("changed since")));
}

TEST(Loader, NamesAFileThatIsGone) {
  const RandomLoad random(23);
  random.directory.remove(random.checkpoint.files[0].name);
  EXPECT_THAT(error_of([&] { load_on_host(random, {}); }, Errc::kCheckpoint),
              testing::AllOf(HasSubstr(random.checkpoint.files[0].name), HasSubstr("ENOENT")));
}

TEST(Loader, StopsWhenCancelledAndCarriesTheStatus) {
  const RandomLoad random(31);
  const auto memory = allocate_slabs(HandleKind::kHost, random.plan.slabs.slabs, -1);
  Cancel cancel;
  cancel.request({143, "terminated"});
  LoadProgress progress;
  try {
    load_alone(random.plan, random.program, random.checkpoint, *memory, {}, progress, cancel);
    FAIL() << "a cancelled load went on";
  } catch (const Cancelled& cancelled) {
    EXPECT_EQ(cancelled.status(), 143);
  }
  EXPECT_EQ(progress.bytes, 0U);
}

TEST(Loader, LeavesNoDescriptorBehind) {
  const RandomLoad random(41);
  const int before = open_descriptors();
  load_on_host(random, {});
  random.directory.truncate(random.checkpoint.files[0].name, 10);
  error_of([&] { load_on_host(random, {}); }, Errc::kCheckpoint);
  EXPECT_EQ(open_descriptors(), before);
}

TEST(Loader, LoadsAPlanWithoutOps) {
  RandomLoad random(42);
  random.plan.ops.clear();
  random.plan.fills.clear();
  const LoadResult result = load_on_host(random, {}).result;
  EXPECT_EQ(result.bytes_read, 0U);
  EXPECT_TRUE(result.sources.empty());
  EXPECT_EQ(result.served.size(), random.program.tensors.size());
}

TEST(RunThreads, ThrowsTheFirstExceptionOnceAllHaveEnded) {
  std::atomic<int> ended{0};
  const auto body = [&](int index, const std::atomic<bool>& stop) {
    if (index == 2) throw Error(Errc::kDevice, "the one");
    while (!stop.load()) std::this_thread::yield();
    ++ended;
  };
  EXPECT_EQ(error_of([&] { run_threads(4, body); }, Errc::kDevice), "the one");
  EXPECT_EQ(ended, 3);
}

}  // namespace
}  // namespace preload
