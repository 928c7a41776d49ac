//! Compares docs/data-model.md with the code and the template: it lists exactly the key formats, indexes, common attributes and
//! stored fields that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use platform::store::{COUNT, HOLDER, Index, TTL, VERSION};
use serde_json::Value;
use tests::lambda::root;

use crate::template::template;

fn document() -> String {
    std::fs::read_to_string(root().join("docs/data-model.md")).unwrap()
}

/// The text under a heading, up to the next heading of any level.
fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let start = format!("\n{heading}\n");
    let (_, rest) = text.split_once(&start).unwrap_or_else(|| panic!("docs/data-model.md has no heading `{heading}`"));
    rest.split("\n#").next().unwrap()
}

/// The cells of each table row whose first cell is code.
fn rows(section: &str) -> Vec<Vec<&str>> {
    let lines = section.lines().filter(|line| line.starts_with("| `"));
    lines.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// The texts between backticks.
fn codes(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The codes in the first cells of a section's table.
fn first_cells(text: &str, heading: &str) -> BTreeSet<String> {
    let rows = rows(section(text, heading));
    assert!(!rows.is_empty(), "no table under `{heading}`");
    rows.iter().flat_map(|cells| codes(cells[0])).map(str::to_owned).collect()
}

/// A key format with `*` for each placeholder: `PR#{pr}` in the code and `PR#<pr>` in the document are both `PR#*`.
fn starred(format: &str, (open, close): (char, char)) -> String {
    let (mut starred, mut inside) = (String::new(), false);
    for character in format.chars() {
        if character == open {
            inside = true;
            starred.push('*');
        } else if character == close {
            inside = false;
        } else if !inside {
            starred.push(character);
        }
    }
    starred
}

/// The sources of the deployed code, without their tests: path and text.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = ["shared", "functions"].iter().map(|name| root().join(name)).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if !["tests", "benches", "examples"].contains(&name.as_str()) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
                found.push((path.to_string_lossy().into_owned(), text));
            }
        }
    }
    found
}

/// The store only translates keys; all other code creates keys from a literal.
fn is_store(path: &str) -> bool {
    path.contains("/store/dynamo/")
}

/// The string literal at the start of an argument, also inside `format!(`.
fn literal(argument: &str) -> Option<&str> {
    let argument = argument.trim_start();
    let argument = argument.strip_prefix("format!(").map_or(argument, str::trim_start);
    argument.strip_prefix('"')?.split('"').next()
}

/// The key formats of the state table, taken from the calls of `Key::state`.
fn formats_in_code() -> BTreeSet<String> {
    let mut formats = BTreeSet::new();
    for (path, text) in sources().iter().filter(|(path, _)| !is_store(path)) {
        for argument in text.split("Key::state(").skip(1) {
            let key = literal(argument).unwrap_or_else(|| {
                let line = argument.lines().next().unwrap_or_default();
                panic!("{path}: `Key::state({line}` is not a literal, so this test cannot find its prefix")
            });
            formats.insert(starred(key, ('{', '}')));
        }
    }
    formats
}

#[test]
fn document_lists_exactly_the_key_formats_of_the_code() {
    let described = first_cells(&document(), "## Keys of the state table");
    let described: BTreeSet<String> = described.iter().map(|format| starred(format, ('<', '>'))).collect();
    let used = formats_in_code();
    assert!(used.len() > 20, "found only {used:?}: does the code still create keys with `Key::state`?");
    assert_eq!(described, used);
}

#[test]
fn keys_are_created_by_their_constructors_only() {
    for (path, text) in sources() {
        let is_literal = text.contains("table: Table::State") || text.contains("table: Table::Events");
        assert!(
            !is_literal || path.ends_with("/store/mod.rs"),
            "{path} creates a key without Key::state or Key::event"
        );
    }
}

/// Callers choose the names of leases, slots and limits, so each documented name must begin with a literal of the code.
#[test]
fn documented_lease_slot_and_limit_names_exist_in_the_code() {
    let text = document();
    let code: String = sources().into_iter().map(|(_, text)| text).collect();
    let prefixes = ["LEASE#", "SLOT#", "LIMIT#"];
    for key in first_cells(&text, "## Leases and slots").union(&first_cells(&text, "## Limits")) {
        let name = prefixes.iter().find_map(|prefix| key.strip_prefix(prefix));
        let name = name.unwrap_or_else(|| panic!("`{key}` is not a lease, slot or limit"));
        let fixed = name.split(['<', '#', ':']).next().unwrap();
        let is_literal = [format!("\"{fixed}"), format!("#{fixed}")].iter().any(|start| code.contains(start));
        assert!(is_literal, "`{key}`: no literal in the code begins with `{fixed}`");
    }
}

/// The names under which serde stores the fields of a struct.
fn stored_fields(path: &str, name: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join(path)).unwrap();
    let (_, rest) =
        text.split_once(&format!("pub struct {name} {{\n")).unwrap_or_else(|| panic!("{path} has no struct {name}"));
    let (mut fields, mut renamed) = (BTreeSet::new(), None);
    for line in rest.split("\n}").next().unwrap().lines().map(str::trim) {
        if line.starts_with("#[serde(") {
            renamed = line.split("rename = \"").nth(1).and_then(|rest| rest.split('"').next()).or(renamed);
        } else if let Some((field, _)) = line.strip_prefix("pub ").unwrap_or(line).split_once(": ")
            && field.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        {
            fields.insert(renamed.take().unwrap_or(field).to_owned());
        }
    }
    fields
}

#[test]
fn document_lists_every_stored_field() {
    let text = document();
    for (heading, path, name) in [
        ("### Fields of the record", "shared/domain/src/pull_request.rs", "PullRequest"),
        ("### Fields of an effect", "shared/domain/src/decide/mod.rs", "Effect"),
        ("### Fields of a run", "shared/domain/src/run.rs", "Run"),
        ("### Fields of a request", "shared/domain/src/reconcile_request.rs", "ReconcileRequest"),
        ("### Fields of an event", "shared/domain/src/event.rs", "Event"),
    ] {
        let stored = stored_fields(path, name);
        assert!(stored.len() > 2, "{path}: {stored:?}");
        assert_eq!(first_cells(&text, heading), stored, "{heading} ({name})");
    }
}

/// Indexes by name: table, partition key, sort key, and projected attributes.
type IndexShapes = BTreeMap<String, (String, String, String, BTreeSet<String>)>;

fn indexes_in_document(text: &str) -> IndexShapes {
    let rows = rows(section(text, "## Indexes"));
    let described = rows.iter().map(|cells| {
        let one = |cell: usize| codes(cells[cell]).first().copied().unwrap_or(cells[cell]).to_owned();
        // `all` is a word, not an attribute.
        let projected = codes(cells[4]).into_iter().map(str::to_owned).collect();
        (one(0), (one(1), one(2), one(3), projected))
    });
    described.collect()
}

fn indexes_in_template() -> IndexShapes {
    let mut found = IndexShapes::new();
    for (table, resource) in [("state", "StateTable"), ("events", "EventsTable")] {
        let properties = &template()["Resources"][resource]["Properties"];
        for index in properties["GlobalSecondaryIndexes"].as_array().unwrap() {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let key = |n: usize| text(&index["KeySchema"][n]["AttributeName"]);
            let projected = index["Projection"]["NonKeyAttributes"].as_array().cloned().unwrap_or_default();
            let projected = projected.iter().map(text).collect();
            found.insert(text(&index["IndexName"]), (table.to_owned(), key(0), key(1), projected));
        }
    }
    found
}

#[test]
fn document_and_template_have_the_same_indexes() {
    let text = document();
    assert_eq!(indexes_in_document(&text), indexes_in_template());
    let all = |index: &str| {
        let cells = rows(section(&text, "## Indexes")).into_iter().find(|cells| codes(cells[0]) == [index]);
        cells.is_some_and(|cells| cells[4] == "all")
    };
    for index in Index::ALL {
        let (name, ..) = index.shape();
        assert_eq!(all(name), index.projected_attributes().is_none(), "whether `{name}` projects all attributes");
    }
}

#[test]
fn document_lists_every_common_attribute() {
    let text = document();
    let described = first_cells(&text, "## Common attributes");
    let mut used = BTreeSet::from([TTL, VERSION, HOLDER, COUNT, "body"]);
    for index in Index::ALL {
        let (_, partition, sort) = index.shape();
        used.extend([partition, sort]);
        used.extend(index.projected_attributes().unwrap_or_default());
    }
    let used: BTreeSet<String> = used.into_iter().map(str::to_owned).collect();
    assert_eq!(described, used);
}

#[test]
fn document_and_template_have_the_same_table_keys_and_ttl() {
    let text = document();
    for (table, resource) in [("state", "StateTable"), ("events", "EventsTable")] {
        let properties = &template()["Resources"][resource]["Properties"];
        let ttl = properties["TimeToLiveSpecification"]["AttributeName"].as_str().unwrap();
        assert_eq!(ttl, TTL);
        assert!(text.contains(&format!("TTL attribute: `{ttl}`")), "{ttl}");
        let keys = properties["KeySchema"].as_array().unwrap();
        let keys: Vec<&str> = keys.iter().map(|key| key["AttributeName"].as_str().unwrap()).collect();
        let line = text.lines().find(|line| line.starts_with(&format!("| {table} | `{resource}Name`")));
        let cells: Vec<&str> = line
            .unwrap_or_else(|| panic!("docs/data-model.md has no row for the {table} table"))
            .split(" | ")
            .collect();
        let described: Vec<&str> = cells[3..].iter().flat_map(|cell| codes(cell)).collect();
        assert_eq!(described, keys, "{table}");
    }
}
