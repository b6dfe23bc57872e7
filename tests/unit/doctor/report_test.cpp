// SPDX-License-Identifier: Apache-2.0
#include "doctor/report.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace preload::doctor {
namespace {

const Checks kChecks{ok("driver", "580"), warn("CPUs", "1 of 64", "bind wider"),
                     fail("limits", Errc::kMemory, "too low", "raise it"),
                     fail("launcher", Errc::kLauncher, "none", "use srun")};

TEST(DoctorReport, IsATableWithTheRemedyBelowWhatIsNotRight) {
  EXPECT_EQ(table({"n1", 3, false}, kChecks),
            "preload doctor on n1, rank 3\n"
            "ok    driver    580\n"
            "warn  CPUs      1 of 64\n"
            "                -> bind wider\n"
            "fail  limits    too low\n"
            "                -> raise it\n"
            "fail  launcher  none\n"
            "                -> use srun\n"
            "1 ok, 1 to look at, 2 in the way\n");
  EXPECT_EQ(table({"n1", 3, true}, kChecks).find("driver"), std::string::npos);
}

TEST(DoctorReport, IsJsonOnOneLine) {
  const std::string text = json({"n1", 3, false}, kChecks);
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  const auto value = nlohmann::json::parse(text);
  EXPECT_EQ(value["host"], "n1");
  EXPECT_EQ(value["worst"], "fail");
  EXPECT_EQ(value["checks"].size(), 4U);
  EXPECT_EQ(value["checks"][1]["grade"], "warn");
  EXPECT_TRUE(value["checks"][0]["remedy"].is_null());
}

TEST(DoctorReport, EndsWithTheStatusThatServeWouldEndWith) {
  EXPECT_EQ(exit_status(kChecks), 4);
  EXPECT_EQ(exit_status({kChecks[0], kChecks[1]}), 0);
  EXPECT_EQ(worst({kChecks[0], kChecks[1]}), Grade::kWarn);
  EXPECT_EQ(exit_status({}), 0);
}

}  // namespace
}  // namespace preload::doctor
