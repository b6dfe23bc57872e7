// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "cli/options.hpp"
#include "serve/directory_view.hpp"

namespace preload::cli {

DaemonFilter filter_of(const ClientOptions& options);

// The daemons that are meant, as they are now; none where no daemon has ever made the directory.
std::vector<DaemonView> look(const ClientOptions& options);
// The same and those that load to replace one, which have a name twice then.
std::vector<DaemonView> look_with_successors(const ClientOptions& options);
// The keeper of the directory, when one answers.
std::optional<wire::KeeperStatus> look_at_keeper(const ClientOptions& options);

// Only those that run: they answer, or hold their lock (or a successor's) and load.
std::vector<DaemonView> look_for_running(const ClientOptions& options);

// Throws Error(kUnavailable) that names the directory and what was looked for in it.
[[noreturn]] void refuse_none(const ClientOptions& options, std::string_view what);

}  // namespace preload::cli
