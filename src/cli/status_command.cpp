// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "cli/command.hpp"
#include "cli/daemon_views.hpp"

namespace preload::cli {
namespace {

using nlohmann::ordered_json;
using Row = std::vector<std::string>;

const Row kHeadings{"DEVICE", "SLOT",   "ROLE",     "RANK", "STATE",
                    "BYTES",  "LEASES", "OVERHEAD", "PID",  "MODEL"};
constexpr std::size_t kKeyDigits = 16;  // enough to tell keys apart by eye

std::string state_text(const wire::DaemonStatus& status) {
  const std::string name(wire::state_name(status.state));
  if (status.state != wire::DaemonState::kLoading || status.bytes == 0) return name;
  return fmt::format("{} {:.0f}%", name, 100 * status.progress);
}

Row row_of(const DaemonView& view) {
  const wire::DaemonStatus s = view.status();
  return {s.gpu_uuid.empty() ? view.stem : s.gpu_uuid,
          s.slot.empty() ? "-" : s.slot,
          s.role,
          std::to_string(s.global_rank),
          state_text(s),
          format_bytes(s.bytes),
          std::to_string(s.leases.size()),
          view.live ? format_bytes(s.overhead_bytes) : "-",
          s.pid == 0 ? "-" : std::to_string(s.pid),
          s.model.empty() ? "-" : s.model};
}

void print_row(const Row& row, const std::vector<std::size_t>& widths) {
  std::string line;
  for (std::size_t i = 0; i < row.size(); ++i)
    line += i + 1 == row.size() ? row[i] : fmt::format("{:<{}}  ", row[i], widths[i]);
  fmt::print("{}\n", line);
}

// What does not fit into columns, under the daemon's row.
void print_details(const wire::DaemonStatus& status) {
  if (!status.key.empty())
    fmt::print("  key {}…, job {}, generation {}, {} handles\n", status.key.substr(0, kKeyDigits),
               status.job, status.generation, status.export_kind);
  if (status.export_kind == wire::kCudaIpcKind)
    fmt::print("  cuda-ipc: clients can write, and the weights end with this daemon\n");
  for (const wire::LeaseStatus& lease : status.leases)
    fmt::print("  lease: pid {} ({}), {:.0f} s\n", lease.pid, lease.name, lease.age_s);
  if (!status.text.empty()) fmt::print("  {}: {}\n", status.code, status.text);
}

void print_table(const std::vector<DaemonView>& views) {
  if (views.empty()) {
    fmt::print("no daemons\n");
    return;
  }
  std::vector<Row> rows;
  for (const DaemonView& view : views) rows.push_back(row_of(view));
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < kHeadings.size(); ++i) {
    widths.push_back(kHeadings[i].size());
    for (const Row& row : rows) widths[i] = std::max(widths[i], row[i].size());
  }
  print_row(kHeadings, widths);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    print_row(rows[i], widths);
    print_details(views[i].status());
  }
}

}  // namespace

int run_status(const Arguments& arguments) {
  const ClientOptions options = client_options(ParsedOptions("status", arguments));
  std::vector<DaemonView> views = look(options);
  std::ranges::stable_sort(views, {},
                           [](const DaemonView& view) { return view.status().global_rank; });
  if (!options.json) {
    print_table(views);
    return 0;
  }
  ordered_json daemons = ordered_json::array();
  for (const DaemonView& view : views)
    daemons.push_back(ordered_json::parse(wire::to_json(view.status())));
  fmt::print("{}\n", ordered_json{{"daemons", daemons}}.dump(2));
  return 0;
}

}  // namespace preload::cli
