// SPDX-License-Identifier: Apache-2.0
#include "tensor_files/safetensors.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <unistd.h>

using namespace normjit;
using namespace normjit::cli;

namespace {

/// A path in a separate folder, which is removed with the test.
class Scratch {
  public:
    Scratch() {
        const char* folder = std::getenv("TMPDIR");
        std::string pattern = std::string(folder ? folder : "/tmp") + "/normjit-XXXXXX";
        REQUIRE(mkdtemp(pattern.data()) != nullptr);
        folder_ = pattern;
    }
    ~Scratch() {
        std::remove(path().c_str());
        rmdir(folder_.c_str());
    }
    std::string path() const { return folder_ + "/t.safetensors"; }

    void write(std::string_view bytes) const {
        FILE* file = std::fopen(path().c_str(), "wb");
        REQUIRE(file != nullptr);
        REQUIRE(std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size());
        std::fclose(file);
    }
    std::string read() const {
        FILE* file = std::fopen(path().c_str(), "rb");
        REQUIRE(file != nullptr);
        std::string bytes(1 << 16, '\0');
        bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file));
        std::fclose(file);
        return bytes;
    }

  private:
    std::string folder_;
};

std::string with_length(std::string_view header) {
    uint64_t length = header.size();
    std::string bytes(sizeof length, '\0');
    std::memcpy(bytes.data(), &length, sizeof length);
    return bytes.append(header);
}

std::string message_of(std::string_view header, int64_t data_bytes) {
    return parse_safetensors_header(header, data_bytes).status().message();
}

std::string valid_file() {
    Scratch scratch;
    auto file = OutputFile::create(scratch.path());
    REQUIRE(file.ok());
    const double wide[2] = {1, -2};
    const uint16_t narrow[6] = {0, 1, 2, 3, 4, 5};
    std::vector<TensorView> tensors = {{"block.x", DType::bf16, {2, 3}, narrow}, {"block.rstd", DType::f64, {2}, wide}};
    REQUIRE(write_safetensors(*file, tensors, {{"block.spec", "rmsnorm eps=1e-6"}}).ok());
    REQUIRE(file->commit().ok());
    return scratch.read();
}

}  // namespace

TEST_CASE("safetensors: what is written reads back") {
    Scratch scratch;
    scratch.write(valid_file());
    auto file = SafetensorsFile::open(scratch.path());
    REQUIRE(file.ok());
    CHECK(file->header().metadata == Metadata{{"block.spec", "rmsnorm eps=1e-6"}});
    const StoredTensor* x = file->find("block.x");
    REQUIRE(x != nullptr);
    CHECK(x->shape == std::vector<int64_t>{2, 3});
    auto type = file->type_of(*x);
    REQUIRE(type.ok());
    CHECK(*type == DType::bf16);
    uint16_t data[6] = {};
    REQUIRE(file->read(*x, data).ok());
    CHECK(data[5] == 5);
}

TEST_CASE("safetensors: tensors without elements") {
    auto header = parse_safetensors_header(R"({"x":{"dtype":"F32","shape":[0,8],"data_offsets":[0,0]}})", 0);
    REQUIRE(header.ok());
    CHECK(header->tensors[0].bytes() == 0);
    CHECK(parse_safetensors_header("{}   ", 0).ok());
}

TEST_CASE("safetensors: a header that breaks a rule is refused by name") {
    CHECK(message_of("", 0) == "the header does not start with '{'");
    CHECK(message_of("{", 0) == "the header is not valid JSON at its byte 2");
    CHECK(message_of(R"({"x":1e999})", 0) == "the header has a number beyond the range of a double");
    CHECK(message_of(R"({"x":3})", 0) == "tensor \"x\": its entry is not a JSON object");
    CHECK(message_of(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"shape":[2]}})", 8) ==
          "the header names \"shape\" twice");
    CHECK(message_of(R"({"x":{"dtype":"Q3","shape":[1],"data_offsets":[0,4]}})", 4) ==
          "tensor \"x\": dtype \"Q3\" is not one of the format");
    CHECK(message_of(R"({"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4) ==
          "tensor \"x\": \"shape\" must be a list of whole numbers from 0 up");
    CHECK(message_of(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4) ==
          "tensor \"x\": its shape takes 8 bytes, its offsets span 4");
    CHECK(message_of(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 6) ==
          "tensor \"x\": its data ends at byte 8, the file ends at 6: truncated?");
    CHECK(message_of(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4) ==
          "tensor \"x\": its data ends before it begins");
    CHECK(message_of(R"({"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0) ==
          "tensor \"x\": its shape has more elements than any file can have");
    CHECK(message_of(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8) ==
          "tensor \"x\": 4 bytes before it belong to no tensor");
    CHECK(message_of(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8) ==
          "4 bytes at the end belong to no tensor");
    CHECK(message_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                     R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                     8) == "tensor \"b\": its data overlaps another tensor's");
    CHECK(message_of(R"({"__metadata__":{"a":1}})", 0) == "\"__metadata__\" must map strings to strings");
    CHECK(message_of(R"({"x":[[[[[[1]]]]]]})", 0) == "the header is nested deeper than the format allows");
}

TEST_CASE("safetensors: other files are refused") {
    Scratch scratch;
    auto message = [&](std::string_view bytes) {
        scratch.write(bytes);
        std::string text = SafetensorsFile::open(scratch.path()).status().message();
        REQUIRE(text.starts_with(scratch.path() + ": "));
        return text.substr(scratch.path().size() + 2);
    };
    CHECK(message("1234567") == "7 bytes are too few for a safetensors file");
    CHECK(message(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}")) ==
          "announces a header of 18446744073709551615 bytes, but 2 follow: truncated, or not a safetensors file");
    CHECK(message(with_length("")) == "the header does not start with '{'");
    CHECK(SafetensorsFile::open("/").status().message() == "/: is a folder, not a safetensors file");
}

TEST_CASE("safetensors: no bytes crash the reader") {
    const std::string valid = valid_file();
    Scratch scratch;
    std::mt19937_64 random(20);
    int accepted = 0;
    for (int round = 0; round < 3000; ++round) {
        std::string bytes = valid;
        auto at = [&] { return static_cast<size_t>(random() % bytes.size()); };
        for (uint64_t edits = 1 + random() % 4; edits > 0 && !bytes.empty(); --edits) {
            switch (random() % 4) {
                case 0: bytes[at()] = static_cast<char>(random()); break;
                case 1: bytes[at()] = "{}[]\",:0123456789-e"[random() % 19]; break;
                case 2: bytes.resize(at()); break;
                default: bytes.insert(at(), bytes.substr(at(), random() % 32));
            }
        }
        scratch.write(bytes);
        auto file = SafetensorsFile::open(scratch.path());
        if (!file.ok()) {
            CHECK(file.status().code() == Code::invalid_argument);
            continue;
        }
        ++accepted;
        for (const StoredTensor& tensor : file->header().tensors) {
            std::vector<char> data(static_cast<size_t>(tensor.bytes()));
            CHECK(file->read(tensor, data.data()).ok());
        }
    }
    CHECK(accepted > 0);
}
