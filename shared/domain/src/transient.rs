//! Classifies a failed check as transient (a retry may help) or persistent, by two lists of named rules.
//! Never-transient rules come first, then transient ones; the first match decides, and its name is stored and shown. A
//! failure that no rule matches is persistent.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::policy::{Policy, TextPattern};

/// How a failure is recognised. Every criterion that is not empty must match, each by any of its entries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct TransientRule {
    /// `false` switches the rule off.
    pub enabled: bool,
    /// Conclusions of a check run or states of a status: `timed_out`, `startup_failure`, …
    pub conclusions: Vec<String>,
    /// Names of checks, as regular expressions that ignore case; empty means any check.
    pub sources: Vec<TextPattern>,
    /// Regular expressions on the failure's text; they ignore case unless they say `(?-i)`.
    pub patterns: Vec<TextPattern>,
}

impl Default for TransientRule {
    fn default() -> Self {
        Self { enabled: true, conclusions: Vec::new(), sources: Vec::new(), patterns: Vec::new() }
    }
}

impl TransientRule {
    /// Whether the rule has no criterion besides the check's name. Such a rule matches nothing, because it would
    /// classify every failure of a check alike.
    pub fn is_empty(&self) -> bool {
        self.conclusions.is_empty() && self.patterns.is_empty()
    }

    fn matches(&self, failure: &FailureSignals<'_>) -> bool {
        let (head, tail) = head_and_tail(failure.text);
        self.enabled
            && !self.is_empty()
            && (self.conclusions.is_empty()
                || self.conclusions.iter().any(|conclusion| conclusion.eq_ignore_ascii_case(failure.conclusion)))
            && (self.sources.is_empty() || self.sources.iter().any(|source| source.is_match(failure.source)))
            && (self.patterns.is_empty()
                || self.patterns.iter().any(|pattern| pattern.is_match(head) || pattern.is_match(tail)))
    }
}

/// Changes to a rule by the configuration file; fields that are not given stay.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RuleChange {
    enabled: Option<bool>,
    conclusions: Option<Vec<String>>,
    sources: Option<Vec<TextPattern>>,
    patterns: Option<Vec<TextPattern>>,
}

impl RuleChange {
    fn apply(self, rule: &mut TransientRule) {
        let Self { enabled, conclusions, sources, patterns } = self;
        rule.enabled = enabled.unwrap_or(rule.enabled);
        rule.conclusions = conclusions.unwrap_or_else(|| std::mem::take(&mut rule.conclusions));
        rule.sources = sources.unwrap_or_else(|| std::mem::take(&mut rule.sources));
        rule.patterns = patterns.unwrap_or_else(|| std::mem::take(&mut rule.patterns));
    }
}

/// A list of rules by name. An entry of the configuration file adds a rule, or changes the built-in one of that name.
macro_rules! rules {
    ($(#[$doc:meta])* $name:ident = $built_in:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(from = "BTreeMap<String, RuleChange>")]
        pub struct $name(pub BTreeMap<String, TransientRule>);

        impl Default for $name {
            fn default() -> Self {
                Self($built_in.clone())
            }
        }

        impl From<BTreeMap<String, RuleChange>> for $name {
            fn from(changes: BTreeMap<String, RuleChange>) -> Self {
                let Self(mut rules) = Self::default();
                for (name, change) in changes {
                    change.apply(rules.entry(name).or_default());
                }
                Self(rules)
            }
        }

        impl $name {
            /// The name of the first rule, by name order, that matches.
            pub fn first_match(&self, failure: &FailureSignals<'_>) -> Option<&str> {
                self.0.iter().find(|(_, rule)| rule.matches(failure)).map(|(name, _)| name.as_str())
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                BTreeMap::<String, TransientRule>::json_schema(generator)
            }
        }
    };
}

rules! {
    /// Infrastructure failures: a retry may help.
    TransientRules = TRANSIENT
}
rules! {
    /// Failures of the change itself, or intended by a person: never retried, whatever else the text contains.
    NeverTransientRules = NEVER
}

/// The inputs of the classification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureSignals<'a> {
    /// The conclusion of the check run, or the state of the status.
    pub conclusion: &'a str,
    /// The name of the check, or the context of the status.
    pub source: &'a str,
    /// Description, output and log tail, as far as they were fetched.
    pub text: &'a str,
}

/// The classification, with the rule that matched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "class", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FailureClass {
    Transient {
        rule: String,
    },
    /// A retry would fail again.
    Persistent {
        /// The never-transient rule that matched; `None` if no rule matched.
        rule: Option<String>,
    },
}

/// Classifies one failure. Deterministic for the same inputs and policy.
pub fn classify(policy: &Policy, failure: &FailureSignals<'_>) -> FailureClass {
    if let Some(rule) = policy.never_transient.first_match(failure) {
        return FailureClass::Persistent { rule: Some(rule.to_owned()) };
    }
    match policy.transient.first_match(failure) {
        Some(rule) => FailureClass::Transient { rule: rule.to_owned() },
        None => FailureClass::Persistent { rule: None },
    }
}

/// Of a long text, this much of its beginning is searched.
const HEAD_BYTES: usize = 4 * 1024;
/// Of a long text, this much of its end is searched; builds report errors there.
const TAIL_BYTES: usize = 64 * 1024;

/// The parts of a text that are searched; the second is empty if the first is the whole text.
fn head_and_tail(text: &str) -> (&str, &str) {
    if text.len() <= HEAD_BYTES + TAIL_BYTES {
        return (text, "");
    }
    let head = text.floor_char_boundary(HEAD_BYTES);
    let tail = text.ceil_char_boundary(text.len() - TAIL_BYTES);
    (&text[..head], &text[tail..])
}

/// A built-in rule: its name, conclusions and patterns.
type BuiltIn = (&'static str, &'static [&'static str], &'static [&'static str]);

fn built_in(rules: &[BuiltIn]) -> BTreeMap<String, TransientRule> {
    let rule = |&(name, conclusions, patterns): &BuiltIn| {
        let conclusions = conclusions.iter().map(|&conclusion| conclusion.to_owned()).collect();
        let patterns = patterns.iter().map(|&pattern| TextPattern::known(pattern)).collect();
        (name.to_owned(), TransientRule { conclusions, patterns, ..TransientRule::default() })
    };
    rules.iter().map(rule).collect()
}

/// Error messages of Jenkins, its plugins and common tools.
static TRANSIENT: LazyLock<BTreeMap<String, TransientRule>> = LazyLock::new(|| {
    built_in(&[
        (
            "agent-lost",
            &[],
            &[
                r"channel is already closed",
                r"ClosedChannelException",
                r"Unexpected termination of the channel",
                r"The channel is closing down or has closed down",
                r"Agent was removed",
                r"was deleted; cancelling node body",
                r"seems to be removed or offline",
                r"was marked offline",
                r"Timeout waiting for agent to come back",
                r"Cannot contact [^ ]",
                r"\bagent (was )?(lost|disconnected|went offline)\b",
            ],
        ),
        (
            "agent-process",
            &[],
            &[r"wrapper script does not seem to be touching the log file", r"process apparently never started"],
        ),
        ("disk", &[], &[r"No space left on device"]),
        ("infrastructure", &[], &[r"\binfra(structure)?[ -](error|failure|issue)\b"]),
        ("kubernetes", &[], &[r"evicted by the Kubernetes Eviction API", r"Unable to pull container image"]),
        (
            "network",
            &[],
            &[
                r"\bconnection (reset|refused|failure|closed by peer)\b",
                r"\b(ECONNRESET|ECONNREFUSED|EAI_AGAIN)\b",
                r"Could not resolve host",
                r"Temporary failure in name resolution",
                r"Network is unreachable",
                r"No route to host",
            ],
        ),
        // A 5xx alone may be the subject of a test, so the name of a registry must be on the same line.
        (
            "registry-5xx",
            &[],
            &[
                r"(registry|artifactory|nexus|maven|\bnpm\b|docker|pypi|crates\.io).*\b(HTTP(/[0-9.]+)?|status( code)?|code|error|response)[:=]? *5[0-9]{2}\b",
                r"(registry|artifactory|nexus|maven|\bnpm\b|docker|pypi|crates\.io).*\b5[0-9]{2} (Internal Server Error|Bad Gateway|Service (Temporarily )?Unavailable|Gateway Time-?out)",
                r"\b5[0-9]{2} (Internal Server Error|Bad Gateway|Service (Temporarily )?Unavailable|Gateway Time-?out).*(registry|artifactory|nexus|maven|\bnpm\b|docker|pypi|crates\.io)",
            ],
        ),
        ("startup-failure", &["startup_failure"], &[]),
        ("timed-out", &["timed_out"], &[]),
        ("timeout", &[], &[r"\btime(d)?[- ]?out\b"]),
    ])
});

/// Failures that are never retried, even if the text also mentions a timeout.
static NEVER: LazyLock<BTreeMap<String, TransientRule>> = LazyLock::new(|| {
    let mut rules = built_in(&[
        ("aborted-by-user", &[], &[r"\baborted by\b", r"\bcancell?ed by (user\b|@)"]),
        (
            "compile-error",
            &[],
            &[
                r"error\[E[0-9]{4}\]",
                r"COMPILATION ERROR",
                r"\bcompilation failed\b",
                r"\bcould not compile\b",
                r"\berror (TS|CS)[0-9]{4}:",
                r"\.(c|cc|cpp|cxx|h|hpp):[0-9]+:[0-9]+: (fatal )?error:",
            ],
        ),
        (
            "out-of-memory",
            &[],
            &[r"\bOOM[ -]?Killed\b", r"OutOfMemoryError", r"\bout of memory\b", r"Cannot allocate memory"],
        ),
        (
            "secret-finding",
            &[],
            &[
                r"\b(leaks?|secrets?|credentials?|private keys?) (was |were )?(found|detected|leaked|exposed)\b",
                r"\b(found|detected) ([1-9][0-9]* )?(leaks?|secrets?|verified credentials?)\b",
            ],
        ),
        (
            "test-failure",
            &[],
            &[
                r"Tests run: [0-9]+, Failures: [1-9]",
                r"Tests run: [0-9]+, Failures: [0-9]+, Errors: [1-9]",
                r"There (are|were) test failures",
                r"\bAssertionError\b",
                r"\b[1-9][0-9]* tests? failed\b",
                // "attempt 1 failed: connection reset" is not a count of tests: a count is at the start of a line or
                // after punctuation.
                r"(?m)(^|[:;,=(]) *[1-9][0-9]* failed\b",
                r"\btest result: FAILED\b",
                r"(?m)^ *--- FAIL: ",
            ],
        ),
    ]);
    // Only of scanners: package managers print such counts in builds that fail for another reason.
    let scanners =
        r"scan|security|audit|codeql|semgrep|snyk|trivy|grype|sonar|checkmarx|veracode|owasp|dependency.review";
    let findings = [
        r"\b[1-9][0-9]* ((low|moderate|medium|high|critical|severity|known|new) )*(vulnerability|vulnerabilities)\b",
        r"\b(HIGH|CRITICAL): [1-9]",
        r"\b((vulnerability|vulnerabilities)|security (issues?|hotspots?)) (was |were )?(found|detected|introduced)\b",
        r"\bquality gate (failed|is red)\b",
    ];
    let (sources, patterns) = (vec![TextPattern::known(scanners)], findings.map(TextPattern::known).to_vec());
    rules.insert("security-finding".to_owned(), TransientRule { sources, patterns, ..TransientRule::default() });
    rules
});

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::Policies;

    fn classify_text(text: &str) -> FailureClass {
        classify(&Policy::default(), &FailureSignals { conclusion: "error", source: "jenkins", text })
    }

    fn transient(rule: &str) -> FailureClass {
        FailureClass::Transient { rule: rule.to_owned() }
    }

    fn persistent(rule: &str) -> FailureClass {
        FailureClass::Persistent { rule: Some(rule.to_owned()) }
    }

    const UNKNOWN: FailureClass = FailureClass::Persistent { rule: None };

    #[test]
    fn every_built_in_pattern_compiles() {
        for rule in TRANSIENT.values().chain(NEVER.values()) {
            assert!(rule.enabled && !rule.is_empty());
            for pattern in &rule.patterns {
                assert_eq!(&TextPattern::new(pattern.as_str()).unwrap(), pattern);
            }
        }
        assert_eq!((TRANSIENT.len(), NEVER.len()), (10, 6));
    }

    #[test]
    fn infrastructure_failures_are_transient() {
        for (text, rule) in [
            ("java.io.IOException: channel is already closed", "agent-lost"),
            ("java.nio.channels.ClosedChannelException", "agent-lost"),
            ("Unexpected termination of the channel", "agent-lost"),
            ("The channel is closing down or has closed down", "agent-lost"),
            ("Agent was removed", "agent-lost"),
            ("node-3 was deleted; cancelling node body", "agent-lost"),
            ("‘linux-7’ seems to be removed or offline", "agent-lost"),
            ("agent linux-7 was marked offline: reboot", "agent-lost"),
            ("Timeout waiting for agent to come back", "agent-lost"),
            ("Cannot contact linux-7: java.lang.InterruptedException", "agent-lost"),
            ("Jenkins agent lost", "agent-lost"),
            ("wrapper script does not seem to be touching the log file in /tmp", "agent-process"),
            ("process apparently never started in /tmp", "agent-process"),
            ("write failed: NO SPACE left on device", "disk"),
            ("infra error", "infrastructure"),
            ("Pod ci-1 was evicted by the Kubernetes Eviction API", "kubernetes"),
            ("Unable to pull container image \"x\"", "kubernetes"),
            ("read: connection reset by peer", "network"),
            ("connect: Connection refused", "network"),
            ("Attempt 1 failed: Connection reset", "network"),
            ("curl: (6) Could not resolve host: x", "network"),
            ("npm error code ECONNRESET", "network"),
            (
                "pulling from registry.acme.dev: received unexpected HTTP status: 503 Service Unavailable",
                "registry-5xx",
            ),
            ("npm ERR! 502 Bad Gateway - GET https://x", "registry-5xx"),
            ("503 Service Unavailable from artifactory", "registry-5xx"),
            ("Failed to fetch from nexus, status code: 500", "registry-5xx"),
            ("Build timed out (after 60 minutes)", "timeout"),
            ("Cancelling nested steps due to timeout", "timeout"),
            ("gateway time-out", "timeout"),
        ] {
            assert_eq!(classify_text(text), transient(rule), "{text}");
        }
    }

    #[test]
    fn never_transient_rules_win_over_timeouts() {
        for (text, rule) in [
            ("Aborted by Jane Doe", "aborted-by-user"),
            ("The run was canceled by @jane", "aborted-by-user"),
            ("error[E0308]: mismatched types", "compile-error"),
            ("[ERROR] COMPILATION ERROR :", "compile-error"),
            ("Compilation failed; see the compiler error output", "compile-error"),
            ("error: could not compile `x`", "compile-error"),
            ("src/a.ts(1,2): error TS2345: no", "compile-error"),
            ("main.c:3:14: fatal error: x.h", "compile-error"),
            ("container OOMKilled", "out-of-memory"),
            ("java.lang.OutOfMemoryError: Java heap space", "out-of-memory"),
            ("JavaScript heap out of memory", "out-of-memory"),
            ("fork: Cannot allocate memory", "out-of-memory"),
            ("WRN leaks found: 1", "secret-finding"),
            ("Secret detected in config/prod.env", "secret-finding"),
            ("Found 2 verified credentials", "secret-finding"),
            ("Tests run: 12, Failures: 1, Errors: 0", "test-failure"),
            ("Tests run: 12, Failures: 0, Errors: 2", "test-failure"),
            ("There are test failures.", "test-failure"),
            ("There were test failures", "test-failure"),
            ("java.lang.AssertionError: expected 200", "test-failure"),
            ("2 tests failed", "test-failure"),
            ("1 test failed", "test-failure"),
            ("Tests:       2 failed, 10 passed", "test-failure"),
            ("== 10 failed, 1 passed in 2s ==", "test-failure"),
            ("log\n12 failed", "test-failure"),
            ("test result: FAILED. 3 passed", "test-failure"),
            ("log\n    --- FAIL: TestX (0.0s)", "test-failure"),
        ] {
            assert_eq!(classify_text(text), persistent(rule), "{text}");
            assert_eq!(classify_text(&format!("request timed out\n{text}")), persistent(rule), "{text}");
            let timed_out = FailureSignals { conclusion: "timed_out", source: "ci", text };
            assert_eq!(classify(&Policy::default(), &timed_out), persistent(rule), "{text}");
        }
    }

    /// Regression: a scan that found something and mentioned a timeout was repeated.
    #[test]
    fn findings_of_scanners_are_never_transient() {
        fn of(source: &str, text: &str) -> FailureClass {
            classify(&Policy::default(), &FailureSignals { conclusion: "failure", source, text })
        }
        for text in [
            "found 3 high severity vulnerabilities",
            "1 vulnerability in 12 packages",
            "Total: 2 (HIGH: 2, CRITICAL: 0)",
            "New vulnerabilities were introduced",
            "Quality Gate failed",
        ] {
            for source in ["security/snyk", "Trivy", "CodeQL", "nightly-scan"] {
                let text = format!("rule timeout-in-loop: connection timed out\n{text}");
                assert_eq!(of(source, &text), persistent("security-finding"), "{source}: {text}");
            }
        }
        assert_eq!(of("snyk", "0 vulnerabilities\nconnection timed out"), transient("timeout"));
        // A package manager reports the advisories of a build that fails for another reason.
        assert_eq!(of("build", "3 vulnerabilities (1 moderate, 2 high)\nread: connection reset"), transient("network"));
    }

    #[test]
    fn unmatched_failures_are_persistent() {
        for text in [
            "",
            "This commit cannot be built",
            "Something is wrong with the build of this commit",
            "The build of this commit was aborted",
            "0 tests failed",
            "10 passed, 0 failed",
            "Tests run: 12, Failures: 0, Errors: 0",
            "expected status 200, got 503 Service Unavailable",
            "npm installed 512 packages",
            "Please timeoutfix()",
            "Cannot contact ",
        ] {
            assert_eq!(classify_text(text), UNKNOWN, "{text}");
        }
    }

    #[test]
    fn timed_out_and_startup_failure_are_transient_without_text() {
        let of = |conclusion| classify(&Policy::default(), &FailureSignals { conclusion, source: "ci", text: "" });
        assert_eq!(of("timed_out"), transient("timed-out"));
        assert_eq!(of("TIMED_OUT"), transient("timed-out"));
        assert_eq!(of("startup_failure"), transient("startup-failure"));
        for real in ["failure", "error", "cancelled", "action_required", ""] {
            assert_eq!(of(real), UNKNOWN, "{real}");
        }
    }

    #[test]
    fn every_given_criterion_must_match() {
        let policies = Policies::parse(
            "[transient.a-rule]\nconclusions = ['failure', 'error']\nsources = ['^ci/']\npatterns = ['flux', '(?-i)Drive']",
        )
        .unwrap();
        let of = |conclusion, source, text| classify(policies.base(), &FailureSignals { conclusion, source, text });
        assert_eq!(of("error", "CI/build", "the FLUX"), transient("a-rule"));
        assert_eq!(of("failure", "ci/build", "Drive"), transient("a-rule"));
        assert_eq!(of("failure", "ci/build", "drive"), UNKNOWN);
        assert_eq!(of("neutral", "ci/build", "flux"), UNKNOWN);
        assert_eq!(of("error", "x/ci/build", "flux"), UNKNOWN);
        assert_eq!(of("error", "ci/build", "flow"), UNKNOWN);
    }

    #[test]
    fn rules_apply_in_name_order_and_can_be_disabled() {
        let of = |file: &str, text| {
            let policies = Policies::parse(file).unwrap();
            classify(policies.base(), &FailureSignals { conclusion: "error", source: "ci", text })
        };
        let text = "connection refused, then a timeout";
        assert_eq!(of("", text), transient("network"));
        assert_eq!(of("transient.a.patterns = ['timeout']", text), transient("a"));
        assert_eq!(of("transient.network.enabled = false", text), transient("timeout"));
        assert_eq!(of("transient.network.patterns = ['reset']", text), transient("timeout"));
        assert_eq!(of("never_transient.mine.patterns = ['refused']", text), persistent("mine"));
        assert_eq!(of("never_transient.test-failure.enabled = false", "timeout: 3 tests failed"), transient("timeout"));
        // An entry changes only the fields it gives: here the patterns stay, and now the check's name must match too.
        assert_eq!(of("transient.network.sources = ['^ci$']", text), transient("network"));
        assert_eq!(of("transient.network.sources = ['^jenkins$']", text), transient("timeout"));
        assert_eq!(of("transient.network.conclusions = ['failure']", text), transient("timeout"));
    }

    #[test]
    fn rule_without_criteria_matches_nothing() {
        let rule = TransientRule { sources: vec![TextPattern::known("ci")], ..TransientRule::default() };
        assert!(rule.is_empty());
        assert!(!rule.matches(&FailureSignals { conclusion: "error", source: "ci", text: "" }));
    }

    #[test]
    fn beginning_and_end_of_a_long_text_are_searched() {
        let whole = "é".repeat(34 * 1024);
        assert_eq!(whole.len(), 68 * 1024);
        assert_eq!(head_and_tail(&whole), (whole.as_str(), ""));
        let longer = format!("a{whole}");
        let (head, tail) = head_and_tail(&longer);
        assert_eq!((head.len(), tail.len()), (4 * 1024 - 1, 64 * 1024));
        let odd = format!("{whole}a");
        let (head, tail) = head_and_tail(&odd);
        assert_eq!((head.len(), tail.len()), (4 * 1024, 64 * 1024 - 1));

        let filler = "x ".repeat(40 * 1024);
        assert_eq!(classify_text(&format!("timeout {filler}")), transient("timeout"));
        assert_eq!(classify_text(&format!("{filler} timeout")), transient("timeout"));
        assert_eq!(classify_text(&format!("{filler} timeout {filler}")), UNKNOWN);
    }

    #[test]
    fn classification_is_stored_with_its_rule() {
        let json = serde_json::to_string(&transient("disk")).unwrap();
        assert_eq!(json, r#"{"class":"TRANSIENT","rule":"disk"}"#);
        assert_eq!(serde_json::from_str::<FailureClass>(&json).unwrap(), transient("disk"));
        assert_eq!(serde_json::to_string(&UNKNOWN).unwrap(), r#"{"class":"PERSISTENT","rule":null}"#);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn head_and_tail_accept_any_text(unit in "\\PC{1,3}", times in 0_usize..30_000) {
            let text = unit.repeat(times);
            let (head, tail) = head_and_tail(&text);
            prop_assert!(text.starts_with(head) && text.ends_with(tail));
            prop_assert!(head.len() + tail.len() <= 68 * 1024);
        }
    }
}
