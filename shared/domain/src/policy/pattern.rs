//! Regular expressions from `suture.toml`. They are compiled when the file is parsed, so that an invalid one is a problem
//! of the file and not of a pull request later.

use std::fmt;
use std::sync::{Arc, OnceLock};

use regex::{Regex, RegexBuilder};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// The largest compiled pattern, in bytes: `\w{1000}{1000}` would exhaust the memory.
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// A case-sensitive pattern; `(?i)` in front ignores case.
pub type Pattern = CompiledPattern<false>;

/// A pattern that ignores case unless it starts with `(?-i)`; for log lines, whose case varies.
pub type TextPattern = CompiledPattern<true>;

/// A compiled regular expression. Two are equal if their texts are equal; cheap to clone.
#[derive(Clone)]
pub struct CompiledPattern<const IGNORE_CASE: bool>(Arc<PatternSource>);

/// Built-in patterns compile on first use, because most of them are never used in one process.
struct PatternSource {
    text: String,
    compiled: OnceLock<Regex>,
}

/// Why a pattern is invalid, on one line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidPattern {
    #[error("`{text}` is not a regular expression: {reason}")]
    Syntax { text: String, reason: String },
    /// It matches the empty text, and so every text.
    #[error("`{0}` matches every text")]
    MatchesEverything(String),
}

impl<const IGNORE_CASE: bool> CompiledPattern<IGNORE_CASE> {
    /// Compiles a pattern from the file.
    ///
    /// Fails if it is not a regular expression, needs too much memory, or matches every text: such a rule is a mistake
    /// and would retry every failure.
    pub fn new(text: &str) -> Result<Self, InvalidPattern> {
        let regex = compile(text, IGNORE_CASE)?;
        if regex.is_match("") {
            return Err(InvalidPattern::MatchesEverything(text.to_owned()));
        }
        Ok(Self(Arc::new(PatternSource { text: text.to_owned(), compiled: OnceLock::from(regex) })))
    }

    /// A built-in pattern, compiled on first use.
    pub fn known(text: &'static str) -> Self {
        Self(Arc::new(PatternSource { text: text.to_owned(), compiled: OnceLock::new() }))
    }

    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Whether the pattern matches anywhere in the text.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex().is_match(text)
    }

    /// The first match in the text.
    pub fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        self.regex().find(text).map(|found| found.as_str())
    }

    #[expect(clippy::expect_used, reason = "only `known` leaves it empty, and a test compiles every built-in pattern")]
    fn regex(&self) -> &Regex {
        self.0.compiled.get_or_init(|| compile(&self.0.text, IGNORE_CASE).expect("a built-in pattern compiles"))
    }
}

fn compile(text: &str, ignore_case: bool) -> Result<Regex, InvalidPattern> {
    RegexBuilder::new(text)
        .case_insensitive(ignore_case)
        .size_limit(MAX_COMPILED_BYTES)
        .build()
        .map_err(|error| InvalidPattern::Syntax { text: text.to_owned(), reason: one_line(&error) })
}

/// The reason of a regex error: the last line, after `error: `. The lines before it only point at the pattern.
fn one_line(error: &regex::Error) -> String {
    let message = error.to_string();
    let last = message.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

impl<const IGNORE_CASE: bool> PartialEq for CompiledPattern<IGNORE_CASE> {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text
    }
}

impl<const IGNORE_CASE: bool> Eq for CompiledPattern<IGNORE_CASE> {}

impl<const IGNORE_CASE: bool> fmt::Debug for CompiledPattern<IGNORE_CASE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/", self.0.text)
    }
}

impl<const IGNORE_CASE: bool> Serialize for CompiledPattern<IGNORE_CASE> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.text)
    }
}

impl<'de, const IGNORE_CASE: bool> Deserialize<'de> for CompiledPattern<IGNORE_CASE> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::new(&text).map_err(D::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl<const IGNORE_CASE: bool> schemars::JsonSchema for CompiledPattern<IGNORE_CASE> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        if IGNORE_CASE { "TextPattern".into() } else { "Pattern".into() }
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        // No `format: regex`: editors would apply JavaScript's grammar, which has no `(?i)`.
        schemars::json_schema!({ "type": "string" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_is_case_sensitive_and_text_pattern_is_not() {
        let pattern = Pattern::new(r"a\d").unwrap();
        assert!(pattern.is_match("xa1") && !pattern.is_match("xA1"));
        assert_eq!((pattern.find("xa1a2"), pattern.find("A1"), pattern.as_str()), (Some("a1"), None, r"a\d"));
        let text = TextPattern::new(r"a\d").unwrap();
        assert!(text.is_match("xA1"));
        assert!(!TextPattern::new(r"(?-i)a\d").unwrap().is_match("xA1"));
        assert!(Pattern::known("a").is_match("a") && !Pattern::known("a").is_match("A"));
        assert!(TextPattern::known("a").is_match("A"));
    }

    #[test]
    fn invalid_pattern_error_is_one_line() {
        let message = |text: &str| Pattern::new(text).unwrap_err().to_string();
        assert_eq!(message("a(b"), "`a(b` is not a regular expression: unclosed group");
        assert_eq!(message(r"\w{1000}{1000}"), {
            r"`\w{1000}{1000}` is not a regular expression: Compiled regex exceeds size limit of 1048576 bytes."
        });
        for everything in ["", ".*", "a?", "(?i)"] {
            assert_eq!(message(everything), format!("`{everything}` matches every text"));
        }
    }

    #[test]
    fn patterns_serialize_as_text_and_compare_by_text() {
        let pattern: Pattern = serde_json::from_str(r#""a+""#).unwrap();
        assert_eq!(pattern, Pattern::known("a+"));
        assert_ne!(pattern, Pattern::known("a"));
        assert_eq!(serde_json::to_string(&pattern).unwrap(), r#""a+""#);
        assert_eq!(format!("{pattern:?}"), "/a+/");
        assert!(serde_json::from_str::<Pattern>(r#""(""#).unwrap_err().to_string().starts_with("`(` is not a regular"));
        assert!(serde_json::from_str::<Pattern>("1").is_err());
    }
}
