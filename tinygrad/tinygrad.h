/// \file What users include: tensors, types, errors, graph nodes, devices, layers and optimizers.
#pragma once
#include "tinygrad/base/context.h"
#include "tinygrad/base/dtype.h"
#include "tinygrad/base/error.h"
#include "tinygrad/nn/datasets.h"
#include "tinygrad/nn/nn.h"
#include "tinygrad/nn/optim.h"
#include "tinygrad/nn/state.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tensor/tensor.h"
#include "tinygrad/tensor/variable.h"
#include "tinygrad/uop/uop.h"
