//! Rust source cut into code, string literals and line comments, so that a check looks only where
//! it means to. A scanner, not a parser: it knows just enough about quotes and comments.

/// A string literal, with the line its first character stands on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Literal {
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// A `//`, `///` or `//!` comment, slashes included.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LineComment {
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// Line numbers count from 1 everywhere.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// The text with comments and the inside of literals blanked; lines stay where they were.
    pub(crate) code: String,
    pub(crate) literals: Vec<Literal>,
    pub(crate) comments: Vec<LineComment>,
}

impl Source {
    pub(crate) fn scan(text: &str) -> Self {
        let mut scanner =
            Scanner { characters: text.chars().collect(), at: 0, line: 1, out: Self::default() };
        scanner.run();
        scanner.out
    }

    /// First and last line of every `#[cfg(test)]` item that has a body.
    pub(crate) fn test_regions(&self) -> Vec<(usize, usize)> {
        const MARK: &str = "#[cfg(test)]";
        let mut regions = Vec::new();
        let mut from = 0;
        while let Some(found) = self.code[from..].find(MARK) {
            let start = from + found;
            let body = start + MARK.len();
            from = body;
            let Some(open) = self.code[body..].find(['{', ';']) else {
                continue;
            };
            if self.code[body + open..].starts_with(';') {
                continue;
            }
            let end = matching_brace(&self.code, body + open);
            regions.push((line_of(&self.code, start), line_of(&self.code, end)));
            from = end;
        }
        regions
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

fn matching_brace(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, character) in code[open..].char_indices() {
        match character {
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return open + offset;
                }
            }
            _ => {}
        }
    }
    code.len()
}

struct Scanner {
    characters: Vec<char>,
    at: usize,
    line: usize,
    out: Source,
}

impl Scanner {
    fn run(&mut self) {
        while let Some(character) = self.peek(0) {
            match character {
                '/' if self.peek(1) == Some('/') => self.line_comment(),
                '/' if self.peek(1) == Some('*') => self.block_comment(),
                '"' => self.string(),
                '\'' => self.quote(),
                _ if character.is_alphabetic() || character == '_' => self.word(),
                _ => self.keep(),
            }
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.characters.get(self.at + ahead).copied()
    }

    fn keep(&mut self) {
        if let Some(character) = self.step() {
            self.out.code.push(character);
        }
    }

    fn blank(&mut self) -> Option<char> {
        let character = self.step()?;
        self.out.code.push(if character == '\n' { '\n' } else { ' ' });
        Some(character)
    }

    fn step(&mut self) -> Option<char> {
        let character = self.peek(0)?;
        self.at += 1;
        if character == '\n' {
            self.line += 1;
        }
        Some(character)
    }

    fn line_comment(&mut self) {
        let line = self.line;
        let mut text = String::new();
        while self.peek(0).is_some_and(|next| next != '\n') {
            text.extend(self.blank());
        }
        self.out.comments.push(LineComment { line, text });
    }

    fn block_comment(&mut self) {
        let mut depth = 0_usize;
        while let Some(next) = self.peek(0) {
            let pair = (next, self.peek(1));
            if pair == ('/', Some('*')) || pair == ('*', Some('/')) {
                depth = if next == '/' { depth + 1 } else { depth - 1 };
                self.blank();
            }
            self.blank();
            if depth == 0 {
                return;
            }
        }
    }

    /// A word is code, unless it turns out to be the prefix of a literal.
    fn word(&mut self) {
        let start = self.at;
        while self.peek(0).is_some_and(|next| next.is_alphanumeric() || next == '_') {
            self.keep();
        }
        let word: String = self.characters[start..self.at].iter().collect();
        if !matches!(word.as_str(), "r" | "br" | "cr") {
            return;
        }
        let mut hashes = 0;
        while self.peek(hashes) == Some('#') {
            hashes += 1;
        }
        if self.peek(hashes) == Some('"') {
            self.raw_string(hashes);
        }
    }

    fn raw_string(&mut self, hashes: usize) {
        for _ in 0..=hashes {
            self.keep();
        }
        let line = self.line;
        let mut text = String::new();
        while let Some(next) = self.peek(0) {
            let closes = next == '"' && (1..=hashes).all(|ahead| self.peek(ahead) == Some('#'));
            if closes {
                for _ in 0..=hashes {
                    self.keep();
                }
                break;
            }
            text.extend(self.blank());
        }
        self.out.literals.push(Literal { line, text });
    }

    fn string(&mut self) {
        self.keep();
        let line = self.line;
        let mut text = String::new();
        while let Some(next) = self.peek(0) {
            match next {
                '"' => {
                    self.keep();
                    break;
                }
                '\\' => {
                    self.blank();
                    // Which character an escape stands for never matters here; that it parts words does,
                    // and that line numbers inside the literal stay right.
                    match self.blank() {
                        Some(escaped @ ('"' | '\\' | '\n')) => text.push(escaped),
                        _ => text.push(' '),
                    }
                }
                _ => text.extend(self.blank()),
            }
        }
        self.out.literals.push(Literal { line, text });
    }

    /// A character literal, or the tick of a lifetime.
    fn quote(&mut self) {
        let is_character = self.peek(1) == Some('\\') || self.peek(2) == Some('\'');
        self.keep();
        if !is_character {
            return;
        }
        if self.blank() == Some('\\') {
            self.blank();
        }
        while self.peek(0).is_some_and(|next| next != '\'') {
            self.blank();
        }
        self.keep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_comments_leave_the_code() {
        let source = Source::scan(
            "let a = \"x \\\" y\"; // note \"no\"\nlet b = r#\"raw \" text\"#; /* a /* b */ c */ let c = '{';",
        );
        let texts: Vec<_> = source.literals.iter().map(|l| l.text.as_str()).collect();
        assert_eq!(texts, ["x \" y", "raw \" text"]);
        assert_eq!(source.literals[1].line, 2);
        assert_eq!(source.comments[0].text, "// note \"no\"");
        assert!(!source.code.contains('{'));
        assert!(source.code.contains("let c"));
    }

    #[test]
    fn lifetimes_are_not_character_literals() {
        let source = Source::scan("fn f<'a>(x: &'a str) -> &'a str { \"t\" }");
        assert_eq!(source.literals.len(), 1);
        assert!(source.code.contains('}'));
    }

    #[test]
    fn test_modules_are_found_by_their_braces() {
        let source = Source::scan("fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { }\n}\nfn c() {}\n");
        assert_eq!(source.test_regions(), [(2, 5)]);
    }
}
