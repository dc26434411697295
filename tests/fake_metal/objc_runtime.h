/// \file A small Objective-C runtime for tests: objects whose references are counted and checked, classes as tables of
/// methods, autorelease pools. objc_msgSend is a trampoline, as the real one.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>

#include "fake_metal/objc_encoding.h"

namespace tg::fake_objc {

/// Reports a broken rule: ends the process, or notes it where a test expects one.
void violation(const std::string& what);
void note_violations(bool note);
/// Returns the violations noted, a line each, and forgets them.
std::string take_violations();

struct Selector {
  std::string name;
};
Selector* selector_of(const std::string& name);

struct Method {
  void (*function)() = nullptr;
  std::string types;
};

struct Class {
  std::string name;
  std::unordered_map<const Selector*, Method> methods;
  void (*destroy)(Object*) = nullptr;  // empty: its objects are for ever
  std::atomic<int64_t> living{0};
};
/// Returns the class of this name. Those of messages to a class itself are called "NAME class".
Class& class_of(const std::string& name);
/// Calls `visit` with every method of every class.
void for_each_method(const std::function<void(const Class&, const Selector&, const Method&)>& visit);

/// What every object begins with.
struct Object {
  explicit Object(Class& c) : isa(&c) { c.living++; }
  Class* isa;
  std::atomic<int64_t> references{1};
};

Object* retain(Object* object);
void release(Object* object);
/// Gives the caller's reference to the innermost pool of the thread.
void autorelease(Object* object);
/// Whether it is an object that lives. Those that are gone are remembered for a while.
bool is_alive(const Object* object);

/// Makes an object; the caller has its reference. T::kClass names its class.
template <class T, class... A> T* create(A&&... args) {
  Class& c = class_of(T::kClass);
  c.destroy = [](Object* o) { static_cast<T*>(o)->~T(); };
  return new (::operator new(sizeof(T))) T(std::forward<A>(args)...);
}
template <class T, class... A> T* create_autoreleased(A&&... args) {
  T* object = create<T>(std::forward<A>(args)...);
  autorelease(object);
  return object;
}

/// A reference that an object holds of another.
template <class T> class Held {
 public:
  Held() = default;
  explicit Held(T* object) : object_(object) {
    if (object_) retain(object_);
  }
  Held(const Held& o) : Held(o.object_) {}
  Held(Held&& o) noexcept : object_(std::exchange(o.object_, nullptr)) {}
  Held& operator=(Held o) noexcept {
    std::swap(object_, o.object_);
    return *this;
  }
  ~Held() {
    if (object_) release(object_);
  }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  explicit operator bool() const { return object_; }

 private:
  T* object_ = nullptr;
};

/// Adds a method: a function with the receiver and the selector before its arguments.
template <class R, class T, class... A>
void add_method(const std::string& class_name, const char* name, R (*function)(T*, Selector*, A...)) {
  class_of(class_name).methods[selector_of(name)] = {reinterpret_cast<void (*)()>(function),
                                                     SignatureEncoding<R(A...)>::text()};
}

}  // namespace tg::fake_objc
