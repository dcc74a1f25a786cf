// SPDX-License-Identifier: Apache-2.0
// A C++ program with libtorch and without Python, in which normjit computes the gradients of LayerNorm. Exits with 0,
// or with 1 and the reason.
#include "normjit/torch.h"

#include <cmath>
#include <cstdio>

#include <ATen/ATen.h>

namespace {

struct Gradients {
    at::Tensor dx, dgamma, dbeta;
};

Gradients backward(const at::Tensor& x, const at::Tensor& dy, const at::Tensor& weight, const at::Tensor& bias) {
    const auto [y, mean, rstd] = at::native_layer_norm(x, weight.sizes(), weight, bias, 1e-5);
    auto [dx, dgamma, dbeta] =
        at::native_layer_norm_backward(dy, x, weight.sizes(), mean, rstd, weight, bias, {true, true, true});
    return {dx, dgamma, dbeta};
}

/// Returns the error in the 2-norm; 0 is the best.
double error(const at::Tensor& got, const at::Tensor& right) {
    return ((got.to(at::kDouble) - right).norm() / right.norm()).item<double>();
}

bool served(int64_t wanted) {
    int64_t by_normjit = 0, by_torch = 0;
    char reason[256];
    normjit_torch_calls(&by_normjit, &by_torch, reason, sizeof reason);
    if (by_normjit == wanted && by_torch == 0) return true;
    std::printf("%lld calls served instead of %lld, %lld left to torch: %s\n", static_cast<long long>(by_normjit),
                static_cast<long long>(wanted), static_cast<long long>(by_torch), reason);
    return false;
}

bool check(at::ScalarType type, double allowed) {
    at::manual_seed(1);
    const auto random = [&](at::IntArrayRef shape) { return at::randn(shape).to(type); };
    const at::Tensor x = random({2000, 300}), dy = random({2000, 300}), weight = random({300}), bias = random({300});
    const Gradients got = backward(x, dy, weight, bias);
    const at::Tensor wide = x.to(at::kDouble), wide_dy = dy.to(at::kDouble);
    const at::Tensor centred = wide - wide.mean(1, true);
    const at::Tensor rstd = (centred.square().mean(1, true) + 1e-5).rsqrt(), xhat = centred * rstd;
    const at::Tensor g = wide_dy * weight.to(at::kDouble);
    const at::Tensor dx = rstd * (g - g.mean(1, true) - xhat * (g * xhat).mean(1, true));
    const double errors[] = {error(got.dx, dx), error(got.dgamma, (wide_dy * xhat).sum(0)),
                             error(got.dbeta, wide_dy.sum(0))};
    bool right = true;
    for (const double each : errors) right = right && each <= allowed;
    if (!right) std::printf("%s: errors of %.2g %.2g %.2g\n", at::toString(type), errors[0], errors[1], errors[2]);
    return right;
}

}  // namespace

int main() {
    const int kernel = NORMJIT_TORCH_ATEN_LAYER_NORM_CPU;
    char backend[64];
    if (normjit_torch_check(-1, backend, sizeof backend) != 0 || normjit_torch_register(kernel, 1) != 0) {
        std::printf("%s\n", normjit_torch_last_error());
        return 1;
    }
    const bool right = check(at::kFloat, 1e-6) && check(at::kBFloat16, 4e-3) && served(2);
    if (normjit_torch_register(kernel, 0) != 0) return 1;
    const bool gave_back = check(at::kFloat, 1e-5) && served(2);  // torch's own kernel serves it again
    return right && gave_back && normjit_torch_register(99, 1) == 1 ? 0 : 1;
}
