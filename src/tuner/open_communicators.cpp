// SPDX-License-Identifier: Apache-2.0
#include "tuner/open_communicators.hpp"

#include <fmt/format.h>

#include <exception>

#include "base/environment.hpp"
#include "tuner/table_file.hpp"

namespace preload::tuner {

Communicator& OpenCommunicators::open(preload_nccl_tuner_communicator facts, nccl::Logger log) {
  const NcclLog nccl_log(log);
  facts.nccl_version = nccl_version_behind(log).value_or(0);
  std::vector<Entry> entries = read_table(facts, nccl_log);
  const std::lock_guard lock(mutex_);
  facts.id = ++last_id_;
  auto communicator = std::make_unique<Communicator>(facts, std::move(entries), nccl_log);
  return *open_.emplace(facts.id, std::move(communicator)).first->second;
}

void OpenCommunicators::close(const Communicator* communicator) {
  const std::lock_guard lock(mutex_);
  open_.erase(communicator->facts().id);
}

std::vector<preload_nccl_tuner_communicator> OpenCommunicators::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<preload_nccl_tuner_communicator> all;
  for (const auto& [id, communicator] : open_) all.push_back(communicator->facts());
  return all;
}

// For each communicator anew, not once in a process: all ranks must see the same table, and all
// form a communicator at the same time.
std::vector<Entry> OpenCommunicators::read_table(preload_nccl_tuner_communicator& facts,
                                                 const NcclLog& log) {
  facts.table = PRELOAD_NCCL_TUNER_TABLE_NONE;
  const std::string path = environment("PRELOAD_TUNER_TABLE");
  if (path.empty() || facts.ranks < 2) return {};
  const TableUser user{
      .shape = {static_cast<int>(facts.ranks), static_cast<int>(facts.nodes)},
      .nccl_version = facts.nccl_version == 0 ? std::nullopt : std::optional(facts.nccl_version),
      .gpu = current_gpu_name()};
  try {
    std::vector<Entry> entries = entries_for(read_table_file(path), user, path);
    facts.table = PRELOAD_NCCL_TUNER_TABLE_IN_USE;
    facts.entries = static_cast<std::uint32_t>(entries.size());
    log.info(fmt::format("preload: {} entries of the tuning table '{}' for {}", entries.size(),
                         path, text_of(user.shape)));
    return entries;
  } catch (const std::exception& error) {
    facts.table = PRELOAD_NCCL_TUNER_TABLE_REFUSED;
    warn_once(log,
              fmt::format("preload: {}; NCCL chooses for itself. PRELOAD_TUNER_TABLE must name "
                          "the same table on all ranks, or on none",
                          error.what()));
  }
  return {};
}

void OpenCommunicators::warn_once(const NcclLog& log, const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    if (!warned_.insert(text).second) return;
  }
  log.warn(text);
}

OpenCommunicators& open_communicators() {
  static OpenCommunicators all;
  return all;
}

}  // namespace preload::tuner
