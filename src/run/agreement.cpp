// SPDX-License-Identifier: Apache-2.0
#include "run/agreement.hpp"

#include <fmt/format.h>

#include "base/cancel.hpp"

namespace preload::run {

std::optional<Error> attempt(const std::function<void()>& work) {
  try {
    work();
    return std::nullopt;
  } catch (const Cancelled&) {
    throw;
  } catch (const Error& error) {
    return error;
  }
}

void throw_shared(const Group& group, const Error& error) {
  if (group.rank() == 0) throw Error(error);
  throw Cancelled({exit_status(error.code()), error.what()});
}

void agree(Group& group, const std::optional<Error>& mine, const Wait& wait) {
  // "<wire code>\n<text>", or nothing.
  const std::string outcome =
      mine ? fmt::format("{}\n{}", wire_code(mine->code()), mine->what()) : std::string();
  const std::vector<std::string> outcomes = group.all_gather(outcome, wait);
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank].empty()) continue;
    const std::string_view text = outcomes[rank];
    const std::size_t end = text.find('\n');
    const Errc code = errc_from_wire(text.substr(0, end)).value_or(Errc::kInternal);
    const std::string_view what = text.substr(end + 1);
    throw_shared(group, Error(code, group.size() == 1 ? std::string(what)
                                                      : fmt::format("rank {}: {}", rank, what)));
  }
}

}  // namespace preload::run
