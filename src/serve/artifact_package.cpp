// SPDX-License-Identifier: Apache-2.0
#include "serve/artifact_package.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "serve/sealed_text.hpp"

namespace preload {
namespace {

constexpr std::uint64_t kMaxListBytes = 64 << 20;

}  // namespace

std::size_t artifact_fds(std::uint64_t count) noexcept {
  return count == 0 ? 0 : static_cast<std::size_t>(count) + 1;
}

void pack_artifacts(const std::vector<const Artifact*>& artifacts, std::vector<Fd>& fds) {
  if (artifacts.empty()) return;
  std::string list;
  for (const Artifact* artifact : artifacts) list += wire::to_json(artifact->about) + "\n";
  fds.push_back(seal_text("preload-artifacts", list));
  for (const Artifact* artifact : artifacts) fds.push_back(duplicate(artifact->content.get()));
}

std::vector<Artifact> unpack_artifacts(std::vector<Fd> fds) {
  std::vector<Artifact> artifacts;
  if (fds.empty()) return artifacts;
  const Mapping mapping =
      map_sealed_text(fds.front().get(), "the list of artifacts", kMaxListBytes);
  std::string_view list = text_of(mapping);
  for (std::size_t next = 1; !list.empty(); ++next) {
    const std::size_t end = list.find('\n');
    if (end == std::string_view::npos || next == fds.size())
      reject_package("the list of artifacts has other lines than contents");
    Artifact artifact{wire::put_artifact_request_from_json(list.substr(0, end)),
                      std::move(fds[next])};
    if (!wire::holds_artifact(artifact.content.get(), artifact.about.bytes))
      reject_package(fmt::format("artifact '{}' is not a sealed memfd of {} bytes",
                                 artifact.about.key, artifact.about.bytes));
    artifacts.push_back(std::move(artifact));
    list.remove_prefix(end + 1);
  }
  if (artifacts.size() + 1 != fds.size())
    reject_package("the list of artifacts has other lines than contents");
  return artifacts;
}

}  // namespace preload
