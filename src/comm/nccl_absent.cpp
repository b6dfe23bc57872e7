// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "comm/nccl_exchange.hpp"

namespace preload {

std::string nccl_unavailable(const std::string&) { return "this build has no NCCL"; }

std::unique_ptr<RankExchange> make_nccl_exchange(Group&, const NcclRanks&, const std::string&,
                                                 const Wait&) {
  throw Error(Errc::kLauncher, "this build has no NCCL");
}

}  // namespace preload
