/// \file The images of one launch.
#pragma once
#include <vector>

#include "tinygrad/runtime/opencl_device.h"

namespace tg {

/// The memory objects that a launch is given: buffers, views of them as images, and where a device has no such views,
/// images with the bytes of buffers, copied in front of the kernel and, what it writes, behind it.
class LaunchImages {
 public:
  /// Enqueues the copies in front. Throws DeviceError, and OutOfMemoryError where there is no memory for an image.
  LaunchImages(const OpenClContext& context, const OpenClQueue& queue, const LaunchArgs& args);
  /// Returns an object for each buffer of the launch.
  const cl_mem* memory() const { return memory_.data(); }
  /// Enqueues the copies behind the kernel.
  void copy_back() const;

 private:
  struct Release {
    const OpenClFunctions* cl;
    void operator()(cl_mem image) const { cl->ReleaseMemObject(image); }
  };
  /// Commands that are still to come keep their images.
  using Image = std::unique_ptr<std::remove_pointer_t<cl_mem>, Release>;
  struct Copy {
    size_t slot;
    Image image;
  };
  cl_mem copied(size_t slot);

  const OpenClContext& context_;
  const OpenClQueue& queue_;
  const LaunchArgs& args_;
  std::vector<cl_mem> memory_;
  std::vector<Copy> copies_;
};

}  // namespace tg
