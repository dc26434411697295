/// \file Fake Metal itself: the rules that it finds broken.
#include "metal/fake_metal_library.h"
#include "tinygrad/runtime/metal_objc.h"

namespace tg {
namespace {
using ::testing::HasSubstr;

class FakeMetalRules : public ::testing::Test {
 protected:
  void SetUp() override { control_.note_violations(true); }
  void TearDown() override { control_.note_violations(false); }
  std::string taken() const { return control_.take_violations(); }
  const MetalLibrary& m_ = metal();
  const fake_metal::Control& control_ = test::fake_metal_control();
  ObjcRef gpu_ = ObjcRef::adopt(m_.default_device());
  ObjcRef queue_ = ObjcRef::adopt(m_.new_queue(gpu_.get(), 4));
};

TEST_F(FakeMetalRules, MessagesGoToObjectsThatLiveAndKnowThem) {
  EXPECT_EQ(taken(), "");
  m_.commit(gpu_.get());
  EXPECT_EQ(taken(), "a MTLDevice has no method commit\n");
  m_.commit(nullptr);
  EXPECT_EQ(taken(), "message commit to nil\n");
  const ObjcId buffer = m_.new_buffer(gpu_.get(), 64, 0);
  m_.release(buffer);
  m_.contents(buffer);
  EXPECT_EQ(taken(), "message contents to a dead MTLBuffer\n");
  m_.release(buffer);
  EXPECT_EQ(taken(), "release of a dead MTLBuffer\n");
  m_.name(gpu_.get());
  EXPECT_THAT(taken(), HasSubstr("a NSString is never released: the thread has no pool"));
  EXPECT_EQ(m_.get_class("NSNothing"), nullptr);
}

TEST_F(FakeMetalRules, CommandBuffersHaveAnOrder) {
  const AutoreleasePool pool;
  const ObjcId b = m_.command_buffer(queue_.get()), encoder = m_.compute_encoder(b);
  m_.blit_encoder(b);
  EXPECT_THAT(taken(), HasSubstr("an encoder beside another one"));
  m_.commit(b);
  EXPECT_THAT(taken(), HasSubstr("commit before endEncoding"));
  m_.wait_completed(b);
  EXPECT_THAT(taken(), HasSubstr("waitUntilCompleted before commit"));
  m_.dispatch(encoder, {1, 1, 1}, {1, 1, 1});
  EXPECT_THAT(taken(), HasSubstr("a dispatch without a pipeline"));
  m_.end_encoding(encoder);
  m_.end_encoding(encoder);
  EXPECT_THAT(taken(), HasSubstr("endEncoding twice"));
  m_.set_bytes(encoder, &encoder, 5000, 0);
  EXPECT_THAT(taken(), HasSubstr("bytes that do not fit"));
  m_.commit(b);
  m_.commit(b);
  EXPECT_THAT(taken(), HasSubstr("commit twice"));
  m_.wait_completed(b);
  EXPECT_EQ(m_.status(b), 4u);
}

TEST_F(FakeMetalRules, EncodersEndBeforeTheyGo) {
  {
    const AutoreleasePool pool;
    m_.compute_encoder(m_.command_buffer(queue_.get()));
  }
  EXPECT_THAT(taken(), HasSubstr("an encoder that goes without endEncoding"));
}

TEST_F(FakeMetalRules, CopiesAreOfWordsWithinBuffers) {
  const AutoreleasePool pool;
  const ObjcRef a = ObjcRef::adopt(m_.new_buffer(gpu_.get(), 64, 0)),
                b = ObjcRef::adopt(m_.new_buffer(gpu_.get(), 64, 0));
  const ObjcId commands = m_.command_buffer(queue_.get()), encoder = m_.blit_encoder(commands);
  m_.copy_buffer(encoder, a.get(), 2, b.get(), 0, 4);
  EXPECT_THAT(taken(), HasSubstr("parts of words"));
  m_.copy_buffer(encoder, a.get(), 0, b.get(), 32, 64);
  EXPECT_THAT(taken(), HasSubstr("beyond a buffer"));
  m_.copy_buffer(encoder, a.get(), 0, a.get(), 4, 8);
  EXPECT_THAT(taken(), HasSubstr("onto itself"));
  m_.end_encoding(encoder);
}

TEST_F(FakeMetalRules, BytesBehindABufferStayAsTheyAre) {
  const ObjcId a = m_.new_buffer(gpu_.get(), 64, 0);
  static_cast<char*>(m_.contents(a))[64] = 1;
  m_.release(a);
  EXPECT_THAT(taken(), HasSubstr("bytes behind a buffer were written"));
}

TEST_F(FakeMetalRules, PoolsAreNested) {
  void* outer = m_.push_pool();
  void* inner = m_.push_pool();
  m_.pop_pool(outer);
  EXPECT_THAT(taken(), HasSubstr("another order"));
  m_.pop_pool(inner);
  m_.pop_pool(outer);
  EXPECT_EQ(taken(), "");
}

TEST_F(FakeMetalRules, IndirectCommandsHoldNothing) {
  const AutoreleasePool pool;
  const ObjcRef descriptor = new_object("MTLIndirectCommandBufferDescriptor");
  m_.set_command_types(descriptor.get(), 32);
  m_.set_inherit_buffers(descriptor.get(), false);
  m_.set_inherit_pipeline(descriptor.get(), false);
  m_.set_max_kernel_buffers(descriptor.get(), 31);
  const ObjcRef commands = ObjcRef::adopt(m_.new_indirect_commands(gpu_.get(), descriptor.get(), 2, 0));
  const ObjcId b = m_.command_buffer(queue_.get()), encoder = m_.compute_encoder(b);
  m_.execute_commands(encoder, commands.get(), {0, 1});
  m_.reset(m_.indirect_command_at(commands.get(), 0));
  EXPECT_THAT(taken(), HasSubstr("changes while the GPU reads it"));
  m_.end_encoding(encoder);
  m_.commit(b);
  m_.wait_completed(b);
  EXPECT_THAT(taken(), HasSubstr("never set"));
}
}  // namespace
}  // namespace tg
