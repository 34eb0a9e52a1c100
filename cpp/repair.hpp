// Noisy moments made valid again. Never looks at the data.
#pragma once

#include "parallel.hpp"
#include "types.hpp"

namespace dpmicro {

// Replaces each of `count` symmetric d x d matrices by the nearest positive semidefinite one whose
// diagonal is the given one. Nearest in the Frobenius norm after both are rescaled to unit
// diagonal, that is, the nearest correlation matrix scaled back.
//
// Guarantee: the result has exactly the given diagonal and is positive semidefinite up to rounding
//   (smallest eigenvalue of the correlation matrix >= -1e-13 d); a matrix that is so already comes
//   back unchanged.
//   Rows of attributes with diagonal 0 become 0. Nearest to rounding, except where an entry exceeds
//   1000 times what its diagonal allows: then nearest to about 1e-3.
// Requires: finite entries, diagonal >= 0. The matrices' own diagonals are not read.
// Source: Qi & Sun (2006), Algorithm 5.1: semismooth Newton on the dual, used by CM, section 5.2.
//   For d = 2 the solution is the correlation clipped to [-1, 1].
// Cost: about 10 Newton steps, each an eigendecomposition and a few products of d x d matrices.
void nearest_psd(double* matrices, const double* diagonals, index_t count, index_t d, int threads,
                 Control& control);

// Replaces each of `count` d x d matrices by the nearest orthogonal one (its polar factor).
// Cost: one singular value decomposition each.
void nearest_orthogonal(double* matrices, index_t count, index_t d, int threads, Control& control);

// Azzalini's skew-normal with third central moments phi is mean + s (|U| - sqrt(2/pi)) + A W with
// U, W independent standard normal, s_i = cbrt(phi_i / third moment of |U|) and A A' = covariance -
// (1 - 2/pi) s s'. It exists when the latter matrix is positive semidefinite; otherwise the
// principal components of s, in units of the standard deviations, are shrunk: s becomes the nearest
// feasible one.
//
// Guarantee: feasible skewness comes back unchanged. shrunk[c] says whether cluster c's was not.
// Requires: positive semidefinite covariances, d x d, or (marginal) d variances each: then
//   every attribute is a univariate skew-normal by itself, feasible up to a standardised skewness
//   of 0.9953.
// Source: Azzalini (1985); Azzalini & Dalla Valle (1996); CM, section 5.2.
// Cost: one eigendecomposition per cluster, or a few operations per attribute (marginal).
void feasible_skewness(const double* covariance, bool marginal, double* skewness, index_t count,
                       index_t d, bool* shrunk, int threads, Control& control);

// Third central moment of |U|, U standard normal, and the share of U^2's mean that its mean has.
inline constexpr double kTwoOverPi = 0.63661977236758134308;
inline constexpr double kMeanHalfNormal = 0.79788456080286535588;   // sqrt(2/pi)
inline constexpr double kThirdHalfNormal = 0.21801361414499016069;  // sqrt(2/pi) (4/pi - 1)

}  // namespace dpmicro
