//! `installation`, `installation_repositories`, `installation_target`: the set of repositories visible to the App changed.

use super::payload::InstallationEvent;
use super::{ParseContext, ParseOutcome};

/// Only actions that may add repositories request a reconcile.
pub(super) fn read(ctx: &ParseContext<'_>, event: &InstallationEvent<'_>) -> ParseOutcome {
    match event.action.text() {
        "created" | "added" | "unsuspend" | "new_permissions_accepted" => {
            let at = event.installation.0.as_ref().and_then(|installation| installation.updated_at.0);
            ParseOutcome::Installed { id: ctx.event_id(), at }
        }
        other => {
            ParseOutcome::Ignored(format!("installation `{}`: no new repositories", domain::event::truncate(other, 50)))
        }
    }
}
