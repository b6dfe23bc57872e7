// SPDX-License-Identifier: Apache-2.0
#include "comm/launcher.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "comm/mpi_session.hpp"

namespace preload {
namespace {

using testing::HasSubstr;
using testing::Not;

// The launcher's variables as given, all others of theirs unset; restored afterwards.
class Environment {
 public:
  explicit Environment(std::initializer_list<std::pair<std::string, std::string>> set = {}) {
    for (const char* name :
         {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "PMIX_RANK",
          "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID",
          "SLURM_JOB_ID", "PMI_RANK", "PMI_SIZE", "PMI_FD", "MPI_LOCALRANKID",
          "PMIX_SECURITY_MODE"}) {
      const char* value = std::getenv(name);
      before_.emplace_back(name, value == nullptr ? "" : value);
      unsetenv(name);
    }
    for (const auto& [name, value] : set) setenv(name.c_str(), value.c_str(), 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    for (const auto& [name, value] : before_) {
      unsetenv(name.c_str());
      if (!value.empty()) setenv(name.c_str(), value.c_str(), 1);
    }
  }

 private:
  std::vector<std::pair<std::string, std::string>> before_;
};

TEST(Launcher, IsNoneInAPlainShell) {
  const Environment environment;
  EXPECT_EQ(detect_launcher().kind, Launcher::Kind::kNone);
  EXPECT_EQ(detect_launcher().size, 1);
}

TEST(Launcher, KnowsTheMpiexecOfOtherMpis) {
  const Environment environment{{"PMI_SIZE", "4"}, {"PMI_RANK", "3"}, {"MPI_LOCALRANKID", "1"}};
  const Launcher launcher = detect_launcher();
  EXPECT_EQ(launcher.kind, Launcher::Kind::kPmi);
  EXPECT_EQ(launcher.size, 4);
  EXPECT_EQ(launcher.rank, 3);
  EXPECT_EQ(launcher.local_rank, 1);
}

TEST(Launcher, IsNoneForOneProcessOfAnotherMpi) {
  const Environment environment{{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}};
  EXPECT_EQ(detect_launcher().kind, Launcher::Kind::kNone);
}

TEST(Launcher, KnowsOpenMpisMpirun) {
  const Environment environment{{"OMPI_COMM_WORLD_SIZE", "8"},
                                {"OMPI_COMM_WORLD_RANK", "5"},
                                {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}};
  const Launcher launcher = detect_launcher();
  EXPECT_EQ(launcher.kind, Launcher::Kind::kOpenMpi);
  EXPECT_EQ(launcher.size, 8);
  EXPECT_EQ(launcher.rank, 5);
  EXPECT_EQ(launcher.local_rank, 1);
}

TEST(Launcher, KnowsSrunWithPmix) {
  const Environment environment{{"PMIX_RANK", "3"},
                                {"SLURM_JOB_ID", "77"},
                                {"SLURM_STEP_ID", "2"},
                                {"SLURM_STEP_NUM_TASKS", "16"},
                                {"SLURM_LOCALID", "3"}};
  const Launcher launcher = detect_launcher();
  EXPECT_EQ(launcher.kind, Launcher::Kind::kPmix);
  EXPECT_EQ(launcher.size, 16);
  EXPECT_EQ(launcher.rank, 3);
  EXPECT_EQ(launcher.job_id, "slurm-77.2");
}

TEST(Launcher, TakesSrunOfManyTasksWithoutPmixForALauncher) {
  const Environment environment{
      {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "2"}};
  EXPECT_EQ(detect_launcher().kind, Launcher::Kind::kSlurm);
  EXPECT_EQ(detect_launcher().rank, 2);
}

TEST(Launcher, IsNoneInTheInteractiveStepOfAnAllocation) {
  const Environment environment{{"SLURM_JOB_ID", "77"},
                                {"SLURM_STEP_ID", "4294967290"},
                                {"SLURM_STEP_NUM_TASKS", "1"},
                                {"SLURM_NTASKS", "8"}};
  EXPECT_EQ(detect_launcher().kind, Launcher::Kind::kNone);
}

TEST(Launcher, RefusesAVariableThatIsNoNumber) {
  const Environment environment{{"OMPI_COMM_WORLD_SIZE", "four"}};
  try {
    detect_launcher();
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kLauncher);
    EXPECT_THAT(error.what(), HasSubstr("OMPI_COMM_WORLD_SIZE=\"four\""));
  }
}

TEST(Launcher, ShowsItsVariablesWithoutSecrets) {
  const Environment environment{{"PMIX_RANK", "3"}, {"PMIX_SECURITY_MODE", "munge-secret"}};
  EXPECT_THAT(launcher_environment(), HasSubstr("PMIX_RANK=3"));
  EXPECT_THAT(launcher_environment(), Not(HasSubstr("munge-secret")));
}

TEST(SingleGroup, AnswersEveryCollectiveFromItsOwnInput) {
  const Cancel cancel;
  const auto group = make_single_group();
  EXPECT_EQ(group->size(), 1);
  EXPECT_EQ(group->all_gather("a", {"a test", cancel}), std::vector<std::string>{"a"});
  EXPECT_EQ(group->broadcast("b", 0, {"a test", cancel}), "b");
  EXPECT_EQ(group->all_to_all({"c"}, {"a test", cancel}), std::vector<std::string>{"c"});
}

TEST(SingleGroup, StopsWhenCancelled) {
  Cancel cancel;
  cancel.request({143, "SIGTERM"});
  try {
    make_single_group()->barrier({"a test", cancel});
    FAIL() << "went on";
  } catch (const Cancelled& cancelled) {
    EXPECT_EQ(cancelled.status(), 143);
  }
}

#ifdef PRELOAD_HAVE_MPI
TEST(MpiGroup, RefusesSrunThatDoesNotTellTheTasksOfEachOther) {
  const Environment environment{{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}};
  try {
    make_mpi_group(detect_launcher(), std::chrono::seconds(5));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(exit_status(error.code()), 5);
    EXPECT_THAT(error.what(), HasSubstr("srun --mpi=list"));
    EXPECT_THAT(error.what(), HasSubstr("--mpi=pmix"));
    EXPECT_THAT(error.what(), HasSubstr("built against"));
  }
}
#endif

}  // namespace
}  // namespace preload
