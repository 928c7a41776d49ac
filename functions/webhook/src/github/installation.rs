//! `installation`, `installation_repositories`, `installation_target`: the App sees other repositories than before.

use super::payload::InstallationEvent;
use super::{Reader, Reading};

/// Only what gives us something to look at is a reason to look.
pub(super) fn read(reader: &Reader<'_>, event: &InstallationEvent<'_>) -> Reading {
    match event.action.text() {
        "created" | "added" | "unsuspend" | "new_permissions_accepted" => {
            let at = event.installation.0.as_ref().and_then(|installation| installation.updated_at.0);
            Reading::Installed { id: reader.event_id(), at }
        }
        other => Reading::Ignored(format!("installation {}: nothing new to look at", domain::event::cut(other, 50))),
    }
}
