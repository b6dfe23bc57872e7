// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace preload::cli {

// argv after the command's name. Returns the exit status; throws Error.
using Arguments = std::vector<std::string>;

struct Command {
  const char* name;
  int (*run)(const Arguments& arguments);
};

int run_plan(const Arguments& arguments);
int run_status(const Arguments& arguments);
int run_wait(const Arguments& arguments);
int run_attach(const Arguments& arguments);
int run_verify(const Arguments& arguments);
int run_keeper(const Arguments& arguments);
int run_key(const Arguments& arguments);
int run_release(const Arguments& arguments);
int run_stop(const Arguments& arguments);
int run_artifacts(const Arguments& arguments);
int run_doctor(const Arguments& arguments);
int run_tune(const Arguments& arguments);   // execs preload-runtime under a launcher
int run_bench(const Arguments& arguments);  // execs preload-runtime
int run_serve(const Arguments& arguments);  // execs preload-runtime

}  // namespace preload::cli
