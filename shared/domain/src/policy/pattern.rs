//! A regular expression that came from a person: compiled when it is read, so that a bad one is a problem of the file
//! and never of the pull request it would have met. What the patterns mean lives with the tables that hold them.

use std::fmt;
use std::sync::{Arc, OnceLock};

use regex::{Regex, RegexBuilder};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// Above this many bytes of compiled program a pattern is refused: `\w{1000}{1000}` would take all memory.
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// A pattern matched as it is written; `(?i)` in front ignores case.
pub type Pattern = Expression<false>;

/// A pattern that ignores case unless it says `(?-i)`: log lines change their spelling more often than their words.
pub type TextPattern = Expression<true>;

/// A compiled regular expression. Equal when written the same; cheap to clone.
#[derive(Clone)]
pub struct Expression<const IGNORE_CASE: bool>(Arc<Source>);

/// The built-in patterns are many and most are never asked in one process, so they compile on their first use.
struct Source {
    text: String,
    compiled: OnceLock<Regex>,
}

/// A pattern that cannot be used, with the reason on one line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadPattern {
    #[error("`{text}` is not a regular expression: {reason}")]
    Syntax { text: String, reason: String },
    /// It matches the empty text, and so any.
    #[error("`{0}` matches every text")]
    MatchesEverything(String),
}

impl<const IGNORE_CASE: bool> Expression<IGNORE_CASE> {
    /// Compiles what a person wrote.
    ///
    /// Fails when it is not a regular expression, one that would need too much memory, or one that matches every text: a rule
    /// that is always true is a mistake, and here it would retry every failure.
    pub fn new(text: &str) -> Result<Self, BadPattern> {
        let regex = compile(text, IGNORE_CASE)?;
        if regex.is_match("") {
            return Err(BadPattern::MatchesEverything(text.to_owned()));
        }
        Ok(Self(Arc::new(Source { text: text.to_owned(), compiled: OnceLock::from(regex) })))
    }

    /// A built-in pattern, compiled when it is first asked.
    pub fn known(text: &'static str) -> Self {
        Self(Arc::new(Source { text: text.to_owned(), compiled: OnceLock::new() }))
    }

    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Whether it matches anywhere in the text.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex().is_match(text)
    }

    /// The first place in the text that matches.
    pub fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        self.regex().find(text).map(|found| found.as_str())
    }

    #[expect(clippy::expect_used, reason = "only `known` leaves it empty, and a test compiles every built-in pattern")]
    fn regex(&self) -> &Regex {
        self.0.compiled.get_or_init(|| compile(&self.0.text, IGNORE_CASE).expect("a built-in pattern compiles"))
    }
}

fn compile(text: &str, ignore_case: bool) -> Result<Regex, BadPattern> {
    RegexBuilder::new(text)
        .case_insensitive(ignore_case)
        .size_limit(MAX_COMPILED_BYTES)
        .build()
        .map_err(|error| BadPattern::Syntax { text: text.to_owned(), reason: one_line(&error) })
}

/// The regex crate draws a picture over several lines and ends with `error: <reason>`; only the reason fits a list.
fn one_line(error: &regex::Error) -> String {
    let picture = error.to_string();
    let last = picture.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

impl<const IGNORE_CASE: bool> PartialEq for Expression<IGNORE_CASE> {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text
    }
}

impl<const IGNORE_CASE: bool> Eq for Expression<IGNORE_CASE> {}

impl<const IGNORE_CASE: bool> fmt::Debug for Expression<IGNORE_CASE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/", self.0.text)
    }
}

impl<const IGNORE_CASE: bool> Serialize for Expression<IGNORE_CASE> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.text)
    }
}

impl<'de, const IGNORE_CASE: bool> Deserialize<'de> for Expression<IGNORE_CASE> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::new(&text).map_err(D::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl<const IGNORE_CASE: bool> schemars::JsonSchema for Expression<IGNORE_CASE> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        if IGNORE_CASE { "TextPattern".into() } else { "Pattern".into() }
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        // No `format`: editors would hold it against JavaScript's grammar, which knows no `(?i)`.
        schemars::json_schema!({ "type": "string" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_as_written_and_a_text_pattern_ignores_case() {
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
    fn a_bad_pattern_is_one_line() {
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
    fn patterns_are_written_as_text_and_equal_by_text() {
        let pattern: Pattern = serde_json::from_str(r#""a+""#).unwrap();
        assert_eq!(pattern, Pattern::known("a+"));
        assert_ne!(pattern, Pattern::known("a"));
        assert_eq!(serde_json::to_string(&pattern).unwrap(), r#""a+""#);
        assert_eq!(format!("{pattern:?}"), "/a+/");
        assert!(serde_json::from_str::<Pattern>(r#""(""#).unwrap_err().to_string().starts_with("`(` is not a regular"));
        assert!(serde_json::from_str::<Pattern>("1").is_err());
    }
}
