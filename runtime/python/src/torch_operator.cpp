// SPDX-License-Identifier: Apache-2.0
#include "torch_operator.h"

#include "torch_stack.h"

#include <algorithm>
#include <string>

namespace normjit::torch {

namespace {

using Sizes = std::span<const int64_t>;

/// The shape that a tensor must have.
enum class Form : uint8_t {
    matrix,     ///< the shape of x
    statistic,  ///< the shape of x without the dimensions of a row, or with 1 in their places
    weight,     ///< the shape of a row; for normjit's own operators, it may follow the first dimensions of x
    sum,        ///< contiguous, with as many elements as the weight whose gradient is added to it
};
constexpr std::array<Form, role_count> forms = {
    Form::matrix,    Form::matrix, Form::matrix, Form::matrix, Form::statistic,  // x, dy, residual, dresidual, mean,
    Form::statistic, Form::weight, Form::weight, Form::sum,    Form::sum,        // rstd, weight, bias, dweight, dbias
};

std::string text(Sizes sizes) {
    std::string all;
    for (const int64_t size : sizes) all += (all.empty() ? "" : ", ") + std::to_string(size);
    return "[" + all + "]";
}

/// Returns the product of the sizes; -1 if it exceeds 64 bits.
int64_t product(Sizes sizes) {
    int64_t elements = 1;
    for (const int64_t size : sizes) {
        if (__builtin_mul_overflow(elements, size, &elements)) return -1;
    }
    return elements;
}

class Checker {
  public:
    Checker(const Value* stack, const Signature& signature, Given& given)
        : stack_(stack), signature_(signature), given_(given), x_(given[Role::x].sizes()) {}

    void check() {
        is_f64_ = type_of(place_of(Role::x)) == NORMJIT_F64;
        given_.device = given_[Role::x].device();
        read_row();
        if (signature_.mask != Signature::none) check_mask();
        check_each(&Checker::check_form);  // comes first: torch's kernel may take other types, but no wrong shape
        check_each(&Checker::check_type);
        check_each(&Checker::check_device);  // comes after the type, because the undefined tensor has no device
        check_pairs();
    }

  private:
    template <class Check>
    void check_each(Check check) {
        for (const Place& place : signature_.tensors) {
            if (place.role != Role::x && given_[place.role]) (this->*check)(place);
        }
    }

    const TensorView& tensor(const Place& place) const { return given_[place.role]; }
    const Place& place_of(Role role) const { return *std::ranges::find(signature_.tensors, role, &Place::role); }
    Sizes outer() const { return x_.first(x_.size() - given_.row_dimensions); }
    Sizes row() const { return x_.last(given_.row_dimensions); }

    [[noreturn]] static void refuse(const Place& place, const std::string& reason) {
        throw Invalid(std::string(place.name) + ": " + reason);
    }

    normjit_dtype type_of(const Place& place) const {
        if (const auto type = tensor(place).dtype()) return *type;
        throw Error(std::string(place.name) + ": its type is none of float32, bfloat16, float16 and float64");
    }

    void read_row() {
        const Value shape = stack_[signature_.normalized_shape];
        const size_t count = list_size(shape);
        bool fits = count >= 1 && count <= x_.size();
        for (size_t i = 0; fits && i < count; ++i)
            fits = static_cast<int64_t>(item(shape, i)) == x_[x_.size() - count + i];
        if (!fits) {
            std::vector<int64_t> sizes;
            for (size_t i = 0; i < count; ++i) sizes.push_back(static_cast<int64_t>(item(shape, i)));
            throw Invalid("normalized_shape: is " + text(sizes) + "; must be the last dimensions of " +
                          place_of(Role::x).name + ", " + text(x_));
        }
        given_.row_dimensions = count;
        given_.cols = product(row());
        if (given_.cols < 0) throw Invalid("normalized_shape: has more elements than 64 bits can count");
    }

    void check_mask() const {
        const size_t count = list_size(stack_[signature_.mask]);
        if (count == signature_.outputs) return;
        throw Invalid("output_mask: has " + std::to_string(count) + " elements; must have " +
                      std::to_string(signature_.outputs));
    }

    void check_type(const Place& place) const {
        if ((type_of(place) == NORMJIT_F64) == is_f64_) return;
        const std::string x = place_of(Role::x).name;
        throw Error(std::string(place.name) +
                    (is_f64_ ? ": is not float64, and " + x + " is" : ": is float64, and " + x + " is not") +
                    "; float64 cannot be combined with other types");
    }

    void check_device(const Place& place) const {
        const Device device = tensor(place).device();
        if (device.type == given_.device.type && device.index == given_.device.index) return;
        refuse(place, std::string("is not on the device of ") + place_of(Role::x).name);
    }

    void check_form(const Place& place) {
        const Sizes sizes = tensor(place).sizes();
        switch (forms[static_cast<size_t>(place.role)]) {
            case Form::matrix: return check_matrix(place, sizes);
            case Form::statistic: return check_statistic(place, sizes);
            case Form::weight: return check_weight(place, sizes);
            case Form::sum: return check_sum(place, sizes);
        }
    }

    /// True if torch's operators would accept the tensor: they check its number of elements, not its shape.
    bool is_torchs(Sizes sizes, int64_t elements) const {
        return signature_.torch_operator != nullptr && product(sizes) == elements;
    }

    void check_matrix(const Place& place, Sizes sizes) const {
        if (std::ranges::equal(sizes, x_) || is_torchs(sizes, product(x_))) return;
        refuse(place, "its shape is " + text(sizes) + "; must be that of " + place_of(Role::x).name + ", " + text(x_));
    }

    void check_statistic(const Place& place, Sizes sizes) const {
        const Sizes rows = outer();
        const bool has_rows = sizes.size() >= rows.size() && std::ranges::equal(sizes.first(rows.size()), rows);
        if (has_rows && (sizes.size() == rows.size() || sizes.size() == x_.size()) &&
            std::ranges::all_of(sizes.subspan(rows.size()), [](int64_t size) { return size == 1; }))
            return;
        if (is_torchs(sizes, product(rows))) return;
        std::vector<int64_t> padded(rows.begin(), rows.end());
        padded.resize(x_.size(), 1);
        refuse(place, "its shape is " + text(sizes) + "; must be " + text(rows) + " or " + text(padded));
    }

    void check_weight(const Place& place, Sizes sizes) {
        const size_t slices = sizes.size() - std::min(sizes.size(), given_.row_dimensions);
        const bool fits = sizes.size() >= given_.row_dimensions && slices <= outer().size() &&
                          std::ranges::equal(sizes.subspan(slices), row()) &&
                          std::ranges::equal(sizes.first(slices), x_.first(slices));
        const bool has_torchs = signature_.torch_operator != nullptr;
        if (!fits || (has_torchs && slices > 0)) {
            const std::string per_slice = ", or that with the first dimensions of x, " + text(x_) + ", before it";
            refuse(place, "its shape is " + text(sizes) + "; must be " + text(row()) + (has_torchs ? "" : per_slice));
        }
        if (slices > 0 && given_.slice_dimensions > 0 && slices != given_.slice_dimensions) {
            refuse(place, "has a row for each element of x's first " + std::to_string(slices) +
                              " dimensions, and weight of its first " + std::to_string(given_.slice_dimensions) +
                              "; must be the same");
        }
        given_.slice_dimensions = std::max(slices, given_.slice_dimensions);
    }

    void check_sum(const Place& place, Sizes sizes) const {
        const TensorView& like = place.role == Role::dbias ? given_.beta_like() : given_[Role::weight];
        if (!like) refuse(place, "is given without a weight");
        if (tensor(place).elements() != like.elements()) {
            refuse(place, "its shape is " + text(sizes) + "; must have as many elements as " + text(like.sizes()));
        }
        if (!tensor(place).is_contiguous())
            refuse(place, "is not contiguous; must be, because a gradient is added to it");
    }

    void check_pairs() const {
        const TensorView &mean = given_[Role::mean], &rstd = given_[Role::rstd];
        if (mean && rstd && mean.torch_dtype() != rstd.torch_dtype()) throw Error("mean: its type is not that of rstd");
        if (signature_.norm == NORMJIT_RMSNORM || bool(mean) == bool(rstd)) return;
        refuse(place_of(mean ? Role::mean : Role::rstd), mean ? "is given without rstd" : "is given without mean");
    }

    const Value* stack_;
    const Signature& signature_;
    Given& given_;
    Sizes x_;
    bool is_f64_ = false;
};

}  // namespace

Given read(const Value* stack, const Signature& at) {
    Given given;
    for (const Place& place : at.tensors) {
        const Value value = stack[place.argument];
        given.tensors[static_cast<size_t>(place.role)] = place.optional ? optional_tensor(value) : tensor(value);
    }
    Checker(stack, at, given).check();
    if (at.eps != Signature::none) given.eps = number(stack[at.eps]);
    if (at.weight_offset != Signature::none) given.weight_offset = number(stack[at.weight_offset]);
    if (at.statistics != Signature::none) given.statistics = truth(stack[at.statistics]);
    if (at.mask != Signature::none) {
        for (size_t i = 0; i < at.outputs; ++i) given.wanted[i] = truth(item(stack[at.mask], i));
    }
    return given;
}

void consume(Value* stack, const Signature& at) {
    for (const Place& place : at.tensors) {
        place.optional ? free_optional(stack[place.argument]) : free_tensor(stack[place.argument]);
    }
    free_list(stack[at.normalized_shape]);
    if (at.mask != Signature::none) free_list(stack[at.mask]);
}

}  // namespace normjit::torch
