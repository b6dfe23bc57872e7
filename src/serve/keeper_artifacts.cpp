// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "serve/artifact_package.hpp"
#include "serve/keeper.hpp"

namespace preload {

void Keeper::put_artifact(Session& session, wire::Frame frame) {
  Artifact artifact = preload::take_artifact(std::move(frame));
  Kept& kept = orphan_for(session);
  const auto result = kept.artifacts.put(std::move(artifact));
  session.answer(wire::Type::kPutArtifact, wire::to_json(wire::PutArtifactReply{result.replaced}));
}

void Keeper::get_artifact(Session& session, const wire::GetArtifactRequest& request) {
  std::vector<Fd> fds;
  const auto reply = orphan_for(session).artifacts.get(request, fds);
  session.answer_owned(wire::Type::kGetArtifact, wire::to_json(reply), std::move(fds));
}

// What was left here for the place and its daemon does not have; returns how many.
std::size_t Keeper::take_missing(Kept& fresh, const Kept& before, std::vector<Fd>& fds) {
  std::vector<const Artifact*> missing;
  for (const Artifact* left : before.artifacts.put_since(before.deposited_puts)) {
    const Artifact* const known = fresh.artifacts.find(left->about.key);
    if (known != nullptr && is_same_content(*known, *left)) continue;
    fresh.artifacts.put({left->about, duplicate(left->content.get())});
    missing.push_back(left);
  }
  pack_artifacts(missing, fds);
  return missing.size();
}

void Keeper::take_artifact(Session& session, const wire::DepositRequest& request,
                           wire::Frame frame) {
  if (frame.fds.size() != 1) throw Error(Errc::kProtocol, "an artifact comes with one descriptor");
  owned_by(session).artifacts.put({request.artifact, std::move(frame.fds.front())});
  session.answer(wire::Type::kDeposit, wire::to_json(wire::DepositReply{}));
}

}  // namespace preload
