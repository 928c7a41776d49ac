//! Compares the manifest of the GitHub App with the code: it grants exactly the permissions that the client's requests need, and
//! subscribes to exactly the events that the webhook function parses.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tests::lambda::root;

/// The permission and access level that each path needs, from GitHub's documentation of permissions (REST API, 2022-11-28).
/// `write` includes `read`.
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
    // Pushes a merge commit to the head branch.
    ("/update-branch", "contents", "write"),
    ("collaborators/", "metadata", "read"),
    ("compare/", "contents", "read"),
    ("branches/", "administration", "read"),
    ("rules/branches/", "metadata", "read"),
    ("issues/{}{rest}", "issues", "write"),
];

/// Fields of the GraphQL queries, and the permission that each needs.
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
            // Requests in unit tests need no permission.
            text.push_str(code.split("#[cfg(test)]").next().unwrap());
        }
    }
    text
}

/// The string literals passed to functions whose name ends in `_path`.
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
fn manifest_permits_every_rest_path() {
    let (granted, paths) = (granted(), paths());
    assert!(paths.len() >= 15, "{paths:?}");
    // The common prefix of all paths needs no permission.
    for path in paths.iter().filter(|path| !path.is_empty() && *path != "/repos/{repo}/{rest}") {
        // The longest matching prefix is the most specific.
        let matching = PATHS.iter().filter(|(start, _, _)| path.starts_with(start));
        let known = matching.max_by_key(|(start, _, _)| start.len());
        let Some((_, permission, level)) = known else {
            panic!("`{path}` is not in PATHS: add the permission it needs, and grant it in the manifest")
        };
        let has = granted.get(*permission).map_or("none", String::as_str);
        assert!(has == *level || has == "write", "`{path}` needs {permission}: {level}, but the manifest grants {has}");
    }
}

#[test]
fn manifest_permits_every_graphql_field() {
    let (granted, queries) = (granted(), sources("shared/platform/src/github/queries", "graphql"));
    for (word, permission) in FIELDS {
        assert!(queries.contains(word), "no query reads {word}: is {permission} still needed?");
        assert!(granted.contains_key(permission), "{word} needs {permission}");
    }
}

#[test]
fn manifest_grants_no_unused_permission() {
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
fn manifest_subscribes_to_exactly_the_parsed_events() {
    let code = std::fs::read_to_string(root().join("functions/webhook/src/github/mod.rs")).unwrap();
    let read: BTreeSet<String> = code
        .lines()
        .filter_map(|line| line.trim().strip_prefix('"')?.split_once("\" => ").map(|(event, _)| event.to_owned()))
        .filter(|event| event != "ping" && !event.starts_with("installation"))
        .collect();
    let manifest = manifest();
    let subscribed = manifest["default_events"].as_array().unwrap();
    let subscribed: BTreeSet<String> = subscribed.iter().map(|event| event.as_str().unwrap().to_owned()).collect();
    assert_eq!(subscribed, read, "GitHub sends `ping` and `installation…` without a subscription");
}

#[test]
fn app_is_private_and_its_webhook_is_inactive() {
    let manifest = manifest();
    assert_eq!(manifest["public"], false);
    assert_eq!(manifest["hook_attributes"]["active"], false);
}
