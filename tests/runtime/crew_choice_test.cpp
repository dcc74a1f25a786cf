// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/crew_choice.h"

#include <algorithm>
#include <functional>
#include <random>

#include <doctest/doctest.h>

using normjit::cpu::CrewChoice;

namespace {

/// What a launch takes with a crew, in any unit.
using Cost = std::function<double(int crew, int i)>;

/// Of all launches, over that of the better crew alone.
double cost_of(CrewChoice& choice, int launches, const Cost& cost, int64_t rows = 512) {
    double sum = 0, alone[2] = {0, 0};
    for (int i = 0; i < launches; ++i) {
        const CrewChoice::Launch launch = choice.next(rows);
        const double taken = cost(launch.crew, i);
        // What crew 0 takes beyond the usual, it waits for.
        const double waited = launch.crew == 0 ? std::max(taken - 1, 0.0) : 0;
        choice.note(launch, taken * static_cast<double>(rows), waited * static_cast<double>(rows));
        sum += taken;
        for (int crew : {0, 1}) alone[crew] += cost(crew, i);
    }
    return sum / std::min(alone[0], alone[1]);
}

}  // namespace

TEST_CASE("the better crew gets the launches, however much better, if the first one waits") {
    for (const double ratio : {1.0, 1.5, 2.5, 5.0, 20.0}) {
        for (const int better : {0, 1}) {
            if (better == 1 && ratio < 2) continue;  // the first crew waits for less than half of its time
            CrewChoice choice;
            const Cost cost = [&](int crew, int) { return crew == better ? 1.0 : ratio; };
            CHECK(cost_of(choice, 100, cost) < 1 + 6 * ratio / 100 + 0.15);
            CHECK(cost_of(choice, 5000, cost) < 1.1);
        }
    }
}

TEST_CASE("what changes is noticed") {
    CrewChoice choice;
    CHECK(cost_of(choice, 2000, [](int crew, int) { return crew == 0 ? 1.0 : 4.0; }) < 1.1);
    CHECK(cost_of(choice, 2000, [](int crew, int) { return crew == 0 ? 4.0 : 2.0; }) < 1.15);  // the best became slow
    CHECK(cost_of(choice, 5000, [](int crew, int) { return crew == 0 ? 1.0 : 2.0; }) < 1.2);   // the other became fast
}

TEST_CASE("launches that wait for a time slice, now and then or often") {
    struct Tail {
        double usual;  ///< with the crew that has it; the other takes 4
        double share;  ///< of its launches that wait
        double wait;
        int crew;
    };
    // An idle machine, and one with other work, where most launches wait. The second crew may be the one that waits.
    for (const Tail& tail : {Tail{1, 0.002, 200, 0}, Tail{1, 0.8, 200, 0}, Tail{1, 0.002, 200, 1},
                             Tail{1, 0.08, 200, 1}, Tail{1, 0.02, 150, 1}}) {
        double sum = 0;
        constexpr int repeats = 10;
        for (unsigned seed = 1; seed <= repeats; ++seed) {
            std::mt19937 random(seed);
            std::bernoulli_distribution waits(tail.share);
            CrewChoice choice;
            const Cost cost = [&](int crew, int) {
                return crew != tail.crew ? 4.0 : waits(random) ? tail.wait : tail.usual;
            };
            sum += cost_of(choice, 5000, cost);
        }
        CAPTURE(tail.share);
        CAPTURE(tail.crew);
        CHECK(sum / repeats < 1.2);
    }
}

TEST_CASE("a neighbour that comes and goes does not cost the first crew its launches") {
    CrewChoice choice;
    std::mt19937 random(1);
    std::bernoulli_distribution waits(0.2);
    for (int i = 0; i < 2000; ++i) {
        const CrewChoice::Launch launch = choice.next(1);
        CHECK(launch.crew == 0);
        const bool waited = i > 2 && waits(random);
        choice.note(launch, waited ? 100 : 1, waited ? 99 : 0);
    }
}

TEST_CASE("the second crew is tried when launches mostly wait, and only then") {
    for (const bool waits : {false, true}) {
        CrewChoice choice;
        int launches[2] = {0, 0};
        for (int i = 0; i < 2000; ++i) {
            const CrewChoice::Launch launch = choice.next(1);
            ++launches[launch.crew];
            // Without waits the second crew is the faster one all the same: nobody looks.
            const double taken = launch.crew == 1 ? 4 : waits ? 20 : 5;
            choice.note(launch, taken, launch.crew == 0 && waits ? 16 : 0);
        }
        CAPTURE(waits);
        CHECK((waits ? launches[0] < 200 : launches[1] == 0));
    }
}

TEST_CASE("when the waits are over, the first crew has the launches again") {
    CrewChoice choice;
    const auto launch = [&](bool waits) {
        const CrewChoice::Launch next = choice.next(1);
        if (next.crew == 0) {
            choice.note(next, waits ? 100 : 1, waits ? 99 : 0);
        } else {
            choice.note(next, 2);
        }
        return next.crew;
    };
    int crew = 0;
    for (int i = 0; i < 2000; ++i) crew = launch(true);
    CHECK(crew == 1);
    for (int i = 0; i < 5000; ++i) crew = launch(false);
    CHECK(crew == 0);
}

TEST_CASE("slow first launches, which write to fresh memory, are no reason to try the second crew") {
    CrewChoice choice;
    for (int i = 0; i < 1000; ++i) {
        const CrewChoice::Launch launch = choice.next(1);
        CHECK(launch.crew == 0);
        choice.note(launch, i < 10 ? 50 : 1, 0.1);
    }
}

TEST_CASE("few rows and many are learned apart") {
    CrewChoice choice;
    for (int i = 0; i < 200; ++i) {
        for (const int64_t rows : {2, 4096}) {
            const CrewChoice::Launch launch = choice.next(rows);
            const bool is_better = launch.crew == (rows == 2 ? 1 : 0);
            choice.note(launch, is_better ? 1 : 10, launch.crew == 0 && !is_better ? 9 : 0);
        }
    }
    CHECK(cost_of(choice, 25, [](int crew, int) { return crew == 1 ? 1.0 : 10.0; }, 2) < 2.2);
    CHECK(cost_of(choice, 25, [](int crew, int) { return crew == 0 ? 1.0 : 10.0; }, 4096) < 2.2);
}

TEST_CASE("any number of rows") {
    CrewChoice choice;
    for (const int64_t rows : {int64_t{0}, int64_t{1}, INT64_MAX}) {
        CHECK(cost_of(choice, 10, [](int, int) { return 1e-9; }, rows) == doctest::Approx(1));
    }
}
