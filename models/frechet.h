/// \file The Frechet distance between two sets of features, as between activations of images (Heusel et al., "GANs
/// Trained by a Two Time-Scale Update Rule Converge to a Local Nash Equilibrium", arXiv 1706.08500).
#pragma once
#include "tinygrad/tensor/tensor.h"

namespace tg::models {

/// A normal distribution of features, such as the arrays "mu" and "sigma" of a file of statistics.
struct FeatureStatistics {
  Tensor mean;        ///< (features)
  Tensor covariance;  ///< (features, features)
};

/// Returns mean and covariance (divided by samples - 1) of features (samples, features), in float64. ShapeError for
/// other axes, ValueError for fewer than two samples.
FeatureStatistics feature_statistics(const Tensor& features);

/// Returns |mean of a - mean of b|^2 + trace(A + B - 2 (A B)^(1/2)), A and B being the covariances, computed in
/// float64. It takes a time proportional to the cube of the number of features. ShapeError for statistics of different
/// numbers of features.
double frechet_distance(const FeatureStatistics& a, const FeatureStatistics& b);

}  // namespace tg::models
