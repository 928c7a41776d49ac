//! Compares docs/settings.md, docs/operations.md and docs/setup.md with the code: every setting, parameter, variable, alarm and secret
//! is listed, with its default where that is short, and nothing else is.

use std::collections::BTreeSet;

use domain::policy::Policies;
use platform::secrets;
use serde_json::Value;
use tests::lambda::root;

use crate::template::template;

fn document(name: &str) -> String {
    std::fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// The table rows whose first cell is code: the names in it, and the second cell.
fn rows(text: &str) -> Vec<(Vec<String>, String)> {
    let cells = text.lines().filter_map(|line| line.strip_prefix("| `").map(|_| line)).map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let names = cells[0].split(", ").map(|name| name.trim_matches('`').to_owned()).collect();
        (names, cells.get(1).copied().unwrap_or_default().to_owned())
    });
    cells.collect()
}

fn section<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    text.split(from).nth(1).unwrap_or_else(|| panic!("the document has no `{from}`")).split(to).next().unwrap()
}

/// Every setting of suture.toml, by its schema, such as `budgets.rebuild`; rules that a file names itself are listed as `transient.*`.
fn settings() -> BTreeSet<String> {
    fn add(schema: &Value, name: &str, value: &Value, settings: &mut BTreeSet<String>) {
        let definition = match value["$ref"].as_str() {
            Some(reference) => &schema["$defs"][reference.rsplit('/').next().unwrap()],
            None => value,
        };
        match definition["properties"].as_object() {
            Some(fields) => {
                for (field, value) in fields {
                    let name = if name.is_empty() { field.clone() } else { format!("{name}.{field}") };
                    add(schema, &name, value, settings);
                }
            }
            None if definition["additionalProperties"].is_object() => _ = settings.insert(format!("{name}.*")),
            None => _ = settings.insert(name.to_owned()),
        }
    }
    let schema: Value = serde_json::from_str(&document("suture.schema.json")).unwrap();
    let mut settings = BTreeSet::new();
    add(&schema, "", &schema, &mut settings);
    settings
}

#[test]
fn settings_document_lists_every_setting() {
    let text = document("settings.md");
    let described: BTreeSet<String> = rows(section(&text, "## suture.toml", "## Stack parameters"))
        .into_iter()
        .flat_map(|(names, _)| names)
        .collect();
    assert_eq!(described, settings());
}

#[test]
fn settings_document_gives_the_defaults() {
    let text = document("settings.md");
    let sample = std::fs::read_to_string(root().join("suture.toml")).unwrap();
    for (names, default) in rows(section(&text, "## suture.toml", "## Stack parameters")) {
        let Some(value) = default.strip_prefix('`').and_then(|value| value.strip_suffix('`')) else { continue };
        let config = names[0].rsplit_once('.').map_or_else(
            || format!("{} = {value}", names[0]),
            |(table, field)| format!("[{table}]\n{field} = {value}"),
        );
        let policies = Policies::parse(&config).unwrap_or_else(|error| panic!("{config}: {error}"));
        assert!(policies == Policies::default(), "{config} is not the default");
    }
    assert!(Policies::parse(&sample).unwrap() == Policies::default());
}

#[test]
fn settings_document_lists_every_stack_parameter() {
    let text = document("settings.md");
    let rows = rows(section(&text, "## Stack parameters", "## Environment variables"));
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

/// Every `SUTURE_…` variable in a text.
fn variables(text: &str) -> BTreeSet<String> {
    let names = text.split("SUTURE_").skip(1);
    names
        .map(|rest| rest.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect::<String>())
        .filter(|name| !name.is_empty())
        .map(|name| format!("SUTURE_{}", name.trim_end_matches('_')))
        .collect()
}

#[test]
fn settings_document_and_template_have_the_same_variables() {
    let described = variables(section(&document("settings.md"), "## Environment variables", "\n## "));
    let mut code = String::new();
    for path in [
        "shared/platform/src/aws.rs",
        "shared/platform/src/clients.rs",
        "shared/platform/src/env.rs",
        "shared/platform/src/secrets.rs",
        "functions/webhook/src/config.rs",
        "functions/car-bridge/src/bot_http.rs",
        "functions/reconciler/src/main.rs",
    ] {
        let text = std::fs::read_to_string(root().join(path)).unwrap();
        code.push_str(text.split("#[cfg(test)]").next().unwrap());
    }
    code.push_str("SUTURE_DLQ_URL");
    assert_eq!(described, variables(&code));
    let given = variables(&std::fs::read_to_string(root().join("template.yaml")).unwrap());
    assert_eq!(given, described, "variables that the template sets");
}

#[test]
fn setup_document_lists_every_secret() {
    let fields: BTreeSet<String> = rows(section(&document("setup.md"), "## 2. The secrets", "```sh"))
        .into_iter()
        .flat_map(|(names, _)| names)
        .collect();
    let template = std::fs::read_to_string(root().join("template.yaml")).unwrap();
    let referred = template.split("secret:$").skip(1).filter_map(|rest| rest.split('#').nth(1));
    let referred: BTreeSet<String> = referred
        .map(|rest| rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect::<String>())
        // The role's policy refers to the secret without a field.
        .filter(|field| !field.is_empty())
        .collect();
    assert_eq!(fields, referred);
    for variable in secrets::VARIABLES {
        assert!(variable.starts_with("SUTURE_"), "{variable}");
    }
}

#[test]
fn operations_document_describes_every_alarm() {
    let text = document("operations.md");
    let alarms = section(&text, "## Alarms", "## Unblocking");
    let resources = template()["Resources"].as_object().unwrap();
    let declared = resources.iter().filter(|(_, resource)| resource["Type"] == "AWS::CloudWatch::Alarm");
    let declared: BTreeSet<&str> = declared.map(|(name, _)| name.as_str()).collect();
    let words =
        alarms.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| word.len() > 5 && word.ends_with("Alarm"));
    assert_eq!(words.collect::<BTreeSet<_>>(), declared);
    // Links point to existing headings.
    for link in alarms.split("](#").skip(1).filter_map(|rest| rest.split(')').next()) {
        let heading = format!("### {}", link.replace('-', " "));
        assert!(text.to_lowercase().contains(&heading), "{heading}");
    }
}
