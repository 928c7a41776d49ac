//! Reads a `suture.toml` and describes it.

use std::path::Path;

use domain::policy::{Mode, Policies};

/// # Errors
/// The file cannot be read, or a setting is invalid. The message names the file and the setting.
pub fn read(file: &Path) -> Result<Policies, String> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| format!("{shown} cannot be read: {error}"))?;
    Policies::parse(&text).map_err(|error| format!("{shown} is invalid:\n{error}"))
}

pub(crate) fn describe(file: &Path, policies: &Policies) -> String {
    let mut text = format!("{} is valid. {}", file.display(), meaning(policies.base().mode));
    for (name, policy) in policies.overrides() {
        text.push_str(&format!("\n  {name} overrides some settings. {}", meaning(policy.mode)));
    }
    text
}

fn meaning(mode: Mode) -> &'static str {
    match mode {
        Mode::Observe => "Mode observe: Suture logs what it would do and changes nothing.",
        Mode::Act => "Mode act: Suture applies remedies and escalates to people.",
    }
}
