//! The GitHub App's manifest against the code: every path the client asks for is covered by a permission, every event that is
//! read is subscribed to, and nothing is asked for that nobody uses.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tests::lambda::root;

/// Which permission of a GitHub App each path needs, and for writes how much of it; by GitHub's documentation of permissions
/// (REST API, 2022-11-28). `read` is part of `write`.
const PATHS: [(&str, &str, &str); 21] = [
    ("check-runs", "checks", "write"),
    ("check-runs/{id}", "checks", "write"),
    ("check-suites/", "checks", "write"),
    ("commits/{head}/check-runs", "checks", "read"),
    ("commits/{}/check-runs", "checks", "read"),
    ("actions/runs?", "actions", "read"),
    ("actions/runs/", "actions", "write"),
    ("/comments", "issues", "write"),
    ("issues/comments/{comment}", "issues", "write"),
    ("issues/comments/{comment}/reactions", "issues", "write"),
    ("/labels", "issues", "write"),
    ("issues?", "issues", "read"),
    ("issues", "issues", "write"),
    ("issues/{number}", "issues", "write"),
    ("pulls", "pull_requests", "write"),
    // A merge commit is written to the head.
    ("/update-branch", "contents", "write"),
    ("collaborators/", "metadata", "read"),
    ("compare/", "contents", "read"),
    ("branches/", "administration", "read"),
    ("rules/branches/", "metadata", "read"),
    ("issues/{}{rest}", "issues", "write"),
];

/// What the GraphQL queries read: a word of the query, and the permission it needs.
const FIELDS: [(&str, &str); 5] = [
    ("statusCheckRollup", "statuses"),
    ("... on CheckRun", "checks"),
    ("mergeQueueEntry", "merge_queues"),
    ("branchProtectionRule", "administration"),
    ("pinIssue", "issues"),
];

fn manifest() -> Value {
    let text = std::fs::read_to_string(root().join("infra/github-app/manifest.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn granted() -> BTreeMap<String, String> {
    let manifest = manifest();
    let permissions = manifest["default_permissions"].as_object().unwrap();
    permissions.iter().map(|(name, level)| (name.clone(), level.as_str().unwrap().to_owned())).collect()
}

fn sources(folder: &str, ending: &str) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(root().join(folder)).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == ending) {
            let code = std::fs::read_to_string(&path).unwrap();
            // Tests ask for whatever they like.
            text.push_str(code.split("#[cfg(test)]").next().unwrap());
        }
    }
    text
}

/// The texts between quotes that are given to a function whose name ends in `_path`.
fn paths() -> BTreeSet<String> {
    let code = sources("shared/platform/src/github", "rs");
    let mut found = BTreeSet::new();
    for call in code.split("_path(").skip(1) {
        let call: String = call.chars().take(120).collect();
        if let Some(text) = call.split(';').next().and_then(|call| call.split('"').nth(1)) {
            found.insert(text.to_owned());
        }
    }
    found
}

#[test]
fn every_path_the_client_asks_for_is_permitted() {
    let (granted, paths) = (granted(), paths());
    assert!(paths.len() >= 15, "{paths:?}");
    // What all paths begin with says nothing.
    for path in paths.iter().filter(|path| !path.is_empty() && *path != "/repos/{repo}/{rest}") {
        // The longest entry that fits is the most specific.
        let fits = PATHS.iter().filter(|(start, _, _)| path.starts_with(start));
        let known = fits.max_by_key(|(start, _, _)| start.len());
        let Some((_, permission, level)) = known else {
            panic!("`{path}`: which permission does it need? Say so in PATHS, and grant it in the manifest")
        };
        let has = granted.get(*permission).map_or("none", String::as_str);
        assert!(has == *level || has == "write", "`{path}` needs {permission}: {level}, and has {has}");
    }
}

#[test]
fn every_query_is_permitted() {
    let (granted, queries) = (granted(), sources("shared/platform/src/github/queries", "graphql"));
    for (word, permission) in FIELDS {
        assert!(queries.contains(word), "nobody asks for {word}: is {permission} needed?");
        assert!(granted.contains_key(permission), "{word} needs {permission}");
    }
}

#[test]
fn nothing_is_granted_that_nobody_uses() {
    let mut used: BTreeSet<&str> = PATHS.iter().map(|(_, permission, _)| *permission).collect();
    used.extend(FIELDS.iter().map(|(_, permission)| *permission));
    let granted = granted();
    assert_eq!(granted.keys().map(String::as_str).collect::<BTreeSet<_>>(), used);
    let written: BTreeSet<&str> =
        PATHS.iter().filter(|(_, _, level)| *level == "write").map(|(_, permission, _)| *permission).collect();
    for (permission, level) in &granted {
        assert_eq!(level == "write", written.contains(permission.as_str()), "{permission}: {level}");
    }
}

#[test]
fn exactly_the_events_that_are_read_are_subscribed_to() {
    let code = std::fs::read_to_string(root().join("functions/webhook/src/github/mod.rs")).unwrap();
    let read: BTreeSet<String> = code
        .lines()
        .filter_map(|line| line.trim().strip_prefix('"')?.split_once("\" => ").map(|(event, _)| event.to_owned()))
        .filter(|event| event != "ping" && !event.starts_with("installation"))
        .collect();
    let manifest = manifest();
    let subscribed = manifest["default_events"].as_array().unwrap();
    let subscribed: BTreeSet<String> = subscribed.iter().map(|event| event.as_str().unwrap().to_owned()).collect();
    assert_eq!(subscribed, read, "`ping` and `installation…` are sent without being asked for");
}

#[test]
fn it_is_private_and_silent_until_somebody_says_where_to() {
    let manifest = manifest();
    assert_eq!(manifest["public"], false);
    assert_eq!(manifest["hook_attributes"]["active"], false);
}
