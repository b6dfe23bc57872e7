// SPDX-License-Identifier: Apache-2.0
#include "run/rank_job.hpp"

#include <exception>
#include <new>

#include "run/agreement.hpp"
#include "run/rank_load.hpp"
#include "run/rank_place.hpp"
#include "run/rank_release.hpp"
#include "run/rank_warmup.hpp"

namespace preload::run {

RankJob::RankJob(const cli::ServeOptions& options, const Launcher& launcher, const Launch& launch,
                 Group& group, RankControl& control, Supervision& supervision)
    : rank_(options, launcher, launch, group, control, supervision),
      serving_(rank_),
      ending_(rank_) {}

int RankJob::run() {
  try {
    return ending_.conclude(work());
  } catch (const Cancelled& cancelled) {
    return ending_.conclude(rank_.control.decided().value_or(
        ServeEnd{ServeEnd::Cause::kFailure, cancelled.status(), cancelled.what()}));
  } catch (const std::bad_alloc&) {
    const Error error(Errc::kMemory, "out of host memory");
    ending_.report(error.code(), error.what());
    throw error;
  } catch (const AgreedError& error) {
    ending_.report(error.code(), error.what(), error.rank());
    throw Error(error);
  } catch (const Error& error) {
    ending_.report(error.code(), error.what());
    throw;
  } catch (const std::exception& error) {
    ending_.report(Errc::kInternal, error.what());
    throw;
  }
}

ServeEnd RankJob::work() {
  take_place(rank_);
  load_roles(rank_);
  RankWarmup warmup(rank_);
  warmup.prepare();
  release_all(rank_);
  warmup.run();
  rank_.cancel().check();
  return serving_.run();
}

}  // namespace preload::run
