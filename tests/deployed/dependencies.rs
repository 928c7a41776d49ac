//! Checks the dependencies with `cargo metadata`: their sources, their licences, and which crates may use the AWS SDK. `deny.toml`
//! has the same rules for cargo-deny; these tests need no extra tool.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;
use tests::lambda::{FUNCTIONS, root};

/// The only crates that may use the AWS SDK; functions use it through the platform.
const MAY_USE_AWS: [&str; 3] = ["platform", "suture", "tests"];

/// Crates whose features may differ between functions, because few other crates depend on them.
const FEW_DEPEND_ON: [&str; 2] = ["aws_lambda_events", "tower-http"];

fn metadata() -> &'static Value {
    static METADATA: OnceLock<Value> = OnceLock::new();
    METADATA.get_or_init(|| {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--locked", "--format-version", "1"])
            .current_dir(root())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    })
}

/// The strings of a list in deny.toml.
fn listed(name: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    let list = text.split(&format!("\n{name} = [")).nth(1).unwrap_or_else(|| panic!("deny.toml has no list `{name}`"));
    let list = list.split(']').next().unwrap();
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

fn packages() -> &'static [Value] {
    metadata()["packages"].as_array().unwrap()
}

#[test]
fn only_the_platform_uses_the_aws_sdk() {
    let mut users: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages().iter().filter(|package| package["source"].is_null()) {
        let name = package["name"].as_str().unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let on = dependency["name"].as_str().unwrap();
            if on.starts_with("aws-sdk-") || on == "aws-config" {
                users.entry(name).or_default().insert(on);
            }
        }
    }
    assert!(users.contains_key("platform"));
    for (name, uses) in &users {
        assert!(MAY_USE_AWS.contains(name), "{name} uses {uses:?}: use the platform instead");
    }
    assert!(!users.contains_key("domain") && !users.contains_key("fakes"));
}

/// `deny.toml` must list every crate that depends on a function, and no function, so that cargo-deny refuses the same dependencies.
#[test]
fn functions_do_not_depend_on_each_other() {
    let deny = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    for function in FUNCTIONS {
        let rule = format!("{{ crate = \"{function}\", wrappers = [");
        let wrappers = deny.split(&rule).nth(1).unwrap_or_else(|| panic!("deny.toml does not ban {function}"));
        let wrappers: BTreeSet<&str> = wrappers.split(']').next().unwrap().split('"').skip(1).step_by(2).collect();
        assert!(FUNCTIONS.iter().all(|other| !wrappers.contains(other)), "{function}: {wrappers:?}");
        assert!(!wrappers.contains("platform") && !wrappers.contains("domain"), "{function}: {wrappers:?}");
        let users = packages().iter().filter(|package| {
            package["dependencies"].as_array().unwrap().iter().any(|dependency| dependency["name"] == function)
        });
        let users: BTreeSet<&str> = users.map(|package| package["name"].as_str().unwrap()).collect();
        assert!(!users.is_empty() && users.is_subset(&wrappers), "{users:?} depend on {function}");
    }
}

#[test]
fn every_dependency_comes_from_the_registry() {
    for package in packages() {
        let source = package["source"].as_str().unwrap_or("path");
        let known = source == "path" || source.starts_with("registry+") || source.starts_with("sparse+");
        assert!(known, "{} comes from {source}", package["name"]);
    }
}

/// Whether the allowed licences satisfy an expression: every `AND` part by at least one of its `OR` parts.
fn is_satisfied(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let flat = expression.replace(['(', ')'], "").replace('/', " OR ");
    flat.split(" AND ").all(|part| part.split(" OR ").any(|licence| allowed.contains(licence.trim())))
}

#[test]
fn every_licence_is_allowed() {
    let allowed = listed("allow");
    assert!(allowed.contains("MIT") && allowed.contains("Apache-2.0"), "{allowed:?}");
    let refused: Vec<String> = packages()
        .iter()
        .filter(|package| !is_satisfied(package["license"].as_str().unwrap_or("none"), &allowed))
        .map(|package| format!("{} {}: {}", package["name"], package["version"], package["license"]))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
    assert!(
        !is_satisfied("GPL-3.0", &allowed)
            && !is_satisfied("MIT AND GPL-3.0", &allowed)
            && is_satisfied("MIT OR GPL-3.0", &allowed)
    );
}

#[test]
fn deny_toml_restricts_the_same_crates() {
    let text = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let used = manifest.lines().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name);
    for name in used.filter(|name| name.starts_with("aws-sdk-") || *name == "aws-config") {
        assert!(text.contains(&format!("crate = \"{name}\", wrappers = [")), "{name} is not restricted in deny.toml");
    }
    for user in MAY_USE_AWS {
        assert!(text.contains(&format!("\"{user}\"")), "{user}");
    }
}

/// SAM builds the functions one after the other. A crate that has other features in one of them is compiled again, and so are all
/// crates that depend on it: for `bytes` that is nearly all of them.
#[test]
fn functions_use_the_same_features_of_shared_crates() {
    let mut seen: BTreeMap<String, BTreeMap<String, &str>> = BTreeMap::new();
    for function in FUNCTIONS {
        let output = Command::new(env!("CARGO"))
            .args(["tree", "--locked", "--edges", "normal,no-proc-macro", "--prefix", "none", "--no-dedupe"])
            .args(["--target", "aarch64-unknown-linux-gnu", "--format", "{p} [{f}]", "--package", function])
            .current_dir(root())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let (package, features) = line.split_once(" [").unwrap();
            seen.entry(package.to_owned()).or_default().insert(features.to_owned(), function);
        }
    }
    assert!(seen.keys().any(|package| package.starts_with("aws-sdk-dynamodb v")), "{:?}", seen.keys());
    let is_exempt = |package: &str| FEW_DEPEND_ON.iter().any(|name| package.starts_with(&format!("{name} v")));
    seen.retain(|package, features| features.len() > 1 && !is_exempt(package));
    assert!(seen.is_empty(), "give these the same features in the workspace's Cargo.toml: {seen:#?}");
}
