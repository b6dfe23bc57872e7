// SPDX-License-Identifier: Apache-2.0
#include "serve/server.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>

#include "unit/serve/live_server.hpp"
#include "unit/wire/socket_pair.hpp"

namespace preload {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using wire::DaemonState;
using wire::open_descriptors;

char byte_of(int fd, std::uint64_t offset) {
  char byte = 0;
  EXPECT_EQ(::pread(fd, &byte, 1, static_cast<off_t>(offset)), 1);
  return byte;
}

TEST(Server, GivesAClientTheManifestAndTheSlabsInOrder) {
  LiveServer live;
  live.start();
  const Client client = attach(live);
  const wire::AttachReply& reply = client.attached.reply;
  EXPECT_EQ(reply.key, std::string(64, 'a'));
  EXPECT_EQ(reply.checkpoint, std::string(64, 'b'));
  EXPECT_EQ(reply.gpu_uuid, "host:0");
  EXPECT_EQ(reply.device, "host");
  EXPECT_EQ(reply.role, "target");
  EXPECT_EQ(reply.job, "job-1");
  EXPECT_EQ(reply.global_rank, 3);
  ASSERT_EQ(reply.slabs.size(), 2U);
  EXPECT_EQ(reply.slabs[0].bytes, 4096U);
  EXPECT_EQ(reply.slabs[1].cls, TensorClass::kPrivate);
  ASSERT_EQ(client.attached.slab_fds.size(), 2U);
  EXPECT_EQ(byte_of(client.attached.slab_fds[0].get(), 4095), 'a');
  EXPECT_EQ(byte_of(client.attached.slab_fds[1].get(), 0), 'b');
  const std::string manifest = read_all(client.attached.manifest.get(), "manifest", 1 << 20);
  EXPECT_EQ(manifest, wire::sample_manifest());
}

TEST(Server, ShowsLeasesAndWhatItHoldsInItsStatus) {
  LiveServer live;
  live.start();
  const Client client = attach(live);
  const wire::DaemonStatus status = live.status();
  EXPECT_EQ(status.state, DaemonState::kReady);
  EXPECT_EQ(status.pid, ::getpid());
  EXPECT_EQ(status.bytes, 5120U);
  EXPECT_EQ(status.overhead_bytes, 77U);
  EXPECT_EQ(status.generation, 1U);
  EXPECT_EQ(status.export_kind, "host");
  EXPECT_EQ(status.key, std::string(64, 'a'));
  ASSERT_EQ(status.leases.size(), 1U);
  EXPECT_EQ(status.leases[0].pid, ::getpid());
  EXPECT_EQ(status.leases[0].name, "test client");
  EXPECT_LT(status.leases[0].age_s, 60);
}

TEST(Server, SaysHelloAndDescribesItself) {
  LiveServer live;
  live.start();
  const Fd socket = live.connect();
  EXPECT_EQ(wire::call_hello(socket.get(), {{1, "x", ""}}, 5000).state, DaemonState::kReady);
  const wire::DescribeReply described = wire::call_describe(socket.get(), 5000);
  EXPECT_EQ(described.fields.at("tp_size"), "2");
  EXPECT_EQ(described.tensors, 6U);
}

TEST(Server, RefusesToBeAttachedBeforeTheJobIsReady) {
  LiveServer live(sample_residency(), {}, false);
  live.start();
  const wire::ErrorReply refused = refusal([&] { attach(live); });
  EXPECT_EQ(refused.code, Errc::kUnavailable);
  EXPECT_EQ(refused.state, DaemonState::kLoading);
  EXPECT_GT(refused.retry_after_ms.value_or(0), 0);
  EXPECT_EQ(live.status().state, DaemonState::kLoading);
  live.server().admit();
  EXPECT_TRUE(eventually([&] { return live.status().state == DaemonState::kReady; }));
  EXPECT_NO_THROW(attach(live));
}

TEST(Server, NamesEveryFieldThatIsNotAsExpected) {
  LiveServer live;
  live.start();
  wire::Expectation expect;
  expect.key = std::string(64, 'f');
  expect.fields = {{"dtype", "BF16"}, {"tp_size", "4"}, {"colour", "red"}};
  const wire::ErrorReply refused = refusal([&] { attach(live, expect); });
  EXPECT_EQ(refused.code, Errc::kMismatch);
  EXPECT_EQ(refused.fields.size(), 3U);
  EXPECT_EQ(refused.fields.at("key").served, std::string(64, 'a'));
  EXPECT_EQ(refused.fields.at("tp_size").expected, "4");
  EXPECT_EQ(refused.fields.at("tp_size").served, "2");
  EXPECT_EQ(refused.fields.at("colour").served, std::nullopt);
  EXPECT_THAT(refused.message, AllOf(HasSubstr("tp_size"), HasSubstr("4"), HasSubstr("2")));
  EXPECT_TRUE(live.status().leases.empty());
}

TEST(Server, CountsAttachesAndRefusalsByCause) {
  LiveServer live;
  live.start();
  const Client client = attach(live);
  wire::Expectation other;
  other.fields = {{"tp_size", "4"}};
  for (int i = 0; i < 2; ++i) refusal([&] { attach(live, other); });
  const wire::Counters counters = live.status().counters;
  EXPECT_EQ(counters.attaches.count(), 1U);
  EXPECT_GT(counters.attaches.sum_s, 0);
  EXPECT_EQ(counters.refusals.at("mismatch"), 2U);
  EXPECT_EQ(counters.refusals.size(), 1U);
}

TEST(Server, AcceptsAnExpectationThatHolds) {
  LiveServer live;
  live.start();
  wire::Expectation expect;
  expect.key = std::string(64, 'a');
  expect.checkpoint = std::string(64, 'b');
  expect.fields = {{"tp_size", "2"}};
  EXPECT_NO_THROW(attach(live, expect));
  expect.checkpoint = std::string(64, 'c');
  EXPECT_TRUE(refusal([&] { attach(live, expect); }).fields.contains("checkpoint"));
}

TEST(Server, SendsMoreSlabsThanOneMessageHolds) {
  Residency residency = sample_residency();
  residency.slabs.clear();
  for (int i = 0; i < 300; ++i) {
    SlabHandle handle;
    handle.bytes = 4;
    handle.fd = sealed_memfd("s" + std::to_string(100 + i));
    residency.slabs.push_back(std::move(handle));
  }
  LiveServer live(std::move(residency));
  live.start();
  const Client client = attach(live);
  ASSERT_EQ(client.attached.slab_fds.size(), 300U);
  for (const int i : {0, 251, 252, 253, 299})
    EXPECT_EQ(read_all(client.attached.slab_fds[static_cast<std::size_t>(i)].get(), "slab", 16),
              "s" + std::to_string(100 + i));
}

TEST(Server, SendsCudaIpcHandlesInTheReply) {
  Residency residency = sample_residency();
  residency.endpoint.device = "gpu-01234567-89ab-cdef-0123-456789abcdef";
  for (SlabHandle& slab : residency.slabs) {
    slab.kind = HandleKind::kCudaIpc;
    slab.fd.reset();
    slab.ipc_bytes = std::string(64, '\x7f');
  }
  LiveServer live(std::move(residency));
  live.start();
  const Client client = attach(live);
  EXPECT_EQ(client.attached.reply.device, "cuda");
  EXPECT_EQ(client.attached.reply.slabs[0].handle, std::string(64, '\x7f'));
  EXPECT_FALSE(client.attached.slab_fds[0]);
}

TEST(Server, StopsWithStatusZeroWhenAskedTo) {
  LiveServer live;
  live.start();
  EXPECT_EQ(wire::call_stop(live.connect().get(), {}, 5000).pid, ::getpid());
  const ServeEnd end = live.join();
  EXPECT_EQ(end.cause, ServeEnd::Cause::kStopRequested);
  EXPECT_EQ(end.status, 0);
  live.end();
  EXPECT_THROW(live.connect(), Error);
  EXPECT_TRUE(live.directory().list().empty()) << "the socket is unlinked";
}

TEST(Server, WaitsForItsLeasesWhenItHasEndedAndAdmitsNobodyElse) {
  LiveServer live;
  live.start();
  std::optional<Client> client = attach(live);
  live.server().end({ServeEnd::Cause::kSignal, 143, "ended by SIGTERM"});
  live.join();
  const auto forever = std::chrono::steady_clock::now() + std::chrono::hours(1);
  std::thread ending([&] { live.server().await_leases(forever); });
  EXPECT_TRUE(eventually([&] { return live.status().state == DaemonState::kDraining; }));
  EXPECT_EQ(refusal([&] { attach(live); }).code, Errc::kReleased);
  client.reset();
  ending.join();  // or the test runs into its limit
}

TEST(Server, WaitsForItsLeasesNoLongerThanItMay) {
  LiveServer live;
  live.start();
  const Client client = attach(live);
  live.server().end({ServeEnd::Cause::kSignal, 143, "ended by SIGTERM"});
  live.join();
  const auto start = std::chrono::steady_clock::now();
  live.server().await_leases(start + std::chrono::milliseconds(200));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(200));
}

TEST(Server, PassesTheStopOfAJobOn) {
  LiveServer live;
  std::atomic<int> asked{0};
  live.server().on_job_stop([&] {
    ++asked;
    live.server().end({ServeEnd::Cause::kJobStop, 0, "the job stops"});
  });
  live.start();
  wire::call_stop(live.connect().get(), {true}, 5000);
  EXPECT_EQ(live.join().cause, ServeEnd::Cause::kJobStop);
  EXPECT_EQ(asked, 1);
}

TEST(Server, EndsFromAnotherThreadWithTheFirstCause) {
  LiveServer live;
  live.start();
  live.server().end({ServeEnd::Cause::kFailure, 4, "first"});
  live.server().end({ServeEnd::Cause::kSignal, 143, "second"});
  EXPECT_EQ(live.join().status, 4);
}

TEST(Lease, EndsWhenTheClientLetsGo) {
  LiveServer live;
  live.start();
  {
    const Client first = attach(live);
    const Client second = attach(live);
    EXPECT_EQ(live.status().leases.size(), 2U);
  }
  EXPECT_TRUE(eventually([&] { return live.status().leases.empty(); }));
}

TEST(Lease, EndsWithinASecondWhenTheClientIsKilled) {
  LiveServer live;
  const pid_t child = ::fork();  // before the server's thread exists
  if (child == 0) {
    // The server does not run in the child: wait for the parent's.
    const Client client = attach(live);
    while (true) ::pause();
  }
  live.start();
  ASSERT_TRUE(
      eventually([&] { return live.status().leases.size() == 1; }, std::chrono::seconds(5)));
  EXPECT_EQ(live.status().leases[0].pid, child);
  ::kill(child, SIGKILL);
  EXPECT_TRUE(eventually([&] { return live.status().leases.empty(); }));
  ::waitpid(child, nullptr, 0);
}

TEST(Lease, OutlivesTheConnectionThatMadeIt) {
  LiveServer live;
  live.start();
  const Client client = attach(live);  // its socket is closed by now
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(live.status().leases.size(), 1U);
}

TEST(Lease, OfOneClientIsNoneOfTheOthers) {
  LiveServer live;
  live.start();
  std::optional<Client> first = attach(live);
  const Client second = attach(live);
  first.reset();
  EXPECT_TRUE(eventually([&] { return live.status().leases.size() == 1; }));
  EXPECT_EQ(byte_of(second.attached.slab_fds[0].get(), 100), 'a');
}

TEST(Lease, AThousandOfThemLeaveNothingBehind) {
  LiveServer live;
  live.start();
  attach(live);
  ASSERT_TRUE(eventually([&] { return live.status().leases.empty(); }));
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 1000; ++i) attach(live);
  EXPECT_TRUE(eventually([&] { return live.status().leases.empty(); }, std::chrono::seconds(5)));
  EXPECT_TRUE(eventually([&] { return open_descriptors() <= before; }))
      << open_descriptors() << " descriptors, " << before << " before";
}

TEST(Release, FreesAtOnceWithoutLeases) {
  LiveServer live;
  std::atomic<bool> freed{false};
  live.server().on_released([&] { freed = true; });
  live.start();
  const std::size_t before = open_descriptors();
  const wire::ReleaseReply reply = wire::call_release(live.connect().get(), {}, 5000);
  EXPECT_EQ(reply.state, DaemonState::kReleased);
  EXPECT_TRUE(freed);
  // The manifest and two slabs are closed; the connection goes a little later.
  EXPECT_TRUE(eventually([&] { return open_descriptors() == before - 3; }));
  const wire::ErrorReply refused = refusal([&] { attach(live); });
  EXPECT_EQ(refused.code, Errc::kReleased);
  EXPECT_EQ(refused.state, DaemonState::kReleased);
  const wire::DaemonStatus status = live.status();
  EXPECT_EQ(status.state, DaemonState::kReleased);
  EXPECT_EQ(status.bytes, 0U);
}

TEST(Release, WaitsForTheLastLeaseAndAdmitsNobodyMeanwhile) {
  LiveServer live;
  live.start();
  std::optional<Client> client = attach(live);
  const wire::ReleaseReply reply = wire::call_release(live.connect().get(), {}, 5000);
  EXPECT_EQ(reply.state, DaemonState::kDraining);
  EXPECT_EQ(reply.leases, 1U);
  EXPECT_EQ(refusal([&] { attach(live); }).code, Errc::kReleased);
  EXPECT_EQ(live.status().state, DaemonState::kDraining);
  EXPECT_EQ(live.status().bytes, 5120U);
  client.reset();
  EXPECT_TRUE(eventually([&] { return live.status().state == DaemonState::kReleased; }));
}

TEST(Release, ByForceEndsTheLeases) {
  LiveServer live;
  live.start();
  const Client client = attach(live);
  const wire::ReleaseReply reply = wire::call_release(live.connect().get(), {false}, 5000);
  EXPECT_EQ(reply.state, DaemonState::kReleased);
  EXPECT_EQ(reply.leases, 0U);
  EXPECT_TRUE(live.status().leases.empty());
  // What the client has mapped or holds stays its own.
  EXPECT_EQ(byte_of(client.attached.slab_fds[0].get(), 0), 'a');
}

}  // namespace
}  // namespace preload
