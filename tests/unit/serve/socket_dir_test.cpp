// SPDX-License-Identifier: Apache-2.0
#include "serve/socket_dir.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <optional>

#include "base/error.hpp"
#include "serve/connect.hpp"
#include "unit/serve/temp_dir.hpp"

namespace preload {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr unsigned kSomebodyElse = 12345;

std::string open_error(const std::string& path, Errc code, bool create = false) {
  try {
    SocketDir::open(path, create);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << path << " was accepted";
  return {};
}

TEST(SocketDir, IsMadeForItsOwnerAlone) {
  const TempDir temp;
  const std::string path = temp.file("sockets");
  const SocketDir directory = SocketDir::open(path, true);
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0700U);
  EXPECT_EQ(directory.path(), path);
}

TEST(SocketDir, OpensAgainWhatIsThere) {
  const TempDir temp;
  SocketDir::open(temp.path(), true);
  std::ofstream(temp.file("b"));
  std::ofstream(temp.file("a"));
  const SocketDir directory = SocketDir::open(temp.path() + "//", false);
  EXPECT_EQ(directory.list(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(directory.list().size(), 2U) << "a second listing starts from the beginning";
}

TEST(SocketDir, TakesTheEnvironmentWhenNoneIsGiven) {
  const TempDir temp;
  ::setenv("PRELOAD_SOCKET_DIR", temp.path().c_str(), 1);
  EXPECT_EQ(SocketDir::open("", false).path(), temp.path());
  ::unsetenv("PRELOAD_SOCKET_DIR");
}

TEST(SocketDir, SaysThatNoDaemonHasRunWhereThereIsNone) {
  const TempDir temp;
  EXPECT_THAT(open_error(temp.file("none"), Errc::kUnavailable),
              AllOf(HasSubstr(temp.file("none")), HasSubstr("--weight-cache-socket-dir")));
}

TEST(SocketDir, DoesNotMakeParents) {
  const TempDir temp;
  EXPECT_THAT(open_error(temp.file("no/such"), Errc::kUsage, true), HasSubstr("parent"));
}

TEST(SocketDir, RefusesASymlinkEvenWithATrailingSlash) {
  const TempDir temp;
  ASSERT_EQ(::mkdir(temp.file("real").c_str(), 0700), 0);
  ASSERT_EQ(::symlink(temp.file("real").c_str(), temp.file("link").c_str()), 0);
  for (const char* end : {"", "/", "//"})
    EXPECT_THAT(open_error(temp.file("link") + end, Errc::kUsage, true),
                AllOf(HasSubstr(temp.file("link")), HasSubstr("symbolic link"), HasSubstr("uid")));
}

TEST(SocketDir, RefusesAFile) {
  const TempDir temp;
  std::ofstream(temp.file("file"));
  EXPECT_THAT(open_error(temp.file("file"), Errc::kUsage), HasSubstr("not a directory"));
}

TEST(SocketDir, RefusesADirectoryThatOthersCanWrite) {
  const TempDir temp;
  for (const mode_t mode : {0770U, 0702U, 01777U}) {
    ASSERT_EQ(::chmod(temp.path().c_str(), mode), 0);
    EXPECT_THAT(open_error(temp.path(), Errc::kUsage),
                AllOf(HasSubstr(temp.path()), HasSubstr("written by others"), HasSubstr("uid"),
                      HasSubstr("chmod 700")));
  }
}

TEST(SocketDir, MayBeReadableWhenSomebodyNamedIt) {
  const TempDir temp;
  ASSERT_EQ(::chmod(temp.path().c_str(), 0755), 0);
  EXPECT_EQ(SocketDir::open(temp.path(), false).path(), temp.path());
}

TEST(SocketDir, RefusesADirectoryOfSomebodyElse) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to give a directory away";
  const TempDir temp;
  ASSERT_EQ(::chown(temp.path().c_str(), kSomebodyElse, kSomebodyElse), 0);
  EXPECT_THAT(open_error(temp.path(), Errc::kUsage),
              AllOf(HasSubstr(temp.path()), HasSubstr("uid 12345"), HasSubstr("choose another")));
}

TEST(SocketDir, ReachesNamesThroughItsDescriptorHoweverLongThePath) {
  const TempDir temp;
  std::string path = temp.path();
  for (int i = 0; i < 12; ++i) {
    path += "/a-directory-with-a-long-name";
    ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
  }
  ASSERT_GT(path.size(), 300U);
  const SocketDir directory = SocketDir::open(path, false);
  const Fd listener = listen_at(directory, "x.sock");
  EXPECT_TRUE(connect_to(directory, "x.sock", 1000));
}

TEST(Endpoint, NamesFollowTheHashOfTheUuid) {
  // printf gpu-... | sha256sum
  const Endpoint gpu{"gpu-01234567-89ab-cdef-0123-456789abcdef", "", Role::kTarget};
  EXPECT_EQ(gpu.socket_name(), "6138908adc3d1c83.sock");
  const Endpoint host{"host:0", "blue-1", Role::kDraft};
  EXPECT_EQ(host.lock_name(), "d57c11ff1ae092be.blue-1_draft.lock");
  EXPECT_EQ(host.state_name(), "d57c11ff1ae092be.blue-1_draft.state");
}

TEST(Endpoint, RefusesSlotsThatAreNoNames) {
  for (const char* slot :
       {"UPPER", "a.b", "a/b", "a b", "_", "next", "a-slot-whose-name-is-longer-than-thirty-two"})
    EXPECT_THROW((Endpoint{"host:0", slot, Role::kTarget}.stem()), Error) << slot;
}

TEST(Connect, RefusesWhatLiesInTheSocketsPlace) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  std::ofstream(temp.file("file.sock"));
  ASSERT_EQ(::mkdir(temp.file("dir.sock").c_str(), 0700), 0);
  const Fd real = listen_at(directory, "real.sock");
  ASSERT_EQ(::symlink("real.sock", temp.file("link.sock").c_str()), 0);
  for (const char* name : {"file.sock", "dir.sock", "link.sock"}) {
    try {
      connect_to(directory, name, 1000);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::kProtocol);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(temp.file(name)), HasSubstr("uid")));
    }
    try {
      listen_at(directory, name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::kUsage);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(temp.file(name)), HasSubstr("remove it")));
    }
  }
}

TEST(Connect, RefusesASocketThatSomebodyElsePlanted) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to give a socket away";
  const TempDir temp;
  const SocketDir directory = temp.open();
  const Fd listener = listen_at(directory, "x.sock");
  ASSERT_EQ(::chown(temp.file("x.sock").c_str(), kSomebodyElse, kSomebodyElse), 0);
  EXPECT_THROW(connect_to(directory, "x.sock", 1000), Error);
  EXPECT_THROW(listen_at(directory, "x.sock"), Error);
  const SocketDir trusting = SocketDir::open({temp.path(), {kSomebodyElse}}, false);
  EXPECT_TRUE(connect_to(trusting, "x.sock", 1000)) << "unless they are named";
}

// This process as another user, as far as files and sockets go.
class AsUser {
 public:
  explicit AsUser(unsigned uid) { EXPECT_EQ(::seteuid(uid), 0); }
  ~AsUser() { EXPECT_EQ(::seteuid(0), 0); }
  AsUser(const AsUser&) = delete;
  AsUser& operator=(const AsUser&) = delete;
};

class Guests : public testing::Test {
 protected:
  static constexpr unsigned kDaemon = 23456;
  static constexpr unsigned kGuest = 34567;
  static constexpr unsigned kStranger = 45678;

  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root to be several users";
    ASSERT_EQ(::chown(temp_.path().c_str(), kDaemon, kDaemon), 0);
    const AsUser daemon(kDaemon);
    directory_.emplace(SocketDir::open({temp_.path(), {kGuest}}, true));
    lock_ = take_lock(*directory_, place_);
    StateFile state;
    state.state = "LOADING";
    write_state(*directory_, place_, state);
    write_state(*directory_, place_, state);  // and the next one
    listener_ = listen_at(*directory_, place_.socket_name());
  }

  const TempDir temp_;
  const Endpoint place_{"host:0", "", Role::kTarget};
  std::optional<SocketDir> directory_;
  Fd lock_, listener_;
};

TEST_F(Guests, SeeLockAndStateAndConnect) {
  const AsUser guest(kGuest);
  const SocketDir directory = SocketDir::open({temp_.path(), {kDaemon}}, false);
  EXPECT_TRUE(lock_is_held(directory, place_.lock_name()));
  EXPECT_TRUE(read_state(directory, place_.state_name()).has_value());
  EXPECT_TRUE(connect_to(directory, place_.socket_name(), 1000));
}

TEST_F(Guests, HaveToTrustTheDaemonsUser) {
  const AsUser guest(kGuest);
  EXPECT_THAT(open_error(temp_.path(), Errc::kUsage),
              AllOf(HasSubstr("belongs to uid 23456"), HasSubstr("--allow-uid 23456")));
  ::setenv("PRELOAD_ALLOW_UIDS", "7,23456", 1);
  EXPECT_TRUE(SocketDir::open(temp_.path(), false).trusts(kDaemon));
  ::setenv("PRELOAD_ALLOW_UIDS", "bob", 1);
  EXPECT_THAT(open_error(temp_.path(), Errc::kUsage), HasSubstr("$PRELOAD_ALLOW_UIDS"));
  ::unsetenv("PRELOAD_ALLOW_UIDS");
}

TEST_F(Guests, AreNobodyElse) {
  const AsUser stranger(kStranger);
  EXPECT_THAT(open_error(temp_.path(), Errc::kUsage), HasSubstr("Permission denied"));
}

TEST_F(Guests, StayOutsideWhenTheNextDaemonDoesNotNameThem) {
  lock_.reset();
  listener_.reset();
  {
    const AsUser daemon(kDaemon);
    directory_.emplace(SocketDir::open(temp_.path(), true));
    lock_ = take_lock(*directory_, place_);
    write_state(*directory_, place_, {});
    listener_ = listen_at(*directory_, place_.socket_name());
  }
  const AsUser guest(kGuest);
  const SocketDir directory = SocketDir::open({temp_.path(), {kDaemon}}, false);
  EXPECT_FALSE(read_state(directory, place_.state_name()).has_value());
  EXPECT_THROW(lock_is_held(directory, place_.lock_name()), Error);
  EXPECT_THROW(connect_to(directory, place_.socket_name(), 1000), Error);
}

TEST(SocketDir, HasToBeNamedForGuests) {
  try {
    SocketDir::open({"", {kSomebodyElse}}, true);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("--weight-cache-socket-dir"));
  }
}

TEST(Connect, BindsForItsOwnerAloneWhateverTheUmask) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  const mode_t before = ::umask(0);
  const Fd listener = listen_at(directory, "x.sock");
  ::umask(before);
  struct stat status {};
  ASSERT_EQ(::stat(temp.file("x.sock").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0600U);
}

TEST(Connect, LeavesASocketWhereSomebodyListens) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  const Fd first = listen_at(directory, "x.sock");
  EXPECT_EQ(listener_pid(directory, "x.sock"), ::getpid());
  try {
    listen_at(directory, "x.sock");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kBusy);
    EXPECT_THAT(error.what(), HasSubstr("pid " + std::to_string(::getpid())));
  }
  EXPECT_TRUE(listen_at(directory, "x.sock", Listeners::kReplace)) << "unless it is to go";
}

TEST(Connect, ReplacesAStaleSocket) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  { const Fd gone = listen_at(directory, "x.sock"); }
  try {
    connect_to(directory, "x.sock", 1000);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kUnavailable);
  }
  const Fd listener = listen_at(directory, "x.sock");
  EXPECT_TRUE(connect_to(directory, "x.sock", 1000));
}

}  // namespace
}  // namespace preload
