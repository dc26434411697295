/// \file Timing by events, or by the host's clock.
#include "tinygrad/engine/device_timer.h"

#include "tinygrad/base/profile.h"

namespace tg {

DeviceTimer::DeviceTimer(Device& device) : device_(device) {
  if (!device.queue().synchronous()) begin_event_ = device.queue().record();
  begin_ = profile::now();
}

TimeSpan DeviceTimer::stop() {
  if (!begin_event_) return {begin_, profile::now()};
  const EventRef end_event = device_.queue().record();
  end_event->wait();
  const int64_t end = profile::now();
  const auto seconds = end_event->seconds_since(*begin_event_);
  return seconds ? TimeSpan{end - static_cast<int64_t>(*seconds * 1e9), end} : TimeSpan{begin_, end};
}

}  // namespace tg
