//! Parses `suture.toml` into policies, or into the list of all its problems with their lines. To report all problems at
//! once, every value is parsed on its own before the whole file is. Range checks are in `validate`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use toml::{Spanned, Table, Value};

use super::validate::validate;
use super::{Policies, Policy};
use crate::id::RepoName;
use crate::transient::TransientRule;

/// One problem of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The line, counted from 1; `None` for a field that is not in the file.
    pub line: Option<usize>,
    /// The path of the field: `backoff.base_secs`, `repos."owner/name".mode`. Empty when the file is not TOML.
    pub field: String,
    /// A sentence that names the field and says what to change.
    pub message: String,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// All problems of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyError {
    /// In file order; problems without a line come last.
    pub problems: Vec<ConfigProblem>,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.problems.iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for PolicyError {}

pub(super) fn parse(text: &str) -> Result<Policies, PolicyError> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut reader = ConfigReader { text, lines: BTreeMap::new(), problems: Vec::new() };
    if !errors.is_empty() {
        // Stop here: half a document would only cause follow-up problems.
        for error in errors {
            let line = error.span().map(|span| reader.line_at(span.start));
            let message = format!("invalid TOML: {}", error.message().replace('\n', ", "));
            reader.problems.push(ConfigProblem { line, field: String::new(), message });
        }
        return Err(reader.into_error());
    }
    let policies = reader.policies(document.get_ref());
    if reader.problems.is_empty() { Ok(policies) } else { Err(reader.into_error()) }
}

/// The known fields of a policy with their defaults as TOML values, which also give the type of each. `*` stands for any
/// name.
#[expect(clippy::expect_used, reason = "the defaults are constants, and every test of this file writes them down")]
static SHAPE: LazyLock<Table> = LazyLock::new(|| {
    let mut shape = Table::try_from(Policy::default()).expect("the defaults can be written as TOML");
    let rule = Table::try_from(TransientRule::default()).expect("a rule can be written as TOML");
    for rules in ["never_transient", "transient"] {
        shape.insert(rules.to_owned(), Value::Table(Table::from_iter([("*".to_owned(), Value::Table(rule.clone()))])));
    }
    shape
});

/// The key of the overrides, the only top-level key that is not part of a policy.
const REPOS: &str = "repos";

/// The location of a value: the part of the file (`""` or `repos."owner/name"`) and the keys within that policy.
#[derive(Clone, Copy)]
struct ConfigLocation<'p> {
    part: &'p str,
    keys: &'p [&'p str],
}

impl fmt::Display for ConfigLocation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.part)?;
        for (n, key) in self.keys.iter().enumerate() {
            if n > 0 || !self.part.is_empty() {
                f.write_str(".")?;
            }
            f.write_str(&quoted(key))?;
        }
        Ok(())
    }
}

/// A key as written in TOML, quoted if necessary.
pub(super) fn quoted(key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    if bare { key.to_owned() } else { format!("{key:?}") }
}

struct ConfigReader<'t> {
    text: &'t str,
    /// The line of each field, by path.
    lines: BTreeMap<String, usize>,
    problems: Vec<ConfigProblem>,
}

impl ConfigReader<'_> {
    fn into_error(mut self) -> PolicyError {
        self.problems.sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
        PolicyError { problems: self.problems }
    }

    fn line_at(&self, offset: usize) -> usize {
        1 + self.text.bytes().take(offset).filter(|&b| b == b'\n').count()
    }

    /// Adds a problem; the message is the field's path followed by `rest`.
    fn problem(&mut self, field: &str, rest: &str) {
        let line = self.lines.get(field).copied();
        self.problems.push(ConfigProblem { line, field: field.to_owned(), message: format!("{field}{rest}") });
    }

    fn policies(&mut self, document: &DeTable<'_>) -> Policies {
        let base = self.fields(document, &SHAPE, ConfigLocation { part: "", keys: &[] });
        let (base_policy, base_findings) = self.policy(base.clone(), "", &[]);
        let mut repos = BTreeMap::new();
        let overrides = document.get(REPOS).map(Spanned::get_ref);
        for (name, value) in overrides.and_then(DeValue::as_table).into_iter().flatten() {
            let (key, part) = (name.get_ref(), format!("{REPOS}.{}", quoted(name.get_ref())));
            self.lines.insert(part.clone(), self.line_at(name.span().start));
            if let Err(bad) = key.parse::<RepoName>() {
                self.problem(&part, &format!(" is invalid: {bad}"));
                continue;
            }
            let Some(table) = value.get_ref().as_table() else {
                self.problem(&part, &format!(" must be a table, not {}", kind(value.get_ref().type_str())));
                continue;
            };
            let own = self.fields(table, &SHAPE, ConfigLocation { part: &part, keys: &[] });
            let mut merged = base.clone();
            merge(&mut merged, own);
            let (policy, _) = self.policy(merged, &part, &base_findings);
            if repos.insert(key.to_ascii_lowercase(), policy).is_some() {
                self.problem(&part, " is defined twice: GitHub compares repository names without case");
            }
        }
        Policies { base: base_policy, repos }
    }

    /// Deserializes the values that could be parsed, and validates them. Problems that a repository inherits from the
    /// base are not repeated.
    fn policy(&mut self, table: Table, part: &str, inherited: &[(String, String)]) -> (Policy, Vec<(String, String)>) {
        let policy = Policy::deserialize(table).unwrap_or_else(|error| {
            self.problem(part, &format!(" cannot be read: {}", error.message()));
            Policy::default()
        });
        let findings = validate(&policy);
        for (field, sentence) in findings.iter().filter(|finding| !inherited.contains(finding)) {
            let field = if part.is_empty() { field.clone() } else { format!("{part}.{field}") };
            // An unreadable value was replaced by its default and is already reported.
            if !self.problems.iter().any(|problem| problem.field == field) {
                self.problem(&field, &format!(" {sentence}"));
            }
        }
        (policy, findings)
    }

    /// The fields of one table that can be parsed; the others become problems.
    fn fields(&mut self, table: &DeTable<'_>, shape: &Table, place: ConfigLocation<'_>) -> Table {
        let mut read = Table::new();
        for (key, value) in table {
            let name: &str = key.get_ref();
            let keys = [place.keys, &[name]].concat();
            let place = ConfigLocation { part: place.part, keys: &keys };
            let field = place.to_string();
            self.lines.insert(field.clone(), self.line_at(key.span().start));
            let is_repos = field == REPOS;
            let value = match (shape.get(name).or_else(|| shape.get("*")), value.get_ref()) {
                (None, DeValue::Table(_)) if is_repos => None,
                (Some(Value::Table(inner)), DeValue::Table(table)) => {
                    Some(Value::Table(self.fields(table, inner, place)))
                }
                (Some(Value::Table(_)), other) => {
                    self.problem(&field, &format!(" must be a table, not {}", kind(other.type_str())));
                    None
                }
                (None, other) if is_repos => {
                    self.problem(&field, &format!(" must be a table, not {}", kind(other.type_str())));
                    None
                }
                (None, _) => {
                    self.problem(&field, &unknown(name, shape, field == name));
                    None
                }
                (Some(Value::Array(_)), _) => self.list(value, place),
                (Some(example), _) => self.leaf(value, example, place),
            };
            read.extend(value.map(|value| (name.to_owned(), value)));
        }
        read
    }

    /// A list. Every element is parsed on its own, so that three bad patterns are three problems.
    fn list(&mut self, value: &Spanned<DeValue<'_>>, place: ConfigLocation<'_>) -> Option<Value> {
        let field = place.to_string();
        let DeValue::Array(elements) = value.get_ref() else {
            self.problem(&field, &format!(" must be a list, not {}", kind(value.get_ref().type_str())));
            return None;
        };
        let mut results = Vec::new();
        for (n, element) in elements.iter().enumerate() {
            let line = self.line_at(element.span().start);
            self.lines.insert(format!("{field}[{n}]"), line);
            let found = element.get_ref();
            let not_text = || format!(" must be a string, not {}", kind(found.type_str()));
            // Only some lists have numbers.
            let number = || {
                let read = Value::deserialize(ValueDeserializer::from(element.clone())).ok();
                read.filter(|read| read.is_integer() && accepted(place.keys, Value::Array(vec![read.clone()])).is_ok())
            };
            results.push(found.as_str().map(Value::from).or_else(number).ok_or_else(not_text));
        }
        if let Ok(read) = results.iter().cloned().collect::<Result<Vec<Value>, String>>()
            && accepted(place.keys, Value::Array(read.clone())).is_ok()
        {
            return Some(Value::Array(read));
        }
        let mut read = Vec::new();
        for (n, element) in results.into_iter().enumerate() {
            let element = element.and_then(|element| {
                accepted(place.keys, Value::Array(vec![element.clone()]))
                    .map(|()| element)
                    .map_err(|reason| format!(": {reason}"))
            });
            // A dash replaces a bad element, so that later problems name the right index.
            read.push(element.unwrap_or_else(|problem| {
                self.problem(&format!("{field}[{n}]"), &problem);
                Value::from("-")
            }));
        }
        let read = Value::Array(read);
        accepted(place.keys, read.clone()).is_ok().then_some(read)
    }

    /// A value that is neither a table nor a list.
    fn leaf(&mut self, value: &Spanned<DeValue<'_>>, example: &Value, place: ConfigLocation<'_>) -> Option<Value> {
        let field = place.to_string();
        let found = value.get_ref().type_str();
        let expected = example.type_str();
        if found != expected && !(expected == "float" && found == "integer") {
            self.problem(&field, &format!(" must be {}, not {}", kind(expected), kind(found)));
            return None;
        }
        let read = Value::deserialize(ValueDeserializer::from(value.clone()));
        let in_range = match (&read, example) {
            (Ok(Value::Integer(number)), Value::Integer(_)) => u32::try_from(*number).is_ok(),
            (read, _) => read.is_ok(),
        };
        let Some(read) = read.ok().filter(|_| in_range) else {
            let written = self.text.get(value.span()).unwrap_or_default();
            self.problem(&field, &format!(" must be a number from 0 to {} (it is {written})", u32::MAX));
            return None;
        };
        match accepted(place.keys, read.clone()) {
            Ok(()) => Some(read),
            Err(reason) => {
                self.problem(&field, &format!(": {reason}"));
                None
            }
        }
    }
}

/// Whether a policy with only this value can be deserialized.
fn accepted(keys: &[&str], value: Value) -> Result<(), String> {
    let alone = keys.iter().rfold(value, |value, &key| Value::Table(Table::from_iter([(key.to_owned(), value)])));
    match Policy::deserialize(alone.into_deserializer()) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.message().replace('\n', ", ")),
    }
}

/// Overrides the values of one table with those of another: tables are merged, all other values and lists are replaced.
fn merge(under: &mut Table, over: Table) {
    for (key, value) in over {
        match (under.get_mut(&key), value) {
            (Some(Value::Table(under)), Value::Table(over)) => merge(under, over),
            (_, value) => {
                under.insert(key, value);
            }
        }
    }
}

/// The name of a TOML type in a sentence.
fn kind(type_str: &str) -> &'static str {
    match type_str {
        "string" => "a string",
        "integer" => "a whole number",
        "float" => "a number",
        "boolean" => "true or false",
        "array" => "a list",
        "table" => "a table",
        _ => "a date or time",
    }
}

/// The message for an unknown field: suggests a similar field, or lists the known ones.
fn unknown(name: &str, shape: &Table, top_level: bool) -> String {
    let names = || shape.keys().map(String::as_str).chain(top_level.then_some(REPOS));
    let nearest = names().map(|known| (strsim::damerau_levenshtein(name, known), known)).min();
    match nearest {
        Some((distance, known)) if distance <= 1 + known.len() / 4 => {
            format!(" is not a known field: did you mean `{known}`?")
        }
        Some(_) | None => {
            let list: Vec<String> = names().map(|known| format!("`{known}`")).collect();
            format!(" is not a known field: expected one of {}", list.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn problems(text: &str) -> String {
        Policies::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn empty_file_has_all_defaults() {
        for text in ["", "# only a comment", "[budgets]", "[repos]"] {
            assert_eq!(Policies::parse(text).unwrap(), Policies::default(), "{text}");
        }
    }

    #[test]
    fn all_problems_are_reported_in_file_order() {
        let text = r#"mode = "acting"
managed.authors = ["ok", 5, ""]
managed.vulnerability_patterns = [
    "fine",
    "a(b",
    ".*",
]
[thresholds_minutes]
created = 0
creatd = 7
merging = "soon"
approved = -1
[checks]
required = "ci"
behind = "never"
[rules]
approval_required = ["rebild"]
extended = 1
[backoff]
base_secs = 700
[breaker]
failure_threshold = nan
[transient.mine]
sources = ["ci"]
[transient.other]
pattern = ["x"]
conclusions = [" "]
[repos."acme/app"]
budgets.lifetime = 2
sweep = 3
repos = {}
[repos.app]
[repos."acme/other"]
mode = "act"
"#;
        insta::assert_snapshot!(problems(text), @r#"
        line 1: mode: unknown variant `acting`, expected `observe` or `act`
        line 2: managed.authors[1] must be a string, not a whole number
        line 2: managed.authors[2] must not be empty: a login cannot be empty
        line 5: managed.vulnerability_patterns[1]: `a(b` is not a regular expression: unclosed group
        line 6: managed.vulnerability_patterns[2]: `.*` matches every text
        line 9: thresholds_minutes.created must be at least 1 (it is 0): a pull request would be stale as soon as it is opened
        line 10: thresholds_minutes.creatd is not a known field: did you mean `created`?
        line 11: thresholds_minutes.merging must be a whole number, not a string
        line 12: thresholds_minutes.approved must be a number from 0 to 4294967295 (it is -1)
        line 14: checks.required must be a list, not a string
        line 15: checks.behind: unknown variant `never`, expected `strict` or `always`
        line 17: rules.approval_required[0]: unknown variant `rebild`, expected one of `rebuild`, `branch_update`, `retrigger_policy_bot`, `retrigger_approver_bot`, `retrigger_automerge_bot`, `retrigger_sod_check`, `close_and_reopen`
        line 18: rules.extended must be true or false, not a whole number
        line 20: backoff.base_secs must not be greater than backoff.max_secs (it is 700, backoff.max_secs is 600)
        line 22: breaker.failure_threshold must be greater than 0 and at most 1 (it is NaN): it is the share of remedies that failed
        line 23: transient.mine needs conclusions or patterns: without them it matches nothing
        line 26: transient.other.pattern is not a known field: did you mean `patterns`?
        line 27: transient.other.conclusions[0] must not be empty: a conclusion cannot be empty
        line 29: repos."acme/app".budgets.lifetime must be at least 3 (it is 2): budgets.rebuild alone allows 3, and could never be used up
        line 30: repos."acme/app".sweep must be a table, not a whole number
        line 31: repos."acme/app".repos is not a known field: expected one of `approver_bot`, `automerge_bot`, `backlog`, `backoff`, `breaker`, `budgets`, `check_run`, `checks`, `coordination`, `limits`, `managed`, `mode`, `never_transient`, `policy_bot`, `post_merge_health`, `rebuild`, `retention`, `retrigger`, `rules`, `status_issue`, `sweep`, `thresholds_minutes`, `transient`, `triggers`, `webhook_silence`
        line 32: repos.app is invalid: `app` is not a repository: expected `owner/name`
        "#);
    }

    #[test]
    fn invalid_toml_error_has_the_line() {
        for (text, expected) in [
            ("mode = \"act\"\n[managed\nauthors = []\n", "line 2: invalid TOML: unclosed table, expected `]`"),
            ("mode = \"act\"\nmode = \"act\"\n", "line 2: invalid TOML: duplicate key"),
            (
                "\nmode =\n[managed\n",
                "line 2: invalid TOML: string values must be quoted, expected literal string\n\
                 line 3: invalid TOML: unclosed table, expected `]`",
            ),
        ] {
            assert_eq!(problems(text), expected);
        }
        let error = Policies::parse("= 3").unwrap_err();
        assert_eq!((error.problems[0].line, error.problems[0].field.as_str()), (Some(1), ""));
    }

    #[test]
    fn unknown_field_error_suggests_a_similar_field_or_lists_all() {
        for (text, expected) in [
            ("modes = 1", "line 1: modes is not a known field: did you mean `mode`?"),
            ("[repo]", "line 1: repo is not a known field: did you mean `repos`?"),
            (
                "[threshold_minutes]",
                "line 1: threshold_minutes is not a known field: did you mean `thresholds_minutes`?",
            ),
            ("backoff.base_sec = 1", "line 1: backoff.base_sec is not a known field: did you mean `base_secs`?"),
            (
                "\n\n[backoff]\nrepos = 1",
                "line 4: backoff.repos is not a known field: expected one of `base_secs`, `cooldown_secs`, `max_secs`",
            ),
            (
                "[transient.x]\npattern = []\nenabled = false",
                "line 2: transient.x.pattern is not a known field: did you mean `patterns`?",
            ),
            ("\"a b\" = 1", "line 1: \"a b\" is not a known field: expected one of `approver_bot`"),
        ] {
            let problems = problems(text);
            assert!(problems.starts_with(expected), "{text}: {problems}");
            assert_eq!(problems.lines().count(), 1, "{problems}");
        }
        assert!(problems("zzz = 1").ends_with("`triggers`, `webhook_silence`, `repos`"));
        // A field is suggested only up to a distance of one plus a quarter of its length.
        assert!(problems("mo = 1").contains("did you mean `mode`?"));
        assert!(problems("made_x = 1").contains("expected one of"));
    }

    #[test]
    fn type_errors_name_the_types() {
        for (text, expected) in [
            ("mode = 1", "mode must be a string, not a whole number"),
            ("mode = []", "mode must be a string, not a list"),
            ("mode = {}", "mode must be a string, not a table"),
            ("budgets.rebuild = 1.5", "budgets.rebuild must be a whole number, not a number"),
            ("budgets.rebuild = true", "budgets.rebuild must be a whole number, not true or false"),
            ("budgets.rebuild = 2024-01-01", "budgets.rebuild must be a whole number, not a date or time"),
            ("budgets.rebuild = -1", "budgets.rebuild must be a number from 0 to 4294967295 (it is -1)"),
            (
                "budgets.rebuild = 4294967296",
                "budgets.rebuild must be a number from 0 to 4294967295 (it is 4294967296)",
            ),
            (
                "budgets.rebuild = 99999999999999999999",
                "budgets.rebuild must be a number from 0 to 4294967295 (it is 99999999999999999999)",
            ),
            ("rules.extended = 'yes'", "rules.extended must be true or false, not a string"),
            ("breaker.failure_threshold = 'half'", "breaker.failure_threshold must be a number, not a string"),
            ("managed = 1", "managed must be a table, not a whole number"),
            ("managed.labels = 'x'", "managed.labels must be a list, not a string"),
            ("managed.labels = [1.5]", "managed.labels[0] must be a string, not a number"),
            ("repos = 1", "repos must be a table, not a whole number"),
            ("repos.\"a/b\" = 1", "repos.\"a/b\" must be a table, not a whole number"),
            ("[[transient]]", "transient must be a table, not a list"),
            ("transient.x = 1", "transient.x must be a table, not a whole number"),
            ("transient.\"\" = 1", "transient.\"\" must be a table, not a whole number"),
        ] {
            assert_eq!(problems(text), format!("line 1: {expected}"), "{text}");
        }
        assert_eq!(Policies::parse("breaker.failure_threshold = 1").unwrap().base().breaker.failure_threshold, 1.0);
    }

    #[test]
    fn repository_key_is_owner_and_name_and_unique() {
        assert_eq!(
            problems("[repos.app]"),
            "line 1: repos.app is invalid: `app` is not a repository: expected `owner/name`"
        );
        assert_eq!(
            problems("[repos.\"a/b\"]\n[repos.\"A/b\"]"),
            "line 1: repos.\"a/b\" is defined twice: GitHub compares repository names without case"
        );
    }

    #[test]
    fn inherited_problem_is_reported_once() {
        let text = "sweep.max_prs = 0\n[repos.\"a/b\"]\nmode = \"act\"\n[repos.\"a/c\"]\nsweep.concurrency = 0";
        let error = Policies::parse(text).unwrap_err();
        let fields: Vec<&str> = error.problems.iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(fields, ["sweep.max_prs", "repos.\"a/c\".sweep.concurrency"]);
        assert_eq!(error.problems[1].line, Some(5));
        // Each value alone is valid; only their combination in the repository is not.
        assert_eq!(
            problems("backoff.max_secs = 100\n[repos.\"a/b\".backoff]\nbase_secs = 101"),
            "line 3: repos.\"a/b\".backoff.base_secs must not be greater than backoff.max_secs (it is 101, backoff.max_secs is 100)"
        );
    }

    #[test]
    fn problem_of_an_absent_field_has_no_line_and_comes_last() {
        let error = Policies::parse("backoff.max_secs = 20\nmode = \"x\"").unwrap_err();
        let lines: Vec<Option<usize>> = error.problems.iter().map(|problem| problem.line).collect();
        assert_eq!(lines, [Some(2), None]);
        assert_eq!(
            error.to_string(),
            "line 2: mode: unknown variant `x`, expected `observe` or `act`\n\
             backoff.base_secs must not be greater than backoff.max_secs (it is 30, backoff.max_secs is 20)"
        );
    }

    #[test]
    fn unreadable_value_is_reported_once() {
        assert_eq!(
            problems("[backoff]\nbase_secs = 'x'\nmax_secs = 20"),
            "line 2: backoff.base_secs must be a whole number, not a string"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn parse_never_panics(text in "[a-z\\[\\]\"'=.{}, \n0-9\\PC]{0,60}") {
            let _ = Policies::parse(&text);
        }

        #[test]
        fn valid_numbers_are_parsed(created in 1_u32..=43_200, rebuild in 0_u32..=12, share in 0.01_f64..=1.0) {
            let text = format!("thresholds_minutes.created = {created}\nbudgets.rebuild = {rebuild}\nbreaker.failure_threshold = {share:?}");
            let policies = Policies::parse(&text).unwrap();
            let policy = policies.base();
            prop_assert_eq!(policy.thresholds_minutes.created, created);
            prop_assert_eq!(policy.budgets.rebuild, rebuild);
            prop_assert_eq!(policy.breaker.failure_threshold, share);
        }
    }
}
