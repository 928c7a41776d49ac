//! Beyond single pull requests (seed 004): people's labels, merges in one batch, the sentinel, the status issue, the backlog, and
//! what is left out when GitHub allows little. The whole of Suture in the simulated world, and stopped at each of its calls.

mod backlog;
mod labels;
mod merging;
mod scarce;
mod sentinel;
mod status;

use domain::id::RunId;
use jiff::SignedDuration;
use platform::sweep::{Scope, Wish};
use world::{Deed, Issue, Pr, World};

use crate::stage::{PATIENCE, Stage, Stop};

/// Who Suture is on GitHub.
const SUTURE: &str = "suture[bot]";

/// The issues that Suture has written.
fn ours(world: &World) -> Vec<(Pr, Issue)> {
    world.issues().filter(|(_, issue)| issue.user == SUTURE).map(|(name, issue)| (name, issue.clone())).collect()
}

/// How often Suture has done this.
fn deeds(stage: &Stage, deed: Deed) -> usize {
    stage.with(|world| world.effects_by(SUTURE).filter(|effect| effect.deed == deed).count())
}

/// What was asked of CodeGenie: the effect ids, in order, repetitions included.
fn requests(stage: &Stage) -> Vec<String> {
    let asked = |effect: &world::Effect| {
        let detail = effect.detail.strip_prefix("PullRequestRequested ")?;
        let json: serde_json::Value = serde_json::from_str(detail).ok()?;
        json["effect_id"].as_str().map(str::to_owned)
    };
    stage.with(|world| world.effects_by("bus").filter_map(asked).collect())
}

/// Sweeps once, and carries out what it asks for, stopped at one of all calls; then the process is there again. Whether there was
/// such a call.
async fn stopped(stage: &mut Stage, at: usize, how: Stop) -> bool {
    let _ = stage.trap.names();
    stage.trap.set(at, how);
    let now = stage.now();
    let wish = Wish::requested(RunId::new("stopped"), Scope::All, false, "the one that dies");
    // It may not even begin.
    let _ = stage.sweep.sweep(&wish, now + PATIENCE).await;
    stage.settle().await;
    let reached = stage.trap.so_far() > at;
    stage.trap.revive();
    stage.with(|world| world.advance(PATIENCE + SignedDuration::from_secs(1)));
    stage.settle().await;
    reached
}
