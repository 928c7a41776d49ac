//! The demo: the first run of a new user, and a restart on the same data directory.

use std::time::{Duration, Instant};

use serde_json::Value;
use tests::local_aws::Folder;

use crate::child_process::Up;

fn count(overview: &Value, state: &str) -> u64 {
    let states = overview["states"].as_array().cloned().unwrap_or_default();
    states.iter().filter(|one| one["state"] == state).filter_map(|one| one["count"].as_u64()).sum()
}

fn has_activity(overview: &Value, kind: &str) -> bool {
    let activity = overview["activity"].as_array().cloned().unwrap_or_default();
    activity.iter().any(|one| one["kind"].as_str().is_some_and(|it| it.starts_with(kind)))
}

#[test]
fn demo_opens_heals_and_merges_within_a_minute_and_continues_after_a_restart() {
    let folder = Folder::new();
    let began = Instant::now();
    let mut up = Up::start(folder.path(), |command| command.args(["--demo", "--seed", "1"]));
    let health = up.wait_for("health", Duration::from_secs(20), |up| {
        Some(up.get("/healthz")).filter(|health| health["status"] == "ok")
    });
    assert!(health["version"].is_string());
    let overview = up.wait_for("healed and merged pull request", Duration::from_secs(60), |up| {
        let overview = up.get("/api/overview");
        let all = count(&overview, "MERGED") > 0
            && has_activity(&overview, "REMEDIATION_")
            && up.output().iter().any(|line| line.contains("  healed  "));
        all.then_some(overview)
    });
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert_eq!((&overview["mode"], &overview["role"]), (&Value::from("act"), &Value::from("admin")));
    // Every remedy, and the pull request that needs a person.
    let words = [
        "  opened ",
        "  merged ",
        "  escalated ",
        "  mail ",
        "run the checks again",
        "merge the base branch into it",
        "retrigger Policy Bot",
        "request the separation-of-duties check again",
        "retrigger Approver Bot",
        "retrigger Automerge Bot",
        "close it and ask CodeGenie",
    ];
    for word in words {
        up.wait_for(word, Duration::from_secs(30), |up| {
            up.output().iter().any(|line| line.contains(word)).then_some(())
        });
    }
    assert!(up.output().iter().all(|line| !line.contains('\x1b')), "colors only on a terminal");
    // Requests without the key are rejected.
    let key = std::mem::take(&mut up.key);
    assert_eq!(up.request("GET", "/api/overview", &[], b"").map(|(status, _)| status), Some(401));
    up.key = key;

    let listed = up.get("/api/prs?limit=5");
    let known = listed["prs"][0].clone();
    let path = format!("/api/pr/{}/{}/events", known["repo"].as_str().unwrap_or_default(), known["number"]);
    let events = up.get(&path)["events"].as_array().map_or(0, Vec::len);
    assert!(events > 0, "{listed}");

    up.signal("-INT");
    assert_eq!(up.wait_for_exit(Duration::from_secs(2)), Some(0));
    let key = up.key.clone();
    let again = Up::start(folder.path(), |command| command.args(["--demo", "--seed", "1"]));
    assert_eq!(again.key, key, "the key is stored in the data directory");
    assert!(again.get(&path)["events"].as_array().map_or(0, Vec::len) >= events, "events survive a restart");
    // Pull requests left open by the previous process are closed, and new ones have unused numbers.
    again.wait_for("closing", Duration::from_secs(20), |up| {
        up.output().iter().any(|line| line.contains("  closed  ")).then_some(())
    });
    let newest = again.wait_for("new pull request", Duration::from_secs(20), |up| {
        let output = up.output();
        let line = output.iter().find(|line| line.contains("  opened  "))?;
        line.split_once('#')?.1.split(' ').next()?.parse::<u64>().ok()
    });
    assert!(newest > 20, "#{newest} was already used");
    again.kill();
}

#[test]
fn sigterm_stops_the_process_cleanly() {
    let folder = Folder::new();
    let mut up = Up::start(folder.path(), |command| command.args(["--demo", "--speed", "10"]));
    up.signal("-TERM");
    assert_eq!(up.wait_for_exit(Duration::from_secs(2)), Some(0));
    assert_eq!(up.output().last().map(String::as_str), Some("Stopped. All data is saved."));
}
