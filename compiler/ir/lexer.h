// SPDX-License-Identifier: Apache-2.0
// The words, numbers and symbols of IR texts.
#pragma once

#include <algorithm>
#include <charconv>
#include <string_view>

namespace normjit::ir {

/// The characters of names and numbers, whatever the program's locale says.
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

struct Token {
    enum class Kind { word, number, symbol, newline, end } kind = Kind::end;
    std::string_view text;
    int line = 1;
    int column = 1;
};

class Lexer {
  public:
    explicit Lexer(std::string_view text) : text_(text) { next(); }
    /// Reads a text without line ends. All its tokens report the place of `user`, a token of another text.
    Lexer(std::string_view text, const Token& user) : text_(text), line_(user.line), column_(user.column) { next(); }

    const Token& peek() const { return token_; }
    /// Returns the offset in the text at which the next token begins.
    size_t offset() const { return static_cast<size_t>(token_.text.data() - text_.data()); }

    Token next() {
        const Token current = token_;
        skip_blanks();
        token_ = {Token::Kind::end, text_.substr(at_, 0), line_,
                  column_ > 0 ? column_ : static_cast<int>(at_ - line_start_) + 1};
        if (at_ == text_.size()) return current;
        const size_t begin = at_;
        const char c = text_[at_++];
        if (c == '\n') {
            token_.kind = Token::Kind::newline;
            ++line_;
            line_start_ = at_;
        } else if (is_letter(c)) {
            token_.kind = Token::Kind::word;
            skip_letters();
        } else if (is_digit(c) || (c == '.' && at_ < text_.size() && is_digit(text_[at_]))) {
            token_.kind = Token::Kind::number;
            double ignored = 0;
            at_ = static_cast<size_t>(std::from_chars(text_.data() + begin, text_.data() + text_.size(), ignored).ptr -
                                      text_.data());
            skip_letters();  // makes 0x10, which is not a number, one token
        } else {
            token_.kind = Token::Kind::symbol;
            while (at_ < text_.size() && is_continuation(text_[at_])) ++at_;
            depth_ = c == '(' ? depth_ + 1 : c == ')' ? std::max(depth_ - 1, 0) : depth_;
        }
        token_.text = text_.substr(begin, at_ - begin);
        return current;
    }

  private:
    /// True for every byte of a UTF-8 character except its first.
    static bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

    void skip_letters() {
        while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
    }

    /// Skips blanks and comments, which go from a # to the end of the line. Inside parentheses, a line end is a blank.
    void skip_blanks() {
        for (;; ++at_) {
            if (at_ < text_.size() && text_[at_] == '#') at_ = std::min(text_.find('\n', at_), text_.size());
            if (at_ == text_.size()) return;
            const char c = text_[at_];
            if (c != ' ' && c != '\t' && c != '\r' && (c != '\n' || depth_ == 0)) return;
            if (c != '\n') continue;
            ++line_;
            line_start_ = at_ + 1;
        }
    }

    std::string_view text_;
    size_t at_ = 0;
    size_t line_start_ = 0;
    int line_ = 1;
    int column_ = 0;  ///< the column that all tokens report; 0 if each reports its own
    int depth_ = 0;   ///< open parentheses
    Token token_;
};

}  // namespace normjit::ir
