//! Reading a `suture.toml`, and saying what it means.

use std::path::Path;

use domain::policy::{Mode, Policies};

/// Reads a configuration.
///
/// # Errors
/// A sentence about what is wrong with it, and where.
pub fn read(file: &Path) -> Result<Policies, String> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| format!("{shown} cannot be read: {error}"))?;
    Policies::parse(&text).map_err(|error| format!("{shown} cannot be used:\n{error}"))
}

/// What a configuration that can be used means.
#[must_use]
pub fn describe(file: &Path, policies: &Policies) -> String {
    let mut text = format!("{} is fine. {}", file.display(), means(policies.base().mode));
    for (name, policy) in policies.overrides() {
        text.push_str(&format!("\n  {name} has settings of its own. {}", means(policy.mode)));
    }
    text
}

fn means(mode: Mode) -> &'static str {
    match mode {
        Mode::Observe => "Mode observe: Suture watches, and says what it would do.",
        Mode::Act => "Mode act: Suture applies remedies and calls people.",
    }
}
