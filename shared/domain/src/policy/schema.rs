//! The JSON schema of `suture.toml` for editors, generated from the types that parse the file.

use std::collections::BTreeMap;

use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::Policy;

/// The settings of Suture, with overrides per repository.
#[derive(JsonSchema)]
#[schemars(rename = "suture.toml", deny_unknown_fields)]
#[expect(dead_code, reason = "only its shape is used")]
struct ConfigFile {
    #[schemars(flatten)]
    base: Policy,
    /// Overrides for single repositories, by `owner/name`: tables are merged with the base settings, lists are replaced.
    #[schemars(default)]
    repos: BTreeMap<String, Policy>,
}

/// The schema of `suture.toml`.
pub fn schema() -> Schema {
    let mut schema = SchemaGenerator::default().into_root_schema_for::<ConfigFile>();
    drop_table_defaults(&mut schema);
    schema
}

/// Removes the defaults of whole tables, because every field already has its own.
fn drop_table_defaults(schema: &mut Schema) {
    if schema.get("default").is_some_and(|default| default.is_object()) {
        schema.remove("default");
    }
    transform_subschemas(&mut drop_table_defaults, schema);
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/suture.schema.json");

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test of a file in the repository")]
    fn committed_schema_is_current() {
        let current = format!("{}\n", serde_json::to_string_pretty(&schema()).unwrap());
        let committed = std::fs::read_to_string(PATH).unwrap_or_default();
        if current != committed {
            // Not over the file itself: otherwise the test would pass the second time.
            std::fs::write(format!("{PATH}.new"), current).unwrap();
            panic!("docs/suture.schema.json is out of date: review docs/suture.schema.json.new and move it there");
        }
    }

    #[test]
    fn schema_rejects_unknown_fields_and_has_field_defaults_only() {
        let schema = serde_json::to_value(schema()).unwrap();
        let policy = &schema["$defs"]["Policy"];
        for table in [&schema, policy, &schema["$defs"]["Budgets"], &schema["$defs"]["TransientRule"]] {
            assert_eq!(table["additionalProperties"], false, "{table:#}");
        }
        assert_eq!(policy["properties"]["mode"]["default"], "observe");
        assert_eq!(policy["properties"]["budgets"].get("default"), None);
        assert_eq!(schema["$defs"]["Budgets"]["properties"]["lifetime"]["default"], 12);
        assert_eq!(schema["$defs"]["ManagedSelector"]["properties"]["vulnerability_patterns"]["items"], {
            serde_json::json!({ "type": "string" })
        });
        assert_eq!(schema["properties"]["repos"]["additionalProperties"]["$ref"], "#/$defs/Policy");
    }

    /// The fields of a schema that none of these tables of the sample has.
    fn missing(root: &Value, schema: &Value, samples: &[&toml::Table], path: &str) -> Vec<String> {
        let schema = match schema["$ref"].as_str() {
            Some(name) => &root["$defs"][name.trim_start_matches("#/$defs/")],
            None => schema,
        };
        let inner = toml::Value::as_table;
        if schema["additionalProperties"].is_object() {
            let all: Vec<&toml::Table> = samples.iter().flat_map(|table| table.values()).filter_map(inner).collect();
            return missing(root, &schema["additionalProperties"], &all, &format!("{path}.*"));
        }
        let fields = schema["properties"].as_object().into_iter().flatten().filter(|(name, _)| *name != "repos");
        fields
            .flat_map(|(name, field)| {
                let path = format!("{path}.{name}");
                let shown: Vec<&toml::Value> = samples.iter().filter_map(|table| table.get(name)).collect();
                let tables: Vec<&toml::Table> = shown.iter().copied().filter_map(inner).collect();
                let absent = shown.is_empty().then(|| path.clone());
                absent.into_iter().chain(missing(root, field, &tables, &path)).collect::<Vec<_>>()
            })
            .collect()
    }

    #[test]
    fn sample_has_every_field() {
        let root = serde_json::to_value(schema()).unwrap();
        let sample: toml::Table = include_str!("../../../../suture.toml").parse().unwrap();
        assert_eq!(missing(&root, &root, &[&sample], ""), Vec::<String>::new());
        let half: toml::Table = "[backoff]\nbase_secs = 1\n[transient.a]\nenabled = true".parse().unwrap();
        let missing = missing(&root, &root, &[&half], "");
        for path in [".mode", ".backoff.max_secs", ".budgets.lifetime", ".transient.*.sources"] {
            assert!(missing.iter().any(|missing| missing == path), "{path} in {missing:?}");
        }
        assert!(!missing.iter().any(|missing| missing == ".backoff.base_secs"), "{missing:?}");
    }
}
