// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "warmup/collective_timer.hpp"

namespace preload::test {

// A timer without NCCL: what a collective takes is a function of the point and the choice, with
// noise that is each rank's own.
class FakeTimer final : public warmup::CollectiveTimer {
 public:
  using Seconds = std::function<double(const warmup::SweepPoint&, const warmup::Choice&)>;

  // `noise`: the part of a time by which it may be longer. A few times are many times longer.
  FakeTimer(std::vector<tuner::Shape> shapes, warmup::Offer offer, Seconds seconds,
            std::uint64_t seed, double noise)
      : shapes_(std::move(shapes)),
        offer_(std::move(offer)),
        seconds_(std::move(seconds)),
        random_(seed),
        noise_(noise) {}

  int nccl_version() const override { return 22803; }
  std::vector<tuner::Shape> shapes() const override { return shapes_; }

  warmup::Offer offer(const warmup::SweepPoint& point) override {
    warmup::Offer offer = warmup::is_tunable(point.operation) ? offer_ : warmup::Offer{};
    offer.registered_buffers = point.captured;
    return offer;
  }

  double run(const warmup::SweepPoint& point, const warmup::Choice& choice, int) override {
    ++runs;
    std::uniform_real_distribution<double> part(0, 1);
    double seconds = seconds_(point, choice) * (1 + noise_ * part(random_));
    if (noise_ > 0 && part(random_) < 0.02) seconds *= 5;
    return seconds;
  }

  int runs = 0;

 private:
  const std::vector<tuner::Shape> shapes_;
  const warmup::Offer offer_;
  const Seconds seconds_;
  std::mt19937_64 random_;
  const double noise_;
};

}  // namespace preload::test
