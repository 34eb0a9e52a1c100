#include "repair.hpp"

#include <Eigen/Dense>
#include <cmath>

namespace dpmicro {
namespace {

using Eigen::ArrayXd;
using Eigen::MatrixXd;
using Eigen::VectorXd;
using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using EigenSolver = Eigen::SelfAdjointEigenSolver<MatrixXd>;

constexpr double kRounding = 1e-13;  // per dimension; eigenvalues below it count as 0

index_t grain_for(index_t d) { return 1 + 65536 / (d * d * d); }

// One evaluation of Qi & Sun's dual theta(y) = |(G + diag y)_+|^2 / 2 - sum y, whose gradient
// diag((G + diag y)_+) - 1 vanishes where (G + diag y)_+ is the nearest correlation matrix.
struct Dual {
  EigenSolver eigen;
  VectorXd gradient;
  double value = 0;
  double magnitude = 0;  // of the terms that make up the value

  void evaluate(const MatrixXd& G, const VectorXd& y) {
    MatrixXd shifted = G;
    shifted.diagonal() += y;
    eigen.compute(shifted);
    if (eigen.info() != Eigen::Success)
      throw InputError("an eigenvalue iteration did not converge; are the matrices finite?");
    const VectorXd positive = eigen.eigenvalues().cwiseMax(0.0);
    gradient = eigen.eigenvectors().cwiseAbs2() * positive - VectorXd::Ones(y.size());
    value = positive.squaredNorm() / 2 - y.sum();
    magnitude = positive.squaredNorm() + y.cwiseAbs().sum();
  }

  MatrixXd projection() const {
    const auto& P = eigen.eigenvectors();
    return P * eigen.eigenvalues().cwiseMax(0.0).asDiagonal() * P.transpose();
  }

  // Newton direction: conjugate gradients, preconditioned by the diagonal, on (V + shift I) h =
  // -gradient with V h = diag(P (weights o P' diag(h) P) P'), a generalised Hessian of theta.
  VectorXd direction() const {
    const index_t d = gradient.size();
    const auto& P = eigen.eigenvectors();
    const auto& lambda = eigen.eigenvalues();
    MatrixXd weights(d, d);
    for (index_t a = 0; a < d; ++a)
      for (index_t b = 0; b < d; ++b) {
        const double high = std::max(lambda(a), lambda(b)), low = std::min(lambda(a), lambda(b));
        weights(a, b) = low > 0 ? 1.0 : (high > 0 ? high / (high - low) : 0.0);
      }
    const double norm = gradient.norm();
    const double shift = std::min(1e-3, 0.1 * norm);
    const auto apply = [&](const VectorXd& h) -> VectorXd {
      const MatrixXd inner = (P.transpose() * h.asDiagonal() * P).cwiseProduct(weights);
      return (P * inner).cwiseProduct(P).rowwise().sum() + shift * h;
    };
    const MatrixXd squares = P.cwiseAbs2();
    const ArrayXd scale =
        ((squares * weights).cwiseProduct(squares).rowwise().sum().array() + shift).max(1e-12);

    VectorXd h = VectorXd::Zero(d), residual = -gradient;
    VectorXd preconditioned = (residual.array() / scale).matrix();
    VectorXd step = preconditioned;
    double product = residual.dot(preconditioned);
    for (index_t iteration = 0; iteration < 2 * d + 10; ++iteration) {
      const VectorXd image = apply(step);
      const double length = product / step.dot(image);
      if (!std::isfinite(length)) break;
      h += length * step;
      residual -= length * image;
      // A residual of order norm^2 keeps the convergence quadratic.
      if (residual.norm() <= std::min(0.1, norm) * 1e-2 * norm) break;
      preconditioned = (residual.array() / scale).matrix();
      const double next = residual.dot(preconditioned);
      step = preconditioned + next / product * step;
      product = next;
    }
    return h;
  }
};

// The nearest correlation matrix to the symmetric G with unit diagonal.
MatrixXd nearest_correlation(MatrixXd G) {
  const index_t d = G.rows();
  // "Correlations" of thousands: the solution hardly depends on their common size any more (it
  // maximises <X, G> - |X|^2 / 2), but rounding in the dual would drown it.
  constexpr double kLargest = 1e3;
  const double largest = G.cwiseAbs().maxCoeff();
  if (largest > kLargest) {
    G *= kLargest / largest;
    G.diagonal().setOnes();
  }
  VectorXd y = VectorXd::Zero(d);
  Dual dual, trial;
  dual.evaluate(G, y);
  if (dual.eigen.eigenvalues()(0) >= -kRounding * static_cast<double>(d)) return G;
  for (int iteration = 0; iteration < 200; ++iteration) {
    if (dual.gradient.norm() <= kRounding * static_cast<double>(d)) break;
    const VectorXd h = dual.direction();
    const double slope = dual.gradient.dot(h);
    double step = 1;
    bool accepted = false;
    for (int halving = 0; halving < 40 && !accepted; ++halving, step /= 2) {
      trial.evaluate(G, y + step * h);
      // Where rounding hides the decrease of the dual's values, a smaller gradient shows it.
      accepted = trial.value <= dual.value + 1e-4 * step * slope ||
                 (trial.value <= dual.value + 1e-13 * dual.magnitude &&
                  trial.gradient.norm() <= (1 - 1e-4 * step) * dual.gradient.norm());
      if (accepted) y += step * h;
    }
    if (!accepted) break;  // as exact as rounding allows
    std::swap(dual, trial);
  }
  MatrixXd X = dual.projection();
  const ArrayXd diagonal = X.diagonal().array();
  for (index_t i = 0; i < d; ++i)
    for (index_t j = 0; j < d; ++j)
      if (i == j)
        X(i, j) = 1;
      else
        X(i, j) = diagonal(i) > 0 && diagonal(j) > 0
                      ? std::clamp(X(i, j) / std::sqrt(diagonal(i) * diagonal(j)), -1.0, 1.0)
                      : 0.0;
  return X;
}

// c' R^-1 c <= kLimit is Azzalini's feasible region for s_i = sqrt(pi/2) sigma_i c_i and the
// correlation matrix R. What lies outside is shrunk to slightly less, so that rounding cannot put
// it outside again.
constexpr double kLimit = kTwoOverPi / (1 - kTwoOverPi);
constexpr double kRadius2 = kLimit * (1 - 1e-9);

// The point of the ellipsoid sum c_i^2 / lambda_i <= kRadius2 nearest to c; false if c is in it.
// Each component is shrunk by lambda_i / (lambda_i + nu), with nu > 0 the root of psi(nu) = sum
// lambda_i c_i^2 / (lambda_i + nu)^2 - kRadius2. Newton's method works on psi^-1/2, almost a line.
bool shrink_into_ellipsoid(const VectorXd& lambda, VectorXd& c) {
  const double floor = kRounding * static_cast<double>(c.size());
  bool inside = true;
  for (index_t i = 0; i < c.size(); ++i)
    if (lambda(i) <= floor && c(i) != 0) {
      inside = inside && std::abs(c(i)) <= 1e-9;
      c(i) = 0;
    }
  const ArrayXd weight = lambda.array().max(floor);
  const auto psi = [&](double nu) {
    return (weight * c.array().square() / (weight + nu).square()).sum();
  };
  if (psi(0) <= kLimit) return !inside;
  double nu = 0;
  for (int iteration = 0; iteration < 60; ++iteration) {
    const double value = psi(nu);
    const double slope = -2 * (weight * c.array().square() / (weight + nu).cube()).sum();
    const double step = 2 * value / -slope * (std::sqrt(value / kRadius2) - 1);
    nu = std::max(0.0, nu + step);
    if (std::abs(step) <= 1e-15 * nu) break;
  }
  c.array() *= weight / (weight + nu);
  c *= std::sqrt(std::min(1.0, kRadius2 / psi(0)));
  return true;
}

}  // namespace

void nearest_psd(double* matrices, const double* diagonals, index_t count, index_t d, int threads,
                 Control& control) {
  parallel_for(count, grain_for(d), threads, control, [&](index_t first, index_t last) {
    std::vector<index_t> used;  // the attributes that vary
    for (index_t m = first; m < last; ++m) {
      Eigen::Map<RowMajor> A(matrices + m * d * d, d, d);
      const Eigen::Map<const ArrayXd> diagonal(diagonals + m * d, d);
      const ArrayXd deviation = diagonal.sqrt();
      used.clear();
      for (index_t i = 0; i < d; ++i)
        if (diagonal(i) > 0) used.push_back(i);
      const index_t p = static_cast<index_t>(used.size());
      MatrixXd G = MatrixXd::Identity(p, p);
      for (index_t a = 0; a < p; ++a)
        for (index_t b = 0; b < a; ++b) {
          const index_t i = used[a], j = used[b];
          G(a, b) = G(b, a) = A(i, j) / deviation(i) / deviation(j);
        }
      const MatrixXd X = p < 2    ? G
                         : p == 2 ? MatrixXd(G.cwiseMax(-1.0).cwiseMin(1.0))
                                  : nearest_correlation(G);
      for (index_t i = 0; i < d; ++i)
        for (index_t j = 0; j < d; ++j)
          if (i != j && (diagonal(i) == 0 || diagonal(j) == 0)) A(i, j) = 0;
      for (index_t a = 0; a < p; ++a)
        for (index_t b = 0; b < a; ++b) {
          if (X(a, b) == G(a, b)) continue;  // an entry that is right already keeps its last bit
          const index_t i = used[a], j = used[b];
          A(i, j) = A(j, i) = X(a, b) * deviation(i) * deviation(j);
        }
      A.diagonal() = diagonal.matrix();
    }
  });
}

void nearest_orthogonal(double* matrices, index_t count, index_t d, int threads, Control& control) {
  parallel_for(count, grain_for(d), threads, control, [&](index_t first, index_t last) {
    for (index_t m = first; m < last; ++m) {
      Eigen::Map<RowMajor> A(matrices + m * d * d, d, d);
      const Eigen::JacobiSVD<MatrixXd> svd(A, Eigen::ComputeFullU | Eigen::ComputeFullV);
      A = svd.matrixU() * svd.matrixV().transpose();
    }
  });
}

void feasible_skewness(const double* covariance, bool marginal, double* skewness, index_t count,
                       index_t d, bool* shrunk, int threads, Control& control) {
  parallel_for(count, grain_for(d), threads, control, [&](index_t first, index_t last) {
    EigenSolver solver(d);
    for (index_t m = first; m < last; ++m) {
      Eigen::Map<ArrayXd> phi(skewness + m * d, d);
      ArrayXd deviation(d);
      VectorXd c(d);
      MatrixXd correlation = MatrixXd::Identity(d, d);
      const double* q = covariance + m * (marginal ? d : d * d);
      for (index_t i = 0; i < d; ++i) deviation(i) = std::sqrt(q[marginal ? i : i * d + i]);
      bool moved = false;
      for (index_t i = 0; i < d; ++i) {
        c(i) = deviation(i) > 0
                   ? std::cbrt(phi(i) / kThirdHalfNormal) * kMeanHalfNormal / deviation(i)
                   : 0.0;
        moved = moved || (deviation(i) == 0 && phi(i) != 0);
        for (index_t j = 0; j < d && !marginal; ++j)
          if (i != j && deviation(i) > 0 && deviation(j) > 0)
            correlation(i, j) = q[i * d + j] / deviation(i) / deviation(j);
      }
      if (marginal) {
        const double radius = std::sqrt(kRadius2);
        moved = moved || (c.array().square() > kLimit).any();
        c = c.cwiseMax(-radius).cwiseMin(radius);
      } else {
        solver.compute(correlation);
        VectorXd components = solver.eigenvectors().transpose() * c;
        moved = shrink_into_ellipsoid(solver.eigenvalues(), components) || moved;
        c = solver.eigenvectors() * components;
      }
      shrunk[m] = moved;
      if (moved) phi = kThirdHalfNormal * (c.array() * deviation / kMeanHalfNormal).cube();
    }
  });
}

}  // namespace dpmicro
