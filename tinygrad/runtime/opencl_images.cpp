/// \file OpenCL: images as views of buffers, and as copies of them.
#include "tinygrad/runtime/opencl_images.h"

#include <algorithm>

#include "tinygrad/base/error.h"

namespace tg {
namespace {
constexpr size_t kNumbers = 4;  // of a pixel
constexpr size_t kOrigin[3] = {0, 0, 0};

size_t pixel_bytes(const ImageSize& size) { return kNumbers * static_cast<size_t>(size.itemsize); }

/// Makes a view, or returns nullptr.
cl_mem make_view(const OpenClDevice& device, cl_context context, MemoryPlace at, const ImageSize& size) {
  const OpenClFunctions& cl = *device.functions;
  const size_t pixel = pixel_bytes(size), unit = static_cast<size_t>(device.images.pitch) * pixel;
  // An image of one row may end before its pitch does.
  const size_t pitch = (static_cast<size_t>(size.width) * pixel + unit - 1) / unit * unit;
  if (!device.images_of_buffers || at.offset % static_cast<size_t>(device.view_alignment)) return nullptr;
  if (size.height > 1 && pitch != static_cast<size_t>(size.width) * pixel) return nullptr;
  const cl_buffer_region region{at.offset, pitch * static_cast<size_t>(size.height)};
  cl_int error = CL_SUCCESS;
  cl_mem part = cl.CreateSubBuffer(static_cast<cl_mem>(at.block), CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION,
                                   &region, &error);
  if (error != CL_SUCCESS) return nullptr;
  cl_mem image = make_opencl_image(cl, context, size, part, pitch, &error);
  cl.ReleaseMemObject(part);  // the image keeps it
  return image;
}
}  // namespace

cl_mem make_opencl_image(const OpenClFunctions& cl, cl_context context, const ImageSize& size, cl_mem buffer,
                         size_t pitch, cl_int* error) {
  const cl_image_format format{CL_RGBA, static_cast<cl_channel_type>(size.itemsize == 4 ? CL_FLOAT : CL_HALF_FLOAT)};
  cl_image_desc d{};
  d.image_type = CL_MEM_OBJECT_IMAGE2D;
  d.image_width = static_cast<size_t>(size.width);
  d.image_height = static_cast<size_t>(size.height);
  d.image_row_pitch = buffer ? pitch : 0;
  d.buffer = buffer;
  cl_mem image = cl.CreateImage(context, CL_MEM_READ_WRITE, &format, &d, nullptr, error);
  return *error == CL_SUCCESS ? image : nullptr;
}

cl_mem OpenClImages::view(const OpenClDevice& device, cl_context context, MemoryPlace at, const ImageSize& size) {
  if (!device.images_of_buffers) return nullptr;
  std::lock_guard lock(mutex_);
  std::vector<View>& known = views_[at.block];
  for (const View& v : known)
    if (v.offset == at.offset && v.size.width == size.width && v.size.height == size.height &&
        v.size.itemsize == size.itemsize)
      return v.image;
  known.push_back({at.offset, size, make_view(device, context, at, size)});
  return known.back().image;
}

void OpenClImages::drop(const OpenClFunctions& functions, void* buffer) {
  std::lock_guard lock(mutex_);
  const auto known = views_.extract(buffer);
  if (!known) return;
  for (const View& v : known.mapped())
    if (v.image) functions.ReleaseMemObject(v.image);
}

LaunchImages::LaunchImages(const OpenClContext& context, const OpenClQueue& queue, const LaunchArgs& args)
    : context_(context), queue_(queue), args_(args) {
  for (size_t i = 0; i < static_cast<size_t>(args.nbuffers); i++) {
    memory_.push_back(static_cast<cl_mem>(args.buffers[i]));
    if (!args.images || !args.images[i].width) continue;
    const MemoryPlace at{args.buffers[i], static_cast<size_t>(args.offsets[i])};
    cl_mem view = context.images.view(context.device, context.context, at, args.images[i]);
    memory_.back() = view ? view : copied(i);
  }
}

/// Returns an image with the bytes of a buffer: what a kernel does not write keeps its value.
cl_mem LaunchImages::copied(size_t slot) {
  const ImageSize& size = args_.images[slot];
  cl_int error = CL_SUCCESS;
  cl_mem image = make_opencl_image(context_.cl, context_.context, size, nullptr, 0, &error);
  if (error == CL_MEM_OBJECT_ALLOCATION_FAILURE || error == CL_OUT_OF_RESOURCES || error == CL_OUT_OF_HOST_MEMORY)
    throw OutOfMemoryError(str("[launch] ", context_.name, ": no memory for an image of ", size.width, " x ",
                               size.height, " pixels of ", pixel_bytes(size), " bytes"));
  context_.check(error, "clCreateImage");
  copies_.push_back({slot, Image(image, {&context_.cl})});
  const size_t region[3] = {static_cast<size_t>(size.width), static_cast<size_t>(size.height), 1};
  context_.check(context_.cl.EnqueueCopyBufferToImage(queue_.handle(), static_cast<cl_mem>(args_.buffers[slot]), image,
                                                      static_cast<size_t>(args_.offsets[slot]), kOrigin, region, 0,
                                                      nullptr, nullptr),
                 "clEnqueueCopyBufferToImage");
  return image;
}

void LaunchImages::copy_back() const {
  for (const Copy& c : copies_) {
    const ImageSize& size = args_.images[c.slot];
    if (!size.written) continue;
    const size_t region[3] = {static_cast<size_t>(size.width), static_cast<size_t>(size.height), 1};
    context_.check(context_.cl.EnqueueCopyImageToBuffer(
                       queue_.handle(), c.image.get(), static_cast<cl_mem>(args_.buffers[c.slot]), kOrigin, region,
                       static_cast<size_t>(args_.offsets[c.slot]), 0, nullptr, nullptr),
                   "clEnqueueCopyImageToBuffer");
  }
}

}  // namespace tg
