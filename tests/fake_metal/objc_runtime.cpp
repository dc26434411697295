/// \file The runtime of fake objects, and its C functions.
#include "fake_metal/objc_runtime.h"

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <vector>

namespace tg::fake_objc {
namespace {
constexpr size_t kMostDead = 20000;  ///< objects that are remembered

/// What an object becomes: a message to it is a violation.
struct Dead {
  Class* isa;
  Class* was;
};

struct State {
  std::mutex mutex;
  std::map<std::string, Class> classes;
  std::map<std::string, Selector> selectors;
  std::deque<void*> dead;
  bool note = false;
  std::string violations;
};
State& state() {
  static auto* s = new State;  // objects outlive static ones
  return *s;
}
thread_local std::vector<std::vector<Object*>> pools;

Class& dead_class() {
  static Class& c = class_of("dead object");
  return c;
}
std::string name_of(const Object* object) {
  if (is_alive(object)) return object->isa->name;
  return "dead " + reinterpret_cast<const Dead*>(object)->was->name;
}
}  // namespace

void violation(const std::string& what) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  if (!s.note) {
    std::fprintf(stderr, "fake Metal: %s\n", what.c_str());
    std::abort();
  }
  s.violations += what + "\n";
}
void note_violations(bool note) {
  std::lock_guard lock(state().mutex);
  state().note = note;
}
std::string take_violations() {
  std::lock_guard lock(state().mutex);
  return std::exchange(state().violations, {});
}

Selector* selector_of(const std::string& name) {
  std::lock_guard lock(state().mutex);
  Selector& s = state().selectors[name];
  s.name = name;
  return &s;
}

Class& class_of(const std::string& name) {
  std::lock_guard lock(state().mutex);
  Class& c = state().classes[name];
  c.name = name;
  return c;
}

void for_each_method(const std::function<void(const Class&, const Selector&, const Method&)>& visit) {
  for (const auto& [name, c] : state().classes)
    for (const auto& [selector, method] : c.methods) visit(c, *selector, method);
}

bool is_alive(const Object* object) { return object->isa != &dead_class(); }

Object* retain(Object* object) {
  if (!is_alive(object)) violation("retain of a " + name_of(object));
  else object->references++;
  return object;
}

void release(Object* object) {
  if (!is_alive(object)) return violation("release of a " + name_of(object));
  if (--object->references > 0) return;
  Class& c = *object->isa;
  if (!c.destroy) return violation("the last reference of a " + c.name + " was released");
  c.destroy(object);
  c.living--;
  auto* dead = new (object) Dead{&dead_class(), &c};
  State& s = state();
  std::lock_guard lock(s.mutex);
  s.dead.push_back(dead);
  if (s.dead.size() <= kMostDead) return;
  ::operator delete(s.dead.front());
  s.dead.pop_front();
}

void autorelease(Object* object) {
  if (pools.empty()) return violation("a " + name_of(object) + " is never released: the thread has no pool");
  pools.back().push_back(object);
}

namespace {
int64_t nothing() { return 0; }

void* push_pool() {
  pools.emplace_back();
  return reinterpret_cast<void*>(pools.size());
}
void pop_pool(void* pool) {
  if (reinterpret_cast<size_t>(pool) != pools.size()) return violation("pools end in another order than they began");
  const std::vector<Object*> objects = std::move(pools.back());
  pools.pop_back();
  for (Object* o : objects) release(o);
}

/// A class as a receiver of messages.
struct ClassObject : Object {
  ClassObject(Class& messages) : Object(messages) {}
};
Object* get_class(const char* name) {
  static std::mutex mutex;
  static auto* objects = new std::map<std::string, ClassObject*>;
  std::lock_guard lock(mutex);
  Class& messages = class_of(std::string(name) + " class");
  if (messages.methods.empty()) return nullptr;
  ClassObject*& object = (*objects)[name];
  if (!object) object = new ClassObject(messages);
  return object;
}
}  // namespace
}  // namespace tg::fake_objc

extern "C" {
using tg::fake_objc::Object;
using tg::fake_objc::Selector;
using MethodFunction = void (*)();

/// Returns the method that a message calls.
__attribute__((used, visibility("hidden"))) MethodFunction fake_objc_find(Object* receiver, Selector* selector) {
  using namespace tg::fake_objc;
  const auto none = reinterpret_cast<void (*)()>(&nothing);
  if (!receiver) {
    violation("message " + selector->name + " to nil");
    return none;
  }
  if (!is_alive(receiver)) {
    violation("message " + selector->name + " to a " + name_of(receiver));
    return none;
  }
  const auto method = receiver->isa->methods.find(selector);
  if (method != receiver->isa->methods.end()) return method->second.function;
  violation("a " + receiver->isa->name + " has no method " + selector->name);
  return none;
}

#define TG_EXPORT __attribute__((visibility("default")))
TG_EXPORT Object* objc_getClass(const char* name) { return tg::fake_objc::get_class(name); }
TG_EXPORT Selector* sel_registerName(const char* name) { return tg::fake_objc::selector_of(name); }
TG_EXPORT Object* objc_retain(Object* o) { return o ? tg::fake_objc::retain(o) : nullptr; }
TG_EXPORT void objc_release(Object* o) {
  if (o) tg::fake_objc::release(o);
}
TG_EXPORT void* objc_autoreleasePoolPush() { return tg::fake_objc::push_pool(); }
TG_EXPORT void objc_autoreleasePoolPop(void* pool) { tg::fake_objc::pop_pool(pool); }
}

// objc_msgSend: keeps the registers of arguments while the method is looked up, then jumps to it, so that arguments on
// the stack stay where they are.
#if defined(__x86_64__)
__asm__(R"(
  .text
  .globl objc_msgSend
  .type objc_msgSend, @function
objc_msgSend:
  .cfi_startproc
  pushq %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  movq %rsp, %rbp
  .cfi_def_cfa_register %rbp
  subq $192, %rsp
  movq %rdi, -8(%rbp)
  movq %rsi, -16(%rbp)
  movq %rdx, -24(%rbp)
  movq %rcx, -32(%rbp)
  movq %r8, -40(%rbp)
  movq %r9, -48(%rbp)
  movq %rax, -56(%rbp)
  movups %xmm0, -80(%rbp)
  movups %xmm1, -96(%rbp)
  movups %xmm2, -112(%rbp)
  movups %xmm3, -128(%rbp)
  movups %xmm4, -144(%rbp)
  movups %xmm5, -160(%rbp)
  movups %xmm6, -176(%rbp)
  movups %xmm7, -192(%rbp)
  call fake_objc_find
  movq %rax, %r11
  movq -8(%rbp), %rdi
  movq -16(%rbp), %rsi
  movq -24(%rbp), %rdx
  movq -32(%rbp), %rcx
  movq -40(%rbp), %r8
  movq -48(%rbp), %r9
  movq -56(%rbp), %rax
  movups -80(%rbp), %xmm0
  movups -96(%rbp), %xmm1
  movups -112(%rbp), %xmm2
  movups -128(%rbp), %xmm3
  movups -144(%rbp), %xmm4
  movups -160(%rbp), %xmm5
  movups -176(%rbp), %xmm6
  movups -192(%rbp), %xmm7
  leave
  .cfi_def_cfa %rsp, 8
  jmp *%r11
  .cfi_endproc
  .size objc_msgSend, .-objc_msgSend
)");
#elif defined(__aarch64__)
__asm__(R"(
  .text
  .p2align 2
  .globl objc_msgSend
  .type objc_msgSend, %function
objc_msgSend:
  .cfi_startproc
  stp x29, x30, [sp, #-224]!
  .cfi_def_cfa_offset 224
  .cfi_offset 29, -224
  .cfi_offset 30, -216
  mov x29, sp
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  str x8, [sp, #80]
  stp q0, q1, [sp, #96]
  stp q2, q3, [sp, #128]
  stp q4, q5, [sp, #160]
  stp q6, q7, [sp, #192]
  bl fake_objc_find
  mov x17, x0
  ldp x0, x1, [sp, #16]
  ldp x2, x3, [sp, #32]
  ldp x4, x5, [sp, #48]
  ldp x6, x7, [sp, #64]
  ldr x8, [sp, #80]
  ldp q0, q1, [sp, #96]
  ldp q2, q3, [sp, #128]
  ldp q4, q5, [sp, #160]
  ldp q6, q7, [sp, #192]
  ldp x29, x30, [sp], #224
  .cfi_def_cfa_offset 0
  br x17
  .cfi_endproc
  .size objc_msgSend, .-objc_msgSend
)");
#endif
