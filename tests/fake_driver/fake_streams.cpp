/// \file Streams and events of the fake GPUs.
#include "fake_driver/fake_machine.h"

namespace tg::fake {
namespace {

/// Counts a command of a device that fails when a test wants that.
void count_command(DeviceState& d) {
  if (d.fail_in > 0 && --d.fail_in == 0) d.failed = d.fail_with;
}

void run_stream(Stream* s) {
  Machine& m = machine();
  std::unique_lock lock(m.mutex);
  for (;;) {
    m.changed.wait(lock, [&] { return !s->commands.empty() || s->destroyed; });
    if (s->commands.empty()) return;
    const std::function<int()> command = std::move(s->commands.front());
    s->commands.pop_front();
    DeviceState& d = device_at(s->device);
    count_command(d);
    if (d.failed == 0) {
      const unsigned pause = m.delay > 0 ? m.random() % static_cast<unsigned>(m.delay) : 0;
      lock.unlock();
      if (pause) std::this_thread::sleep_for(std::chrono::microseconds(pause));
      const int error = command();
      lock.lock();
      if (error && d.failed == 0) d.failed = error;
    }
    s->done++;
    m.changed.notify_all();
  }
}

/// Waits until the stream has come so far; the host knows then. The lock is held.
int wait_until(std::unique_lock<std::mutex>& lock, Stream& s, uint64_t number, const Clock& clock) {
  machine().changed.wait(lock, [&] { return s.done >= number || device_at(s.device).failed; });
  if (const int failed = device_at(s.device).failed) return failed;
  machine().host.join(clock);
  return 0;
}
}  // namespace

Moment next_moment(Stream& s) {
  s.clock.join(machine().host);
  s.clock.set(s.id, ++s.enqueued);
  return {s.id, s.enqueued};
}
void push(Stream& s, std::function<int()> command) {
  s.commands.push_back(std::move(command));
  machine().changed.notify_all();
}

int create_stream(void** stream, unsigned flags) {
  Machine& m = machine();
  std::lock_guard lock(m.mutex);
  if (const int error = check_current()) return error;
  if (flags != 1) violation("a stream that waits for the default stream");
  Stream* s = add(m.streams, stream);
  s->id = m.streams.size();
  s->thread = std::thread(run_stream, s);
  return 0;
}
int destroy_stream(void* stream) {
  Machine& m = machine();
  std::thread ended;
  {
    std::lock_guard lock(m.mutex);
    if (const int error = check_current()) return error;
    Stream* s = find(m.streams, stream, "stream");
    if (!s || s->destroyed) return kInvalidHandle;
    s->destroyed = true;
    ended = std::move(s->thread);
    m.changed.notify_all();
  }
  ended.join();
  return 0;
}
int synchronize_stream(void* stream) {
  std::unique_lock lock(machine().mutex);
  if (const int error = check_current()) return error;
  Stream* s = find(machine().streams, stream, "stream");
  if (!s) return kInvalidHandle;
  const Clock clock = s->clock;
  return wait_until(lock, *s, s->enqueued, clock);
}
int create_event(void** event, unsigned flags) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  if (flags != 0) violation("an event without a time");
  add(machine().events, event);
  return 0;
}
int destroy_event(void* event) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  EventObject* e = find(machine().events, event, "event");
  if (!e || e->destroyed) return kInvalidHandle;
  e->destroyed = true;
  return 0;
}
int record_event(void* event, void* stream) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  EventObject* e = find(machine().events, event, "event");
  Stream* s = find(machine().streams, stream, "stream");
  if (!e || !s) return kInvalidHandle;
  auto record = std::make_shared<Record>();
  record->stream = s;
  record->moment = next_moment(*s);
  record->clock = s->clock;
  e->record = record;
  push(*s, [record] {
    record->time = std::chrono::steady_clock::now();
    return 0;
  });
  return 0;
}
/// The event may be of another device.
int wait_for_event(void* stream, void* event, unsigned flags) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  EventObject* e = find(machine().events, event, "event", false);
  Stream* s = find(machine().streams, stream, "stream");
  if (!e || !s || flags != 0) return kInvalidHandle;
  const std::shared_ptr<Record> record = e->record;
  if (!record) return violation("a stream waits for an event that was never recorded");
  next_moment(*s);
  s->clock.join(record->clock);
  push(*s, [record] {
    Machine& m = machine();
    std::unique_lock guard(m.mutex);
    const Stream& other = *record->stream;
    m.changed.wait(guard, [&] { return other.done >= record->moment.number || device_at(other.device).failed; });
    return device_at(other.device).failed;
  });
  return 0;
}
int query_event(void* event) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  const EventObject* e = find(machine().events, event, "event");
  if (!e) return kInvalidHandle;
  if (!e->record) return 0;
  if (e->record->stream->done < e->record->moment.number) return kNotReady;
  machine().host.join(e->record->clock);
  return 0;
}
int synchronize_event(void* event) {
  std::unique_lock lock(machine().mutex);
  if (const int error = check_current()) return error;
  const EventObject* e = find(machine().events, event, "event");
  if (!e) return kInvalidHandle;
  if (!e->record) return 0;
  const std::shared_ptr<Record> record = e->record;
  return wait_until(lock, *record->stream, record->moment.number, record->clock);
}
int elapsed_time(float* milliseconds, void* begin, void* end) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  const EventObject *a = find(machine().events, begin, "event"), *b = find(machine().events, end, "event");
  if (!a || !b || !a->record || !b->record) return kInvalidHandle;
  for (const EventObject* e : {a, b})
    if (e->record->stream->done < e->record->moment.number) return kNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(b->record->time - a->record->time).count();
  return 0;
}

}  // namespace tg::fake
