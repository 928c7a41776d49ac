//! Compares docs/requirements.md with the repository: links point to files, the named tests exist, ids are unique, and every id
//! cited in the repository is listed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tests::lambda::root;

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn requirements() -> String {
    read(&root().join("docs/requirements.md"))
}

/// The cells of each row that begins with an id: id, requirement, code, tests.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let rows = text.lines().filter(|line| line.starts_with("| R-"));
    rows.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// The text and the target of each Markdown link.
fn links(text: &str) -> Vec<(&str, &str)> {
    let parts: Vec<&str> = text.split("](").collect();
    let pairs = parts.iter().zip(parts.iter().skip(1));
    pairs
        .map(|(before, after)| (before.rsplit('[').next().unwrap_or(""), after.split(')').next().unwrap_or("")))
        .collect()
}

/// Every `R-`, group, `-`, number in a text.
fn ids(text: &str) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for (at, _) in text.match_indices("R-") {
        let is_inside_word = text[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
        let group: String = text[at + 2..].chars().take_while(char::is_ascii_uppercase).collect();
        let rest = &text[at + 2 + group.len()..];
        let number: String = rest.strip_prefix('-').unwrap_or("").chars().take_while(char::is_ascii_digit).collect();
        if !is_inside_word && !group.is_empty() && !number.is_empty() {
            ids.insert(format!("R-{group}-{number}"));
        }
    }
    ids
}

/// The files in which ids may be cited.
fn citing_files() -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![root()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if entry.file_type().unwrap().is_dir() {
                if !name.starts_with('.') && name != "target" && name != "node_modules" {
                    folders.push(path);
                }
            } else if name == "template.yaml" || [".rs", ".toml", ".md"].iter().any(|end| name.ends_with(end)) {
                files.push(path);
            }
        }
    }
    files
}

#[test]
fn every_link_points_to_a_file() {
    let text = requirements();
    let links = links(&text);
    assert!(links.len() > 2 * rows(&text).len(), "{} links", links.len());
    for (_, target) in links {
        assert!(root().join("docs").join(target).is_file(), "{target} does not exist");
    }
}

#[test]
fn every_requirement_names_code_and_tests_that_exist() {
    let text = requirements();
    let rows = rows(&text);
    assert!(rows.len() >= 100, "{} requirements", rows.len());
    for row in rows {
        let [id, _, code, tests] = row.as_slice() else { panic!("expected four cells: {row:?}") };
        let (code, tests) = (links(code), links(tests));
        assert!(!code.is_empty() && !tests.is_empty(), "{id} needs code and a test");
        for (name, file) in tests {
            let name = name.trim_matches('`');
            let source = read(&root().join("docs").join(file));
            let exists = ["(", "<"].iter().any(|after| source.contains(&format!("fn {name}{after}")));
            assert!(exists, "{id}: there is no test `{name}` in {file}");
        }
    }
}

#[test]
fn ids_are_unique_and_every_cited_id_is_listed() {
    let text = requirements();
    let mut listed = BTreeSet::new();
    for row in rows(&text) {
        assert_eq!(ids(row[0]), BTreeSet::from([row[0].to_owned()]), "not an id");
        assert!(listed.insert(row[0].to_owned()), "{} is listed twice", row[0]);
    }
    for path in citing_files() {
        let unknown: Vec<String> = ids(&read(&path)).difference(&listed).cloned().collect();
        assert!(unknown.is_empty(), "{} cites {unknown:?}, which docs/requirements.md does not list", path.display());
    }
}

#[test]
fn similar_words_are_not_ids() {
    let text = "job PR-42, XR-STATE-1, R-STATE, R-STATE-, (R-STATE-1), R-RUN-2 to R-RUN-3.";
    assert_eq!(ids(text).into_iter().collect::<Vec<_>>(), ["R-RUN-2", "R-RUN-3", "R-STATE-1"]);
}
