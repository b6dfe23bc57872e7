// SPDX-License-Identifier: Apache-2.0
#include "warmup/nccl_settings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/temp_dir.hpp"

namespace preload::warmup {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::Key;
using testing::Not;
using testing::Pair;
using testing::StartsWith;

class NcclSettings : public testing::Test {
 protected:
  ~NcclSettings() override {
    for (const char* name : {"NCCL_ALGO", "NCCL_PROTO", "NCCL_CONF_FILE"}) ::unsetenv(name);
  }

  std::filesystem::path write(const std::string& name, const std::string& text) {
    directory_.write(name, text);
    return directory_ / name;
  }

  test::TempDir directory_;
};

TEST_F(NcclSettings, AreThoseOfTheEnvironment) {
  ::setenv("NCCL_ALGO", "Ring", 1);
  EXPECT_THAT(nccl_settings({}),
              AllOf(Contains(Pair("NCCL_ALGO", "Ring")), Each(Key(StartsWith("NCCL_")))));
}

TEST_F(NcclSettings, TheEnvironmentGoesBeforeFilesAndTheFirstFileBeforeTheNext) {
  ::setenv("NCCL_ALGO", "Ring", 1);
  const auto first = write("first", "NCCL_ALGO=Tree\nNCCL_PROTO=LL\n");
  const auto second = write("second", "NCCL_PROTO=Simple\nNCCL_MAX_NCHANNELS=4\n");
  EXPECT_THAT(nccl_settings({first, second}),
              AllOf(Contains(Pair("NCCL_ALGO", "Ring")), Contains(Pair("NCCL_PROTO", "LL")),
                    Contains(Pair("NCCL_MAX_NCHANNELS", "4"))));
}

TEST_F(NcclSettings, OfFilesAreReadAsNcclReadsThem) {
  const auto file =
      write("conf",
            "#NCCL_ALGO=Tree\nNCCL_PROTO = LL\n NCCL_ALGO=x\nNCCL_A=b=c\nword\nLANG=C\n"
            "NCCL_EMPTY=\nNCCL_LAST=1");
  const auto settings = nccl_settings({file});
  EXPECT_THAT(settings, AllOf(Contains(Pair("NCCL_PROTO ", " LL")), Contains(Pair("NCCL_A", "b=c")),
                              Contains(Pair("NCCL_EMPTY", "")), Contains(Pair("NCCL_LAST", "1"))));
  EXPECT_THAT(settings, AllOf(Not(Contains(Key("NCCL_ALGO"))), Not(Contains(Key("LANG")))));
}

TEST_F(NcclSettings, AreTheSameAfterNcclHasPutAFileIntoTheEnvironment) {
  const auto file = write("conf", "NCCL_PROTO=LL\n");
  const auto before = nccl_settings({file});
  ::setenv("NCCL_PROTO", "LL", 0);
  EXPECT_EQ(nccl_settings({file}), before);
}

TEST_F(NcclSettings, AFileThatIsNotThereHasNone) {
  EXPECT_EQ(nccl_settings({directory_ / "absent"}), nccl_settings({}));
}

TEST_F(NcclSettings, TheFileThatIsNamedGoesInPlaceOfTheUsers) {
  ::setenv("NCCL_CONF_FILE", "/some/nccl.conf", 1);
  EXPECT_THAT(nccl_conf_files(), ElementsAre("/some/nccl.conf", "/etc/nccl.conf"));
  ::unsetenv("NCCL_CONF_FILE");
  const auto files = nccl_conf_files();
  EXPECT_EQ(files.front().filename(), ".nccl.conf");
  EXPECT_EQ(files.back(), "/etc/nccl.conf");
}

}  // namespace
}  // namespace preload::warmup
