// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/printable.hpp"
#include "cli/command.hpp"
#include "cli/daemon_views.hpp"

namespace preload::cli {
namespace {

using nlohmann::ordered_json;
using Row = std::vector<std::string>;

const Row kHeadings{"DEVICE", "SLOT",   "ROLE",     "RANK", "STATE",
                    "BYTES",  "LEASES", "OVERHEAD", "PID",  "MODEL"};
constexpr std::size_t kKeyDigits = 16;  // enough to tell keys apart by eye

// The daemons of one job in this directory, added up.
struct NodeProgress {
  int daemons = 0;
  wire::Progress sum;

  void add(const wire::Progress& one) {
    sum.bytes += one.bytes;
    sum.total_bytes += one.total_bytes;
    if (one.bytes_per_s) sum.bytes_per_s = sum.bytes_per_s.value_or(0) + *one.bytes_per_s;
    if (one.slowest_rank) sum.slowest_rank = one.slowest_rank;
    // Until the last is done; unset while one does not know.
    const bool known = (daemons == 0 || sum.seconds_left) && one.seconds_left;
    sum.seconds_left =
        known ? std::optional(std::max(sum.seconds_left.value_or(0), *one.seconds_left))
              : std::nullopt;
    ++daemons;
  }
};

std::string state_text(const wire::DaemonStatus& status) {
  const std::string name(wire::state_name(status.state));
  if (status.state != wire::DaemonState::kLoading || status.bytes == 0) return name;
  if (!status.progress.phase.empty()) return name + " " + status.progress.phase;
  return fmt::format("{} {:.0f}%", name, 100 * status.progress.share());
}

// A daemon that serves and does not answer at this moment is not one that loads.
wire::DaemonStatus shown(const DaemonView& view) {
  wire::DaemonStatus status = view.status();
  if (view.condition != DaemonCondition::kComing || !view.file || view.file->state != "READY")
    return status;
  status.state = wire::DaemonState::kReady;
  status.code = wire_code(Errc::kTimeout);
  status.text = fmt::format("not answering: pid {} hangs or is suspended", status.pid);
  return status;
}

Row row_of(const DaemonView& view) {
  const wire::DaemonStatus s = shown(view);
  return {one_line(s.gpu_uuid.empty() ? view.stem : s.gpu_uuid),
          s.slot.empty() ? "-" : one_line(s.slot),
          one_line(s.role),
          std::to_string(s.global_rank),
          state_text(s),
          format_bytes(s.bytes),
          std::to_string(s.leases.size()),
          view.live ? format_bytes(s.overhead_bytes) : "-",
          s.pid == 0 ? "-" : std::to_string(s.pid),
          s.model.empty() ? "-" : one_line(s.model)};
}

void print_row(const Row& row, const std::vector<std::size_t>& widths) {
  std::string line;
  for (std::size_t i = 0; i < row.size(); ++i)
    line += i + 1 == row.size() ? row[i] : fmt::format("{:<{}}  ", row[i], widths[i]);
  fmt::print("{}\n", line);
}

void print_progress(wire::Progress progress) {
  progress.slowest_rank.reset();  // of the job, not this daemon's
  if (progress.bytes_per_s) fmt::print("  {}\n", wire::describe(progress));
  if (progress.stalled) fmt::print("  {}\n", one_line(wire::describe(*progress.stalled)));
}

// What does not fit into columns, under the daemon's row.
void print_details(const wire::DaemonStatus& status) {
  if (!status.key.empty())
    fmt::print("  key {}…, job {}, generation {}, {} handles\n", status.key.substr(0, kKeyDigits),
               status.job, status.generation, status.export_kind);
  if (status.export_kind == wire::kCudaIpcKind)
    fmt::print("  cuda-ipc: clients can write, and the weights end with this daemon\n");
  if (!status.engine_caches.empty())
    fmt::print("  engines find what its warm-up left with: . {}/environment.sh\n",
               one_line(status.engine_caches));
  if (status.state == wire::DaemonState::kLoading) print_progress(status.progress);
  for (const wire::LeaseStatus& lease : status.leases)
    fmt::print("  lease: pid {} ({}), {:.0f} s\n", lease.pid, one_line(lease.name), lease.age_s);
  if (!status.text.empty()) fmt::print("  {}: {}\n", status.code, one_line(status.text));
}

// What the daemons of one job that load here have done together.
void print_sums(const std::vector<DaemonView>& views) {
  std::map<std::string, NodeProgress> jobs;
  for (const DaemonView& view : views) {
    const wire::DaemonStatus status = shown(view);
    if (status.state == wire::DaemonState::kLoading) jobs[status.job].add(status.progress);
  }
  for (const auto& [job, node] : jobs)
    if (node.daemons > 1 && node.sum.total_bytes > 0)
      fmt::print("job {} on this node: {}\n", job, wire::describe(node.sum));
}

void print_keeper(const std::optional<wire::KeeperStatus>& keeper) {
  if (!keeper) return;
  std::uint64_t bytes = 0;
  for (const wire::DaemonStatus& deposit : keeper->deposits) bytes += deposit.bytes;
  fmt::print("keeper: pid {}, {} deposits, {}{}\n", keeper->pid, keeper->deposits.size(),
             format_bytes(bytes), keeper->stays ? ", stays" : "");
}

ordered_json keeper_json(const wire::KeeperStatus& keeper) {
  return {{"pid", keeper.pid},
          {"version", keeper.version},
          {"stays", keeper.stays},
          {"deposits", keeper.deposits.size()}};
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
    print_details(shown(views[i]));
  }
  print_sums(views);
}

}  // namespace

int run_status(const Arguments& arguments) {
  const ClientOptions options = client_options(ParsedOptions("status", arguments));
  std::vector<DaemonView> views = look_with_successors(options);
  std::erase_if(views, [](const DaemonView& view) {  // the replaced one serves on: no news
    return view.succeeds && view.condition == DaemonCondition::kFailed;
  });
  const std::optional<wire::KeeperStatus> keeper = look_at_keeper(options);
  std::ranges::stable_sort(views, {},
                           [](const DaemonView& view) { return view.status().global_rank; });
  if (!options.json) {
    print_table(views);
    print_keeper(keeper);
    return 0;
  }
  ordered_json daemons = ordered_json::array();
  for (const DaemonView& view : views)
    daemons.push_back(ordered_json::parse(wire::to_json(shown(view))));
  ordered_json out{{"daemons", daemons}};
  if (keeper) out["keeper"] = keeper_json(*keeper);
  fmt::print("{}\n", out.dump(2));
  return 0;
}

}  // namespace preload::cli
