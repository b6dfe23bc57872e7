// SPDX-License-Identifier: Apache-2.0
#include "doctor/launcher_checks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/serve/temp_dir.hpp"

namespace preload::doctor {
namespace {

using testing::HasSubstr;
using Kind = Launcher::Kind;

std::string script(const TempDir& temp, const std::string& text) {
  const SocketDir directory = temp.open();
  write_file_at(directory.fd(), "runtime", "#!/bin/sh\n" + text + "\n");
  EXPECT_EQ(::chmod(temp.file("runtime").c_str(), 0700), 0);
  return temp.file("runtime");
}

TEST(LauncherCheck, IsRightWithoutOneAndWithOneThatSpeaksPmix) {
  EXPECT_EQ(check_launcher({}, {}).grade, Grade::kOk);
  const Check check = check_launcher({Kind::kPmix, 8, 3, 1, "slurm-1.0"}, {});
  EXPECT_EQ(check.grade, Grade::kOk);
  EXPECT_THAT(check.text, HasSubstr("rank 3 of 8, local rank 1"));
}

TEST(LauncherCheck, RefusesTasksThatWouldEachBeAlone) {
  const Check check =
      check_launcher({Kind::kSlurm, 4, 0, 0, ""}, Variables::of({{"SLURM_MPI_TYPE", "none"}}));
  EXPECT_EQ(check.grade, Grade::kFail);
  EXPECT_EQ(check.code, Errc::kLauncher);
  EXPECT_THAT(check.text, HasSubstr("none"));
  EXPECT_THAT(check.remedy, HasSubstr("srun --mpi=list"));
  EXPECT_EQ(check_launcher({Kind::kSlurm, 4, 0, 0, ""}, Variables::of({{"PMI_RANK", "0"}})).grade,
            Grade::kWarn);
}

TEST(LauncherCheck, WarnsInAnAllocationWithoutSrun) {
  EXPECT_EQ(check_launcher({}, Variables::of({{"SLURM_JOB_ID", "7"}})).grade, Grade::kWarn);
  EXPECT_EQ(
      check_launcher({}, Variables::of({{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}})).grade,
      Grade::kOk);
}

TEST(RuntimeCheck, ShowsWhatTheRuntimeIsBuiltWith) {
  const TempDir temp;
  const RuntimeFacts facts =
      gather_runtime_facts(script(temp, "echo preload-runtime 1, Open MPI v4"));
  EXPECT_EQ(facts.says, "preload-runtime 1, Open MPI v4");
  EXPECT_EQ(check_runtime(facts, {}).grade, Grade::kOk);
}

TEST(RuntimeCheck, RefusesOneThatIsNotThereOrDoesNotRun) {
  EXPECT_EQ(check_runtime(gather_runtime_facts(std::nullopt), {}).grade, Grade::kFail);
  const TempDir temp;
  const RuntimeFacts facts =
      gather_runtime_facts(script(temp, "echo libmpi.so.40: cannot open >&2; exit 127"));
  const Check check = check_runtime(facts, {});
  EXPECT_EQ(check.grade, Grade::kFail);
  EXPECT_THAT(check.text, HasSubstr("libmpi.so.40"));
  EXPECT_THAT(check.remedy, HasSubstr("modules"));
}

TEST(RuntimeCheck, RefusesALauncherForABuildWithoutMpi) {
  const RuntimeFacts facts{"/x", "", "preload-runtime 1, without MPI, without CUDA"};
  EXPECT_EQ(check_runtime(facts, {}).grade, Grade::kOk);
  EXPECT_EQ(check_runtime(facts, {Kind::kOpenMpi, 2, 0, 0, ""}).grade, Grade::kFail);
}

}  // namespace
}  // namespace preload::doctor
