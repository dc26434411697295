/// \file What users include: tensors, types, errors, graph nodes.
#pragma once
#include "tinygrad/base/context.h"
#include "tinygrad/base/dtype.h"
#include "tinygrad/base/error.h"
#include "tinygrad/tensor/tensor.h"
#include "tinygrad/uop/uop.h"
