//! Reads a `suture.toml`, and says what it means.

use std::path::Path;

use domain::policy::{Mode, Policies};

/// # Errors
/// What is wrong with it, and where.
pub fn read(file: &Path) -> Result<Policies, String> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| format!("{shown} cannot be read: {error}"))?;
    Policies::parse(&text).map_err(|error| format!("{shown} cannot be used:\n{error}"))
}

pub(crate) fn describe(file: &Path, policies: &Policies) -> String {
    let mut text = format!("{} is fine. {}", file.display(), meaning(policies.base().mode));
    for (name, policy) in policies.overrides() {
        text.push_str(&format!("\n  {name} has settings of its own. {}", meaning(policy.mode)));
    }
    text
}

fn meaning(mode: Mode) -> &'static str {
    match mode {
        Mode::Observe => "Mode observe: Suture watches, and says what it would do.",
        Mode::Act => "Mode act: Suture applies remedies and calls people.",
    }
}
