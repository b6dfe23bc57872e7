// SPDX-License-Identifier: Apache-2.0
#include "hook/engine_packages.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "support/temp_dir.hpp"

namespace preload::hook {
namespace {

namespace fs = std::filesystem;
using Packages = std::map<std::string, std::string>;

class EnginePackagesTest : public testing::Test {
 protected:
  // A Python below `prefix`, with packages as "name-version".
  void install(const std::string& prefix, const std::vector<std::string>& packages) {
    const fs::path root = fs::path(temp_ / prefix);
    fs::create_directories(root / "bin");
    std::ofstream(root / "bin/python3") << "#!/bin/sh\n";
    ::chmod((root / "bin/python3").c_str(), 0755);
    for (const std::string& package : packages) {
      fs::create_directories(root / "lib/python3.12/site-packages" / (package + ".dist-info"));
    }
  }
  std::string python(const std::string& prefix) const { return temp_ / (prefix + "/bin/python3"); }

  const test::TempDir temp_;
};

TEST_F(EnginePackagesTest, AreThoseOfThePythonThatTheCommandNames) {
  install("a", {"vllm-0.32.0", "torch-2.13.0+cu130", "flashinfer_python-0.6.1", "requests-2.0"});
  install("b", {"vllm-0.31.0"});
  const std::vector<std::string> environment{"PATH=" + (temp_ / "b/bin")};
  EXPECT_EQ(engine_packages(python("a") + " -m preload.vllm.warmup", environment),
            (Packages{{"vllm", "0.32.0"}, {"torch", "2.13.0+cu130"}, {"flashinfer", "0.6.1"}}));
  EXPECT_EQ(engine_packages("cd /tmp && '" + python("b") + "' x.py", {}),
            (Packages{{"vllm", "0.31.0"}}));
}

TEST_F(EnginePackagesTest, AreThoseOfTheFirstPythonInPathWhereItNamesNone) {
  install("a", {"vllm-0.32.0"});
  install("b", {"vllm-0.31.0"});
  EXPECT_EQ(engine_packages("python3 x.py",
                            {"PATH=/nowhere:" + (temp_ / "a/bin") + ":" + (temp_ / "b/bin")}),
            (Packages{{"vllm", "0.32.0"}}));
  EXPECT_EQ(engine_packages("python3 x.py", {"VIRTUAL_ENV=" + (temp_ / "b"), "PATH=/nowhere"}),
            (Packages{{"vllm", "0.31.0"}}));
}

TEST_F(EnginePackagesTest, AreFoundBehindAVersionManagersScriptAndAmongTheUsersOwn) {
  install("a", {"vllm-0.32.0", "torch-2.11.0"});
  install("user", {"torch-2.13.0"});
  fs::create_directories(temp_ / "shims");
  fs::copy(python("a"), temp_ / "shims/python3");
  std::vector<std::string> environment{"PATH=" + (temp_ / "shims") + ":" + (temp_ / "a/bin"),
                                       "PYTHONUSERBASE=" + (temp_ / "user")};
  EXPECT_EQ(engine_packages("python3 x.py", environment),
            (Packages{{"vllm", "0.32.0"}, {"torch", "2.13.0"}}));
  std::ofstream(temp_ / "a/pyvenv.cfg") << "home = /usr/bin\n";
  EXPECT_EQ(engine_packages("python3 x.py", environment),
            (Packages{{"vllm", "0.32.0"}, {"torch", "2.11.0"}}));
}

TEST(EngineSettings, AreWhatMakesOtherKernelsAndNotWhereFilesLie) {
  EXPECT_EQ(engine_settings({"VLLM_ATTENTION_BACKEND=FLASHINFER", "VLLM_CACHE_ROOT=/c",
                             "TRITON_CACHE_DIR=/c", "TORCHINDUCTOR_MAX_AUTOTUNE=1", "VLLM_PORT=1",
                             "TRITON_PTXAS_PATH=/p", "HOME=/h", "VLLM_USE_DEEP_GEMM="}),
            (Packages{{"VLLM_ATTENTION_BACKEND", "FLASHINFER"},
                      {"TORCHINDUCTOR_MAX_AUTOTUNE", "1"},
                      {"VLLM_USE_DEEP_GEMM", ""}}));
}

TEST_F(EnginePackagesTest, AreNoneWherePythonHasNone) {
  install("a", {});
  EXPECT_EQ(engine_packages(python("a") + " x.py", {}), Packages{});
  EXPECT_EQ(engine_packages("make tea", {}), Packages{});
}

}  // namespace
}  // namespace preload::hook
