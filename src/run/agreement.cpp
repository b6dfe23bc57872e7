// SPDX-License-Identifier: Apache-2.0
#include "run/agreement.hpp"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <new>

#include "base/cancel.hpp"
#include "base/log.hpp"
#include "run/failure_report.hpp"

namespace preload::run {
namespace {

constexpr std::chrono::seconds kToSayIt{5};

}  // namespace

std::optional<Error> attempt(const std::function<void()>& work) {
  try {
    work();
    return std::nullopt;
  } catch (const Cancelled&) {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(Errc::kMemory, "out of host memory");
  } catch (const std::exception& error) {
    return Error(Errc::kInternal, error.what());
  }
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
    throw AgreedError(Error(code, std::string(text.substr(end + 1))), static_cast<int>(rank));
  }
}

void say_and_end(Group& group, const AgreedError& error, const Cancel& cancel) {
  const bool names_rank = error.rank() && group.size() > 1;
  const std::string text =
      names_rank ? fmt::format("rank {}: {}", *error.rank(), error.what()) : error.what();
  if (group.rank() == 0) {
    log::error(text);
    if (group.size() > 1) write_end_line(exit_status(error.code()), error.rank());
  }
  try {
    group.barrier({"rank 0 to say why the job ends", cancel, kToSayIt});
  } catch (const Error&) {
    // A rank that is gone, or a signal: there is nothing left to wait for.
  }
  throw Cancelled({exit_status(error.code()), text});
}

}  // namespace preload::run
