// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/log.hpp"
#include "base/printable.hpp"
#include "cli/command.hpp"
#include "cli/daemon_views.hpp"
#include "cli/dump.hpp"
#include "cli/local_daemons.hpp"
#include "client/locate.hpp"

namespace preload::cli {
namespace {

using nlohmann::ordered_json;

ordered_json tensor_json(const wire::ManifestView& manifest, const wire::ManifestTensor& tensor) {
  ordered_json json;
  json["name"] = tensor.name;
  json["dtype"] = dtype_name(tensor.dtype);
  json["shape"] = std::vector<std::int64_t>(tensor.shape.begin(), tensor.shape.end());
  json["strides"] = std::vector<std::int64_t>(tensor.strides.begin(), tensor.strides.end());
  json["bytes"] = tensor.bytes;
  json["kind"] = tensor.kind == TensorKind::kBuffer ? "buffer" : "param";
  json["class"] = tensor.cls == TensorClass::kPrivate ? "private" : "shared";
  json["alias"] = tensor.alias ? ordered_json(manifest[*tensor.alias].name) : ordered_json();
  json["hash"] = to_hex(tensor.hash);
  return json;
}

ordered_json shard_json(const LocalShard& shard, bool with_tensors) {
  const wire::ManifestView& manifest = shard.attachment->manifest();
  const RankCoords& rank = shard.description.rank;
  ordered_json json;
  json["gpu_uuid"] = shard.endpoint.device;
  json["slot"] = shard.endpoint.slot;
  json["role"] = role_name(shard.endpoint.role);
  json["global_rank"] = rank.global;
  json["dp"] = rank.dp;
  json["pp"] = rank.pp;
  json["tp"] = rank.tp;
  json["ep"] = rank.ep ? ordered_json(*rank.ep) : ordered_json();
  json["key"] = shard.attachment->reply().key;
  if (shard.attachment->evidence() != Evidence::kNone) {  // something was expected
    json["evidence"] = evidence_name(shard.attachment->evidence());
  }
  if (with_tensors) {
    json["tensors"] = ordered_json::array();
    for (std::size_t i = 0; i < manifest.size(); ++i) {
      json["tensors"].push_back(tensor_json(manifest, manifest[i]));
    }
  } else {
    json["tensors"] = manifest.size();
  }
  json["bytes"] = shard.attachment->bytes();
  json["attach_ms"] = shard.attach_ms;
  return json;
}

std::string evidence_text(Evidence evidence) {
  if (evidence == Evidence::kNone) return {};
  return fmt::format(" as expected (evidence: {})", evidence_name(evidence));
}

std::string shard_text(const LocalShard& shard) {
  const wire::ManifestView& manifest = shard.attachment->manifest();
  const RankCoords& rank = shard.description.rank;
  std::string text = fmt::format(
      "{}: rank {} (dp {} pp {} tp {}), {}, key {}…{}\n  {}, {}, attached in {:.2f} ms\n",
      client::describe(shard.endpoint), rank.global, rank.dp, rank.pp, rank.tp,
      one_line(shard.description.model), shard.attachment->reply().key.substr(0, 12),
      evidence_text(shard.attachment->evidence()), counted(manifest.size(), "tensor"),
      format_bytes(shard.attachment->bytes()), shard.attach_ms);
  for (std::size_t i = 0; i < manifest.size(); ++i) {
    const wire::ManifestTensor tensor = manifest[i];
    text += fmt::format("    {:<64} {:<8} {:<18} {}{}\n", one_line(tensor.name),
                        dtype_name(tensor.dtype), to_string(tensor.shape),
                        tensor.alias ? fmt::format("is {}", one_line(manifest[*tensor.alias].name))
                                     : format_bytes(tensor.bytes),
                        tensor.cls == TensorClass::kPrivate ? ", private" : "");
  }
  return text;
}

std::string dump_name(const LocalShard& shard) {
  return fmt::format("rank{}{}{}.safetensors", shard.description.rank.global,
                     shard.endpoint.slot.empty() ? "" : "." + shard.endpoint.slot,
                     shard.endpoint.role == Role::kDraft ? "_draft" : "");
}

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
    throw Error(Errc::kInternal, "standard output cannot be written");
  }
}

// Without --slot the one daemon that is here is meant; but not another slot's, with another model,
// once the one without a slot is gone.
void refuse_another_slot(const ClientOptions& options, const Endpoint& endpoint) {
  if (endpoint.slot.empty()) return;
  ClientOptions without = options;
  without.slot = "";
  for (const DaemonView& view : look(without)) {
    throw Error(Errc::kUnavailable,
                fmt::format("the daemon {} without a slot is gone; there is one in slot {}: choose "
                            "it with --slot {}, or start the other again",
                            view.name(), endpoint.slot, endpoint.slot));
  }
}

// Of a target and its draft the target is meant, unless both or the draft are asked for. What is
// expected of a model holds for one role.
std::vector<Endpoint> chosen_daemons(const ClientOptions& options, bool all, bool one_role) {
  std::vector<Endpoint> endpoints = local_daemons(options);
  const auto targets = std::ranges::count(endpoints, Role::kTarget, &Endpoint::role);
  if (!options.role && targets > 0 && (!all || one_role)) {
    std::erase_if(endpoints, [](const Endpoint& at) { return at.role == Role::kDraft; });
  }
  if (all || endpoints.size() == 1) {
    if (!all && !options.slot) refuse_another_slot(options, endpoints.front());
    return endpoints;
  }
  std::string names;
  for (const Endpoint& endpoint : endpoints) {
    names += fmt::format("{}({})", names.empty() ? "" : ", ", client::describe(endpoint));
  }
  throw Error(Errc::kUsage, fmt::format("{} daemons are here: {}; choose with --gpu, --slot and "
                                        "--role, or take --all",
                                        endpoints.size(), names));
}

client::Expectation expectation(const ParsedOptions& options) {
  nlohmann::json expect =
      nlohmann::json::parse(options.text("expect").value_or("{}"), nullptr, false);
  if (!expect.is_object()) {
    throw Error(Errc::kUsage,
                fmt::format("--expect must be a JSON object: {}", *options.text("expect")));
  }
  if (const auto model = options.text("expect-model")) expect["model"] = *model;
  if (options.has("trust-sample")) expect["trust_sample"] = true;
  return client::expectation_from_json(expect.dump());
}

}  // namespace

int run_attach(const Arguments& arguments) {
  const ParsedOptions parsed("attach", arguments);
  const ClientOptions options = client_options(parsed);
  const client::Expectation expect = expectation(parsed);
  const std::optional<std::string> dump = parsed.text("dump");
  ordered_json daemons = ordered_json::array();
  std::optional<int> failure;
  for (const Endpoint& endpoint :
       chosen_daemons(options, parsed.has("all"), !expect.model.empty())) {
    try {
      const LocalShard shard = attach_to(options, endpoint, expect);
      if (dump) dump_safetensors(*shard.attachment, *dump, dump_name(shard));
      if (options.json) {
        daemons.push_back(shard_json(shard, parsed.has("tensors")));
      } else {
        print(shard_text(shard));
      }
    } catch (const Error& error) {
      // The others are still attached to: one daemon's trouble is not theirs.
      log::error(fmt::format("{}: {}", client::describe(endpoint), error.what()));
      if (!failure) failure = exit_status(error.code());
    }
  }
  if (options.json) print(ordered_json{{"daemons", daemons}}.dump(2) + "\n");
  return failure.value_or(0);
}

}  // namespace preload::cli
