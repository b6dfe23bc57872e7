// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/counted.hpp"
#include "base/log.hpp"
#include "base/printable.hpp"
#include "cli/command.hpp"
#include "cli/local_daemons.hpp"
#include "cli/verify_hashes.hpp"
#include "cli/verify_source.hpp"
#include "client/locate.hpp"
#include "client/slab_reader.hpp"

namespace preload::cli {
namespace {

using nlohmann::ordered_json;

struct Mismatch {
  int rank = 0;
  Role role = Role::kTarget;
  TensorMismatch tensor;
};

struct Verdict {
  std::uint64_t checked = 0;  // tensors
  std::vector<Mismatch> mismatches;
};

// MTP layers lie in the target's checkpoint, other drafts in one of their own.
bool has_own_checkpoint(const LocalShard& shard) {
  const auto& draft = shard.description.request.draft;
  return draft && draft->method != DraftMethod::kMtp;
}

void verify_shard(const LocalShard& shard, const Checkpoint* checkpoint, Verdict& verdict) {
  const int threads = client::default_threads();
  std::vector<TensorMismatch> found = verify_hashes(*shard.attachment, threads);
  if (checkpoint != nullptr) {
    const std::vector<TensorMismatch> more =
        verify_source(*shard.attachment, shard.description, *checkpoint, threads);
    found.insert(found.end(), more.begin(), more.end());
  }
  verdict.checked += shard.attachment->manifest().size();
  for (TensorMismatch& tensor : found) {
    verdict.mismatches.push_back(
        {shard.description.rank.global, shard.endpoint.role, std::move(tensor)});
  }
}

ordered_json verdict_json(const Verdict& verdict) {
  ordered_json json;
  json["ok"] = verdict.mismatches.empty();
  json["checked"] = verdict.checked;
  json["mismatches"] = ordered_json::array();
  for (const Mismatch& mismatch : verdict.mismatches) {
    ordered_json entry;
    entry["rank"] = mismatch.rank;
    entry["role"] = role_name(mismatch.role);
    entry["tensor"] = mismatch.tensor.tensor;
    entry["source"] =
        mismatch.tensor.source ? ordered_json(*mismatch.tensor.source) : ordered_json();
    json["mismatches"].push_back(entry);
  }
  return json;
}

std::string verdict_text(const Verdict& verdict, bool against) {
  std::string text;
  for (const Mismatch& mismatch : verdict.mismatches) {
    text +=
        fmt::format("rank {} {}: {} differs from {}\n", mismatch.rank, role_name(mismatch.role),
                    one_line(mismatch.tensor.tensor),
                    mismatch.tensor.source ? "the checkpoint's " + one_line(*mismatch.tensor.source)
                                           : "what was loaded");
  }
  return text + fmt::format("{} checked{}, {}\n", counted(verdict.checked, "tensor"),
                            against ? " against their hashes and the checkpoint" : "",
                            counted(verdict.mismatches.size(), "mismatch"));
}

}  // namespace

int run_verify(const Arguments& arguments) {
  const ParsedOptions parsed("verify", arguments);
  const ClientOptions options = client_options(parsed);
  std::optional<Checkpoint> checkpoint;
  if (const auto directory = parsed.text("against")) checkpoint = open_checkpoint(*directory, {});
  Verdict verdict;
  for (const Endpoint& endpoint : local_daemons(options)) {
    const LocalShard shard = attach_to(options, endpoint);
    const bool other_files = has_own_checkpoint(shard) && options.role != Role::kDraft;
    if (checkpoint && other_files) {
      log::warn(
          fmt::format("{}: compared with its hashes only: it has a checkpoint of its own, "
                      "which --role draft --against DIR compares it with",
                      client::describe(endpoint)));
    }
    verify_shard(shard, checkpoint && !other_files ? &*checkpoint : nullptr, verdict);
  }
  const std::string text = options.json ? verdict_json(verdict).dump(2) + "\n"
                                        : verdict_text(verdict, checkpoint.has_value());
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
    throw Error(Errc::kInternal, "standard output cannot be written");
  }
  return verdict.mismatches.empty() ? 0 : exit_status(Errc::kCheckpoint);
}

}  // namespace preload::cli
