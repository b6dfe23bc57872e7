// SPDX-License-Identifier: Apache-2.0
#include "bench/load_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"

namespace preload::bench {

namespace {

using Json = nlohmann::json;

PeerFigures parse_peer(const Json& json) {
  PeerFigures peer;
  peer.name = json.at("name");
  peer.version = json.value("version", "");
  peer.setting = json.value("setting", "");
  peer.error = json.value("error", "");
  peer.skipped = json.value("skipped", "");
  if (json.contains("seconds")) {
    peer.seconds = json.at("seconds").get<double>();
    peer.gb_per_s = json.at("gb_per_s").get<double>();
  }
  return peer;
}

Json peer_json(const PeerFigures& peer, const LoadFigures& load) {
  Json json = {{"name", peer.name}};
  if (!peer.version.empty()) json["version"] = peer.version;
  if (!peer.setting.empty()) json["setting"] = peer.setting;
  if (peer.gb_per_s) {
    json["seconds"] = *peer.seconds;
    json["gb_per_s"] = *peer.gb_per_s;
    json["ratio_to_ours"] = *peer.gb_per_s / load.gb_per_s();
  }
  if (!peer.error.empty()) json["error"] = peer.error;
  if (!peer.skipped.empty()) json["skipped"] = peer.skipped;
  return json;
}

std::string peer_text(const PeerFigures& peer, const LoadFigures& load) {
  std::string head = peer.name;
  if (!peer.version.empty()) head += " " + peer.version;
  if (!peer.setting.empty()) head += ", " + peer.setting;
  if (peer.gb_per_s) {
    return fmt::format("{}: {:.3f} s, {:.1f} GB/s, {:.3f} of ours\n", head, *peer.seconds,
                       *peer.gb_per_s, *peer.gb_per_s / load.gb_per_s());
  }
  return peer.error.empty() ? fmt::format("{}: skipped, {}\n", head, peer.skipped)
                            : fmt::format("{}: failed, {}\n", head, peer.error);
}

}  // namespace

std::vector<PeerFigures> parse_peers(std::string_view text) {
  try {
    std::vector<PeerFigures> peers;
    const Json whole = Json::parse(text);
    for (const Json& peer : whole.at("peers")) peers.push_back(parse_peer(peer));
    return peers;
  } catch (const Json::exception& error) {
    throw Error(Errc::kInternal,
                fmt::format("preload.bench_peers printed no figures ({}): its package and this "
                            "program are not of one version",
                            error.what()));
  }
}

std::string report_json(const LoadFigures& load, const std::vector<PeerFigures>& peers) {
  Json json = {{"bytes", load.bytes},
               {"seconds", load.seconds},
               {"gb_per_s", load.gb_per_s()},
               {"limit_gb_per_s", load.limit_gb_per_s},
               {"ratio", load.ratio()},
               {"reader", load.reader},
               {"hot", load.hot},
               {"limit", load.limit},
               {"setup_seconds", load.setup_seconds},
               {"allocate_seconds", load.allocate_seconds},
               {"threads", load.threads},
               {"runs", load.runs},
               {"model", load.model},
               {"device", load.device},
               {"tensors", load.tensors},
               {"verified", true},
               {"peers", Json::array()}};
  if (!load.gpu.empty()) json["gpu"] = load.gpu;
  for (const PeerFigures& peer : peers) json["peers"].push_back(peer_json(peer, load));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string report_text(const LoadFigures& load, const std::vector<PeerFigures>& peers) {
  std::string out = fmt::format(
      "{} to {}, {}: {} in {:.3f} s, {:.1f} GB/s\n"
      "{}: {:.1f} GB/s, ratio {:.3f}\n"
      "{}, {}, allocation {:.0f} ms, set-up {:.0f} ms, median of {}; {} verified "
      "in each run\n",
      load.model, load.gpu.empty() ? load.device : load.gpu, load.hot ? "hot" : "cold",
      format_bytes(load.bytes), load.seconds, load.gb_per_s(), load.limit, load.limit_gb_per_s,
      load.ratio(), load.reader, counted(load.threads, "thread"), load.allocate_seconds * 1000,
      load.setup_seconds * 1000, load.runs, counted(load.tensors, "tensor"));
  for (const PeerFigures& peer : peers) out += peer_text(peer, load);
  return out;
}

}  // namespace preload::bench
