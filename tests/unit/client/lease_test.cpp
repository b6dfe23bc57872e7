// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "unit/client/client_fixture.hpp"

namespace preload::test {
namespace {

class ClientLease : public ClientTest {
 protected:
  void SetUp() override { serve(); }
};

std::ptrdiff_t open_fds() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

std::size_t mappings_of_slabs() {
  FILE* maps = std::fopen("/proc/self/maps", "r");
  std::size_t count = 0;
  for (char line[4096]; std::fgets(line, sizeof(line), maps) != nullptr;) {
    if (std::strstr(line, "fixture-slab") != nullptr) ++count;
  }
  std::fclose(maps);
  return count;
}

// The wait status of a child that runs `body` and then exits with 0.
template <class Body>
int status_of_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

TEST_F(ClientLease, IsHeldUntilDetached) {
  AttachmentPtr attachment = attach();
  EXPECT_EQ(server_->leases(), 1U);
  attachment.reset();
  EXPECT_TRUE(server_->wait_for_leases(0));
}

TEST_F(ClientLease, LastsAsLongAsAnyReference) {
  AttachmentPtr attachment = attach();
  preload_retain(attachment.get());
  preload_detach(attachment.get());
  EXPECT_EQ(server_->leases(), 1U);
  EXPECT_EQ(text(tensor(attachment, "w")), bytes_of_w());
  attachment.reset();
  EXPECT_TRUE(server_->wait_for_leases(0));
}

TEST_F(ClientLease, IsNotHeldByAForkedChild) {
  AttachmentPtr attachment = attach();
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(pipe_fds[1]);
    char byte = 0;
    // Lives until the parent is done.
    ::_exit(::read(pipe_fds[0], &byte, 1) == 0 ? 0 : 1);
  }
  ::close(pipe_fds[0]);
  attachment.reset();
  EXPECT_TRUE(server_->wait_for_leases(0)) << "the child holds the lease";
  ::close(pipe_fds[1]);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST_F(ClientLease, SurvivesAChildThatDetaches) {
  AttachmentPtr attachment = attach();
  const int status = status_of_child([&] { attachment.reset(); });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(server_->leases(), 1U);
  EXPECT_EQ(text(tensor(attachment, "w")), bytes_of_w());
}

TEST_F(ClientLease, EndsWhenTheClientIsKilled) {
  const int status = status_of_child([this] {
    const AttachmentPtr attachment = attach();
    ::kill(::getpid(), SIGKILL);
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_TRUE(server_->wait_for_leases(0));
}

TEST_F(ClientLease, AWriteToASharedTensorFaultsThatClientAlone) {
  const AttachmentPtr bystander = attach();
  const int status = status_of_child([this] {
    ::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would turn it into an exit
    const AttachmentPtr attachment = attach();
    static_cast<volatile char*>(tensor(attachment, "w").data)[0] = 0;
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) << status;
  EXPECT_EQ(text(tensor(bystander, "w")), bytes_of_w());
  EXPECT_EQ(text(tensor(attach(), "w")), bytes_of_w());
}

TEST_F(ClientLease, AFailedAttachLeavesNothingBehind) {
  attach().reset();  // whatever is opened once
  ASSERT_TRUE(server_->wait_for_leases(0));
  const std::ptrdiff_t fds = open_fds();
  const std::size_t mappings = mappings_of_slabs();
  preload_attach_options wrong = options();
  wrong.expect_json = R"({"fields": {"tp_size": 4}})";
  for (int i = 0; i < 50; ++i) EXPECT_EQ(refusal(wrong), PRELOAD_E_MISMATCH);
  // The server closes its ends of the connections on its own thread.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (open_fds() > fds && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_LE(open_fds(), fds);  // the first attach's connection may have been open when counted
  EXPECT_EQ(mappings_of_slabs(), mappings);
  EXPECT_EQ(server_->leases(), 0U);
}

TEST_F(ClientLease, ManyAttachesLeaveNothingBehind) {
  attach().reset();
  ASSERT_TRUE(server_->wait_for_leases(0));
  const std::ptrdiff_t fds = open_fds();
  for (int i = 0; i < 200; ++i) attach().reset();
  ASSERT_TRUE(server_->wait_for_leases(0));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (open_fds() > fds && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_LE(open_fds(), fds);  // the first attach's connection may have been open when counted
  EXPECT_EQ(mappings_of_slabs(), 0U);
}

TEST_F(ClientLease, DataOutlivesTheDaemon) {
  const AttachmentPtr attachment = attach();
  server_.reset();
  EXPECT_EQ(text(tensor(attachment, "w")), bytes_of_w());
}

}  // namespace
}  // namespace preload::test
