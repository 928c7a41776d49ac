//! docs/operations.md and docs/setup.md against the code: every knob, parameter, variable, alarm and secret is there, with its
//! default where it has a short one, and nothing is there that is not.

use std::collections::BTreeSet;

use domain::policy::Policies;
use platform::secrets;
use serde_json::Value;
use tests::lambda::root;

use crate::template::template;

fn document(name: &str) -> String {
    std::fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// The rows of a table whose first cell is code: what it names, and the second cell.
fn rows(text: &str) -> Vec<(Vec<String>, String)> {
    let cells = text.lines().filter_map(|line| line.strip_prefix("| `").map(|_| line)).map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let names = cells[0].split(", ").map(|name| name.trim_matches('`').to_owned()).collect();
        (names, cells.get(1).copied().unwrap_or_default().to_owned())
    });
    cells.collect()
}

fn section<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    text.split(from).nth(1).unwrap_or_else(|| panic!("no {from}")).split(to).next().unwrap()
}

/// Every field of suture.toml, by its schema; tables of rules by name count once.
fn knobs() -> BTreeSet<String> {
    let schema: Value = serde_json::from_str(&document("suture.schema.json")).unwrap();
    let resolve = |value: &Value| -> Value {
        match value["$ref"].as_str() {
            Some(reference) => schema["$defs"][reference.rsplit('/').next().unwrap()].clone(),
            None => value.clone(),
        }
    };
    let mut knobs = BTreeSet::new();
    for (name, value) in schema["properties"].as_object().unwrap() {
        let section = resolve(value);
        match section["properties"].as_object() {
            Some(fields) => knobs.extend(fields.keys().map(|field| format!("{name}.{field}"))),
            None if section["additionalProperties"].is_object() => _ = knobs.insert(format!("{name}.*")),
            None => _ = knobs.insert(name.clone()),
        }
    }
    knobs
}

#[test]
fn every_knob_is_described_and_every_described_knob_exists() {
    let text = document("operations.md");
    let described: BTreeSet<String> =
        rows(section(&text, "## Knobs", "Parameters of the stack")).into_iter().flat_map(|(names, _)| names).collect();
    assert_eq!(described, knobs());
}

#[test]
fn the_defaults_that_are_given_are_the_defaults() {
    let text = document("operations.md");
    let sample = std::fs::read_to_string(root().join("suture.toml")).unwrap();
    for (names, default) in rows(section(&text, "## Knobs", "Parameters of the stack")) {
        let Some(value) = default.strip_prefix('`').and_then(|value| value.strip_suffix('`')) else { continue };
        let config = names[0].split_once('.').map_or_else(
            || format!("{} = {value}", names[0]),
            |(table, field)| format!("[{table}]\n{field} = {value}"),
        );
        let policies = Policies::parse(&config).unwrap_or_else(|error| panic!("{config}: {error}"));
        assert!(policies == Policies::default(), "{config} is not the default");
    }
    assert!(Policies::parse(&sample).unwrap() == Policies::default());
}

#[test]
fn every_parameter_of_the_stack_is_described_with_its_default() {
    let text = document("operations.md");
    let rows = rows(section(&text, "Parameters of the stack", "The variables they become"));
    let parameters = template()["Parameters"].as_object().unwrap();
    let described: BTreeSet<&str> = rows.iter().flat_map(|(names, _)| names.iter().map(String::as_str)).collect();
    assert_eq!(described, parameters.keys().map(String::as_str).collect::<BTreeSet<_>>());
    for (names, default) in &rows {
        for name in names {
            let actual = &parameters[name]["Default"];
            let actual = actual.as_str().map_or_else(|| actual.to_string(), str::to_owned);
            let given = default.trim_matches('`').replace("empty", "");
            assert_eq!(given, actual, "{name}");
        }
    }
}

/// `SUTURE_…` wherever it stands in a text.
fn variables(text: &str) -> BTreeSet<String> {
    let names = text.split("SUTURE_").skip(1);
    names
        .map(|rest| rest.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect::<String>())
        .filter(|name| !name.is_empty())
        .map(|name| format!("SUTURE_{}", name.trim_end_matches('_')))
        .collect()
}

#[test]
fn every_variable_is_described_and_given_by_the_template() {
    let described = variables(section(&document("operations.md"), "The variables they become", "## Metrics"));
    let mut code = String::new();
    for path in [
        "shared/platform/src/aws.rs",
        "shared/platform/src/clients.rs",
        "shared/platform/src/env.rs",
        "shared/platform/src/secrets.rs",
        "functions/webhook/src/config.rs",
        "functions/reconciler/src/main.rs",
    ] {
        let text = std::fs::read_to_string(root().join(path)).unwrap();
        code.push_str(text.split("#[cfg(test)]").next().unwrap());
    }
    code.push_str("SUTURE_DLQ_URL");
    assert_eq!(described, variables(&code));
    let given = variables(&std::fs::read_to_string(root().join("template.yaml")).unwrap());
    assert_eq!(given, described, "what the template gives the functions");
}

#[test]
fn every_secret_is_a_field_of_the_set_up() {
    let fields: BTreeSet<String> = rows(section(&document("setup.md"), "## 2. The secret", "```sh"))
        .into_iter()
        .flat_map(|(names, _)| names)
        .collect();
    let template = std::fs::read_to_string(root().join("template.yaml")).unwrap();
    let referred = template.split("secret:$").skip(1).filter_map(|rest| rest.split('#').nth(1));
    let referred: BTreeSet<String> = referred
        .map(|rest| rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect::<String>())
        // The role's own reference to the secret has no field.
        .filter(|field| !field.is_empty())
        .collect();
    assert_eq!(fields, referred);
    for variable in secrets::VARIABLES {
        assert!(variable.starts_with("SUTURE_"), "{variable}");
    }
}

#[test]
fn every_alarm_is_described() {
    let text = document("operations.md");
    let alarms = section(&text, "## Alarms", "## Unblocking");
    let resources = template()["Resources"].as_object().unwrap();
    let declared = resources.iter().filter(|(_, resource)| resource["Type"] == "AWS::CloudWatch::Alarm");
    let declared: BTreeSet<&str> = declared.map(|(name, _)| name.as_str()).collect();
    let words =
        alarms.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| word.len() > 5 && word.ends_with("Alarm"));
    assert_eq!(words.collect::<BTreeSet<_>>(), declared);
    // Links lead to headings that are there.
    for link in alarms.split("](#").skip(1).filter_map(|rest| rest.split(')').next()) {
        let heading = format!("### {}", link.replace('-', " "));
        assert!(text.to_lowercase().contains(&heading), "{heading}");
    }
}
