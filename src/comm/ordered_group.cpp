// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <utility>

#include "comm/mpi_session.hpp"

namespace preload {
namespace {

// The same processes under other numbers.
class OrderedGroup final : public Group {
 public:
  OrderedGroup(std::unique_ptr<Group> inner, std::vector<int> rank_of)
      : inner_(std::move(inner)), rank_of_(std::move(rank_of)) {}

  int rank() const noexcept override { return rank_of_[static_cast<std::size_t>(inner_->rank())]; }
  int size() const noexcept override { return inner_->size(); }

  std::vector<std::string> all_gather(std::string_view mine, const Wait& wait) override {
    return ordered(inner_->all_gather(mine, wait));
  }

  std::string broadcast(std::string_view mine, int root, const Wait& wait) override {
    return inner_->broadcast(mine, inner_rank(root), wait);
  }

  std::vector<std::string> all_to_all(const std::vector<std::string>& out,
                                      const Wait& wait) override {
    std::vector<std::string> parts;
    for (int rank : rank_of_) parts.push_back(out.at(static_cast<std::size_t>(rank)));
    return ordered(inner_->all_to_all(parts, wait));
  }

  void exchange(std::span<const GroupMessage> out, std::span<const GroupMessage> in,
                const Wait& wait) override {
    inner_->exchange(renamed(out), renamed(in), wait);
  }

  void barrier(const Wait& wait) override { inner_->barrier(wait); }
  void finalize(const Wait& wait) override { inner_->finalize(wait); }

 private:
  int inner_rank(int rank) const noexcept {
    return static_cast<int>(std::find(rank_of_.begin(), rank_of_.end(), rank) - rank_of_.begin());
  }

  std::vector<GroupMessage> renamed(std::span<const GroupMessage> messages) const {
    std::vector<GroupMessage> result(messages.begin(), messages.end());
    for (GroupMessage& message : result) message.rank = inner_rank(message.rank);
    return result;
  }

  std::vector<std::string> ordered(std::vector<std::string> parts) const {
    std::vector<std::string> result(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      result[static_cast<std::size_t>(rank_of_[i])] = std::move(parts[i]);
    }
    return result;
  }

  std::unique_ptr<Group> inner_;
  std::vector<int> rank_of_;  // our number of each of the inner group's ranks
};

}  // namespace

std::unique_ptr<Group> order_ranks(std::unique_ptr<Group> group, std::vector<int> rank_of) {
  if (std::is_sorted(rank_of.begin(), rank_of.end())) return group;
  return std::make_unique<OrderedGroup>(std::move(group), std::move(rank_of));
}

}  // namespace preload
