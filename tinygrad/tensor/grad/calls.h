/// \file Pending computations as calls, and calls to functions that hardware has.
#pragma once
#include "tinygrad/tensor/tensor.h"
#include "tinygrad/tensor/variable.h"

namespace tg {

/// Turns what these tensors have pending into one call: its results are stored together when one of them is computed,
/// and what is built on them later does not fuse into it. Values, and gradients, are what they were. Tensors that are
/// stored already, constants, and tensors with pending writes stay as they are.
void callify(const Tensors& tensors);

/// Returns the frame of shape `shape` that a video decoder makes of `chunk`, HEVC data, with the decoder's context
/// `state` and the frames it refers to. `frame_pos` is the number of the frame. Its elements are uint8. ValueError for
/// a shape or arguments no frame has, ShapeError and DTypeError for what is no row of bytes. Realizing it is a
/// DeviceError on devices without a decoder, which all devices of this library are.
Tensor decode_hevc_frame(const Tensor& chunk, const BoundVariable& frame_pos, const Shape& shape, const Tensor& state,
                         const Tensors& ref_frames = {});
/// Takes the bound variable as a node; shape, type and errors are the same (ShapeError, DTypeError, ValueError,
/// DeviceError).
Tensor decode_hevc_frame(const Tensor& chunk, UOp frame_pos, const Shape& shape, const Tensor& state,
                         const Tensors& ref_frames = {});

}  // namespace tg
