// SPDX-License-Identifier: Apache-2.0
#include "random_formula.h"

#include "spec/formula.h"

#include <vector>

#include <fmt/format.h>

namespace normjit::test {

namespace {

constexpr const char* smooth_functions[] = {"silu", "sigmoid", "tanh", "softplus", "gelu_tanh", "gelu", "erf"};

/// Writes a formula line by line.
class FormulaText {
  public:
    explicit FormulaText(Random& random) : random_(random) {}

    std::string run() {
        const bool has_gate = random_.chance(50), has_rows = random_.chance(25), has_scale = random_.chance(60);
        const bool has_slices = random_.chance(25), is_shared = has_slices && random_.chance(60);
        const bool has_groups = random_.chance(20);
        has_partners_ = !has_groups && random_.chance(25), has_neighbours_ = !has_groups && random_.chance(25);
        const std::string rows = has_slices ? "S,M" : "M";
        std::string inputs = fmt::format("x[{},N]", rows);
        matrices_ = {"x"};
        if (has_gate) inputs += fmt::format(", z[{},N]", is_shared ? "M" : rows), matrices_.emplace_back("z");
        if (has_rows) inputs += fmt::format(", r[{}]", rows), rows_.emplace_back("r");
        if (random_.chance(15)) inputs += ", k[]", rows_.emplace_back("k");
        if (has_scale) {
            const bool has_runs = random_.chance(30);
            inputs += fmt::format(", gamma[{}N{}]", has_slices && random_.chance(40) ? "S," : "", has_runs ? "/R" : "");
            columns_.emplace_back("gamma");
        }
        for (int64_t i = random_.between(1, 5); i > 0; --i) line();
        // An expression of x whose values are in the range of 16-bit types.
        const std::string last = matrices_.back();
        const std::string scaled = fmt::format("{} * rsqrt(row_mean({} * {}) + 0.5)", last, last, last);
        body_ += fmt::format("y = {}{}", scaled, has_scale && random_.chance(70) ? " * gamma" : "");
        std::string outputs = fmt::format("y[{},N]", rows);
        if (has_groups) {
            // The largest of a value, or of y before it is scaled. Both passes over a group need it.
            const int64_t columns = int64_t{16} << random_.between(0, 4);
            const std::string of = random_.chance(50) ? last : any(matrices_);
            body_ +=
                fmt::format("; g = max(group_max(abs({}), {}), 0.25){}; u = {} / g", of, columns,
                            rows_.empty() ? "" : fmt::format(" + abs({})", any(rows_)), random_.chance(50) ? "y" : "x");
            return fmt::format("norm drawn({}) -> {}, g[{},N/{}], u?[{},N] {{ {} }}", inputs, outputs, rows, columns,
                               rows, body_);
        }
        if (random_.chance(25)) outputs += fmt::format(", v?[{}]", rows), body_ += "; v = row_mean(y) + row_mean(x)";
        if (random_.chance(15)) {
            outputs += ", s?[N]";
            body_ += fmt::format("; s = col_sum({}) * 0.5 + {}", last, has_scale ? "gamma" : "1");
        }
        if (random_.chance(15)) {
            outputs += fmt::format(", t?[{}N]", has_slices && random_.chance(50) ? "S," : "");
            body_ += "; t = col_sum(abs(x) + 0.25)";
        }
        if (random_.chance(15)) outputs += ", l?[]", body_ += "; l = max_abs(x)";
        if (random_.chance(15)) outputs += ", m?[]", body_ += fmt::format("; m = max_abs({})", last);
        return fmt::format("norm drawn({}) -> {} {{ {} }}", inputs, outputs, body_);
    }

  private:
    const std::string& any(const std::vector<std::string>& of) {
        return of[static_cast<size_t>(random_.between(0, static_cast<int64_t>(of.size()) - 1))];
    }
    std::string name() { return fmt::format("v{}", ++count_); }
    void add(std::vector<std::string>& kind, const std::string& value) {
        kind.push_back(name());
        body_ += fmt::format("{} = {}; ", kind.back(), value);
    }

    void line() {
        const std::string &a = any(matrices_), &b = any(matrices_);
        switch (random_.between(0, 11)) {
            case 0: return add(matrices_, fmt::format("{} {} {}", a, random_.chance(50) ? "+" : "-", b));
            case 1: return add(matrices_, fmt::format("{} * {} * 0.25", a, b));
            case 2: return add(rows_, fmt::format("row_mean({})", a));
            case 3: return add(rows_, fmt::format("rsqrt(row_mean({} * {}) + eps)", a, a));
            case 4:
                if (rows_.empty()) return add(rows_, fmt::format("row_mean({} * {})", a, b));
                return add(matrices_, fmt::format("{} - {}", a, any(rows_)));
            case 5:
                if (rows_.empty()) return add(matrices_, fmt::format("{} * 2 - 1", a));
                return add(matrices_, fmt::format("{} * {}", a, any(rows_)));
            case 6:
                if (columns_.empty()) return add(matrices_, fmt::format("1 - {} / 3", a));
                return add(matrices_, fmt::format("{} * ({} + 0.5)", a, any(columns_)));
            case 10:
                return add(rows_,
                           random_.chance(50) ? fmt::format("row_max({})", a) : fmt::format("detach(row_max({}))", a));
            case 11: {
                const std::string last = name();
                body_ += fmt::format("{} = exp({} - row_max({})); ", last, a, a);
                return add(matrices_, fmt::format("{} / row_sum({})", last, last));
            }
            case 7:
                if (has_partners_ && random_.chance(60))
                    return add(matrices_,
                               fmt::format("{}({}) * 0.75", random_.chance(50) ? "partner" : "rotate_half", a));
                if (has_neighbours_ && random_.chance(60))
                    return add(matrices_,
                               fmt::format("neighbour({}) * 0.75", random_.chance(30) && !columns_.empty()
                                                                       ? fmt::format("{} + {}", a, any(columns_))
                                                                       : a));
                if (random_.chance(35)) return add(matrices_, derived(a, b));
                return add(matrices_, fmt::format("{}({}) * 0.5", random_.pick(smooth_functions), a));
            case 8:
                if (random_.chance(30))
                    return add(matrices_,
                               fmt::format("div_or_zero({}, max(compare(x, 0), 0) * (abs({}) + 0.5))", a, b));
                return add(matrices_, fmt::format("max({}, {}) - abs({})", a, b, any(matrices_)));
            default:
                if (columns_.empty()) return add(matrices_, fmt::format("-{}", a));
                return add(matrices_, fmt::format("{} + {}", a, any(columns_)));
        }
    }

    /// Returns a value made with functions that are written in terms of others.
    std::string derived(const std::string& a, const std::string& b) {
        switch (random_.between(0, 6)) {
            case 0: return fmt::format("relu({}) - {}", a, b);
            case 1: return fmt::format("clamp({}, -0.75, {})", a, random_.pick({"0.5", "1 / 3"}));
            case 2: return fmt::format("where({} - 0.25, {}, {} * 0.5)", a, b, a);
            case 3: return fmt::format("{}(square({}) * 0.25)", random_.pick({"", "log1p", "round"}), a);
            case 4:
                return fmt::format("pow(abs({}) + 0.5, {})", a,
                                   random_.pick({"0.5", "-0.5", "1.5", "0.3", "-1.7", "1"}));
            case 5: return fmt::format("{} - {}({})", a, random_.pick({"row_min", "row_norm"}), b);
            default:
                return fmt::format("{}(abs({}) + 0.5) ^ {} * 0.25", random_.pick({"", "-"}), a,
                                   random_.pick({"2", "3", "-1", "-2", "(2 - 2)", "2.5", "(1 / 3)"}));
        }
    }

    Random& random_;
    std::vector<std::string> matrices_, rows_, columns_;
    std::string body_;
    bool has_partners_ = false, has_neighbours_ = false;
    int count_ = 0;
};

/// Returns the number of columns in a group, as the outputs of the formula say; 1 if there are no groups.
int64_t group_of(const std::string& formula) {
    const size_t output = formula.find("M,N/");
    return output == formula.npos ? 1 : std::stoll(formula.substr(output + 4));
}

int64_t random_divisor(Random& random, int64_t of) {
    std::vector<int64_t> all;
    for (int64_t each = 1; each <= of / each; ++each) {
        if (of % each == 0) all.insert(all.end(), {each, of / each});
    }
    return all[static_cast<size_t>(random.between(0, static_cast<int64_t>(all.size()) - 1))];
}

}  // namespace

std::string random_formula(Random& random) { return FormulaText(random).run(); }

Expected<Spec> random_formula_spec(Random& random, const SpecLimits& limits) {
    const auto library = library_names();
    std::string text =
        random.chance(40) && !library.empty()
            ? std::string(library[static_cast<size_t>(random.between(0, static_cast<int64_t>(library.size()) - 1))])
            : random_formula(random);
    SpecLimits plain = limits;
    plain.f64_percent = 0;
    const Spec drawn = random_spec(random, plain);  // only its sizes are used
    if (text == "dynamic_tanh") text += fmt::format(" alpha={}", random.pick({0.5, 1.25}));
    const std::string whole(library_formula(text).value_or(text));
    const bool has_partners =
        whole.find("partner") != std::string::npos || whole.find("rotate_half") != std::string::npos;
    const int64_t group = group_of(whole),
                  multiple = (has_partners ? 2 : 1) * (whole.find("neighbour") != std::string::npos ? 2 : 1),
                  cols = (multiple * drawn.cols + group - 1) / group * group;
    text += fmt::format(" pass={} cols={}", random.chance(40) || group > 1 ? "forward" : "backward", cols);
    // A run lies in one half of the row, or is the whole row.
    if (whole.find("/R]") != std::string::npos)
        text += fmt::format(" R={}", random.chance(20) ? cols : random_divisor(random, cols / multiple));
    if (drawn.rows) text += fmt::format(" rows={}", *drawn.rows);
    if (drawn.has_slices()) text += drawn.slices ? fmt::format(" slices={}", *drawn.slices) : " slices=any";
    const bool wide = random.chance(10);
    const bool has_8_bits = !wide && random.chance(20);
    text += fmt::format(" x={}", wide ? "f64"
                                 : has_8_bits && random.chance(40)
                                     ? name(random.pick({DType::e4m3, DType::e5m2, DType::i8}))
                                     : name(random.pick({DType::f32, DType::bf16, DType::f16})));
    if (has_8_bits && random.chance(70))
        text += fmt::format(" {}={}", text.find("pass=forward") != std::string::npos ? "y" : random.pick({"dx", "dy"}),
                            name(random.pick({DType::e4m3, DType::e5m2, DType::i8})));
    const char* of_group = whole.find(", g[") != std::string::npos ? "g" : "scale";
    if (group > 1 && !wide && random.chance(40))
        text += fmt::format(" {}={}", of_group, name(random.pick({DType::e8m0, DType::bf16})));
    if (whole.find("gamma") != std::string::npos)
        text +=
            wide ? " gamma=f64" : fmt::format(" gamma={}", name(random.pick({DType::f32, DType::f32, DType::bf16})));
    if (random.chance(15)) text += " invariant=1";
    if (text.find("pass=backward") != std::string::npos && whole.find("k[]") != std::string::npos && random.chance(60))
        text += random.chance(50) ? " out=dk" : " out=dx,dk";
    for (const char* optional : {"v", "rstd", "s", "t"}) {
        const bool is_there = whole.find(fmt::format(" {}?[", optional)) != std::string::npos;
        if (is_there && text.find("pass=backward") != std::string::npos && random.chance(50))
            text += fmt::format(" d{}={}", optional, wide ? "f64" : "f32");
    }
    if (text.find("pass=forward") != std::string::npos) {
        std::string outputs = "y";
        if (group > 1) outputs += fmt::format(",{}", of_group);
        for (const char* optional : {"s", "t", "l", "m", "u", "v"}) {
            if (whole.find(fmt::format(", {}?[", optional)) != std::string::npos && random.chance(80))
                outputs += fmt::format(",{}", optional);
        }
        text += fmt::format(" out={}", outputs);
        if (outputs.find(",s") != std::string::npos && random.chance(30)) text += " accumulate=s";
    }
    return parse_spec(text);
}

}  // namespace normjit::test
